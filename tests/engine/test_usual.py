"""Guards against what is usual: exact counts of a refresh beside those of the refreshes before it, on every way."""

from __future__ import annotations

import pytest

from airflow_mv_provider.core.outcome import Outcome
from airflow_mv_provider.exceptions import GuardRefusedError
from tests.engine.feeding import FEED
from tests.engine.refusing import refused

pytestmark = pytest.mark.slow

ALL = {
    "max_deleted_fraction": {"usual": 2},
    "max_updated_fraction": {"usual": 2},
    "max_inserted_fraction": {"usual": 2},
    "min_rows": {"usual": 0.9},
    "max_changed_partitions": {"usual": 2},
}
WAYS = {
    "atomic": {"guards": ALL | {"max_null_fraction": {"v": {"usual": 2}}}, "strategy": "corrections"},
    "progressive": {"guards": ALL, "publish": "progressive", "chunk_rows": 500},
    "incremental": {"guards": ALL, "strategy": "incremental", "strict": True},
}
# The usual refresh updates 60 rows, deletes 60 and inserts 60, in one partition of eight; each time others.
USUAL = (
    "UPDATE {t} SET v = {n} WHERE p = {n} AND id < 480",
    "DELETE FROM {t} WHERE p = {n} AND id BETWEEN 480 AND 959",
    "INSERT INTO {t} SELECT id + 10000 * ({n} + 1), {n}, 0 FROM range(60)",
)
UNUSUAL = {
    "min_rows": (
        "DELETE FROM {t} WHERE p = 7",
        "the source has 3,500 rows, usually 4,000; the guard requires 0.9 of them.",
    ),
    "max_deleted_fraction": (
        "DELETE FROM {t} WHERE p IN (5, 6) AND id < 500",
        "124 of the table's 4,000 rows would be deleted, usually 60; the guard allows 2 times as many.",
    ),
    "max_updated_fraction": (
        "UPDATE {t} SET v = -1 WHERE p IN (5, 6) AND id < 500",
        "124 of the table's 4,000 rows would be changed, usually 60; the guard allows 2 times as many.",
    ),
    "max_inserted_fraction": (
        "INSERT INTO {t} SELECT id + 90000, 5, 0 FROM range(121)",
        "121 rows beside the table's 4,000 rows would be inserted, usually 60; the guard allows 2 times as many.",
    ),
    "max_changed_partitions": (
        "UPDATE {t} SET v = -1 WHERE id IN (4005, 5, 6, 7, 3)",
        "rows would be changed in 4 partitions, usually in 1; the guard allows 2 times as many.",
    ),
}


def table_of(prepared, way):
    """Return a table with a first load and three usual refreshes in its history."""

    def build(lake):
        lake.write("SELECT id, CAST(id % 8 AS INT) AS p, 0 AS v FROM range(4000)")
        lake.sql(FEED, path="raw/orders")
        lake.apply(partition_by=["p"], key=["id", "p"], **WAYS[way])
        lake.refresh()
        for number in range(3):
            for statement in USUAL:
                lake.sql(statement.replace("{n}", str(number)), path="raw/orders")
            report = lake.refresh()
            assert report.outcome is Outcome.PUBLISHED, report

    return prepared(f"usual {way}", build)


@pytest.mark.in_test_all
@pytest.mark.parametrize("guard", UNUSUAL)
@pytest.mark.parametrize("way", WAYS)
def test_an_unusual_change_is_refused_and_overridden_once(prepared, way, guard):
    table, (change, problem) = table_of(prepared, way), UNUSUAL[guard]
    table.sql(change, path="raw/orders")
    versions = table.versions()

    refused(table, GuardRefusedError, f"{guard}: {problem}")
    assert table.versions() <= versions + 1, "the fence, at most"
    others = ["max_deleted_fraction"] if guard == "min_rows" else []
    report = table.refresh(overrides=[guard, *others], note="this once")

    assert report.outcome is Outcome.PUBLISHED
    assert table.rows() == table.rows("raw/orders")


@pytest.mark.in_test_all
@pytest.mark.parametrize("way", [pytest.param(w, marks=[] if w == "atomic" else pytest.mark.in_test_all) for w in WAYS])
def test_twice_the_usual_change_is_published_and_more_is_not(prepared, way):
    """The exact counts decide: the buckets that differ have more rows than these."""
    table = table_of(prepared, way)
    table.sql("UPDATE {t} SET v = -1 WHERE p IN (5, 6) AND id < 480", path="raw/orders")
    table.sql("DELETE FROM {t} WHERE p IN (5, 6) AND id BETWEEN 480 AND 959", path="raw/orders")

    report = table.refresh()

    assert (report.rows_updated, report.rows_deleted, report.outcome) == (120, 120, Outcome.PUBLISHED)
    assert table.rows() == table.rows("raw/orders")


@pytest.mark.in_test_all
def test_nulls_are_compared_with_those_of_former_refreshes(prepared):
    table = table_of(prepared, "atomic")
    table.sql("UPDATE {t} SET v = NULL WHERE p IN (5, 6) AND id < 406", path="raw/orders")

    refused(table, GuardRefusedError, "v is NULL in 101 of 4,000 rows")


@pytest.mark.in_test_all
def test_read_only_and_a_refresh_of_some_partitions(prepared):
    """What is usual is known of the whole table only; there the default applies to the deletes of a part."""
    table = table_of(prepared, "atomic")
    table.sql("DELETE FROM {t} WHERE p IN (5, 6) AND id < 500", path="raw/orders")

    found = table.refresh(read_only=True)
    part = table.refresh(partitions=[["5"], ["6"]])

    assert found.reason.startswith("guard max_deleted_fraction would refuse: 124 of the table's 4,000 rows")
    assert (part.rows_deleted, part.outcome) == (124, Outcome.PUBLISHED)
    table.sql("DELETE FROM {t} WHERE p IN (5, 6) AND id < 3500", path="raw/orders")
    refused(table, GuardRefusedError, "750 of the table's 876 rows would be deleted", partitions=[["5"], ["6"]])


@pytest.mark.in_test_all
def test_a_rollback_is_no_usual_refresh(prepared):
    table = table_of(prepared, "atomic")
    before = table.store.usual(
        table.store.table("orders"), table.store.table("orders").definition.guards, is_whole=True
    )

    table.refresher().roll_back("orders", "0", table.caller(), "to the first version")

    record = table.store.table("orders")
    assert before.deleted == before.updated == before.inserted == 60
    assert table.store.usual(record, record.definition.guards, is_whole=True) == before
