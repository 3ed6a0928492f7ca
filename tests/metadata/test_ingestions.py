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


def test_newest_hundred_runs_that_have_ended_are_kept_by_ingestion(store, clock):
    other = store.ingestions.bind("other", "x", a_caller("other"))
    slow = store.ingestions.bind("shop", "slow", a_caller("slow"))
    for n in range(102):
        store.ingestions.end(store.ingestions.bind("shop", str(n), a_caller(f"caller {n}")), None, None)

    states = [run.state for run in store.ingestion_runs("shop", 1000)]
    clock.pass_ms(8 * 24 * 3600 * 1000)
    store.ingestions.bind("shop", "a week later", a_caller("last"))

    assert states == [*(str(n) for n in range(101, 1, -1)), "slow"]
    assert store.ingestion_run(slow) is None
    assert store.ingestion_run(other) is not None
    assert store.ingestion_run("nobody") is None


def test_caller_that_comes_again_goes_on_with_its_row(store):
    """A run that waits for a table looks again every half minute."""
    mine = store.ingestions.bind("shop", "t up to 3", a_caller("mine"))
    theirs = store.ingestions.bind("shop", "t up to 4", a_caller("theirs"))
    again = store.ingestions.bind("shop", "t up to 5", a_caller("mine"))
    store.ingestions.end(mine, None, ERROR)

    assert again == mine != theirs
    assert store.ingestion_run(mine).state == "t up to 5"
    [ended] = store.ingestion_runs("shop", is_finished=True)
    assert (ended.run_id, ended.error) == (mine, ERROR)
    assert store.ingestions.bind("shop", "t up to 6", a_caller("mine")) != mine
