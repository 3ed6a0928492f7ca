"""A source whose columns change: main gets what the policy lets it, in the commit that needs it."""

from __future__ import annotations

from collections import Counter

import pytest

from airflow_mv_provider.exceptions import MainUnsupportedError, SchemaMismatchError
from tests.conftest import Crash
from tests.scenarios.conftest import FIRST, check_invariants

pytestmark = pytest.mark.slow

# One row changed, one is new, a column was added that most rows have nothing in, and another holds more.
EVOLVED = """
    SELECT id, p, CASE WHEN id = 3 THEN 'late' ELSE v END AS v, IF(id < 2, concat('x', id), NULL) AS x,
           CAST(n AS BIGINT) + IF(id = 5, 5000000000L, 0L) AS n
    FROM (SELECT id, CAST(id % 4 AS INT) AS p, concat('v', id) AS v, CAST(id AS INT) AS n FROM range(41))
"""
WITH_NUMBERS = "SELECT *, CAST(id AS INT) AS n FROM (" + FIRST + ")"


def rows(lake, path="orders"):
    """Main as Spark reads it: delta-rs does not read tables whose types may widen."""
    frame = lake.spark.read.format("delta").load(str(lake.root / path))
    return Counter(tuple(row) for row in frame.select(*sorted(frame.columns)).collect())


@pytest.fixture
def table(lake):
    lake.write(WITH_NUMBERS)
    lake.apply(schema_policy="evolve", partition_by=["p"])
    lake.refresh()
    lake.write(EVOLVED)
    return lake


def test_column_is_added_and_type_widened_in_the_publish(table):
    report = table.refresh()

    assert rows(table) == rows(table, "raw/orders")
    assert (report.rows_inserted, report.rows_updated, report.rows_deleted) == (1, 4, 0)  # ids 0, 1, 3 and 5
    assert report.schema_changes == ("column 'n' widened from integer to long", "column 'x', string, added")
    operations = [row.operation for row in table.sql("DESCRIBE HISTORY {t}")]
    assert set(operations) == {"CREATE TABLE", "WRITE", "MERGE"}, "columns change in a fenced commit alone"
    assert table.refresh(force=True).rows_unchanged == 41


@pytest.mark.parametrize("point", ["seal.after", "progress.after", "publish.before", "publish.after"])
def test_takeover_evolves_main_as_it_was_sealed(table, crash_at, point):
    crash_at(point)
    with pytest.raises(Crash):
        table.refresh()
    table.write("SELECT id, p, v FROM (" + WITH_NUMBERS + ")")  # after the seal nobody asks the source's schema
    table.clock.pass_ms(table.settings.lease_ms + 1)

    (report,) = table.refresher().recover(table.caller())

    assert (report.rows_inserted, report.rows_updated) == (1, 4)
    assert table.spark.read.format("delta").load(str(table.root / "orders")).count() == 41
    assert table.phase() == "NORMAL"


def test_main_that_was_not_made_for_it_is_not_widened(lake):
    lake.write(WITH_NUMBERS)
    lake.apply()
    lake.refresh()
    before = lake.rows()
    lake.apply(schema_policy="evolve")
    lake.write(EVOLVED)

    with pytest.raises(MainUnsupportedError, match="column 'n' has to be widened"):
        lake.refresh()

    assert (lake.rows(), lake.phase()) == (before, "NORMAL")
    lake.write(EVOLVED.replace("CAST(n AS BIGINT) + IF(id = 5, 5000000000L, 0L) AS n", "n"))
    assert lake.refresh().rows_updated == 3
    check_invariants(lake)


def test_ignore_passes_over_what_is_not_on_both_sides(lake):
    lake.write(WITH_NUMBERS)
    lake.apply(schema_policy="ignore", guards={"max_deleted_fraction": 1.0})
    lake.refresh()
    lake.write("SELECT id, p, CASE WHEN id = 3 THEN 'late' ELSE v END AS v, 1 AS y FROM (" + FIRST + ") WHERE id > 0")
    lake.write("SELECT 99L AS id, 1 AS p, 'new' AS v, 1 AS y", mode="append")

    report = lake.refresh()

    assert (report.rows_inserted, report.rows_updated, report.rows_deleted) == (1, 1, 1)
    assert report.schema_changes == (
        "column 'n' is not in the source: left as it is",
        "column 'y', integer, left out",
    )
    found = {row[0]: row[1:] for row in lake.rows()}  # id, n, p, v
    assert (found[3], found[99], len(found)) == ((3, 3, "late"), (None, 1, "new"), 40)
    with pytest.raises(SchemaMismatchError, match="column 'v' is integer in the source and string in main"):
        lake.write("SELECT id, p, CAST(id AS INT) AS v FROM (" + FIRST + ")")
        lake.refresh()
