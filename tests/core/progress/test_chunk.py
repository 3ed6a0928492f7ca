"""Chunks: each partition is in one of them, they keep their size, and a takeover plans the same ones."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_mv_provider.core.progress.chunk import REST, WHOLE, Chunk, plan_chunks
from airflow_mv_provider.core.progress.partition import partition_name, unstorable
from airflow_mv_provider.core.progress.seal import SealedPartition
from tests.core.progress.sealed import sealed


def names(*numbers: int) -> tuple[str, ...]:
    return tuple(partition_name([f"p{i:03}"]) for i in numbers)


@pytest.mark.parametrize(
    ("rows", "chunk_rows", "expected"),
    [
        ((), 10, [Chunk(0, None)]),
        ((5, 5), 10, [Chunk(0, None)]),
        ((5, 6), 10, [Chunk(0, names(0)), Chunk(1, names(1)), Chunk(REST, ())]),
        ((5, 5, 1), 10, [Chunk(0, names(0, 1)), Chunk(1, names(2)), Chunk(REST, ())]),
        ((100,), 40, [Chunk(0, names(0)), Chunk(REST, ())]),
        (
            (1, 20, 1),
            10,
            [Chunk(0, names(0)), Chunk(1, names(1)), Chunk(2, names(2)), Chunk(REST, ())],
        ),
        (
            (0, 0, 11, 0),
            10,
            [Chunk(0, names(0, 1)), Chunk(1, names(2)), Chunk(2, names(3)), Chunk(REST, ())],
        ),
    ],
)
def test_plan_chunks(rows, chunk_rows, expected):
    partitions = sealed(*rows)[::-1]

    chunks = plan_chunks(partitions, chunk_rows=chunk_rows)

    assert list(chunks) == expected


def test_chunk_has_at_most_500_partitions_however_small_they_are():
    chunks = plan_chunks(sealed(*[0] * 1001), chunk_rows=10**9)

    assert [len(c.partitions) for c in chunks] == [500, 500, 1, 0]
    assert [c.is_rest for c in chunks] == [False, False, False, True]


@given(st.lists(st.integers(0, 50), max_size=60), st.integers(1, 100))
def test_chunks_cover_every_partition_once_and_keep_their_size(rows, chunk_rows):
    partitions = sealed(*rows)
    rows_of = {p.partition: p.num_rows for p in partitions}

    chunks = plan_chunks(partitions, chunk_rows=chunk_rows)

    if chunks == WHOLE:
        assert sum(rows) <= chunk_rows
        return
    assert chunks[-1] == Chunk(REST, ())
    assert [c.number for c in chunks[:-1]] == list(range(len(chunks) - 1))
    assert [p for c in chunks for p in c.partitions] == sorted(rows_of)
    for chunk in chunks[:-1]:
        assert sum(rows_of[p] for p in chunk.partitions) <= chunk_rows or len(chunk.partitions) == 1
    for chunk, after in pairwise(chunks[:-1]):
        filled = sum(rows_of[p] for p in (*chunk.partitions, after.partitions[0]))
        assert filled > chunk_rows, "the next partition would have fitted: too many chunks"
    assert chunks == plan_chunks(partitions[::-1], chunk_rows=chunk_rows), "a takeover finds others"


def test_a_hundred_thousand_partitions_are_a_few_hundred_steps():
    sealed = [SealedPartition(partition_name([f"day {n}"]), 7, n) for n in range(100_000)]

    chunks = plan_chunks(sealed, chunk_rows=5_000_000)

    assert len(chunks) == 201
    assert chunks[-1].is_rest
    assert {name for chunk in chunks for name in chunk.partitions} == {part.partition for part in sealed}
    assert all(unstorable(part.partition, ["p"]) is None for part in sealed[:1000])


def test_a_partition_with_nine_tenths_of_the_rows_is_a_chunk_of_its_own():
    sealed = [SealedPartition('["large"]', 90_000_000, 1)]
    sealed += [SealedPartition(partition_name([f"small {n}"]), 100_000, n) for n in range(100)]

    chunks = plan_chunks(sealed, chunk_rows=5_000_000)

    assert chunks[0].partitions == ('["large"]',)
    assert len(chunks) == 1 + 2 + 1  # a hundred small ones in two, and the rest
