"""A table that is dropped: barred in one step, forgotten in another, and nothing of any other table goes with it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from airflow_mv_provider.core.phase import Phase
from airflow_mv_provider.exceptions import TableConflictError, TableNotFoundError
from tests.metadata.rows import LEASE_MS, a_caller, a_refresh, acquired, dump, registered, walk


def begun(store, table) -> bool:
    return store.registry.begin_drop(store.state(table.id))


def test_dropped_table_leaves_no_row_and_others_keep_all_of_theirs(store, table):
    other = registered(store, "other")
    walk(store, acquired(store, other), Phase.MERGING)
    store.queue.take_ticket(other.id, a_caller("two"), patience_ms=1000)
    before = dump(store.engine)
    gone = registered(store, "gone")
    walk(store, acquired(store, gone), Phase.NORMAL)
    store.queue.take_ticket(gone.id, a_caller("three"), patience_ms=1000)

    assert begun(store, gone)
    assert store.registry.forget(gone.id)

    assert dump(store.engine) == before
    with pytest.raises(TableNotFoundError):
        store.table("gone")


def test_name_and_place_of_a_dropped_table_are_free_again(store, table):
    assert begun(store, table)
    assert store.registry.forget(table.id)

    assert registered(store).uuid != table.uuid


@pytest.mark.parametrize("phase", [Phase.REFRESHING, Phase.MERGING, Phase.CLEANUP])
def test_table_at_work_is_not_barred_even_from_a_dead_owner(store, table, clock, phase):
    walk(store, acquired(store, table), phase)
    clock.pass_ms(LEASE_MS + 1)
    before = dump(store.engine)

    assert not begun(store, table)
    assert not store.registry.forget(table.id)
    assert dump(store.engine) == before


def test_table_that_was_refreshed_after_the_look_is_not_barred(store, table):
    seen = store.state(table.id)
    walk(store, acquired(store, table), Phase.NORMAL)

    assert not store.registry.begin_drop(seen)


def test_nothing_begins_in_a_barred_table_and_no_resume_lifts_that(store, table):
    seen = store.state(table.id)
    assert begun(store, table)
    store.pause(table.id, "ann")
    store.resume(table.id)
    before = dump(store.engine)

    assert store.acquire(seen, a_refresh(table), a_caller(), epoch=1, lease_ms=LEASE_MS) is None
    with pytest.raises(TableConflictError, match="being dropped"):
        registered(store)
    assert dump(store.engine) == before


def test_drop_that_died_on_the_way_is_begun_again(store, table, clock):
    assert begun(store, table)
    clock.pass_ms(1000)

    assert begun(store, table)
    assert store.registry.forget(table.id)
    assert not store.registry.forget(table.id)


def test_table_that_is_not_barred_is_not_forgotten(store, table):
    before = dump(store.engine)

    assert not store.registry.forget(table.id)
    assert not store.registry.begin_drop(replace(store.state(table.id), table_id=table.id + 1))
    assert dump(store.engine) == before
