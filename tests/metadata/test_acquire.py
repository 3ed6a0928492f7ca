"""Who takes a table at rest: one caller, by one compare-and-set."""

from __future__ import annotations

import threading

import pytest

from airflow_mv_provider.core.frontier import BatchDescription, Binding
from airflow_mv_provider.core.outcome import Outcome
from airflow_mv_provider.core.phase import Phase
from airflow_mv_provider.core.state import Ownership, Renewal
from airflow_mv_provider.core.strategy import Choice
from airflow_mv_provider.metadata.store import Store
from airflow_mv_provider.sources.delta.frontier import DeltaFrontier
from tests.metadata.rows import ERROR, LEASE_MS, a_caller, a_refresh, acquired, dump, registered, walk

AT_WORK = [Phase.REFRESHING, Phase.MERGING, Phase.CLEANUP]


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
