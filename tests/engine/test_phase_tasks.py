"""A refresh that several processes of one caller do together, as the phase tasks of a DAG's run do."""

from __future__ import annotations

import re

import pytest

from airflow_mv_provider.core.outcome import Outcome
from airflow_mv_provider.core.phase import Phase
from airflow_mv_provider.exceptions import DuplicateKeyError, RefreshCancelledError
from airflow_mv_provider.runner.refresh import AcquiredRefresh, Refresher

pytestmark = pytest.mark.slow


@pytest.mark.in_test_all
def test_a_process_that_comes_again_leaves_a_refresh_that_is_further(lake):
    lake.write("SELECT id FROM range(5)")
    lake.apply()
    caller = lake.caller()
    begun = lake.refresher().begin("orders", caller)
    assert isinstance(begun, AcquiredRefresh)
    lake.refresher().park(begun)
    refresh_id = begun.own.refresh_id
    lake.refresher().resume(refresh_id, caller, until=Phase.CLEANUP)

    lake.refresher().resume(refresh_id, caller, until=Phase.MERGING)

    assert lake.phase() == "CLEANUP"
    assert lake.refresher().resume(refresh_id, caller, until=Phase.NORMAL).outcome is Outcome.PUBLISHED
    assert lake.rows("orders") == lake.rows("raw/orders")


def test_the_log_has_a_line_before_whatever_takes_long(lake, caplog):
    lake.write("SELECT id FROM range(5)")
    lake.apply()
    caplog.set_level("INFO", "airflow_mv_provider")

    report = lake.refresh()
    lake.refresh()

    lines = [record.getMessage() for record in caplog.records]
    assert lines[0] == "Starting Spark (in this process)."
    assert re.fullmatch(r"Spark is ready after \d+[.]\d s[.]", lines[1])
    assert lines[2] == "orders: looking for what has changed in its source and in the table."
    assert lines[3] == f"orders refresh {report.refresh_id}: first refresh: writing all rows."
    of_refresh = f"orders refresh {report.refresh_id}: "
    assert [line.removeprefix(of_refresh) for line in lines[4:] if line.startswith(of_refresh)] == [
        "making sure that no earlier process can still change the table",
        "reading and comparing the source: Delta version 0",
        "publishing the changes",
        "looking in the table's log whether it is published",
        "removing working files",
    ]
    assert lines[-1] == "orders: nothing to do: the source and the table are unchanged."
    assert not re.search("fenc|epoch|stag|seal|digest|lease|corrections", " ".join(lines)), "these are the protocol's"


def test_a_refresh_that_fails_says_how_long_it_worked(lake):
    lake.write("SELECT id FROM range(5) UNION ALL SELECT 0")
    lake.apply()

    with pytest.raises(DuplicateKeyError):
        lake.refresh()

    [report] = lake.store.history(1, 1)
    assert report.outcome is Outcome.FAILED
    assert list(report.phase_seconds) == list(report.attempts[0].phase_seconds) == ["REFRESHING"]
    assert report.phase_seconds["REFRESHING"] > 0


def parked(lake, caller):
    """Begin a refresh, whose next task has not come yet."""
    lake.write("SELECT id FROM range(5)")
    lake.apply()
    begun = lake.refresher().begin("orders", caller)
    lake.refresher().park(begun)
    return begun


def test_a_task_whose_refresh_is_to_be_cancelled_ends_it_without_starting_spark(lake):
    caller = lake.caller()
    begun = parked(lake, caller)
    lake.store.request_cancel(begun.table.id, "ann")
    without_spark = Refresher(lake.store, lake.settings, session=lambda: pytest.fail("Spark was started"))

    with pytest.raises(RefreshCancelledError):
        without_spark.resume(begun.own.refresh_id, caller, until=Phase.CLEANUP)

    assert lake.phase() == "NORMAL"
    assert lake.store.report(begun.own.refresh_id).outcome is Outcome.CANCELLED


@pytest.mark.in_test_all
def test_a_task_whose_compared_refresh_is_to_be_cancelled_ends_it_once_it_has_read_the_tables_log(lake):
    caller = lake.caller()
    begun = parked(lake, caller)
    lake.refresher().resume(begun.own.refresh_id, caller, until=Phase.MERGING)
    lake.store.request_cancel(begun.table.id, "ann")

    with pytest.raises(RefreshCancelledError):
        lake.refresher().resume(begun.own.refresh_id, caller, until=Phase.CLEANUP)

    assert lake.phase() == "NORMAL"
    assert lake.store.report(begun.own.refresh_id).outcome is Outcome.CANCELLED


@pytest.mark.in_test_all
def test_who_takes_over_and_finds_nothing_left_has_a_row_of_its_own(lake):
    dead = lake.caller()
    begun = parked(lake, dead)
    lake.refresher().resume(begun.own.refresh_id, dead, until=Phase.MERGING)
    lake.clock.pass_ms(lake.settings.handover_ms + 1)

    report = lake.refresher().begin("orders", lake.caller())

    assert report.outcome is Outcome.NOTHING_TO_DO
    assert report.refresh_id != begun.own.refresh_id
    assert report.recovered == (begun.own.refresh_id,)
    assert lake.rows("orders") == lake.rows("raw/orders")


@pytest.mark.in_test_all
def test_who_does_all_phases_and_finds_nothing_left_reports_what_was_taken_over(lake):
    dead = lake.caller()
    begun = parked(lake, dead)
    lake.refresher().resume(begun.own.refresh_id, dead, until=Phase.MERGING)
    lake.clock.pass_ms(lake.settings.handover_ms + 1)

    report = lake.refresh()

    assert (report.outcome, report.rows_inserted) == (Outcome.PUBLISHED, 5)
    assert report.recovered == (begun.own.refresh_id,)


@pytest.mark.in_test_all
def test_a_forced_refresh_of_an_unchanged_table_finds_nothing(lake):
    lake.write("SELECT id FROM range(5)")
    lake.apply()
    lake.refresh()

    report = lake.refresh(force=True)

    assert (report.outcome, report.rows_unchanged) == (Outcome.PUBLISHED, 5)
    assert lake.rows("orders") == lake.rows("raw/orders")
