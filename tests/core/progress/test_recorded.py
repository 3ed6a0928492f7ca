"""What is recorded of chunks, summed up."""

from __future__ import annotations

from airflow_mv_provider.core.guard import Counts
from airflow_mv_provider.core.progress.chunk import REST
from airflow_mv_provider.core.progress.recorded import PartitionCounts, RecordedChunk, total


def test_total_sums_all_partitions_of_all_chunks():
    def recorded(number: int, *counts: Counts) -> RecordedChunk:
        parts = tuple(PartitionCounts(str(i), c) for i, c in enumerate(counts))
        return RecordedChunk(number, 1, 0, 5, None, 0, 0, 0, parts)

    counts = total([recorded(0, Counts(1, 2, 3, 4, 5), Counts(10, 20, 30, 40, 50)), recorded(REST, Counts(0, 100))])

    assert counts == Counts(11, 122, 33, 44, 55)
    assert total([]) == Counts()
