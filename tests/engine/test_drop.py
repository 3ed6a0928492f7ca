"""Dropping a table: what goes, what stays, and everything that keeps main from being deleted."""

from __future__ import annotations

import shutil

import pytest

from airflow_mv_provider.core.location import table_workspaces
from airflow_mv_provider.core.outcome import Outcome
from airflow_mv_provider.exceptions import (
    MainNotOursError,
    MainUnsupportedError,
    RefreshInProgressError,
    TableNotFoundError,
    UnsafeLocationError,
)
from tests.conftest import Crash, read_independently

pytestmark = pytest.mark.slow


@pytest.fixture
def table(ten_rows):
    return ten_rows


def drop(lake, **asked):
    return lake.refresher().drop("orders", lake.caller(user="ann"), **asked)


def files_of_ours(lake, uuid: str) -> list[str]:
    root = lake.root / table_workspaces("", uuid).lstrip("/")
    return [str(path) for path in root.rglob("*")] if root.exists() else []


@pytest.mark.in_test_all
@pytest.mark.large_tables
def test_dropped_table_keeps_main_and_loses_the_rest(table):
    """Of a large table, fingerprints are kept from one refresh to the next."""
    table.write("SELECT id, 'b' AS v FROM range(10)")
    table.refresh()
    registered = table.store.table("orders")
    rows = table.rows("orders")
    assert files_of_ours(table, registered.uuid)

    done = drop(table)

    assert (done.location, done.is_main_deleted) == (registered.location, False)
    assert files_of_ours(table, registered.uuid) == []
    assert table.rows("orders") == rows
    with pytest.raises(TableNotFoundError):
        table.store.table("orders")


@pytest.mark.in_test_all
def test_table_that_is_registered_again_goes_on_with_its_main(table):
    epoch = table.store.state(table.store.table("orders").id).epoch
    drop(table)
    table.apply()
    table.write("SELECT id, 'a' AS v FROM range(9)")

    report = table.refresh()

    assert (report.outcome, report.rows_deleted, report.epoch) == (Outcome.PUBLISHED, 1, epoch + 1)
    assert table.rows("orders") == table.rows("raw/orders")


@pytest.mark.in_test_all
def test_main_is_deleted_when_that_is_asked_for_and_nothing_beside_it(table):
    table.write("SELECT 1 AS id", path="orders_of_somebody")

    done = drop(table, delete_main=True)

    assert done.is_main_deleted
    assert not (table.root / "orders").exists()
    assert len(read_independently(table.root / "raw/orders")) == 10
    assert len(read_independently(table.root / "orders_of_somebody")) == 1


@pytest.mark.in_test_all
def test_main_that_was_never_made_is_no_obstacle(lake):
    lake.apply()

    assert not drop(lake, delete_main=True).is_main_deleted
    assert lake.store.tables() == ()


@pytest.mark.in_test_all
@pytest.mark.parametrize("point", ["staging.after", "published.after"])
def test_live_owner_is_not_dropped_under(table, at_point, point):
    table.write("SELECT id, 'b' AS v FROM range(10)")
    refused = []

    def try_it() -> None:
        for asked in ({}, {"delete_main": True}):
            with pytest.raises(RefreshInProgressError):
                drop(table, **asked)
            refused.append(asked)

    at_point(point, try_it)

    assert table.refresh().outcome is Outcome.PUBLISHED
    assert len(refused) == 2
    assert table.rows("orders") == table.rows("raw/orders")


@pytest.mark.in_test_all
def test_unfinished_refresh_of_a_dead_owner_is_given_up_first(table, crash_at):
    uuid, before = table.store.table("orders").uuid, table.rows("orders")
    table.write("SELECT id, 'b' AS v FROM range(10)")
    crash_at("seal.after")
    with pytest.raises(Crash):
        table.refresh()
    table.clock.pass_ms(table.settings.lease_ms + 1)

    drop(table)

    assert table.rows("orders") == before
    assert files_of_ours(table, uuid) == []


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    "point", ["drop.before", "drop.after", "drop_files.before", "drop_files.after", "forget.before", "forget.after"]
)
def test_drop_that_dies_is_finished_by_the_next(table, crash_at, point):
    uuid = table.store.table("orders").uuid
    crash_at(point)
    with pytest.raises(Crash):
        drop(table, delete_main=True)

    if point != "forget.after":
        drop(table, delete_main=True)

    assert table.store.tables() == ()
    assert files_of_ours(table, uuid) == []
    assert not (table.root / "orders").exists()


# -- what is never deleted ---------------------------------------------------------------------------------------------


def refuses(lake, error) -> None:
    """Main may not be deleted; nothing was changed by the attempt."""
    state = lake.store.state(lake.store.table("orders").id)
    with pytest.raises(error):
        drop(lake, delete_main=True)
    assert lake.store.state(lake.store.table("orders").id) == state


@pytest.mark.in_test_all
def test_table_of_somebody_else_at_mains_place_is_not_deleted(table):
    shutil.rmtree(table.root / "orders")
    table.write("SELECT 1 AS id", path="orders")

    refuses(table, MainNotOursError)

    assert len(table.rows("orders")) == 1


@pytest.mark.in_test_all
def test_main_under_another_identity_is_not_deleted(table):
    table.sql("ALTER TABLE {t} SET TBLPROPERTIES ('mv.table_uuid' = '6a1f6a7e-6d7a-4a0b-9f5e-0d6c1c5a3b11')")

    refuses(table, MainNotOursError)

    assert len(table.rows("orders")) == 10


@pytest.mark.in_test_all
def test_files_that_are_no_delta_table_are_not_deleted(table):
    shutil.rmtree(table.root / "orders" / "_delta_log")

    refuses(table, (MainNotOursError, MainUnsupportedError))

    assert list((table.root / "orders").glob("*.parquet"))


@pytest.mark.in_test_all
def test_main_that_is_another_tables_source_is_not_deleted(table):
    table.apply(name="copy", source={"type": "delta", "path": "orders"})

    refuses(table, UnsafeLocationError)

    assert len(table.rows("orders")) == 10


@pytest.mark.in_test_all
def test_main_that_lies_elsewhere_than_its_name_says_is_not_deleted(table):
    elsewhere = table.root / "elsewhere"
    shutil.move(table.root / "orders", elsewhere)
    with table.store.engine.begin() as db:
        db.exec_driver_sql(f"UPDATE refreshable_table SET location = '{elsewhere}'")

    refuses(table, UnsafeLocationError)

    assert len(table.rows("elsewhere")) == 10
