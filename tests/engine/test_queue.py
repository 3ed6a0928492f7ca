"""Several who want one table refreshed: in turn, or with one refresh for all."""

from __future__ import annotations

import pytest

from airflow_mv_provider.core.outcome import Outcome
from airflow_mv_provider.core.phase import Phase
from airflow_mv_provider.exceptions import RefreshCancelledError, RefreshInProgressError, RefreshPausedError

pytestmark = pytest.mark.slow


@pytest.fixture
def table(ten_rows):
    ten_rows.write("SELECT id, 'b' AS v FROM range(10)")
    return ten_rows


def waits(lake, caller, **asked) -> RefreshInProgressError:
    with pytest.raises(RefreshInProgressError) as caught:
        lake.refresh(caller=caller, **asked)
    return caught.value


def joined(lake, caller) -> str | None:
    return lake.store.queue.joined(lake.store.table("orders").id, caller.key)


def history(lake):
    return lake.store.history(lake.store.table("orders").id)


def test_those_who_wait_are_served_in_their_turn(table, at_point):
    table.apply(concurrency="queue")
    first, second = table.caller(), table.caller()

    def both_come() -> None:
        assert waits(table, first).facts["position"] == 1
        assert waits(table, second).facts["position"] == 2

    at_point("staging.after", both_come)
    table.refresh()

    assert "is first in its queue" in waits(table, second).problem
    assert table.refresh(caller=first).outcome is Outcome.NOTHING_TO_DO
    assert table.refresh(caller=second).outcome is Outcome.NOTHING_TO_DO
    assert table.store.waiters(table.store.table("orders").id) == ()
    assert table.rows("orders") == table.rows("raw/orders")


@pytest.mark.in_test_all
def test_who_joins_gets_the_report_of_the_refresh_under_way(table, at_point):
    table.apply(concurrency="join")
    joiner = table.caller()
    at_point("staging.after", lambda: waits(table, joiner))

    report = table.refresh()

    assert table.refresh(caller=joiner) == report
    assert history(table)[0].refresh_id == report.refresh_id
    assert len(history(table)) == 2
    assert table.store.waiters(table.store.table("orders").id) == ()


@pytest.mark.in_test_all
def test_pause_is_not_for_who_waits_for_a_refresh_under_way(table, at_point):
    table.apply(concurrency="join")
    joiner, other = table.caller(), table.caller()

    def join_then_pause() -> None:
        waits(table, joiner)
        table.store.pause(table.store.table("orders").id, "ann")
        assert waits(table, joiner).facts["position"] == 1
        with pytest.raises(RefreshPausedError):
            table.refresh(caller=other)

    at_point("staging.after", join_then_pause)
    report = table.refresh()

    assert table.refresh(caller=joiner) == report


@pytest.mark.in_test_all
def test_source_that_moved_after_the_pin_is_refreshed_again(table, at_point):
    table.apply(concurrency="join")
    late = table.caller()

    def source_moves() -> None:
        table.write("SELECT id, 'c' AS v FROM range(10)")
        waits(table, late)
        assert joined(table, late) is None

    at_point("staging.before", source_moves)
    table.refresh()

    report = table.refresh(caller=late)

    assert (report.outcome, report.rows_updated) == (Outcome.PUBLISHED, 10)
    assert table.rows("orders") == table.rows("raw/orders")


@pytest.mark.in_test_all
@pytest.mark.parametrize(
    ("point", "asked"),
    [
        ("seal.after", {}),
        ("publish.after", {}),
        ("staging.before", {"force": True}),
        ("staging.before", {"overrides": 1}),
    ],
    ids=str,
)
def test_who_comes_too_late_or_asks_for_more_waits_for_its_own(table, at_point, point, asked):
    table.apply(concurrency="join")
    other = table.caller()
    more = {"overrides": ["allow_empty"]} if "overrides" in asked else asked
    at_point(point, lambda: waits(table, other, **more))

    report = table.refresh()

    assert joined(table, other) is None
    assert table.refresh(caller=other, **more).refresh_id != report.refresh_id


@pytest.mark.in_test_all
def test_who_joined_a_refresh_that_was_cancelled_takes_its_own_turn(table, at_point):
    table.apply(concurrency="join")
    joiner = table.caller()

    def join_then_cancel() -> None:
        waits(table, joiner)
        assert joined(table, joiner) is not None
        table.store.request_cancel(table.store.table("orders").id, "ann")

    at_point("staging.before", join_then_cancel)
    with pytest.raises(RefreshCancelledError):
        table.refresh()

    report = table.refresh(caller=joiner)

    assert (report.outcome, report.rows_updated) == (Outcome.PUBLISHED, 10)
    assert table.rows("orders") == table.rows("raw/orders")


@pytest.mark.in_test_all
def test_new_definition_is_pending_until_the_refresh_has_ended(table, at_point):
    seen = []

    def apply_another() -> None:
        table.apply(chunk_rows=7)
        seen.append(table.store.status(table.store.table("orders")).pending_definition)

    at_point("staging.after", apply_another)
    report = table.refresh()

    assert seen == [("chunk_rows",)]
    assert table.store.refresh(report.refresh_id).definition.chunk_rows == 5_000_000
    assert table.store.status(table.store.table("orders")).pending_definition == ()


@pytest.mark.in_test_all
def test_pause_during_a_refresh_lets_it_end_and_the_next_one_wait(table, at_point):
    registered = table.store.table("orders")
    at_point("staging.after", lambda: table.store.pause(registered.id, "ann"))

    assert table.refresh().outcome is Outcome.PUBLISHED
    with pytest.raises(RefreshPausedError):
        table.refresh(force=True)
    assert len(history(table)) == 2
    assert table.refresh(read_only=True).outcome is Outcome.DIFFERENCES
    table.store.resume(registered.id)
    assert table.refresh(force=True).outcome is Outcome.PUBLISHED


@pytest.mark.in_test_all
def test_dead_owner_of_a_paused_table_is_ended_by_recover_alone(table):
    registered = table.store.table("orders")
    begun = table.refresher().begin("orders", table.caller())
    table.store.pause(registered.id, "ann")
    table.clock.pass_ms(table.settings.lease_ms + 1)

    with pytest.raises(RefreshPausedError):
        table.refresh()
    [report] = table.refresher().recover(table.caller())

    assert (report.refresh_id, report.outcome) == (begun.own.refresh_id, Outcome.ABANDONED)
    assert table.phase() == Phase.NORMAL
