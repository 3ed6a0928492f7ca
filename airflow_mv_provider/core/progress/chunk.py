"""Chunks: the units of comparison in MERGING, and how a sealed table is cut into them.

A chunk is a run of partitions compared in one step, or a slice of one large partition. Its number and members are
fixed at the seal, so that a takeover finds the same chunks.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from airflow_mv_provider.core.progress.seal import SealedPartition

REST = -1  # the chunk of main's partitions that the seal lacks: all their rows are deleted
_MAX_PARTITIONS = 500
_MAX_SLICES = 64  # per partition: each slice scans the whole partition


@dataclass(frozen=True, slots=True)
class Slice:
    """One of `count` equal parts of a partition's key buckets; `index` starts at 0."""

    index: int
    count: int

    def __post_init__(self) -> None:
        if not 0 <= self.index < self.count:
            raise ValueError(f"a slice needs 0 <= index < count, got {self.index} of {self.count}")


@dataclass(frozen=True, slots=True)
class Chunk:
    """A part of the table that is compared in one step.

    partitions : the members; None means the whole table, including main's partitions that the seal lacks
    slice      : the slice of its only partition, if that is larger than a chunk; None for whole partitions
    """

    number: int
    partitions: tuple[str, ...] | None
    slice: Slice | None = None

    @property
    def is_rest(self) -> bool:
        return self.number == REST


def plan_chunks(
    partitions: Iterable[SealedPartition], *, chunk_rows: int, is_partitioned: bool, is_sliceable: bool = True
) -> tuple[Chunk, ...]:
    """Cut the sealed partitions into chunks of about `chunk_rows` rows; a larger partition is cut into slices.

    is_sliceable : False for hash partitions: a definition can ask for more of them instead
    returns      : one chunk for the whole table when it all fits; otherwise runs of partitions in their order by name,
                   the slices of one partition side by side, and the rest last
    """
    ordered = sorted(partitions, key=lambda p: p.partition)
    if not is_partitioned or (sum(p.num_rows for p in ordered) <= chunk_rows and len(ordered) <= _MAX_PARTITIONS):
        return (Chunk(0, None),)
    runs: list[tuple[list[str], int]] = []  # partitions, and how many slices
    rows = 0
    for each in ordered:
        num_slices = min(-(-each.num_rows // chunk_rows), _MAX_SLICES) if is_sliceable else 1
        is_full = (
            not runs or runs[-1][1] > 1 or rows + each.num_rows > chunk_rows or len(runs[-1][0]) == _MAX_PARTITIONS
        )
        if is_full or num_slices > 1:
            runs.append(([], max(1, num_slices)))
            rows = 0
        runs[-1][0].append(each.partition)
        rows += each.num_rows
    cut = ((tuple(run), Slice(index, count) if count > 1 else None) for run, count in runs for index in range(count))
    return (*(Chunk(number, run, slice_) for number, (run, slice_) in enumerate(cut)), Chunk(REST, ()))


def parts(chunks: Sequence[Chunk]) -> tuple[tuple[Chunk, ...], ...]:
    """Return the groups of chunks that a progressive refresh commits at once; each group holds whole partitions."""
    found: list[list[Chunk]] = []
    for chunk in chunks:
        if chunk.slice is not None and chunk.slice.index:
            found[-1].append(chunk)
        else:
            found.append([chunk])
    return tuple(tuple(part) for part in found)


def part_number(numbers: Sequence[int]) -> int:
    """Return the part number in the note of a commit of these chunks, from 1; 0 marks a commit of everything."""
    return min(numbers) - REST + 1
