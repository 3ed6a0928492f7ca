"""Tickets: first come, first served; who is gone loses its place; nobody overtakes. Time is the test's clock."""

from __future__ import annotations

import threading
from dataclasses import replace

import pytest

from airflow_mv_provider.core.outcome import Outcome
from airflow_mv_provider.core.phase import Phase
from airflow_mv_provider.core.state import Ownership, TableRecord
from airflow_mv_provider.exceptions import TableNotFoundError
from airflow_mv_provider.metadata.queue import WaiterStatus
from airflow_mv_provider.metadata.store import Store
from tests.metadata.rows import ERROR, LEASE_MS, a_caller, a_refresh, acquired, dump, registered, walk

PATIENCE_MS = 60_000


@pytest.fixture
def table(store):
    return registered(store, concurrency="queue")


def stand(store: Store, table: TableRecord, *keys: str, joins: str | None = None) -> None:
    for key in keys:
        store.queue.take_ticket(table.id, a_caller(key), patience_ms=PATIENCE_MS, joins=joins)


def queue(store: Store, table: TableRecord) -> list[str]:
    return [waiter.key for waiter in store.waiters(table.id)]


def tries(store: Store, table: TableRecord, key: str) -> bool:
    """Try to acquire the table as it is now."""
    state = store.state(table.id)
    caller = a_caller(key)
    own = store.acquire(state, a_refresh(table), caller, epoch=state.epoch + 1, lease_ms=LEASE_MS)
    return own is not None


# -- places ------------------------------------------------------------------------------------------------------------


def test_queue_is_in_the_order_of_arrival_however_often_one_looks(store, table):
    stand(store, table, "b", "a", "c")

    stand(store, table, "c", "a", "b", "c")

    assert queue(store, table) == ["b", "a", "c"]


def test_queues_of_two_tables_do_not_disturb_each_other(store, table):
    other = registered(store, "other")
    stand(store, table, "a", "b")
    stand(store, other, "b")

    assert (queue(store, table), queue(store, other)) == (["a", "b"], ["b"])
    assert tries(store, other, "b")
    assert queue(store, table) == ["a", "b"]


def test_who_leaves_is_gone_and_the_others_move_up(store, table):
    stand(store, table, "a", "b", "c")

    store.queue.leave("b")
    store.queue.leave("nobody")

    assert queue(store, table) == ["a", "c"]


def test_ticket_that_is_not_renewed_loses_its_place(store, table, clock):
    stand(store, table, "a", "b")
    clock.pass_ms(PATIENCE_MS // 2)
    stand(store, table, "b")
    clock.pass_ms(PATIENCE_MS // 2 + 1)

    assert queue(store, table) == ["b"]
    assert tries(store, table, "b")


def test_who_comes_back_too_late_stands_at_the_end(store, table, clock):
    stand(store, table, "a", "b")
    clock.pass_ms(PATIENCE_MS // 2)
    stand(store, table, "b")
    clock.pass_ms(PATIENCE_MS // 2 + 1)

    stand(store, table, "a")

    assert queue(store, table) == ["b", "a"]


def test_late_waiter_does_not_get_its_old_place_by_acquiring(store, table, clock):
    stand(store, table, "a", "b")
    clock.pass_ms(PATIENCE_MS // 2)
    stand(store, table, "b")
    clock.pass_ms(PATIENCE_MS // 2 + 1)

    assert not tries(store, table, "a")
    assert tries(store, table, "b")


def test_ticket_of_a_dropped_table_is_none(store, table):
    with pytest.raises(TableNotFoundError, match="dropped"):
        stand(store, replace(table, id=table.id + 1), "a")


# -- admission ---------------------------------------------------------------------------------------------------------


def test_first_in_the_queue_is_admitted_and_its_ticket_used_up(store, table):
    stand(store, table, "a", "b")

    assert tries(store, table, "a")
    assert queue(store, table) == ["b"]


@pytest.mark.parametrize("key", ["b", "c", "without a ticket"])
def test_nobody_overtakes_and_nothing_is_written(store, table, key):
    stand(store, table, "a", "b", "c")
    before = dump(store.engine)

    assert not tries(store, table, key)
    assert dump(store.engine) == before


def test_each_is_admitted_in_its_turn(store, table):
    stand(store, table, "a", "b", "c")
    served = []

    while waiting := queue(store, table):
        served += [key for key in reversed(waiting) if tries(store, table, key)]
        state = store.state(table.id)
        own = Ownership(table.id, state.refresh_id, state.epoch)
        store.abandon(own, Outcome.FAILED, ERROR, {})

    assert served == ["a", "b", "c"]


def test_owner_at_work_is_waited_for_by_the_first_too(store, table):
    acquired(store, table, "owner")
    stand(store, table, "a")

    assert not tries(store, table, "a")
    assert queue(store, table) == ["a"]


def test_renewal_between_look_and_acquire_keeps_a_place(store, table, clock):
    stand(store, table, "a", "b")
    clock.pass_ms(PATIENCE_MS // 2)
    stand(store, table, "a", "b")
    clock.pass_ms(PATIENCE_MS // 2 + 1)

    assert not tries(store, table, "b")


def test_tickets_are_given_out_in_turn_to_many_threads(store, table):
    """Whoever has got its ticket is before all who ask for one afterwards."""
    barrier, seen = threading.Barrier(6), {}

    def take(key: str) -> None:
        mine = Store(store.engine)
        barrier.wait()
        stand(mine, table, key)
        seen[key] = [w.key for w in mine.waiters(table.id)]

    threads = [threading.Thread(target=take, args=(key,)) for key in "abcdef"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    order = queue(store, table)
    assert sorted(order) == list("abcdef")
    for key, at_that_time in seen.items():
        assert order[: order.index(key) + 1] == at_that_time[: order.index(key) + 1], "a place once seen is kept"


def test_of_many_threads_with_one_key_each_finds_one_ticket(store, table):
    barrier = threading.Barrier(4)

    def take() -> None:
        mine = Store(store.engine)
        barrier.wait()
        stand(mine, table, "twin")

    threads = [threading.Thread(target=take) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert queue(store, table) == ["twin"]


# -- join --------------------------------------------------------------------------------------------------------------


def test_who_has_joined_is_not_waited_for_once_its_answer_is_there(store, table):
    own = acquired(store, table, "owner")
    stand(store, table, "joined", joins=own.refresh_id)
    stand(store, table, "next")
    assert queue(store, table) == ["joined", "next"]

    walk(store, own, Phase.NORMAL)

    assert queue(store, table) == ["next"]
    assert store.queue.joined(table.id, "joined") == own.refresh_id
    assert tries(store, table, "next")


def test_who_has_joined_a_refresh_that_fails_keeps_its_place(store, table):
    own = acquired(store, table, "owner")
    stand(store, table, "joined", joins=own.refresh_id)
    stand(store, table, "next")

    store.abandon(own, Outcome.FAILED, ERROR, {})

    assert queue(store, table) == ["joined", "next"]
    assert not tries(store, table, "next")
    assert tries(store, table, "joined")


def test_what_was_joined_stays_when_a_ticket_is_renewed(store, table, clock):
    own = acquired(store, table, "owner")
    stand(store, table, "joined", joins=own.refresh_id)

    stand(store, table, "joined")
    clock.pass_ms(PATIENCE_MS + 1)

    assert store.queue.joined(table.id, "joined") == own.refresh_id
    assert store.queue.joined(table.id, "other") is None


# -- what people see ---------------------------------------------------------------------------------------------------


def test_status_tells_who_waits_for_whom_since_when(store, table, clock):
    acquired(store, table, "owner")
    caller = a_caller("dag/1", trigger="dag", user="ann")
    store.queue.take_ticket(table.id, caller, patience_ms=PATIENCE_MS)
    clock.pass_ms(1000)
    stand(store, table, "b")

    first, second = store.status(table).queue

    assert first == WaiterStatus(1, "host:dag/1", "dag/1", "dag", "ann", first.since, "host:owner", None)
    assert (second.place, second.waits_for, second.user) == (2, "host:owner", None)
    assert first.since < second.since
    assert first.since.endswith("+00:00")


def test_in_a_free_table_the_second_waits_for_the_first(store, table):
    stand(store, table, "a", "b")

    assert [w.waits_for for w in store.status(table).queue] == [None, "host:a"]


def test_waiting_leaves_no_history(store, table, clock):
    stand(store, table, "a", "b")
    clock.pass_ms(PATIENCE_MS + 1)
    store.queue.leave("b")

    assert store.history(table.id) == ()


def test_definition_that_waits_for_the_refresh_under_way_is_pending_until_it_has_ended(store, table):
    own = acquired(store, table)
    assert store.status(table).pending_definition == ()

    changed = registered(store, concurrency="queue", key=["other"], chunk_rows=5)
    during = store.status(changed)
    walk(store, own, Phase.NORMAL)

    assert during.pending_definition == ("key", "chunk_rows")
    assert store.status(changed).pending_definition == ()


# -- pause -------------------------------------------------------------------------------------------------------------


def test_paused_table_is_not_acquired_even_after_an_earlier_look(store, table):
    seen = store.state(table.id)
    assert store.pause(table.id, "ann")
    before = dump(store.engine)

    own = store.acquire(seen, a_refresh(table), a_caller(), epoch=1, lease_ms=LEASE_MS)

    assert own is None
    assert dump(store.engine) == before
    state = store.state(table.id)
    assert (state.phase, state.paused_by) == (Phase.NORMAL, "ann")
    assert state.paused_since_ms is not None


def test_pause_leaves_a_refresh_under_way_alone(store, table):
    own = acquired(store, table)
    before = store.state(table.id)

    assert store.pause(table.id, None)

    state = store.state(table.id)
    assert replace(state, paused_since_ms=None) == before
    walk(store, own, Phase.NORMAL)
    assert store.state(table.id).phase is Phase.NORMAL
    assert store.state(table.id).paused_since_ms == state.paused_since_ms, "a refresh that ends does not resume a table"
    assert not tries(store, table, "two")


def test_pausing_twice_keeps_the_first_and_resuming_ends_it(store, table, clock):
    assert store.pause(table.id, "ann")
    first = store.state(table.id)
    clock.pass_ms(1000)

    assert not store.pause(table.id, "bob")
    assert store.state(table.id) == first
    assert store.resume(table.id)
    assert not store.resume(table.id)
    assert tries(store, table, "one")


def test_status_tells_who_paused(store, table):
    store.pause(table.id, "ann")

    status = store.status(table)

    assert (status.paused_by, status.is_dropping) == ("ann", False)
    assert status.paused_since.endswith("+00:00")
