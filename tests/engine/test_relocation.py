"""A warehouse that was moved, or copied: a table's identity is in main; it goes where main goes, and to one place."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from airflow_mv_provider.core.outcome import Outcome
from airflow_mv_provider.exceptions import (
    MainNotOursError,
    MvError,
    RefreshInProgressError,
    RefreshPausedError,
    SettingError,
    TableConflictError,
)
from tests.conftest import Crash, make_lake

pytestmark = pytest.mark.slow


@pytest.fixture
def table(ten_rows):
    return ten_rows


def moved(lake: Any, how: Any = Path.rename) -> Path:
    """Move the warehouse, or copy it, and let the settings name the new place; return the old one."""
    old, new = lake.root, lake.root.with_name("elsewhere")
    how(old, new)
    lake.root, lake.settings = new, replace(lake.settings, warehouse=str(new))
    return old


def die_refreshing(lake: Any, crash_at: Any, point: str) -> None:
    lake.write("SELECT id, 'b' AS v FROM range(9)")
    crash_at(point)
    with pytest.raises(Crash):
        lake.refresh()


def relocate(lake: Any, **asked: Any) -> Any:
    return lake.refresher().relocate("orders", lake.caller(), **asked)


@pytest.mark.in_test_all
def test_table_goes_on_where_its_warehouse_was_moved_to(table):
    before = table.store.table("orders")
    old = moved(table)
    with pytest.raises(TableConflictError, match=r"registered at .*, which is empty.*amv relocate orders"):
        table.refresh()
    with pytest.raises(TableConflictError, match="amv relocate orders --warehouse"):
        table.apply()

    done = relocate(table)

    after = table.store.table("orders")
    assert (done.before, done.location) == (before.location, after.location)
    assert (after.uuid, after.location) == (before.uuid, str(table.root / "orders"))
    known = table.store.state(after.id).published_totals
    assert known is not None, "they have moved, too"
    assert all(Path(kept.path).is_relative_to(table.root) for kept in known.fingerprints)
    assert table.refresh().outcome is Outcome.NOTHING_TO_DO
    table.write("SELECT id, 'b' AS v FROM range(9)")
    report = table.refresh()
    assert (report.outcome, report.rows_updated, report.rows_deleted) == (Outcome.PUBLISHED, 9, 1)
    assert table.rows() == table.rows("raw/orders")
    assert table.published() is not None
    assert not old.exists()
    assert relocate(table).before == after.location


@pytest.mark.in_test_all
def test_copy_does_not_share_an_identity(table):
    old = moved(table, shutil.copytree)

    with pytest.raises(TableConflictError, match=r"both hold a table with the identity.*UNSET TBLPROPERTIES"):
        relocate(table)

    assert table.store.table("orders").location == str(old / "orders")
    # As the hint says: the copy gets an identity of its own, under a name of its own.
    table.sql("ALTER TABLE {t} UNSET TBLPROPERTIES ('mv.table_uuid')")
    (table.root / "orders").rename(table.root / "copied")
    table.apply(name="copied", adopt=True)
    table.refresh("copied")
    assert table.store.table("copied").uuid != table.store.table("orders").uuid
    assert table.rows("copied") == table.rows("raw/orders")


@pytest.mark.in_test_all
def test_copy_that_is_relocated_leaves_the_original_and_its_unfinished_refresh_alone(table, crash_at):
    """Warehouse and database are copied while a refresh is unfinished, as for a second installation."""
    die_refreshing(table, crash_at, "seal.after")
    table.clock.pass_ms(table.settings.lease_ms + 1)
    place = table.root.parent.with_name("copy")
    shutil.copytree(table.root.parent, place)
    copy, before = make_lake(table.spark, place, table.clock), files(table)

    relocate(copy, is_old_gone=True)

    assert files(table) == before, "neither fenced nor cleaned"
    assert copy.refresh().outcome is Outcome.PUBLISHED
    [report] = table.refresher().recover(table.caller())
    assert report.outcome is Outcome.PUBLISHED
    for lake in (table, copy):
        assert (lake.phase(), lake.rows()) == ("NORMAL", lake.rows("raw/orders"))
        lake.refresher().recover(lake.caller())
        assert lake.workspaces() == []
    copy.store.engine.dispose()


def files(lake: Any) -> set[Path]:
    return {each for each in lake.root.rglob("*") if each.is_file()}


@pytest.mark.in_test_all
def test_copy_that_replaces_a_place_that_cannot_be_looked_at_is_believed(table):
    moved(table, shutil.copytree)

    assert relocate(table, is_old_gone=True).location == str(table.root / "orders")
    assert table.refresh().outcome is Outcome.NOTHING_TO_DO


@pytest.mark.in_test_all
@pytest.mark.sample(1)
@pytest.mark.parametrize("what", ["nothing", "nobody's", "another's", "not moved"])
def test_place_that_does_not_hold_the_table_is_refused(table, what):
    before, old = table.store.table("orders"), table.root
    if what == "not moved":
        table.settings = replace(table.settings, warehouse=str(old.with_name("elsewhere")))
    else:
        moved(table)
        shutil.rmtree(table.root / "orders")
    if what in ("nobody's", "another's"):
        other = " TBLPROPERTIES ('mv.table_uuid' = '00000000-0000-4000-8000-000000000000')" if "an" in what else ""
        table.sql(f"CREATE TABLE {{t}} (id BIGINT) USING delta{other}")

    with pytest.raises((MainNotOursError, TableConflictError)):
        relocate(table)

    assert table.store.table("orders") == before


@pytest.mark.in_test_all
def test_table_that_was_never_refreshed_is_registered_anew(lake):
    lake.write("SELECT id, 'a' AS v FROM range(10)")
    lake.apply()
    moved(lake)

    relocate(lake)

    assert lake.refresh().outcome is Outcome.PUBLISHED
    assert lake.rows() == lake.rows("raw/orders")


@pytest.mark.in_test_all
@pytest.mark.parametrize("point", ["staging.after", "seal.after", "publish.after", "published.after"])
def test_unfinished_refresh_of_a_dead_owner_is_given_up_and_of_a_live_one_is_in_the_way(table, crash_at, point):
    die_refreshing(table, crash_at, point)
    moved(table)
    with pytest.raises(RefreshInProgressError):
        relocate(table)
    table.clock.pass_ms(table.settings.lease_ms + 1)

    relocate(table)

    assert (table.phase(), table.store.table("orders").location) == ("NORMAL", str(table.root / "orders"))
    assert table.refresh().outcome in (Outcome.PUBLISHED, Outcome.NOTHING_TO_DO)
    assert table.rows() == table.rows("raw/orders")
    table.refresher().recover(table.caller())
    assert table.workspaces() == []


@pytest.mark.in_test_all
@pytest.mark.parametrize("point", ["staging.after", "seal.after", "publish.after", "published.after"])
def test_who_relocates_dies_before_the_unfinished_refresh_is_ended(table, crash_at, point):
    die_refreshing(table, crash_at, point)
    moved(table)
    table.clock.pass_ms(table.settings.lease_ms + 1)
    crash_at("relocate.after")
    with pytest.raises(Crash):
        relocate(table)

    assert table.refresh().outcome in (Outcome.PUBLISHED, Outcome.NOTHING_TO_DO)

    assert table.rows() == table.rows("raw/orders")
    table.refresher().recover(table.caller())
    assert (table.phase(), table.workspaces()) == ("NORMAL", [])


@pytest.mark.in_test_all
def test_table_that_is_being_dropped_is_not_relocated(table, crash_at):
    crash_at("drop_files.before")
    with pytest.raises(Crash):
        table.refresher().drop("orders", table.caller())
    moved(table)

    with pytest.raises(RefreshPausedError, match=r"being dropped.*amv drop"):
        relocate(table)

    table.refresher().drop("orders", table.caller())
    assert table.store.tables() == ()


@pytest.mark.in_test_all
def test_whoever_began_to_look_at_the_old_place_looks_again(table, at_point):
    table.write("SELECT id, 'b' AS v FROM range(9)")

    def move() -> None:
        moved(table)
        relocate(table)

    at_point("acquire.before", move)

    report = None
    try:
        report = table.refresh()
    except MvError:  # the settings of the process that began are those of the old place
        report = table.refresh()

    assert report.outcome is Outcome.PUBLISHED
    assert table.rows() == table.rows("raw/orders")
    assert not table.root.with_name("warehouse").exists()


@pytest.mark.in_test_all
def test_no_warehouse_and_a_place_inside_another_table_are_refused(table):
    with pytest.raises(SettingError, match="none is set"):
        replace_settings(table, None).relocate("orders", table.caller())


def replace_settings(lake: Any, warehouse: str | None) -> Any:
    lake.settings = replace(lake.settings, warehouse=warehouse)
    return lake.refresher()
