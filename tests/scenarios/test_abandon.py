"""A person gives an unfinished refresh up: back to NORMAL by the ways of recovery, main as it was or as published."""

from __future__ import annotations

import shutil

import pytest

from airflow_mv_provider.core.outcome import Outcome
from airflow_mv_provider.core.phase import Phase
from airflow_mv_provider.exceptions import LeaseLostError, RefreshInProgressError
from tests.conftest import Crash
from tests.scenarios.conftest import change_source, check_invariants

pytestmark = pytest.mark.slow


def die(lake, crash_at, point: str) -> str:
    """Crash a refresh at a point, let its lease expire, and return its id."""
    change_source(lake)
    crash_at(point)
    with pytest.raises(Crash):
        lake.refresh()
    lake.clock.pass_ms(lake.settings.lease_ms + 1)
    return lake.store.state(lake.store.table("orders").id).refresh_id


def abandon(lake):
    return lake.refresher().abandon("orders", lake.caller(user="ann"))


@pytest.mark.in_test_all
@pytest.mark.parametrize("point", ["acquire.after", "staging.after", "seal.after", "publish.before"])
def test_unpublished_refresh_is_abandoned_and_main_stays_as_it_was(table, crash_at, point):
    before = table.rows("orders")
    refresh_id = die(table, crash_at, point)

    report = abandon(table)

    assert (report.refresh_id, report.outcome, report.error.code) == (refresh_id, Outcome.ABANDONED, "MV-ABANDONED")
    assert "ann abandoned it" in report.error.message
    assert (table.rows("orders"), table.phase(), table.workspaces()) == (before, "NORMAL", [])
    assert table.refresh().outcome is Outcome.PUBLISHED
    check_invariants(table, published=2)


@pytest.mark.in_test_all
@pytest.mark.sample(1)
@pytest.mark.parametrize("point", ["publish.after", "published.before", "published.after", "staging_delete.after"])
def test_what_main_has_is_brought_to_its_end(table, crash_at, point):
    refresh_id = die(table, crash_at, point)

    report = abandon(table)

    assert (report.refresh_id, report.outcome, report.error) == (refresh_id, Outcome.PUBLISHED, None)
    check_invariants(table, published=2)


@pytest.mark.in_test_all
def test_nothing_unfinished_is_nothing_to_abandon(table):
    assert abandon(table) is None
    assert table.phase() == "NORMAL"


@pytest.mark.in_test_all
@pytest.mark.sample(1)
@pytest.mark.parametrize("point", ["staging.after", "seal.after", "published.after"])
def test_live_owner_is_not_given_up(table, at_point, point):
    change_source(table)
    refused = []

    def try_it() -> None:
        with pytest.raises(RefreshInProgressError) as caught:
            abandon(table)
        refused.append(caught.value)

    at_point(point, try_it)

    assert table.refresh().outcome is Outcome.PUBLISHED
    assert "amv cancel" in refused[0].advice
    check_invariants(table, published=2)


@pytest.mark.in_test_all
@pytest.mark.sample(1)
@pytest.mark.parametrize("point", ["staging.before", "seal.before", "seal.after", "publish.before"])
def test_owner_that_was_only_stopped_fails_after_it_was_given_up(table, at_point, point):
    before = table.rows("orders")
    change_source(table)

    def give_up() -> None:
        table.clock.pass_ms(table.settings.lease_ms + 1)
        assert abandon(table).outcome is Outcome.ABANDONED

    at_point(point, give_up)

    with pytest.raises(LeaseLostError):
        table.refresh()

    assert (table.rows("orders"), table.phase()) == (before, "NORMAL")
    assert table.refresh().outcome is Outcome.PUBLISHED
    table.refresher().recover(table.caller())  # the stopped owner may have written until it noticed
    check_invariants(table, published=2)


@pytest.mark.in_test_all
@pytest.mark.sample(1)
@pytest.mark.parametrize("is_cancelled", [False, True])
def test_refresh_whose_main_is_gone_can_be_given_up(table, crash_at, is_cancelled):
    refresh_id = die(table, crash_at, "seal.after")
    if is_cancelled:
        table.store.request_cancel(table.store.table("orders").id, "ann")
    shutil.rmtree(table.root / "orders")

    report = abandon(table)

    assert (report.refresh_id, report.error.code, table.phase()) == (refresh_id, "MV-MAIN-MOVED", Phase.NORMAL)
    assert table.refresh().outcome is Outcome.PUBLISHED
    assert table.rows("orders") == table.rows("raw/orders")


def lose(log):
    shutil.rmtree(log)


def lose_a_commit(log):
    sorted(log.glob("*.json"))[1].unlink()


def damage(log):
    newest = max(log.glob("*.json"))
    newest.write_text("no commit")
    newest.with_name(f".{newest.name}.crc").unlink(missing_ok=True)


def damage_without_a_word(log):
    """The file system itself knows by its checksum that the file is not what was written."""
    max(log.glob("*.json")).write_text("no commit")


@pytest.mark.in_test_all
@pytest.mark.parametrize("break_log", [lose, lose_a_commit, damage, damage_without_a_word])
@pytest.mark.parametrize("point", ["staging.after", "seal.after", "published.after"])
def test_refresh_whose_main_is_no_table_any_more_can_be_given_up(table, crash_at, point, break_log):
    die(table, crash_at, point)
    break_log(table.root / "orders/_delta_log")

    abandon(table)

    assert (table.phase(), table.workspaces()) == ("NORMAL", [])
    table.refresher().drop("orders", table.caller())
    assert table.store.tables() == ()
