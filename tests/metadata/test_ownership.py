"""Who may work on a table: acquire, hand over, renew, park, expire, cancel. Time is the test's clock."""

from __future__ import annotations

import threading

import pytest
from sqlalchemy import literal, select

from airflow_mv_provider.core.batch import BatchDescription
from airflow_mv_provider.core.frontier import Binding
from airflow_mv_provider.core.outcome import Outcome
from airflow_mv_provider.core.phase import Phase
from airflow_mv_provider.core.state import Admission, Ownership, Renewal, admit, is_lease_live
from airflow_mv_provider.core.strategy import Choice
from airflow_mv_provider.exceptions import LeaseLostError
from airflow_mv_provider.metadata import rows
from airflow_mv_provider.metadata.models import RefreshAttemptRow
from airflow_mv_provider.metadata.store import Store
from airflow_mv_provider.sources.delta.frontier import DeltaFrontier
from tests.metadata.rows import (
    ERROR,
    LEASE_MS,
    a_caller,
    a_refresh,
    acquired,
    dump,
    handed_over,
    publish,
    registered,
    walk,
)

AT_WORK = [Phase.REFRESHING, Phase.MERGING, Phase.CLEANUP]


@pytest.fixture
def table(store):
    return registered(store)


# -- acquire ---------------------------------------------------------------------------------------------------------


def test_acquire_binds_the_source_and_takes_the_table_in_one_step(store, table, clock):
    refresh = a_refresh(table, upper=3, overrides=("allow_empty",), choice=Choice("corrections", "because"))
    caller = a_caller("dag/1", trigger="dag", user="ann")

    own = store.acquire(store.state(table.id), refresh, caller, epoch=7, lease_ms=LEASE_MS)

    state = store.state(table.id)
    assert own == Ownership(table.id, refresh.id, 7)
    assert (state.phase, state.epoch, state.refresh_id) == (Phase.REFRESHING, 7, refresh.id)
    assert (state.owner_key, state.owner_process) == ("dag/1", "host:dag/1")
    assert state.is_lease_live
    assert not state.is_cancel_requested
    assert store.refresh(refresh.id) == refresh
    assert store.newest_binding(table.id) == Binding(3, DeltaFrontier("source", 3))
    report = store.report(refresh.id)
    assert (report.outcome, report.trigger, report.user) == (Outcome.RUNNING, "dag", "ann")
    assert (report.lower, report.upper, report.source) == (0, 3, "Delta version 3")


def test_outdated_belief_acquires_nothing(store, table):
    seen = store.state(table.id)
    acquired(store, table)
    before = dump(store.engine)

    own = store.acquire(seen, a_refresh(table), a_caller("two"), epoch=9, lease_ms=LEASE_MS)

    assert own is None
    assert dump(store.engine) == before


def test_belief_from_before_somebody_elses_whole_refresh_acquires_nothing(store, table):
    seen = store.state(table.id)
    walk(store, acquired(store, table), Phase.NORMAL)
    before = dump(store.engine)

    own = store.acquire(seen, a_refresh(table), a_caller("two"), epoch=9, lease_ms=LEASE_MS)

    assert own is None
    assert dump(store.engine) == before


@pytest.mark.parametrize("phase", AT_WORK)
def test_table_at_work_is_not_acquired_even_from_a_dead_owner(store, table, clock, phase):
    walk(store, acquired(store, table), phase)
    clock.pass_ms(LEASE_MS + 1)
    before = dump(store.engine)

    own = store.acquire(store.state(table.id), a_refresh(table), a_caller("two"), epoch=9, lease_ms=LEASE_MS)

    assert own is None
    assert dump(store.engine) == before


def test_acquire_that_fails_leaves_the_table_free(store, table):
    first = a_refresh(table)
    store.record(first, a_caller(), Outcome.NOTHING_TO_DO)
    before = dump(store.engine)

    with pytest.raises(Exception, match=r"(?i)unique"):
        store.acquire(store.state(table.id), first, a_caller(), epoch=1, lease_ms=LEASE_MS)

    assert dump(store.engine) == before


def test_tables_do_not_disturb_each_other(store, table):
    other = registered(store, "other")
    own = acquired(store, table)
    before = store.state(other.id)

    theirs = acquired(store, other)
    store.abandon(own, Outcome.FAILED, ERROR, {})

    assert before.phase is Phase.NORMAL
    assert store.state(other.id).phase is Phase.REFRESHING
    assert store.renew(theirs, lease_ms=LEASE_MS) == Renewal(True, False)


def test_abandoned_batch_leaves_its_binding_for_the_next_refresh(store, table):
    own = acquired(store, table)
    store.abandon(own, Outcome.FAILED, ERROR, {})

    again = acquired(store, table)

    assert again.refresh_id != own.refresh_id
    assert store.newest_binding(table.id) == Binding(1, DeltaFrontier("source", 1))
    assert store.refresh(again.refresh_id).batch == BatchDescription(0, 1)


def test_newest_binding_is_the_greatest_and_the_tables_own(store, table):
    other = registered(store, "other")
    assert store.newest_binding(table.id) is None

    for upper in (1, 2, 10):
        store.abandon(acquired(store, table, lower=0, upper=upper), Outcome.FAILED, None, {})
    acquired(store, other, lower=0, upper=99)

    assert store.newest_binding(table.id).upper == 10


@pytest.mark.parametrize("rounds", [10])
def test_of_many_threads_exactly_one_wins(store, table, rounds):
    barrier, won = threading.Barrier(4), []

    def race() -> None:
        mine = Store(store.engine)
        for _ in range(rounds):
            state = mine.state(table.id)
            barrier.wait()
            own = mine.acquire(state, a_refresh(table), a_caller(), epoch=state.epoch + 1, lease_ms=LEASE_MS)
            barrier.wait()
            if own:
                won.append(own.epoch)
                mine.abandon(own, Outcome.FAILED, None, {})
            barrier.wait()

    threads = [threading.Thread(target=race) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert won == list(range(1, rounds + 1))


# -- hand over -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("phase", AT_WORK)
def test_own_key_takes_a_live_refresh_over_under_a_later_epoch(store, table, phase):
    own = acquired(store, table)
    walk(store, own, phase)

    newer = store.hand_over(store.state(table.id), a_caller("one"), epoch=5, lease_ms=LEASE_MS)

    state = store.state(table.id)
    assert newer == Ownership(table.id, own.refresh_id, 5)
    assert (state.phase, state.epoch, state.refresh_id, state.is_lease_live) == (phase, 5, own.refresh_id, True)
    assert store.report(own.refresh_id).epoch == 5


@pytest.mark.parametrize("phase", AT_WORK)
def test_live_lease_cannot_be_taken_by_another_key(store, table, clock, phase):
    own = acquired(store, table)
    walk(store, own, phase)
    clock.pass_ms(LEASE_MS // 2)
    before = dump(store.engine)

    newer = store.hand_over(store.state(table.id), a_caller("two"), epoch=5, lease_ms=LEASE_MS)

    assert newer is None
    assert dump(store.engine) == before


@pytest.mark.parametrize("phase", AT_WORK)
def test_dead_owner_is_taken_over_by_anybody(store, table, clock, phase):
    own = acquired(store, table)
    walk(store, own, phase)
    clock.pass_ms(LEASE_MS + 1)

    newer = handed_over(store, own, "two")

    state = store.state(table.id)
    assert newer == Ownership(table.id, own.refresh_id, own.epoch + 1)
    assert (state.owner_key, state.owner_process, state.is_lease_live) == ("two", "host:two", True)


def test_owner_that_renews_after_the_look_is_not_taken_over(store, table, clock):
    own = acquired(store, table)
    clock.pass_ms(LEASE_MS + 1)
    seen = store.state(table.id)
    store.renew(own, lease_ms=LEASE_MS)
    before = dump(store.engine)

    newer = store.hand_over(seen, a_caller("two"), epoch=5, lease_ms=LEASE_MS)

    assert not seen.is_lease_live
    assert newer is None
    assert dump(store.engine) == before


def test_of_two_with_one_look_the_second_hands_nothing_over(store, table):
    acquired(store, table)
    seen = store.state(table.id)
    first = store.hand_over(seen, a_caller("one"), epoch=2, lease_ms=LEASE_MS)
    before = dump(store.engine)

    second = store.hand_over(seen, a_caller("one"), epoch=3, lease_ms=LEASE_MS)

    assert (first.epoch, second) == (2, None)
    assert dump(store.engine) == before


def test_phase_that_moved_after_the_look_hands_nothing_over(store, table):
    own = acquired(store, table)
    seen = store.state(table.id)
    walk(store, own, Phase.MERGING)
    before = dump(store.engine)

    newer = store.hand_over(seen, a_caller("one"), epoch=2, lease_ms=LEASE_MS)

    assert newer is None
    assert dump(store.engine) == before


def test_refresh_that_ended_after_the_look_hands_nothing_over(store, table, clock):
    own = acquired(store, table)
    clock.pass_ms(LEASE_MS + 1)
    seen = store.state(table.id)
    store.abandon(own, Outcome.FAILED, ERROR, {})
    acquired(store, table, "three")
    before = dump(store.engine)

    newer = store.hand_over(seen, a_caller("two"), epoch=9, lease_ms=LEASE_MS)

    assert newer is None
    assert dump(store.engine) == before


@pytest.mark.parametrize("epoch", [0, 1])
def test_epoch_that_does_not_grow_is_refused(store, table, epoch):
    acquired(store, table)
    before = dump(store.engine)

    with pytest.raises(AssertionError):
        store.hand_over(store.state(table.id), a_caller("one"), epoch=epoch, lease_ms=LEASE_MS)

    assert dump(store.engine) == before


def test_epochs_only_grow_and_each_has_one_process(store, table, clock):
    own = acquired(store, table)
    walk(store, own, Phase.MERGING)
    for key in ("one", "two", "three", "three"):
        clock.pass_ms(LEASE_MS + 1)
        own = handed_over(store, own, key)
    publish(store, own)
    store.finish(own, {})
    acquired(store, table, "four")

    with store.engine.begin() as db:
        attempts = db.execute(
            select(RefreshAttemptRow.epoch, RefreshAttemptRow.phase, RefreshAttemptRow.owner_key).order_by(
                RefreshAttemptRow.epoch
            )
        ).all()
    assert [tuple(a) for a in attempts] == [
        (1, "REFRESHING", "one"),
        (2, "MERGING", "one"),
        (3, "MERGING", "two"),
        (4, "MERGING", "three"),
        (5, "MERGING", "three"),
        (6, "REFRESHING", "four"),
    ]
    assert store.merging_attempts(own.refresh_id) == 4


def test_first_epoch_of_a_refresh_stays_what_it_was_whoever_takes_it_over(store, table, clock):
    own = acquired(store, table)
    for key in ("two", "three"):
        clock.pass_ms(LEASE_MS + 1)
        newer = handed_over(store, own, key)

    assert (store.first_epoch(own.refresh_id), newer.epoch) == (own.epoch, own.epoch + 2)


def test_worked_on_is_the_newest_refresh_a_caller_began_or_else_took_over(store, table, clock):
    assert store.worked_on("one") is None
    first = acquired(store, table, "one")
    clock.pass_ms(LEASE_MS + 1)
    handed_over(store, first, "two")

    assert store.worked_on("one") == store.worked_on("two") == first.refresh_id

    store.abandon(Ownership(table.id, first.refresh_id, 2), Outcome.ABANDONED, None, {})
    clock.pass_ms(1)
    second = acquired(store, table, "two")

    assert store.worked_on("two") == second.refresh_id


# -- lease -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("passed_ms", "is_live"), [(0, True), (LEASE_MS // 2, True), (LEASE_MS + 1, False)])
def test_lease_lives_by_the_databases_clock(store, table, clock, passed_ms, is_live):
    acquired(store, table)

    clock.pass_ms(passed_ms)

    assert store.state(table.id).is_lease_live is is_live
    assert admit(store.state(table.id), "two") is (Admission.WAIT if is_live else Admission.TAKE_OVER)
    assert admit(store.state(table.id), "one") is Admission.ADOPT


def test_renewal_prolongs_the_lease_from_now(store, table, clock):
    own = acquired(store, table)
    for _ in range(5):
        clock.pass_ms(LEASE_MS // 2)
        assert store.renew(own, lease_ms=LEASE_MS) == Renewal(True, False)

    clock.pass_ms(LEASE_MS // 2)
    assert store.state(table.id).is_lease_live

    clock.pass_ms(LEASE_MS // 2 + 1)
    assert not store.state(table.id).is_lease_live


def test_expired_lease_that_nobody_took_may_be_renewed(store, table, clock):
    own = acquired(store, table)
    clock.pass_ms(10 * LEASE_MS)

    renewal = store.renew(own, lease_ms=LEASE_MS)

    assert renewal == Renewal(True, False)
    assert store.state(table.id).is_lease_live


def test_parked_table_is_kept_without_heartbeats(store, table, clock):
    own = acquired(store, table)

    store.park(own, until_ms=3_600_000)
    clock.pass_ms(3_590_000)

    assert admit(store.state(table.id), "two") is Admission.WAIT
    clock.pass_ms(10_001)
    assert admit(store.state(table.id), "two") is Admission.TAKE_OVER


def test_table_parked_for_nobody_is_free_at_once(store, table):
    own = acquired(store, table)

    store.park(own, until_ms=0)

    assert admit(store.state(table.id), "two") is Admission.TAKE_OVER
    assert handed_over(store, own, "two").epoch == 2


DAY_MS = 86_400_000


def test_lease_from_the_future_is_none(store, table, clock):
    """The owner's clock was a day ahead, and it was killed; then the clock was set right."""
    own = acquired(store, table)

    clock.pass_ms(-DAY_MS)

    state = store.state(table.id)
    assert state.is_owner_dead
    assert admit(state, "two") is Admission.TAKE_OVER
    assert not store.overview().lines[0].is_lease_live
    assert handed_over(store, own, "two").epoch == 2


@pytest.mark.parametrize("back_ms", [1, 5000, LEASE_MS - 1000])
def test_clock_that_is_corrected_by_less_than_a_lease_makes_nobody_dead(store, table, clock, back_ms):
    acquired(store, table)

    clock.pass_ms(-back_ms)

    assert store.state(table.id).is_lease_live
    assert store.hand_over(store.state(table.id), a_caller("two"), epoch=5, lease_ms=LEASE_MS) is None


def test_owner_that_is_alive_after_all_has_a_lease_again_with_its_next_heartbeat(store, table, clock):
    own = acquired(store, table)
    clock.pass_ms(-DAY_MS)

    assert store.renew(own, lease_ms=LEASE_MS).is_owner
    assert store.state(table.id).is_lease_live


def test_parked_table_from_the_future_is_free(store, table, clock):
    store.park(acquired(store, table), until_ms=3_600_000)

    clock.pass_ms(-DAY_MS)

    assert admit(store.state(table.id), "two") is Admission.TAKE_OVER


def test_ticket_from_the_future_keeps_nobody_waiting_and_is_given_anew(store, table, clock):
    for key in ("first", "second"):
        store.queue.take_ticket(table.id, a_caller(key), patience_ms=LEASE_MS)

    clock.pass_ms(-DAY_MS)

    assert store.waiters(table.id) == ()
    store.queue.take_ticket(table.id, a_caller("second"), patience_ms=LEASE_MS)
    assert [waiter.key for waiter in store.waiters(table.id)] == ["second"]
    acquired(store, table, "second")


@pytest.mark.parametrize(("length_ms", "expires_ms"), [(0, 0), (0, 10), (5, 5), (5, -5), (9, 2), (10, 21), (3, -1)])
def test_lease_is_the_same_in_sql(store, length_ms, expires_ms):
    for now_ms in range(-30, 31):
        with store.engine.begin() as db:
            live = rows.is_lease_live(literal(expires_ms), literal(length_ms), literal(now_ms))
            found = db.scalar(select(live))

        assert bool(found) is is_lease_live(now_ms, expires_ms, length_ms)


# -- a person's word -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("phase", AT_WORK)
def test_person_who_says_that_the_owner_is_dead_is_believed(store, table, phase):
    own = acquired(store, table)
    walk(store, own, phase)
    ann = a_caller("cli:ann", user="ann")

    assert store.bury(store.state(table.id), ann, "its host burnt down")

    assert store.state(table.id).is_owner_dead
    assert store.renew(own, lease_ms=LEASE_MS).is_owner, "it may be alive after all, and nobody has taken over yet"
    newer = store.hand_over(store.state(table.id), ann, epoch=own.epoch + 1, lease_ms=LEASE_MS)
    assert newer is not None
    assert not store.renew(own, lease_ms=LEASE_MS).is_owner
    first, second = store.report(own.refresh_id).attempts
    assert (first.note, second.note) == ("declared dead by ann: its host burnt down", None)


def test_word_on_an_owner_that_is_not_there_any_more_is_for_nobody(store, table):
    own = acquired(store, table)
    seen = store.state(table.id)
    handed_over(store, own)
    before = dump(store.engine)

    assert not store.bury(seen, a_caller("two"), "gone")
    assert dump(store.engine) == before


# -- cancel ----------------------------------------------------------------------------------------------------------


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


# -- abandon ---------------------------------------------------------------------------------------------------------


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
