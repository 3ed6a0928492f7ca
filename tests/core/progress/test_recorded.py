"""What is recorded of chunks, summed up."""

from __future__ import annotations

from airflow_mv_provider.core.guard import Counts
from airflow_mv_provider.core.progress.chunk import REST
from airflow_mv_provider.core.progress.recorded import DoneChunks, PartitionCounts, RecordedChunk, total


def test_total_sums_all_partitions_of_all_chunks():
    def recorded(number: int, *counts: Counts) -> RecordedChunk:
        parts = tuple(PartitionCounts(str(i), c) for i, c in enumerate(counts))
        return RecordedChunk(number, 1, 0, 5, None, 0, 0, 0, parts)

    counts = total([recorded(0, Counts(1, 2, 3, 4, 5), Counts(10, 20, 30, 40, 50)), recorded(REST, Counts(0, 100))])

    assert counts == Counts(11, 122, 33, 44, 55)
    assert total([]) == Counts()


NOTHING = DoneChunks(frozenset(), frozenset(), False)
BEFORE = DoneChunks(frozenset({0, 1}), frozenset({0}), False)


def test_step_adds_what_its_own_chunks_have_become():
    compared = BEFORE.after([2], DoneChunks(frozenset({2}), frozenset(), False))
    committed = BEFORE.after([1], DoneChunks(frozenset({1}), frozenset({1}), True))

    assert compared == DoneChunks(frozenset({0, 1, 2}), frozenset({0}), False)
    assert committed == DoneChunks(frozenset({0, 1}), frozenset({0, 1}), True)


def test_step_that_discards_its_own_records_has_discarded_all():
    assert BEFORE.after([1], NOTHING) is None
    assert BEFORE.after([2], NOTHING) == BEFORE, "it was not recorded before, either"
