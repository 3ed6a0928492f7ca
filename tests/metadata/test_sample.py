"""The changed rows that are kept with a refresh: one sample each, by its owner only, as long as the history."""

from __future__ import annotations

from dataclasses import replace

import pytest

from airflow_mv_provider.core.approval.difference import RowChange
from airflow_mv_provider.core.approval.sample import Sample
from airflow_mv_provider.core.guard import Counts
from airflow_mv_provider.core.outcome import Outcome
from airflow_mv_provider.core.phase import Phase
from airflow_mv_provider.exceptions import LeaseLostError
from tests.metadata.rows import a_caller, a_refresh, acquired, dump, handed_over, registered, walk

ROWS = (RowChange("update", {"id": 1}, {"id": 1, "v": "\x00é"}, {"id": 1, "v": None}),)
SAMPLE = Sample(0, ROWS, {"v": 1})


def test_the_newest_round_replaces_an_older_one(store, table):
    own = acquired(store, table)
    assert store.sample(own.refresh_id) is None

    store.samples.keep(own, SAMPLE)
    assert store.sample(own.refresh_id) == SAMPLE
    store.samples.keep(own, again := replace(SAMPLE, merge_round=1, columns=None))
    assert store.sample(own.refresh_id) == again


def test_an_outdated_owner_keeps_nothing(store, table):
    own = acquired(store, table)
    handed_over(store, own)

    with pytest.raises(LeaseLostError):
        store.samples.keep(own, SAMPLE)
    assert store.sample(own.refresh_id) is None


def test_a_read_only_refresh_keeps_what_it_found_unless_it_was_ended_as_dead(store, table):
    first, late = a_refresh(table), a_refresh(table, id="b" * 32)
    for refresh in (first, late):
        store.begin_preview(refresh, a_caller(), lease_ms=60_000)
    ended = (Outcome.DIFFERENCES, "read-only", Counts(1, 1, 0, 1), ())
    store.end_preview(late.id, *ended)

    for refresh in (first, late):
        store.end_preview(refresh.id, *ended, sample=SAMPLE)

    assert (store.sample(first.id), store.sample(late.id)) == (SAMPLE, None)


def test_it_is_forgotten_with_its_refresh_and_with_its_table(store, table, clock):
    other = registered(store, "other")
    for each in (table, other):
        for key in ("one", "two"):
            own = acquired(store, each, key=key)
            store.samples.keep(own, SAMPLE)
            walk(store, own, Phase.NORMAL)
    clock.pass_ms(10_000)

    for each in (table, other):
        store.forget_history(each.id, older_than_ms=5_000)
    assert len(dump(store.engine)["refresh_sample"]) == 2, "of the last publish of each"
    assert store.registry.begin_drop(store.state(other.id))
    assert store.registry.forget(other.id)

    assert len(dump(store.engine)["refresh_sample"]) == 1
