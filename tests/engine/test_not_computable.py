"""Rows for which `select` or a rule of the user's own raises: they are error rows, and all others are published."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_mv_provider import DeltaSource, Files
from airflow_mv_provider.core.outcome import Outcome
from airflow_mv_provider.exceptions import CheckInvalidError, CorruptRecordError, TooManyErrorsError
from tests.conftest import dying_at
from tests.engine.refusing import refused
from tests.engine.test_error_table import errors

pytestmark = pytest.mark.slow

# The first two share a part, which Spark would compute once; the last but one overflows, the last one is a column.
SELECT = ["id", "cast(t AS INT) AS a", "cast(t AS INT) + 1 AS b -- more", "10 / d AS c", "id * n AS product", "t"]
RAW = "SELECT id, if(id IN ({bad}), 'x', string(id)) AS t, if(id = {zero}, 0, 1) AS d, {n} AS n FROM range(8)"


def raw(bad: str = "3", zero: int = 5, n: str = "if(id = 6, 9223372036854775807, 1)") -> str:
    return RAW.format(bad=bad, zero=zero, n=n)


def write(lake: Any, kind: str, sql: str) -> dict[str, Any]:
    """Write the rows as a source of some kind; return what the definition has of it."""
    if kind == "files":
        lake.spark.sql(sql).coalesce(1).write.mode("overwrite").parquet(str(lake.root / "raw/files"))
        return {"source": Files("raw/files/*.parquet", format="parquet", select=SELECT)}
    lake.write(sql)
    return {"source": DeltaSource("raw/orders", select=SELECT)}


def expected(lake: Any, without: str) -> list[tuple[Any, ...]]:
    """What main has, its columns by name: those rows of `raw` that can be computed."""
    columns = "id, int(id) AS a, int(id) + 1 AS b, 10.0D / 1 AS c, id AS product, string(id) AS t"
    lake.write(f"SELECT {columns} FROM range(8) WHERE id NOT IN ({without})", "raw/expected")
    return lake.rows("raw/expected")


@pytest.mark.parametrize(
    ("kind", "strategy"),
    [
        ("delta", "corrections"),
        pytest.param("delta", "replace", marks=pytest.mark.in_test_all),
        pytest.param("files", "corrections", marks=pytest.mark.in_test_all),
    ],
)
def test_rows_that_select_cannot_be_computed_of_are_error_rows(lake, kind, strategy):
    lake.apply(**write(lake, kind, raw()), errors={}, strategy=strategy)

    report = lake.refresh()

    assert (report.outcome, report.rows_inserted, report.rows_rejected) == (Outcome.PUBLISHED, 5, 3)
    assert lake.rows() == expected(lake, "3, 5, 6")
    assert sorted(each[2:] for each in errors(lake)) == [
        ("select", "10 / d AS c cannot be computed", '{"id":5,"t":"5","d":0,"n":1}'),
        (
            "select",
            "cast(t AS INT) AS a cannot be computed; cast(t AS INT) + 1 AS b -- more cannot be computed",
            '{"id":3,"t":"x","d":1,"n":1}',
        ),
        ("select", "id * n AS product cannot be computed", '{"id":6,"t":"6","d":1,"n":9223372036854775807}'),
    ]


@pytest.mark.in_test_all
@pytest.mark.parametrize("kind", ["delta", "files"])
@pytest.mark.parametrize("point", ["seal.after", "publish.after"])
def test_whoever_takes_over_publishes_the_same_rows(lake, kind, point):
    """Delta's rows are read again for the MERGE, by another process: the same rows are left out there."""
    lake.apply(**write(lake, kind, raw()), errors={}, strategy="corrections", guards={"max_deleted_fraction": 1.0})
    lake.refresh()
    write(lake, kind, raw(bad="1, 2", zero=4, n="1"))
    with dying_at(point):
        lake.refresh()
    lake.clock.pass_ms(lake.settings.lease_ms + 1)

    lake.refresher().recover(lake.caller())

    assert lake.rows() == expected(lake, "1, 2, 4")
    assert sorted(record[4][:7] for record in errors(lake)) == ['{"id":1', '{"id":2', '{"id":4']
    again = lake.refresh(force=True)
    assert (again.rows_inserted, again.rows_updated, again.rows_deleted) == (0, 0, 0), "and the digests are theirs"


@pytest.mark.in_test_all
def test_a_row_that_is_mended_leaves_the_error_table(lake):
    lake.apply(**write(lake, "delta", raw()), errors={})
    lake.refresh()
    write(lake, "delta", raw(bad="99", zero=99, n="1"))

    report = lake.refresh()

    assert (report.rows_inserted, report.rows_rejected) == (3, 0)
    assert (lake.rows(), errors(lake)) == (expected(lake, "99"), [])


@pytest.mark.in_test_all
def test_no_more_of_them_than_the_error_table_may_have(lake):
    lake.apply(**write(lake, "delta", raw(bad="0, 1, 2")), errors={"max_rows": 3})

    refused(lake, TooManyErrorsError, "more than 3 records of the source", "cannot be computed")


@pytest.mark.in_test_all
def test_without_an_error_table_the_refresh_fails(lake):
    lake.apply(**write(lake, "delta", raw()))

    refused(lake, CorruptRecordError, "a value cannot be converted")  # whichever row raises first


@pytest.mark.in_test_all
@pytest.mark.parametrize(
    "expression",
    ["sum(cast(t AS INT)) OVER (ORDER BY id) AS s", "explode(array(cast(t AS INT))) AS s", "a + 1 AS s"],
    ids=["several rows", "makes rows", "alias of another expression"],
)
def test_what_cannot_be_looked_at_row_by_row_still_fails_the_refresh(lake, expression):
    lake.write(raw())
    select = ["id", *(["cast(t AS INT) AS a"] if expression.startswith("a ") else []), expression]
    lake.apply(source=DeltaSource("raw/orders", select=select), errors={})

    if expression.startswith("a "):
        assert lake.refresh().rows_rejected == 1, "it uses what the other one computes, whose row is left out"
    else:
        refused(lake, CorruptRecordError, "CAST_INVALID_INPUT")


@pytest.mark.in_test_all
def test_a_rule_that_raises_for_a_row_is_broken_by_it(lake):
    lake.write("SELECT id, if(id = 3, 0, 2) AS d, if(id = 4, 'x', string(id)) AS t FROM range(8)")
    rules = [
        {"name": "half", "expression": "1 / d < 1"},
        {"name": "number", "expression": "cast(t AS INT) + 1 / d > 0 -- more"},
    ]
    lake.apply(errors={}, checks=[rule | {"severity": "quarantine"} for rule in rules])

    report = lake.refresh()

    assert (report.rows_inserted, report.rows_rejected) == (6, 2)
    assert [(check.name, check.num_failed) for check in report.checks] == [("half", 1), ("number", 1)]
    assert [(rule, reason, record) for _, _, rule, reason, record in errors(lake)] == [
        ("half", "not: 1 / d < 1; not: cast(t AS INT) + 1 / d > 0 -- more", '{"id":3,"d":0,"t":"3"}'),
        ("number", "not: cast(t AS INT) + 1 / d > 0 -- more", '{"id":4,"d":2,"t":"x"}'),
    ]
    lake.apply(errors={}, checks=rules)
    refused(lake, CheckInvalidError, "its checks cannot be evaluated", force=True)
