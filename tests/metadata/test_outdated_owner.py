"""An owner that was replaced, and goes on: whatever it asks for, it is told so, and nothing in the database changes."""

from __future__ import annotations

import pytest

from airflow_mv_provider.core.guard import Counts
from airflow_mv_provider.core.outcome import Outcome
from airflow_mv_provider.core.phase import Phase
from airflow_mv_provider.core.progress.recorded import KeptRows
from airflow_mv_provider.core.state import Renewal
from airflow_mv_provider.exceptions import LeaseLostError
from tests.metadata.rows import (
    CHUNKS,
    ERROR,
    FIRST,
    LEASE_MS,
    P1,
    SEAL,
    acquired,
    dump,
    handed_over,
    publish,
    walk,
)

# Every method that takes an Ownership and changes something, and the phase it is for (None: any).
METHODS = {
    "park": (None, lambda store, own: store.park(own, until_ms=0)),
    "seal": (Phase.REFRESHING, lambda store, own: store.merging.seal(own, SEAL, CHUNKS, {"REFRESHING": 1.0})),
    "record_chunk": (Phase.MERGING, lambda store, own: store.merging.record_chunk(own, FIRST)),
    "record_committed": (
        Phase.MERGING,
        lambda store, own: store.merging.record_committed(own, 0, 7, Counts(1, 1, 1), 5),
    ),
    "record_kept": (
        Phase.MERGING,
        lambda store, own: store.merging.record_kept(own, [KeptRows(0, None, 0, 0, 0, {P1: 1})]),
    ),
    "discard_chunks": (Phase.MERGING, lambda store, own: store.merging.discard_chunks(own, Counts(1, 1, 1, 1, 1), 5)),
    "published": (Phase.MERGING, publish),
    "finish": (Phase.CLEANUP, lambda store, own: store.finish(own, {"CLEANUP": 1.0})),
    "abandon": (None, lambda store, own: store.abandon(own, Outcome.FAILED, ERROR, {"MERGING": 1.0})),
}
AT_WORK = [Phase.REFRESHING, Phase.MERGING, Phase.CLEANUP]


def test_every_method_that_an_owner_has_is_here():
    import inspect

    from airflow_mv_provider.metadata.merging import Merging
    from airflow_mv_provider.metadata.queue import Queue
    from airflow_mv_provider.metadata.registry import Registry
    from airflow_mv_provider.metadata.store import Store

    owned = {
        name
        for part in (Store, Merging, Queue, Registry)
        for name, method in inspect.getmembers(part, inspect.isfunction)
        if not name.startswith("_") and "own" in inspect.signature(method).parameters
    }

    assert owned == {*METHODS, "renew", "renew_preview"}


def assert_refused(store, own, method):
    before = dump(store.engine)

    with pytest.raises(LeaseLostError, match="this process no longer owns the table") as caught:
        method(store, own)

    assert own.refresh_id in caught.value.message
    assert dump(store.engine) == before


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("phase", AT_WORK)
def test_owner_of_an_older_epoch_changes_nothing(store, table, name, phase):
    own = acquired(store, table)
    walk(store, own, phase)
    handed_over(store, own)

    assert_refused(store, own, METHODS[name][1])


@pytest.mark.parametrize("name", METHODS)
def test_owner_of_an_ended_refresh_changes_nothing(store, table, name):
    own = acquired(store, table)
    walk(store, own, Phase.NORMAL)

    assert_refused(store, own, METHODS[name][1])


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("phase", AT_WORK)
def test_owner_of_an_ended_refresh_does_not_touch_the_next_one(store, table, name, phase):
    own = acquired(store, table)
    store.abandon(own, Outcome.FAILED, ERROR, {})
    walk(store, acquired(store, table, "two"), phase)

    assert_refused(store, own, METHODS[name][1])


@pytest.mark.parametrize("phase", [*AT_WORK, Phase.NORMAL])
def test_heartbeat_of_an_older_epoch_is_told_so_and_prolongs_nothing(store, table, phase):
    own = acquired(store, table)
    walk(store, own, phase)
    if phase is not Phase.NORMAL:
        handed_over(store, own)
        store.request_cancel(table.id, "ann")
    before = dump(store.engine)

    renewal = store.renew(own, lease_ms=10 * LEASE_MS)

    assert renewal == Renewal(is_owner=False, is_cancel_requested=False)
    assert dump(store.engine) == before


STEPS = [(name, phase) for name, (phase, _) in METHODS.items() if phase is not None]


@pytest.mark.parametrize(("name", "right"), STEPS)
@pytest.mark.parametrize("phase", AT_WORK)
def test_owner_takes_each_step_from_its_own_phase_only(store, table, name, right, phase):
    own = acquired(store, table)
    walk(store, own, phase)

    if phase is right:
        METHODS[name][1](store, own)
        assert store.state(table.id).epoch == own.epoch
    else:
        assert_refused(store, own, METHODS[name][1])
