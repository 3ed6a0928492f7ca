"""A refresh that is held for a decision: nobody takes it, one decision counts, and time ends it."""

from __future__ import annotations

from threading import Barrier, Thread

import pytest

from airflow_mv_provider.core.approval.hold import Decision, Hold, Objection
from airflow_mv_provider.core.phase import Phase
from airflow_mv_provider.core.state import Admission, Cancelled, admit
from airflow_mv_provider.exceptions import LeaseLostError
from airflow_mv_provider.metadata.store import Store
from tests.metadata.rows import RECORDED, a_caller, acquired, dump, handed_over, registered, walk

HOLD_MS = 3_600_000


@pytest.fixture
def table(store):
    return registered(store, "orders", approval="guards")


@pytest.fixture
def own(store, table):
    own = acquired(store, table)
    walk(store, own, Phase.MERGING)
    return own


def held(store, own, merge_round=0):
    return store.holds.begin(own, merge_round, "too many", ["max_deleted_fraction"], hold_ms=HOLD_MS)


def test_nobody_takes_a_held_refresh_over_not_even_its_caller(store, table, own):
    hold = held(store, own)

    state = store.state(table.id)
    assert (state.is_held, state.is_owner_dead, state.owner_process) == (True, False, None)
    assert {admit(state, key) for key in ("one", "two")} == {Admission.WAIT}
    assert hold == store.last_hold(own.refresh_id)
    assert (hold.reason, hold.guards, hold.until_ms - hold.since_ms) == ("too many", ("max_deleted_fraction",), HOLD_MS)


def test_a_short_lease_ends_no_hold(store, table, own, clock):
    held(store, own)
    store.renew(own, lease_ms=1)  # a heartbeat that was under way
    clock.pass_ms(10)

    assert store.state(table.id).is_held


@pytest.mark.parametrize("decision", list(Decision))
def test_a_decision_frees_the_refresh_for_anybody(store, table, own, decision):
    hold = held(store, own)

    decided = store.holds.decide(table.id, decision, "ann", "I have looked", hold.id)

    state = store.state(table.id)
    assert isinstance(decided, Hold)
    assert (decided.decision, decided.decided_by, decided.note) == (decision, "ann", "I have looked")
    assert (state.is_held, state.phase, state.is_cancel_requested) == (
        False, Phase.MERGING, not decision.is_approval
    )  # fmt: skip
    assert admit(state, "two") is Admission.TAKE_OVER
    assert handed_over(store, own, "two").epoch == own.epoch + 1


def test_time_ends_a_hold(store, table, own, clock):
    held(store, own)
    clock.pass_ms(HOLD_MS + 1)

    assert store.last_hold(own.refresh_id).is_over
    assert admit(store.state(table.id), "two") is Admission.TAKE_OVER
    before = dump(store.engine)
    assert store.holds.decide(table.id, Decision.APPROVED, "ann", None) is Objection.OVER
    assert dump(store.engine) == before


def test_what_is_held_again_in_its_round_keeps_its_time(store, table, own, clock):
    first = held(store, own)
    clock.pass_ms(1000)

    assert held(store, own) == first
    other = held(store, own, merge_round=1)
    assert other.until_ms >= first.until_ms + 1000
    assert store.last_hold(own.refresh_id) == other
    assert store.holds.decide(table.id, Decision.APPROVED, "ann", None, first.id) is Objection.ANOTHER


def test_a_decision_before_the_second_look_leaves_the_refresh_to_its_owner(store, table, own):
    held(store, own)
    newer = handed_over_although_held(store, own)
    store.holds.decide(table.id, Decision.APPROVED, "ann", None)

    found = held(store, newer)

    state = store.state(table.id)
    assert found.decision is Decision.APPROVED
    assert (state.owner_process, state.is_lease_live) == ("host:two", True)


def handed_over_although_held(store, own):
    """As a person does who declares the owner dead."""
    assert store.declare_dead(store.state(own.table_id), a_caller("two"), "gone")
    return handed_over(store, own, "two")


def test_who_owns_it_no_more_cannot_hold_it(store, own):
    handed_over(store, own)
    before = dump(store.engine)

    with pytest.raises(LeaseLostError):
        held(store, own)

    assert dump(store.engine) == before


def test_nothing_is_decided_where_nothing_is_held(store, table, own):
    before = dump(store.engine)

    assert store.holds.decide(table.id, Decision.APPROVED, "ann", None) is Objection.NOTHING_HELD

    assert dump(store.engine) == before


@pytest.mark.slow
def test_of_two_decisions_at_once_one_counts(store, table, own):
    held(store, own)
    start, found = Barrier(2), {}

    def decide(decision):
        other = Store(store.engine)
        start.wait()
        found[decision] = other.holds.decide(table.id, decision, "ann", None)

    threads = [Thread(target=decide, args=(each,)) for each in (Decision.APPROVED, Decision.REJECTED)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    [lost] = [each for each in found.values() if not isinstance(each, Hold)]
    [won] = [each for each in found.values() if isinstance(each, Hold)]
    assert lost is Objection.DECIDED
    assert store.last_hold(own.refresh_id).decision is won.decision
    assert store.state(table.id).is_cancel_requested is (won.decision is Decision.REJECTED)


def test_cancelling_what_is_held_rejects_it(store, table, own):
    for chunk in RECORDED:
        store.merging.record_chunk(own, chunk)
    held(store, own)

    assert store.cancel(table, a_caller("ann", user="ann")) is Cancelled.LEFT

    state = store.state(table.id)
    assert (state.is_held, state.is_cancel_requested) == (False, True)
    assert store.last_hold(own.refresh_id).decision is Decision.REJECTED
