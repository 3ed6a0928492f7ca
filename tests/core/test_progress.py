"""Chunks and partitions: each planned once, named so that it can be found again, refused if Delta would lose it."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_mv_provider.core.definition.schema import Column, fingerprint
from airflow_mv_provider.core.guard import Counts
from airflow_mv_provider.core.progress import (
    REST,
    WHOLE_TABLE,
    Chunk,
    PartitionCounts,
    PublishedDigests,
    RecordedChunk,
    Seal,
    SealedPartition,
    Slice,
    bucket_count,
    digests_to_keep,
    partition_name,
    partition_values,
    parts,
    plan_chunks,
    total,
    unstorable,
)


def sealed(*rows: int) -> list[SealedPartition]:
    return [SealedPartition(partition_name([f"p{i:03}"]), n, i) for i, n in enumerate(rows)]


def names(*numbers: int) -> tuple[str, ...]:
    return tuple(partition_name([f"p{i:03}"]) for i in numbers)


@pytest.mark.parametrize(
    ("rows", "chunk_rows", "expected"),
    [
        ((), 10, [Chunk(0, None)]),
        ((5, 5), 10, [Chunk(0, None)]),
        ((5, 6), 10, [Chunk(0, names(0)), Chunk(1, names(1)), Chunk(REST, ())]),
        ((5, 5, 1), 10, [Chunk(0, names(0, 1)), Chunk(1, names(2)), Chunk(REST, ())]),
        ((100,), 40, [*(Chunk(i, names(0), Slice(i, 3)) for i in range(3)), Chunk(REST, ())]),
        (
            (1, 20, 1),
            10,
            [
                Chunk(0, names(0)),
                *(Chunk(1, names(1), Slice(0, 2)), Chunk(2, names(1), Slice(1, 2))),
                *(Chunk(3, names(2)), Chunk(REST, ())),
            ],
        ),
        (
            (0, 0, 11, 0),
            10,
            [
                Chunk(0, names(0, 1)),
                *(Chunk(1, names(2), Slice(0, 2)), Chunk(2, names(2), Slice(1, 2))),
                *(Chunk(3, names(3)), Chunk(REST, ())),
            ],
        ),
    ],
)
def test_plan_chunks(rows, chunk_rows, expected):
    partitions = sealed(*rows)[::-1]

    chunks = plan_chunks(partitions, chunk_rows=chunk_rows, is_partitioned=True)

    assert list(chunks) == expected


def test_table_without_partitions_is_one_chunk_however_large():
    chunks = plan_chunks([SealedPartition(WHOLE_TABLE, 10**9, 0)], chunk_rows=1, is_partitioned=False)

    assert chunks == (Chunk(0, None),)


def test_chunk_has_at_most_500_partitions_however_small_they_are():
    chunks = plan_chunks(sealed(*[0] * 1001), chunk_rows=10**9, is_partitioned=True)

    assert [len(c.partitions) for c in chunks] == [500, 500, 1, 0]
    assert [c.is_rest for c in chunks] == [False, False, False, True]


@given(st.lists(st.integers(0, 50), max_size=60), st.integers(1, 100))
def test_chunks_cover_every_partition_once_and_keep_their_size(rows, chunk_rows):
    partitions = sealed(*rows)
    rows_of = {p.partition: p.num_rows for p in partitions}

    chunks = plan_chunks(partitions, chunk_rows=chunk_rows, is_partitioned=True)

    if chunks == (Chunk(0, None),):
        assert sum(rows) <= chunk_rows
        return
    assert chunks[-1] == Chunk(REST, ())
    assert [c.number for c in chunks[:-1]] == list(range(len(chunks) - 1))
    first = [c for c in chunks if c.slice is None or c.slice.index == 0]
    assert [p for c in first for p in c.partitions] == sorted(rows_of)
    assert [chunk for part in parts(chunks) for chunk in part] == list(chunks)
    for part in parts(chunks):
        slices = [c.slice for c in part]
        assert slices == [None] or slices == [Slice(i, len(part)) for i in range(len(part))]
        assert len({c.partitions for c in part}) == 1
    for chunk in chunks[:-1]:
        assert sum(rows_of[p] for p in chunk.partitions) <= chunk_rows or len(chunk.partitions) == 1
    for chunk, after in pairwise(chunks[:-1]):
        filled = sum(rows_of[p] for p in (*chunk.partitions, after.partitions[0]))
        assert filled > chunk_rows, "the next partition would have fitted: too many chunks"
    assert chunks == plan_chunks(partitions[::-1], chunk_rows=chunk_rows, is_partitioned=True), (
        "a takeover finds others"
    )


NASTY = [
    *("", " ", "__HIVE_DEFAULT_PARTITION__", "x" * 300, "a=b/c", "%20", "..", "it's", '"', "a\nb", "`", "😀", "\\"),
    *("[null]", "null", "0001-01-01", "10000-01-01", ",", "\x00", "\u2028", "é", "e\u0301"),
]


@pytest.mark.parametrize("value", NASTY, ids=repr)
def test_partition_name_keeps_every_value(value):
    assert partition_values(partition_name([value, None])) == (value, None)


@given(st.lists(st.none() | st.text(), max_size=4), st.lists(st.none() | st.text(), max_size=4))
def test_partition_names_are_equal_only_for_equal_values(one, other):
    assert partition_values(partition_name(one)) == tuple(one)
    assert (partition_name(one) == partition_name(other)) is (one == other)
    assert json.loads(partition_name(one)) == one


def test_partition_names_are_short_and_fixed():
    assert partition_name(["2013-01-01"]) == '["2013-01-01"]'
    assert partition_name([None]) == "[null]"
    assert partition_name([]) == WHOLE_TABLE
    assert partition_name(["😀", "a"]) == '["😀","a"]'


@pytest.mark.parametrize("value", ["", "__HIVE_DEFAULT_PARTITION__"])
def test_value_that_delta_stores_as_null_is_refused(value):
    problem = unstorable(partition_name(["ok", value]), ["a", "b"])

    assert problem == f"column 'b' holds {value!r}, which Delta stores as NULL."


def test_value_with_a_nul_is_refused():
    problem = unstorable(partition_name(["a\0b"]), ["p"])

    assert problem == "column 'p' holds 'a\\x00b': no file system has a name with a NUL character in it."


@pytest.mark.parametrize(
    ("value", "is_storable"),
    [
        *((None, True), ("a=b/c", True), ("%20", True), ("..", True), ("it's", True), ('"', True), ("a\nb", True)),
        *(("`", True), ("😀", True), (" ", True), ("__HIVE_DEFAULT_PARTITION__x", True)),
        *(("x" * 253, True), ("x" * 254, False), ("x" * 300, False)),
        *(("é" * 126, True), ("é" * 127, False), ("😀" * 63, True), ("😀" * 64, False)),
        *(("/" * 84, True), ("/" * 85, False), ("\n" * 84, True), ("\n" * 85, False)),
    ],
    ids=lambda v: repr(v)[:20],
)
def test_value_is_storable_if_its_directory_has_a_name(value, is_storable):
    problem = unstorable(partition_name([value]), ["p"])

    assert (problem is None) is is_storable
    if not is_storable:
        assert problem == f"column 'p' holds a value of {len(value)} characters, too long for a directory's name."


def test_column_name_is_part_of_the_directory_and_escaped_like_the_value():
    assert unstorable(partition_name(["x" * 54]), ["c" * 200]) is None
    assert unstorable(partition_name(["x" * 55]), ["c" * 200]) is not None
    assert unstorable(partition_name(["x" * 55]), ["/" * 200]) is not None
    assert unstorable(partition_name(["x" * 55]), ["/" * 67]) is not None


def test_table_without_partitions_has_nothing_unstorable():
    assert unstorable(WHOLE_TABLE, []) is None


def test_total_sums_all_partitions_of_all_chunks():
    def recorded(number: int, *counts: Counts) -> RecordedChunk:
        parts = tuple(PartitionCounts(str(i), c) for i, c in enumerate(counts))
        return RecordedChunk(number, 1, 0, 5, None, 0, 0, 0, parts)

    counts = total([recorded(0, Counts(1, 2, 3, 4, 5), Counts(10, 20, 30, 40, 50)), recorded(REST, Counts(0, 100))])

    assert counts == Counts(11, 122, 33, 44, 55)
    assert total([]) == Counts()


def test_seal_counts_its_rows():
    assert Seal("s", "d", 64, 10, tuple(sealed(3, 4))).num_rows == 7
    assert Seal("s", "d", 64, 10, ()).num_rows == 0


@given(st.integers(0, 2**40))
def test_bucket_holds_four_to_eight_rows(rows):
    buckets = bucket_count(rows)

    assert buckets & (buckets - 1) == 0
    assert 64 <= buckets <= 2**23
    if 64 < buckets < 2**23:
        assert 4 <= rows / buckets <= 8


@given(st.lists(st.integers(0, 2**63 - 1), max_size=5))
def test_seal_digest_is_the_xor_of_its_partitions(digests):
    seal = Seal("s", "d", 64, 10, tuple(SealedPartition(str(n), 1, d) for n, d in enumerate(digests)))

    found = 0
    for digest in digests:
        found ^= digest
    assert seal.digest == found


@pytest.mark.parametrize(
    ("rows", "num_buckets", "is_kept"),
    [(1000, 64, True), (1000, 256, True), (10_000, 64, False), (1000, 1024, False), (0, 64, True)],
)
def test_digests_are_kept_while_their_buckets_have_about_the_right_size(rows, num_buckets, is_kept):
    seal = Seal("s", "d", num_buckets, 10, (SealedPartition("[]", rows, 5),), (Column("id", "long"),))

    kept = digests_to_keep(seal, "r")

    columns = fingerprint(seal.columns)
    assert kept == (PublishedDigests("r", "d", num_buckets, rows, 5, 0, columns) if is_kept else None)


# -- amounts -----------------------------------------------------------------------------------------------------------


def test_a_hundred_thousand_partitions_are_a_few_hundred_steps():
    sealed = [SealedPartition(partition_name([f"day {n}"]), 7, n) for n in range(100_000)]

    chunks = plan_chunks(sealed, chunk_rows=5_000_000, is_partitioned=True)

    assert len(chunks) == 201
    assert chunks[-1].is_rest
    assert {name for chunk in chunks for name in chunk.partitions} == {part.partition for part in sealed}
    assert all(unstorable(part.partition, ["p"]) is None for part in sealed[:1000])


@pytest.mark.parametrize("is_sliceable", [True, False])
def test_a_partition_with_nine_tenths_of_the_rows_does_not_keep_the_others_waiting_in_one_step(is_sliceable):
    sealed = [SealedPartition('["large"]', 90_000_000, 1)]
    sealed += [SealedPartition(partition_name([f"small {n}"]), 100_000, n) for n in range(100)]

    chunks = plan_chunks(sealed, chunk_rows=5_000_000, is_partitioned=True, is_sliceable=is_sliceable)

    of_large = [chunk for chunk in chunks if '["large"]' in (chunk.partitions or ())]
    assert all(chunk.partitions == ('["large"]',) for chunk in of_large)
    assert [chunk.slice for chunk in of_large] == ([Slice(n, 18) for n in range(18)] if is_sliceable else [None])
    assert len(chunks) == len(of_large) + 2 + 1  # a hundred small ones in two, and the rest
