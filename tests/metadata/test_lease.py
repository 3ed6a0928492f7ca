"""How long an owner counts as alive: renew, park, expire. Time is the test's clock."""

from __future__ import annotations

import pytest
from sqlalchemy import literal, select

from airflow_mv_provider.core.state import Admission, Renewal, admit
from airflow_mv_provider.metadata import rows
from tests.metadata.rows import LEASE_MS, a_caller, acquired, handed_over


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
    assert (store.state(table.id).owner_process, store.state(table.id).holder) == (None, "the next process of one")
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
def test_lease_counts_for_its_length_and_none_from_the_future_does(store, length_ms, expires_ms):
    given_ms = expires_ms - length_ms

    for now_ms in range(-30, 31):
        with store.engine.begin() as db:
            live = rows.is_lease_live(literal(expires_ms), literal(length_ms), literal(now_ms))
            found = db.scalar(select(live))

        assert bool(found) is (-length_ms < now_ms - given_ms < length_ms)
