"""Whether a source has the same rows when read again is Spark's own word, and one list of what that leaves out."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from airflow_mv_provider.core.strategy import Determinism
from airflow_mv_provider.exceptions import DefinitionError
from airflow_mv_provider.sources.projection import determinism, projected_determinism
from airflow_mv_provider.spark.session import isolated

pytestmark = pytest.mark.slow

ORDERS = "(SELECT CAST(NULL AS BIGINT) id, CAST(NULL AS STRING) s, CAST(NULL AS TIMESTAMP) t, array(1, 2) AS a)"
EMPTY = "SELECT CAST(NULL AS BIGINT) AS id, CAST(NULL AS STRING) AS s"
KEY = "'0000111122223333'"
# What has no argument and is no constant is told by a list; these have none and are.
CONSTANT = {
    *("array", "arrays_zip", "concat", "e", "make_dt_interval", "make_interval", "make_ym_interval", "map"),
    *("map_concat", "named_struct", "pi", "struct", "version"),
    "current_timezone",  # always UTC in a refresh
}
KNOWN = (Path(__file__).parent / "functions_of_spark.txt").read_text(encoding="utf-8").split("\n")[:-1]


@pytest.mark.sample(8)
@pytest.mark.parametrize(
    "expression",
    [
        *("rand()", "uuid()", "shuffle(a)", "uniform(1, 10)", "reflect('java.util.UUID', 'randomUUID')"),
        *("transform(a, x -> x + rand())", "input_file_name()", "monotonically_increasing_id()"),
        *(f"aes_encrypt(s, {KEY})", "now()", "current_date", "CURRENT_DATE() - 1", "unix_timestamp()", "current_user"),
        *("curdate()", "localtimestamp()", "current_schema()", "session_user()"),
        *("DATE'today'", "TIMESTAMP'tomorrow CET'", "timestamp_ntz /* x */ 'Now '", 'date "yesterday"'),
        *("TIMESTAMP '12:30'", "CAST('today' AS DATE)", "date(' yesterday')", "to_date('tomorrow')", "t > 'now'"),
        *("CAST('T12:30' AS TIMESTAMP)", "date r'today'", "(SELECT max(id) FROM range(3))", "EXISTS(SELECT 1)"),
        *(
            "try_cast('today' AS DATE)",
            "t BETWEEN 'yesterday' AND 'today'",
            "nvl(t, 'now')",
            "extract(HOUR FROM '12:30')",
        ),
    ],
)
def test_what_changes_by_itself_is_told(spark, expression):
    assert projected_determinism(spark, ["id", f"{expression} AS x"], ORDERS).nondeterminism_reason is not None


@pytest.mark.in_test_all
def test_columns_are_taken_at_their_word(spark):
    """Names and texts that look like functions, dates, and arguments that make one deterministic."""
    expressions = ["id AS random_walk", "id AS now", "'today' AS today", "concat(s, ' now') AS c", "unix_timestamp(t)"]
    expressions += ["DATE '2024-02-29' AS d", "TIMESTAMP '2024-02-29 12:30:00 CET' AS u", "DATE'epoch' AS e"]
    expressions += ["s AS user -- rand()", "make_date(2024, 2, 29)", "CAST(today AS DATE)", "s > '12:30'", "pi()"]
    columns = f"(SELECT *, s AS today FROM {ORDERS})"

    assert projected_determinism(spark, expressions, columns) == Determinism()


@pytest.mark.in_test_all
def test_more_columns_than_a_plan_shows_are_looked_at(spark):
    assert (
        projected_determinism(spark, [*(f"id + {n}" for n in range(60)), "now()"], ORDERS).nondeterminism_reason
        is not None
    )


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    ("expression", "is_by_row"),
    [("max(id)", False), ("row_number() OVER (ORDER BY s)", False), ("id + 1", True), ("explode(a)", False)],
)
def test_projection_over_more_than_one_row_is_told(spark, expression, is_by_row):
    assert projected_determinism(spark, [f"{expression} AS x"], ORDERS) == Determinism(is_by_row=is_by_row)


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("query", "told"),
    [
        ("SELECT uuid() AS u", "the query is not deterministic"),
        ("WITH a AS (SELECT id FROM o WHERE rand() > 0.5) SELECT * FROM a", "the query is not deterministic"),
        ("SELECT * FROM o WHERE EXISTS(SELECT current_date)", "the query is not deterministic (current_date)"),
        ("SELECT * FROM o TABLESAMPLE (5 PERCENT)", "the query is not deterministic (tablesample)"),
        ("SELECT id, DATE 'Today' AS day FROM o", "the query is not deterministic (Today)"),
        ("SELECT max(id), count(DISTINCT s), first(s) FROM o WHERE s = 'today' ORDER BY 1 LIMIT 3", None),
        ("SELECT * FROM o TABLESAMPLE (5 ROWS)", None),
    ],
)
def test_query_is_asked_as_a_whole(spark, query, told):
    sql = f"WITH o AS ({EMPTY}) SELECT * FROM (\n{query}\n)"

    assert determinism(spark, sql, query, "query").nondeterminism_reason == told


@pytest.mark.in_test_all
def test_functions_that_are_queries_are_looked_into(spark):
    own = isolated(spark)
    own.sql("CREATE TEMPORARY FUNCTION drawn() RETURNS DOUBLE RETURN rand()")

    assert (
        projected_determinism(own, ["drawn() AS x"], ORDERS).nondeterminism_reason
        == "the projection is not deterministic"
    )


@pytest.mark.in_test_all
def test_encrypted_column_of_a_delta_source_is_published_and_compared_each_time(lake):
    lake.write("SELECT id, 'x' AS s FROM range(100)")
    lake.apply(source={"type": "delta", "path": "raw/orders", "select": ["id", f"aes_encrypt(s, {KEY}) AS s"]})

    first, second = lake.refresh(), lake.refresh()

    assert (first.rows_inserted, second.rows_updated) == (100, 100)
    assert second.reason == "the projection is not deterministic (aes_encrypt)"


@pytest.mark.in_test_all
def test_day_that_passes_is_something_to_do(lake):
    lake.write("SELECT id FROM range(3)")
    lake.apply(source={"type": "delta", "path": "raw/orders", "select": ["id", "DATE'today' AS day"]})
    lake.refresh()

    assert lake.refresh().reason == "the projection is not deterministic (today)"


@pytest.mark.in_test_all
def test_ties_in_a_window_are_copied(lake):
    lake.write("SELECT id, id % 2 AS tie FROM range(10)")
    select = ["id", "row_number() OVER (ORDER BY tie) AS n"]
    lake.apply(source={"type": "delta", "path": "raw/orders", "select": select})

    report = lake.refresh()

    assert report.rows_inserted == 10
    assert lake.refresh().outcome == "nothing_to_do"


@pytest.mark.in_test_all
def test_error_table_of_what_changes_by_itself_is_refused(lake):
    lake.write("SELECT id FROM range(3)")
    lake.apply(source={"type": "delta", "path": "raw/orders", "select": ["id", "now() AS t"]}, errors={})

    with pytest.raises(DefinitionError, match=r"errors needs a deterministic source.*not deterministic \(now\)"):
        lake.refresh()

    assert lake.phase() == "NORMAL"


@pytest.mark.in_test_all
def test_what_only_files_have_may_be_selected(lake):
    lake.spark.range(3).write.parquet(str(lake.root / "raw/p"))
    source = {"type": "files", "path": "raw/p", "format": "parquet", "select": ["id", "_metadata.file_name AS f"]}
    lake.apply(source=source)
    lake.refresh()

    assert lake.refresh().rows_unchanged == 3


def test_no_function_of_spark_is_unknown(spark):
    """A function that is new in Spark is listed once `test_no_function_changes_unnoticed` has tried it."""
    names = {row[0] for row in spark.sql("SHOW SYSTEM FUNCTIONS").collect()}

    assert sorted(names) == KNOWN


@pytest.mark.sample(4)
@pytest.mark.parametrize("name", KNOWN)
def test_no_function_changes_unnoticed(spark, name):
    """Without arguments it is a constant or detected; its own examples return the same twice or are detected."""
    own = isolated(spark)
    if re.fullmatch(r"\w+", name) and _is_understood(own, without := f"SELECT {name}()"):
        assert name in CONSTANT or _reason(own, without)
    described = "\n".join(row[0] for row in own.sql(f"DESCRIBE FUNCTION EXTENDED `{name}`").collect())
    for example in re.findall(r"^\s*> (SELECT.*?);\s*$", described, re.MULTILINE | re.DOTALL):
        if _is_understood(own, example) and not _reason(own, example):
            first, second = (_rows(own, example) for _ in range(2))
            assert first == second, example


def _reason(spark, sql):
    return determinism(spark, sql, sql, "query").nondeterminism_reason


def _is_understood(spark, sql):
    try:
        spark.sql(sql).schema  # noqa: B018
    except Exception:
        return False
    return True


def _rows(spark, sql):
    try:
        return str(spark.sql(sql).collect())
    except Exception as error:
        return type(error).__name__
