"""Who takes an unfinished refresh: its own caller, or anybody from a dead owner, under a later epoch."""

from __future__ import annotations

import pytest
from sqlalchemy import select

from airflow_mv_provider.core.outcome import Outcome
from airflow_mv_provider.core.phase import Phase
from airflow_mv_provider.core.state import Admission, Ownership, admit
from airflow_mv_provider.metadata.models import RefreshAttemptRow
from tests.metadata.rows import ERROR, LEASE_MS, a_caller, acquired, dump, handed_over, publish, walk

AT_WORK = [Phase.REFRESHING, Phase.MERGING, Phase.CLEANUP]


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


@pytest.mark.parametrize("phase", AT_WORK)
def test_person_who_says_that_the_owner_is_dead_is_believed(store, table, phase):
    own = acquired(store, table)
    walk(store, own, phase)
    ann = a_caller("cli:ann", user="ann")

    assert store.declare_dead(store.state(table.id), ann, "its host burnt down")

    assert store.state(table.id).is_owner_dead
    assert store.renew(own, lease_ms=LEASE_MS).is_owner, "it may be alive after all, and nobody has taken over yet"
    newer = store.hand_over(store.state(table.id), ann, epoch=own.epoch + 1, lease_ms=LEASE_MS)
    assert newer is not None
    assert not store.renew(own, lease_ms=LEASE_MS).is_owner
    first, second = store.report(own.refresh_id).attempts
    assert (first.note, second.note) == ("declared dead by ann: its host burnt down", None)


@pytest.mark.parametrize("phase", AT_WORK)
def test_what_is_kept_for_a_caller_who_is_gone_can_be_taken_over_at_once(store, table, phase):
    own = acquired(store, table, "one")
    walk(store, own, phase)
    seen, asked = store.state(table.id), list[str]()

    def is_gone(owner_key: str) -> bool:
        asked.append(owner_key)
        return True

    assert store.freed(seen, is_gone) == seen, "a process works on it"
    store.park(own, until_ms=LEASE_MS)
    parked = store.state(table.id)
    assert store.freed(parked, lambda _: False) == parked
    assert asked == []

    freed = store.freed(parked, is_gone)

    assert asked == ["one"]
    assert admit(freed, "two") is Admission.TAKE_OVER
    assert store.report(own.refresh_id).attempts[0].note == "its run has ended without it"


def test_what_its_caller_has_taken_meanwhile_is_not_freed(store, table):
    own = acquired(store, table, "one")
    store.park(own, until_ms=LEASE_MS)
    parked = store.state(table.id)

    def come(_: str) -> bool:
        handed_over(store, own, "one")
        return True

    now = store.freed(parked, come)

    assert (now.epoch, now.is_lease_live) == (own.epoch + 1, True)


def test_newest_of_is_what_a_caller_has_begun_in_place_of_a_refresh(store, table):
    assert store.newest_of("one", None) is None
    first = acquired(store, table, "one")
    assert store.newest_of("one", None) == store.newest_of("one", first.refresh_id) == first.refresh_id

    store.abandon(first, Outcome.ABANDONED, None, {})
    second = acquired(store, table, "two")
    assert store.newest_of("one", first.refresh_id) == first.refresh_id
    store.abandon(second, Outcome.ABANDONED, None, {})
    third = acquired(store, table, "one")

    assert store.newest_of("one", first.refresh_id) == store.newest_of("one", third.refresh_id) == third.refresh_id
    assert store.newest_of("two", first.refresh_id) == second.refresh_id
    assert store.newest_of("one", "unknown") == "unknown"


def test_word_on_an_owner_that_is_not_there_any_more_is_for_nobody(store, table):
    own = acquired(store, table)
    seen = store.state(table.id)
    handed_over(store, own)
    before = dump(store.engine)

    assert not store.declare_dead(seen, a_caller("two"), "gone")
    assert dump(store.engine) == before
