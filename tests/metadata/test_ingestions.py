"""Runs of ingestions: bound before anything is read, the newest hundred kept."""

from __future__ import annotations

from airflow_mv_provider.core.ingestion.report import IngestedTable
from airflow_mv_provider.core.outcome import Outcome
from tests.metadata.rows import ERROR, a_caller


def test_run_is_kept_as_it_was_told(store):
    caller = a_caller(trigger="dag", user="ann")
    good = IngestedTable("a", "out", "r1", Outcome.PUBLISHED, True, 3, 1, 2, 3)
    bad = IngestedTable("b", "other", error=ERROR)
    run_id = store.ingestions.bind("shop", "t up to 3", caller)
    bound = store.ingestion_run(run_id)
    store.ingestions.record(run_id, [good, bad])
    store.ingestions.end(run_id, {"t": [3]}, ERROR)

    [found] = store.ingestion_runs("shop")

    assert (bound.tables, bound.finished_at) == ((), None)
    assert (found.tables, found.released, found.error) == ((good, bad), {"t": [3]}, ERROR)
    assert (found.state, found.trigger, found.user, found.left_behind) == ("t up to 3", "dag", "ann", (bad,))
    assert found.finished_at is not None


def test_newest_hundred_runs_are_kept_by_ingestion(store):
    other = store.ingestions.bind("other", "x", a_caller())
    for n in range(102):
        store.ingestions.bind("shop", str(n), a_caller())

    states = [run.state for run in store.ingestion_runs("shop", 1000)]

    assert states == [str(n) for n in range(101, 1, -1)]
    assert store.ingestion_run(other) is not None
    assert store.ingestion_run("nobody") is None
