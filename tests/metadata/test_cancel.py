"""How a refresh is stopped: a cancel reaches its owner, an abandoned table is free at once."""

from __future__ import annotations

import pytest

from airflow_mv_provider.core.outcome import Outcome
from airflow_mv_provider.core.phase import Phase
from airflow_mv_provider.core.state import Cancelled, Renewal
from airflow_mv_provider.exceptions import LeaseLostError
from tests.metadata.rows import (
    ERROR,
    FIRST,
    LAST,
    LEASE_MS,
    RECORDED,
    SECOND,
    a_caller,
    acquired,
    dump,
    handed_over,
    publish,
    registered,
    walk,
)


@pytest.mark.parametrize("phase", [Phase.REFRESHING, Phase.MERGING])
def test_cancel_reaches_the_owner_with_its_next_heartbeat(store, table, phase):
    own = acquired(store, table)
    walk(store, own, phase)

    asked = store.request_cancel(table.id, "ann")

    assert asked
    assert store.state(table.id).is_cancel_requested
    assert store.renew(own, lease_ms=LEASE_MS) == Renewal(True, True)


@pytest.mark.parametrize("phase", [Phase.NORMAL, Phase.CLEANUP])
def test_cancel_that_comes_too_late_or_for_nothing_changes_nothing(store, table, phase):
    walk(store, acquired(store, table), phase)
    before = dump(store.engine)

    assert not store.request_cancel(table.id, "ann")
    assert dump(store.engine) == before


@pytest.mark.parametrize(
    ("phase", "is_kept", "result"),
    [
        (Phase.REFRESHING, True, Cancelled.ENDED),
        (Phase.REFRESHING, False, Cancelled.ENDED),
        (Phase.MERGING, True, Cancelled.ENDED),
        (Phase.MERGING, False, Cancelled.ENDED),
        ("compared", True, Cancelled.KEPT),
        ("compared", False, Cancelled.LEFT),
        (Phase.CLEANUP, True, Cancelled.NOTHING),
    ],
)
def test_cancel_ends_what_nobody_works_on_if_nothing_of_it_can_be_in_main(store, table, phase, is_kept, result):
    own = acquired(store, table)
    is_compared = phase == "compared"
    phase = Phase.MERGING if is_compared else phase
    walk(store, own, phase)
    for chunk in RECORDED if is_compared else ():
        store.merging.record_chunk(own, chunk)
    store.park(own, until_ms=LEASE_MS if is_kept else 0)

    assert store.cancel(table, a_caller("ann")) is result

    is_over = result is Cancelled.ENDED
    assert store.state(table.id).phase is (Phase.NORMAL if is_over else phase)
    if is_over:
        with pytest.raises(LeaseLostError):
            walk(store, own, Phase.MERGING)


def test_cancel_of_a_dead_owner_bars_one_that_is_alive_from_its_last_chunk(store, table, clock):
    own = acquired(store, table)
    walk(store, own, Phase.MERGING)
    store.merging.record_chunk(own, FIRST)
    store.merging.record_chunk(own, SECOND)
    clock.pass_ms(LEASE_MS + 1)

    assert store.cancel(table, a_caller("ann")) is Cancelled.ENDED

    with pytest.raises(LeaseLostError):
        store.merging.record_chunk(own, LAST)
    assert store.report(own.refresh_id).outcome is Outcome.CANCELLED


@pytest.mark.parametrize("num_recorded", [0, 1, len(RECORDED)])
def test_cancel_does_not_end_a_progressive_refresh_that_may_have_committed(store, num_recorded):
    changes = {"publish": "progressive", "partition_by": ["id"]}
    table = registered(store, **changes)
    own = acquired(store, table)
    walk(store, own, Phase.MERGING)
    for chunk in RECORDED[:num_recorded]:
        store.merging.record_chunk(own, chunk, is_progressive=True)
    store.park(own, until_ms=0)

    assert store.cancel(table, a_caller("ann")) is (
        Cancelled.LEFT if num_recorded == len(RECORDED) else Cancelled.ENDED
    )


def test_cancel_does_not_end_a_refresh_in_its_second_round(store, table):
    own = acquired(store, table)
    walk(store, own, Phase.MERGING)
    store.merging.discard_chunks(own, None, 0)
    store.park(own, until_ms=0)

    assert store.cancel(table, a_caller("ann")) is Cancelled.LEFT


def test_cancel_leaves_a_refresh_to_the_process_that_works_on_it(store, table):
    acquired(store, table)

    assert store.cancel(table, a_caller("ann")) is Cancelled.REQUESTED
    assert store.state(table.id).phase is Phase.REFRESHING


def test_cancel_of_an_unknown_table_is_none(store, table):
    assert not store.request_cancel(table.id + 1, "ann")


def test_cancel_outlives_a_takeover(store, table, clock):
    own = acquired(store, table)
    store.request_cancel(table.id, "ann")
    clock.pass_ms(LEASE_MS + 1)

    newer = handed_over(store, own, "two")

    assert store.renew(newer, lease_ms=LEASE_MS) == Renewal(True, True)


def test_cancel_between_look_and_hand_over_is_not_lost(store, table):
    acquired(store, table)
    seen = store.state(table.id)
    assert store.request_cancel(table.id, "ann")

    newer = store.hand_over(seen, a_caller("one"), epoch=2, lease_ms=LEASE_MS)

    assert store.renew(newer, lease_ms=LEASE_MS) == Renewal(True, True)


def test_cancel_ends_with_the_refresh_it_was_for(store, table):
    own = acquired(store, table)
    store.request_cancel(table.id, "ann")
    store.abandon(own, Outcome.CANCELLED, ERROR, {})

    again = acquired(store, table)

    assert store.renew(again, lease_ms=LEASE_MS) == Renewal(True, False)


def test_cancel_of_a_refresh_that_publishes_all_the_same_does_not_reach_the_next_one(store, table):
    own = acquired(store, table)
    walk(store, own, Phase.MERGING)
    store.request_cancel(table.id, "ann")
    publish(store, own)
    store.finish(own, {})

    again = acquired(store, table)

    assert store.renew(again, lease_ms=LEASE_MS) == Renewal(True, False)


@pytest.mark.parametrize("phase", [Phase.REFRESHING, Phase.MERGING])
def test_abandoned_table_is_free_at_once(store, table, phase):
    own = acquired(store, table)
    walk(store, own, phase)

    store.abandon(own, Outcome.FAILED, ERROR, {"MERGING": 1.0})

    state = store.state(table.id)
    assert (state.phase, state.epoch, state.refresh_id, state.owner_key) == (Phase.NORMAL, 1, None, None)
    assert not state.is_lease_live
    assert store.chunks(own.refresh_id) == ((), ())
    report = store.report(own.refresh_id)
    assert (report.outcome, report.phase, report.error) == (Outcome.FAILED, Phase.NORMAL, ERROR)
    assert store.refresh(own.refresh_id).is_ended


def test_what_main_has_is_not_abandoned(store, table):
    own = acquired(store, table)
    walk(store, own, Phase.CLEANUP)
    before = dump(store.engine)

    with pytest.raises((AssertionError, LeaseLostError)):
        store.abandon(own, Outcome.FAILED, ERROR, {})

    assert dump(store.engine) == before
