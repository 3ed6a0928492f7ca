"""Chunks: the parts of a sealed table that a progressive refresh commits one by one.

A chunk is a run of whole partitions. Its number and members are fixed at the seal: a takeover finds the same ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from airflow_mv_provider.core.progress.seal import SealedPartition

REST = -1  # the chunk of main's partitions that the seal lacks: all their rows are deleted
_MAX_PARTITIONS = 500


@dataclass(frozen=True, slots=True)
class Chunk:
    """A part of the table.

    partitions : the members; None means the whole table, including main's partitions that the seal lacks
    """

    number: int
    partitions: tuple[str, ...] | None

    @property
    def is_rest(self) -> bool:
        return self.number == REST


WHOLE = (Chunk(0, None),)


def plan_chunks(partitions: Iterable[SealedPartition], *, chunk_rows: int) -> tuple[Chunk, ...]:
    """Cut the sealed natural partitions into chunks of about `chunk_rows` rows; a larger partition is one of its own.

    returns : one chunk for the whole table when it all fits; otherwise runs of partitions in their order by name, and
              the rest last
    """
    ordered = sorted(partitions, key=lambda p: p.partition)
    if sum(p.num_rows for p in ordered) <= chunk_rows and len(ordered) <= _MAX_PARTITIONS:
        return WHOLE
    runs: list[list[str]] = []
    rows = 0
    for each in ordered:
        if not runs or rows + each.num_rows > chunk_rows or len(runs[-1]) == _MAX_PARTITIONS:
            runs.append([])
            rows = 0
        runs[-1].append(each.partition)
        rows += each.num_rows
    return (*(Chunk(number, tuple(run)) for number, run in enumerate(runs)), Chunk(REST, ()))


def by_chunk(partitions: Iterable[str], chunks: Sequence[Chunk]) -> dict[int, list[str]]:
    """Return the partitions of each chunk that has any of them, by its number."""
    whole = next((each.number for each in chunks if each.partitions is None), REST)
    numbers = {name: each.number for each in chunks for name in each.partitions or ()}
    found: dict[int, list[str]] = {}
    for name in partitions:
        found.setdefault(numbers.get(name, whole), []).append(name)
    return found


def part_number(number: int) -> int:
    """Return the part number in the note of a commit of one chunk, from 1; 0 marks a commit of everything."""
    return number - REST + 1
