"""A source whose columns change: main gets what the policy lets it, in the commit that needs it."""

from __future__ import annotations

from collections import Counter

import pytest

from airflow_mv_provider.core.outcome import Outcome
from airflow_mv_provider.exceptions import SchemaMismatchError
from tests.conftest import Crash
from tests.scenarios.conftest import FIRST

pytestmark = pytest.mark.slow

# One row changed, one is new, a column was added that most rows have nothing in, and another holds more.
EVOLVED = """
    SELECT id, p, CASE WHEN id = 3 THEN 'late' ELSE v END AS v, IF(id < 2, concat('x', id), NULL) AS x,
           CAST(n AS BIGINT) + IF(id = 5, 5000000000L, 0L) AS n
    FROM (SELECT id, CAST(id % 4 AS INT) AS p, concat('v', id) AS v, CAST(id AS INT) AS n FROM range(41))
"""
WITH_NUMBERS = "SELECT *, CAST(id AS INT) AS n FROM (" + FIRST + ")"


ANY_DELETES = {"guards": {"max_deleted_fraction": 1.0}}


def rows(lake, path="orders"):
    """Main as Spark reads it: delta-rs does not read tables whose types are wider than they were."""
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
    preview, report = table.refresh(read_only=True), table.refresh()

    assert rows(table) == rows(table, "raw/orders")
    assert (report.rows_inserted, report.rows_updated, report.rows_deleted) == (1, 4, 0)  # ids 0, 1, 3 and 5
    assert report.schema_changes == ("column 'n' widened from integer to long", "column 'x', string, added")
    assert preview.schema_changes == report.schema_changes
    operations = [row.operation for row in table.sql("DESCRIBE HISTORY {t}")]
    assert operations[:2] == ["MERGE", "SET TBLPROPERTIES"], "columns change in a fenced commit alone"
    assert set(operations[2:]) == {"CREATE TABLE", "WRITE"}
    assert table.refresh(force=True).rows_unchanged == 41


@pytest.mark.in_test_all
@pytest.mark.sample(1)
@pytest.mark.parametrize(
    "point", ["seal.after", "publish.before", "features.before", "features.after", "publish.after"]
)
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


@pytest.mark.in_test_all
def test_types_are_widened_only_where_the_policy_says_so_and_only_then_shut_readers_out(lake):
    lake.write(WITH_NUMBERS)
    lake.apply()
    lake.refresh()
    lake.apply(schema_policy="add")
    lake.write(EVOLVED)
    with pytest.raises(SchemaMismatchError, match="column 'n' is long in the source and integer in the table"):
        lake.refresh()
    assert lake.phase() == "NORMAL"

    lake.write(EVOLVED.replace("CAST(n AS BIGINT) + IF(id = 5, 5000000000L, 0L) AS n", "n"))
    added = lake.refresh()

    assert (added.rows_inserted, added.rows_updated) == (1, 3)
    assert lake.rows() == lake.rows("raw/orders"), "delta-rs reads a main in which nothing was widened"
    lake.apply(schema_policy="evolve")
    lake.write(EVOLVED)
    assert lake.refresh().schema_changes == ("column 'n' widened from integer to long",)
    assert rows(lake) == rows(lake, "raw/orders")


def add_empty_column(lake):
    """Give the source a column in a commit without a row: of its rows none is another."""
    frame = lake.spark.sql("SELECT 1L AS id, 'v' AS v, 1 AS p, CAST(NULL AS INT) AS x").where("id = 2")
    frame.write.format("delta").mode("append").option("mergeSchema", "true").save(str(lake.root / "raw/orders"))


@pytest.mark.in_test_all
@pytest.mark.parametrize("mode", ["atomic", "progressive"])
def test_a_column_without_a_value_is_added_where_no_row_differs(lake, mode, crash_at):
    lake.write(FIRST)
    lake.apply(schema_policy="add", key=["id", "p"], partition_by=["p"], publish=mode)
    lake.refresh()
    add_empty_column(lake)

    crash_at("publish.after")
    with pytest.raises(Crash):
        lake.refresh()
    lake.clock.pass_ms(lake.settings.lease_ms + 1)
    (report,) = lake.refresher().recover(lake.caller())

    assert (report.outcome, report.rows_unchanged) == (Outcome.PUBLISHED, 40)
    assert report.schema_changes == ("column 'x', integer, added",)
    assert (report.rows_inserted, report.rows_updated, report.rows_deleted) == (0, 0, 0)
    assert lake.rows() == lake.rows("raw/orders")
    merges = [row.operation for row in lake.sql("DESCRIBE HISTORY {t}")].count("MERGE")
    assert merges == {"atomic": 1, "progressive": 2}[mode]  # whose first rows come by a MERGE, too
    assert lake.refresh().outcome is Outcome.NOTHING_TO_DO
    kept = lake.published()
    assert lake.refresh(force=True).rows_unchanged == 40
    assert lake.published() == kept


@pytest.mark.in_test_all
def test_a_policy_that_changes_is_something_to_do(lake):
    lake.write(FIRST)
    lake.apply(schema_policy="ignore")
    lake.refresh()
    add_empty_column(lake)
    lake.refresh()
    lake.apply(schema_policy="add")

    report = lake.refresh()

    assert (report.outcome, report.schema_changes) == (Outcome.PUBLISHED, ("column 'x', integer, added",))
    assert lake.rows() == lake.rows("raw/orders")


@pytest.mark.in_test_all
def test_a_column_that_is_lost_keeps_its_values_also_where_main_is_to_be_replaced(lake):
    lake.write(WITH_NUMBERS)
    lake.apply(schema_policy="add", **ANY_DELETES)
    lake.refresh()
    lake.write(FIRST)
    with pytest.raises(SchemaMismatchError, match="the table has column 'n', the source does not"):
        lake.refresh()

    lake.write("SELECT id + 2 AS id, p, IF(id = 2, 'late', v) AS v FROM (" + FIRST + ")")
    lake.apply(schema_policy="add", on_lost_column="keep", strategy="replace", **ANY_DELETES)
    report = lake.refresh()

    assert (report.strategy, report.schema_changes) == (
        "corrections",
        ("column 'n' is not in the source: kept as it is",),
    )
    assert "replacing the table would lose n" in report.reason
    found = {row[0]: row[1] for row in lake.rows()}  # id, n, p, v
    assert found == {id: id if id < 40 else None for id in range(2, 42)}
    lake.write("SELECT *, 7 AS n FROM (" + FIRST + ")")
    lake.refresh()
    assert lake.rows() == lake.rows("raw/orders"), "a column that comes back is compared again"


def dropped(lake, **more):
    """A table that has to lose a column: of its rows none is another, of those that are left."""
    lake.write(WITH_NUMBERS)
    lake.apply(schema_policy="add", on_lost_column="drop", partition_by=["p"], **more)
    lake.refresh()
    lake.write("SELECT p, id, v, CAST(NULL AS INT) AS x FROM (" + FIRST + ")")


@pytest.mark.in_test_all
@pytest.mark.sample(1)
@pytest.mark.parametrize("point", ["publish.before", "publish.after"])
def test_a_column_that_is_lost_is_dropped(lake, crash_at, point):
    dropped(lake)

    crash_at(point)
    with pytest.raises(Crash):
        lake.refresh()
    lake.clock.pass_ms(lake.settings.lease_ms + 1)
    (report,) = lake.refresher().recover(lake.caller())

    assert (report.strategy, report.outcome) == ("replace", Outcome.PUBLISHED)
    assert report.schema_changes == ("column 'n' is not in the source: dropped", "column 'x', integer, added")
    assert "rewritten without n" in report.reason
    assert lake.rows() == lake.rows("raw/orders")
    (detail,) = lake.sql("DESCRIBE DETAIL {t}")
    assert (detail.partitionColumns, detail.properties["mv.table_uuid"]) == (["p"], lake.store.table("orders").uuid)
    assert lake.refresh().outcome is Outcome.NOTHING_TO_DO
    assert lake.refresh(force=True).rows_unchanged == 40
    assert lake.phase() == "NORMAL"


@pytest.mark.in_test_all
@pytest.mark.parametrize("point", ["seal.after", "publish.after"])
def test_a_column_is_dropped_also_where_another_writes_meanwhile(lake, at_point, point):
    dropped(lake)
    insert = "INSERT INTO {t} (id, p, v) VALUES (99, 1, 'foreign')"
    at_point(point, lambda: lake.sql(insert))

    report = lake.refresh()

    assert report.outcome is Outcome.PUBLISHED
    assert lake.rows() == lake.rows("raw/orders")
    assert lake.refresh(force=True).rows_unchanged == 40


@pytest.mark.in_test_all
def test_a_column_is_not_dropped_where_main_cannot_be_written_anew(lake):
    dropped(lake)
    before = lake.rows()

    with pytest.raises(SchemaMismatchError, match=r"column 'n' is not in .* only some partitions") as caught:
        lake.refresh(partitions=["1"])

    assert "keep" in caught.value.advice
    assert (lake.rows(), lake.phase()) == (before, "NORMAL")


@pytest.mark.in_test_all
def test_fingerprints_of_other_columns_are_not_believed(lake):
    """Rows are hashed without the names of their columns: here each keeps its values, under another name."""
    lake.write("SELECT id, id AS a, CAST(NULL AS BIGINT) AS b FROM range(9)")
    lake.apply(schema_policy="ignore")
    lake.refresh()
    lake.write("SELECT id, id AS a FROM range(9)")
    lake.refresh()
    lake.write("SELECT id, id AS b FROM range(9)")

    assert lake.refresh().rows_updated == 9

    assert lake.rows() == [(n, n, n) for n in range(9)]


@pytest.mark.in_test_all
def test_ignore_passes_over_what_is_not_on_both_sides(lake):
    lake.write(WITH_NUMBERS)
    lake.apply(schema_policy="ignore", guards={"max_deleted_fraction": 1.0})
    lake.refresh()
    lake.write("SELECT id, p, CASE WHEN id = 3 THEN 'late' ELSE v END AS v, 1 AS y FROM (" + FIRST + ") WHERE id > 0")
    lake.write("SELECT 99L AS id, 1 AS p, 'new' AS v, 1 AS y", mode="append")

    report = lake.refresh()

    assert (report.rows_inserted, report.rows_updated, report.rows_deleted) == (1, 1, 1)
    assert report.schema_changes == (
        "column 'n' is not in the source: kept as it is",
        "column 'y', integer, left out",
    )
    found = {row[0]: row[1:] for row in lake.rows()}  # id, n, p, v
    assert (found[3], found[99], len(found)) == ((3, 3, "late"), (None, 1, "new"), 40)
    with pytest.raises(SchemaMismatchError, match="column 'v' is integer in the source and string in the table"):
        lake.write("SELECT id, p, CAST(id AS INT) AS v FROM (" + FIRST + ")")
        lake.refresh()
