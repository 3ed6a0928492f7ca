"""Rows are compared right, whatever is in them, and what is equal is not written again."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from pyspark.sql import functions as F

from airflow_mv_provider.core.definition import schema
from airflow_mv_provider.core.outcome import Outcome
from airflow_mv_provider.core.progress.publishing import MAX_BITMAP_KEYS
from airflow_mv_provider.spark import bitmap
from airflow_mv_provider.spark.bitmap import bitmap_of
from airflow_mv_provider.spark.compare import hashing
from tests.conftest import a_table
from tests.scenarios.conftest import log_of

pytestmark = pytest.mark.slow

# Values that hash alike in Spark's xxhash64, or that are easily taken for one another. All of them differ.
DIFFERENT = {
    "struct<a: bigint, b: bigint>": [
        *("null", "named_struct('a', 1L, 'b', null)", "named_struct('a', null, 'b', 1L)"),
        "named_struct('a', null, 'b', null)",
    ],
    "array<bigint>": ["null", "array()", "array(1L)", "array(1L, null)", "array(null, 1L)", "array(null)", "array(0L)"],
    "array<array<bigint>>": [
        "array(array(1L), array(2L))",
        "array(array(1L, 2L))",
        "array()",
        "array(array())",
        "array(null)",
    ],
    "string": ["null", "''", "'null'", "' '", "'a'", "'A'", "'é'", "'e\\u0301'"],
    "decimal(12,2)": ["null", "0.00BD", "1.00BD", "-1.00BD", "0.01BD"],
    "double": ["null", "0D", "double('NaN')", "double('Infinity')", "1e-300D"],
    "boolean": ["null", "true", "false"],
    "binary": ["null", "X''", "X'00'", "X'0000'"],
    "timestamp": ["null", "timestamp'2021-03-28 02:30:00'", "timestamp'2021-03-28 02:30:00.000001'"],
    "array<struct<a: string, b: array<string>>>": [
        "array(named_struct('a', 'x', 'b', array('y')))",
        "array(named_struct('a', 'x', 'b', array()), named_struct('a', 'y', 'b', array()))",
        "array(named_struct('a', null, 'b', array('x', 'y')))",
    ],
}


@pytest.mark.sample(5)
@pytest.mark.parametrize("kind", DIFFERENT)
def test_different_values_have_different_hashes(spark, kind):
    values = " UNION ALL ".join(f"SELECT CAST({v} AS {kind}) AS v" for v in DIFFERENT[kind])
    rows = spark.sql(values)
    columns = schema.columns_of(rows.schema.jsonValue())

    hashes = [row.h for row in rows.select(F.expr(hashing.row_hash(columns)).alias("h")).collect()]

    assert len(set(hashes)) == len(DIFFERENT[kind])


def test_null_in_one_column_is_not_null_in_the_next(spark):
    rows = spark.sql("SELECT * FROM VALUES (NULL, 1), (1, NULL), (NULL, NULL), (1, 1) AS t(a, b)")
    columns = schema.columns_of(rows.schema.jsonValue())

    assert rows.select(F.expr(hashing.row_hash(columns)).alias("h")).distinct().count() == 4


@pytest.mark.in_test_all
def test_equal_values_are_not_written_again(lake):
    hard = """
        SELECT id, IF(id = 0, double('NaN'), -0.0D) AS d, CAST(1.10 AS DECIMAL(20,4)) AS n,
               array(1, CAST(NULL AS INT)) AS a,
               named_struct('x', CAST(NULL AS INT), 'y', array('é')) AS s, timestamp'2021-03-28 02:30:00' AS t,
               date'1500-01-01' AS old, timestamp'1500-02-03 04:05:06' AS ancient,
               timestamp_ntz'2021-03-28 02:30:00' AS ntz, X'00ff' AS b
        FROM range(2)
    """
    lake.write(hard)
    lake.apply()
    lake.refresh()
    lake.write(hard.replace("-0.0D", "0.0D"))

    report = lake.refresh()

    assert (report.outcome, report.rows_unchanged, report.rows_updated) == (Outcome.PUBLISHED, 2, 0)
    assert report.bytes_main == 0
    # The way Spark writes timestamps by default wraps around in other readers, 584 years long.
    assert all(datetime(1500, 2, 3, 4, 5, 6, tzinfo=UTC) in row for row in lake.rows("orders"))


@pytest.mark.in_test_all
def test_small_changes_are_seen(lake):
    changes = [
        ("CAST(NULL AS STRING)", "''"),
        ("array(1)", "array(1, NULL)"),
        ("named_struct('a', CAST(NULL AS INT), 'b', 1)", "named_struct('a', 1, 'b', CAST(NULL AS INT))"),
        ("1.10BD", "1.11BD"),
        ("timestamp'2021-03-28 02:30:00'", "timestamp'2021-03-28 03:30:00'"),
        ("double('NaN')", "CAST(NULL AS DOUBLE)"),
        ("date'1582-10-04'", "date'1582-10-15'"),
        ("date'9999-12-31'", "date'+10000-01-01'"),
    ]

    def source(changed: bool) -> str:
        # Row n differs in column n alone.
        rows = (
            "SELECT "
            + ", ".join(
                [f"{n} AS id"]
                + [f"{new if changed and n == m else old} AS c{m}" for m, (old, new) in enumerate(changes)]
            )
            for n in range(len(changes))
        )
        return " UNION ALL ".join(rows)

    lake.write(source(changed=False))
    lake.apply()
    lake.refresh()
    lake.write(source(changed=True))

    report = lake.refresh()

    assert report.rows_updated == len(changes)
    assert (
        lake.spark.read.format("delta")
        .load(str(lake.root / "orders"))
        .exceptAll(lake.spark.read.format("delta").load(str(lake.root / "raw/orders")))
        .isEmpty()
    )


@pytest.mark.in_test_all
def test_odd_partition_values_survive(lake):
    values = ["a=b/c", "%20", "..", 'it\'s "quoted"', "new\nline", "back`tick", "🙂", " ", "null", "x:y*z?", "\ufffd"]
    rows = [(number, value) for number, value in enumerate(values)] + [(99, None)]
    lake.write(lake.spark.createDataFrame(rows, "id BIGINT, p STRING"))
    lake.apply(partition_by=["p"], chunk_rows=3)
    lake.refresh()
    lake.write(lake.spark.createDataFrame([(i + 1000 if i == 3 else i, p) for i, p in rows], "id BIGINT, p STRING"))

    report = lake.refresh()

    assert (report.rows_inserted, report.rows_deleted) == (1, 1)
    assert lake.rows("orders") == lake.rows("raw/orders")


@pytest.mark.in_test_all
@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("DATE", "date'2021-02-03'"),
        ("DATE", "date'1500-02-03'"),
        ("TIMESTAMP", "timestamp'2021-03-28 02:30:00.5'"),
        ("DECIMAL(9,2)", "1.5"),
        ("BOOLEAN", "true"),
    ],
)
def test_partition_columns_of_other_types(lake, kind, value):
    lake.write(f"SELECT id, IF(id % 3 = 0, NULL, CAST({value} AS {kind})) AS p, 'a' AS v FROM range(9)")
    lake.apply(partition_by=["p"], chunk_rows=2)
    lake.refresh()
    lake.sql("UPDATE {t} SET v = 'b' WHERE id IN (0, 1)", path="raw/orders")

    report = lake.refresh()

    assert report.rows_updated == 2
    assert lake.rows("orders") == lake.rows("raw/orders")


@pytest.mark.in_test_all
@pytest.mark.parametrize("value", ["date'+10000-01-01'", "date'9999-12-31'", "date'0001-01-01'"])
def test_dates_at_the_ends_of_the_calendar_may_be_partitions(lake, value):
    lake.write(f"SELECT id, {value} AS p FROM range(3)")
    lake.apply(partition_by=["p"])
    lake.refresh()
    lake.write(f"SELECT id + 1 AS id, {value} AS p FROM range(3)")

    report = lake.refresh(overrides=["max_deleted_fraction"])

    assert (report.rows_inserted, report.rows_deleted, report.rows_unchanged) == (1, 1, 2)
    rows = [lake.spark.read.format("delta").load(str(lake.root / each)) for each in ("orders", "raw/orders")]
    assert rows[0].exceptAll(rows[1]).isEmpty()  # other readers know no year 10000
    assert rows[0].count() == 3


@pytest.mark.in_test_all
def test_a_row_moves_between_partitions(lake):
    lake.write("SELECT id, id % 3 AS p FROM range(9)")
    lake.apply(partition_by=["p"], chunk_rows=1)
    lake.refresh()
    lake.write("SELECT id, (id + 1) % 3 AS p FROM range(9)")
    lake.apply(partition_by=["p"], chunk_rows=1, guards={"max_deleted_fraction": 1.0})

    lake.refresh()

    assert lake.rows("orders") == lake.rows("raw/orders")


@pytest.mark.in_test_all
def test_names_that_need_quotes(lake):
    inside = "named_struct('x-y', id, 'a:int>/*', array(named_struct('from.where', id, '\\'--', 'z')))"
    columns = f"id AS `order`, id AS `select`, 'x' AS `a.b-c#ü`, {inside} AS s, id % 2 AS `group`"
    lake.write(f"SELECT {columns} FROM range(5)")
    lake.apply(key=["order", "select"], partition_by=["group"])
    lake.refresh()
    lake.sql("UPDATE {t} SET `a.b-c#ü` = 'y' WHERE `order` = 2", path="raw/orders")

    report = lake.refresh()

    assert report.rows_updated == 1
    assert lake.rows("orders") == lake.rows("raw/orders")


ODD = "a b,c;{d}(e)\n\tf=g.h"


@pytest.mark.in_test_all
def test_names_that_delta_has_to_map(lake):
    lake.write("SELECT id, id % 2 AS p, 'x' AS v FROM range(5)")
    odd = [f"id AS `{ODD}`", "p AS `part no`", "named_struct('in side', v) AS s"]
    source = {"type": "delta", "path": "raw/orders"}
    lake.apply(source=source | {"select": odd}, key=[ODD], partition_by=["part no"], schema_policy="add")
    lake.refresh()
    lake.sql("UPDATE {t} SET v = 'y' WHERE id = 2", path="raw/orders")
    lake.sql("INSERT INTO {t} VALUES (9, 7, 'z')", path="raw/orders")

    report = lake.refresh()
    lake.apply(source=source | {"select": [*odd, "v AS `x y`"]}, key=[ODD], partition_by=["part no"],
               schema_policy="add")  # fmt: skip
    lake.refresh()

    assert (report.rows_updated, report.rows_inserted) == (1, 1)
    found = [(n, n % 2 if n < 9 else 7, "y" if n == 2 else "z" if n == 9 else "x") for n in (0, 1, 2, 3, 4, 9)]
    assert lake.rows() == [(n, p, (("in side", v),), v) for n, p, v in found]  # by name
    assert lake.refresh(force=True).rows_unchanged == 6


@pytest.mark.in_test_all
def test_a_name_that_delta_has_to_map_may_come_later(lake):
    lake.write("SELECT id, 'x' AS v FROM range(3)")
    lake.apply(schema_policy="add")
    lake.refresh()
    mapped = [row for row in lake.sql("SHOW TBLPROPERTIES {t}") if "columnMapping" in row.key]
    lake.apply(source={"type": "delta", "path": "raw/orders", "select": ["*", "v AS `x y`"]}, schema_policy="add")

    lake.refresh()

    assert mapped == [], "some readers know no column mapping"
    assert lake.rows() == [(n, "x", "x") for n in range(3)]


@pytest.mark.in_test_all
def test_large_table_takes_the_checksum_way(lake):
    lake.write("SELECT id, id % 7 AS p, concat('v', id) AS v FROM range(250000)")
    lake.apply()
    lake.refresh()
    lake.sql("UPDATE {t} SET v = 'late' WHERE id % 1000 = 3", path="raw/orders")
    lake.sql("DELETE FROM {t} WHERE id % 1000 = 4", path="raw/orders")
    lake.sql("INSERT INTO {t} SELECT * FROM {t} WHERE id = 77")  # and a duplicate in main, among equal rows

    report = lake.refresh()

    assert (report.rows_updated, report.rows_deleted, report.rows_inserted) == (250, 252, 1)
    assert lake.rows("orders") == lake.rows("raw/orders")
    (merge,) = (commit for commit in log_of(lake, "commitInfo") if commit["operation"] == "MERGE")
    condition = merge["operationParameters"]["predicate"]
    assert "getbit" in condition
    assert len(condition) < 1_000, "the words of the bitmap are not in main's log"


KEYS = "SELECT id, CASE WHEN id % 7 = 0 THEN NULL ELSE concat('k', id) END AS name FROM range({})"


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    ("step", "most_others"), [(100_000, 300), (50, 7_000), (1, 0)], ids=["one key", "2,000 keys", "all keys"]
)
def test_bitmap_lets_every_key_through_and_few_others(spark, step, most_others):
    num_keys = 100_000 // step
    spark.sql(KEYS.format(f"0, 100000, {step}")).createOrReplaceTempView("changed")
    spark.sql(KEYS.format("100000")).createOrReplaceTempView("t")

    with bitmap_of(spark, "changed", a_table(key=["id", "name"]), num_keys) as keys:
        passed = {row.id for row in spark.sql(f"SELECT id FROM t WHERE {keys.may_match_sql()}").collect()}

    assert passed >= set(range(0, 100_000, step))
    assert len(passed) <= num_keys + most_others


@pytest.mark.in_test_all
def test_fullest_bitmap_lets_every_key_through_and_half_of_the_others(spark, monkeypatch):
    num_keys = MAX_BITMAP_KEYS >> 12
    monkeypatch.setattr(bitmap, "_MAX_BITS", bitmap._MAX_BITS >> 12)
    spark.sql(KEYS.format(num_keys)).createOrReplaceTempView("changed")
    spark.sql(KEYS.format(10 * num_keys)).createOrReplaceTempView("t")

    with bitmap_of(spark, "changed", a_table(key=["id", "name"]), num_keys) as keys:
        passed = dict(
            tuple(row)
            for row in spark.sql(
                f"SELECT id < {num_keys}, count(*) FROM t WHERE {keys.may_match_sql()} GROUP BY 1"
            ).collect()
        )

    assert passed[True] == num_keys
    assert passed[False] / (9 * num_keys) == pytest.approx(0.49, abs=0.03)
