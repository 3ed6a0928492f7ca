"""Chunks and partitions: what Merging works through, and how far it got.

A partition is named by the JSON list of its values as strings (`["2013-01-01"]`, `[null]`; `[]` for a table
without partitions). A chunk is a run of partitions compared in one step; its number and members are decided once, at
the seal, so that a takeover finds the same ones.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import reduce
from operator import xor

from airflow_mv_provider.core.guard import Counts

WHOLE_TABLE = "[]"
REST = -1  # the chunk of main's partitions that the seal does not know: whatever is there has to go
_MAX_PARTITIONS = 500
_ROWS_PER_BUCKET = 16
_MIN_BUCKETS, _MAX_BUCKETS = 1 << 6, 1 << 22
_DELTA_NULL = "__HIVE_DEFAULT_PARTITION__"
_MAX_DIRECTORY_BYTES = 255


@dataclass(frozen=True, slots=True)
class Chunk:
    """A part of the table that is compared in one step.

    partitions : the members; None means the whole table, members of main that the seal lacks included
    """

    number: int
    partitions: tuple[str, ...] | None

    @property
    def is_rest(self) -> bool:
        return self.number == REST


@dataclass(frozen=True, slots=True)
class SealedPartition:
    """What the seal says of one partition. `digest` is the xor of its rows' hashes."""

    partition: str
    num_rows: int
    digest: int


@dataclass(frozen=True, slots=True)
class Seal:
    """What Merging will bring into main: complete, measured and frozen.

    rows        : the staged copy of whole rows; None when the source is read again at its pin
    digests     : the table of what was read, summed up by buckets of keys
    num_buckets : buckets of keys in each partition, a power of two
    """

    rows: str | None
    digests: str
    num_buckets: int
    num_bytes: int
    partitions: tuple[SealedPartition, ...]

    @property
    def num_rows(self) -> int:
        return sum(p.num_rows for p in self.partitions)

    @property
    def digest(self) -> int:
        """The xor of all rows' hashes."""
        return reduce(xor, (p.digest for p in self.partitions), 0)


@dataclass(frozen=True, slots=True)
class PublishedDigests:
    """The digests that a publish left behind: main, summed up by buckets of keys, as long as nobody else writes to it.

    refresh_id       : the refresh that published; its workspace holds them
    num_rows, digest : what they must sum up to, or they are not believed
    """

    refresh_id: str
    path: str
    num_buckets: int
    num_rows: int
    digest: int


@dataclass(frozen=True, slots=True)
class PartitionCounts:
    """What the comparison of one partition found. `position` is the last key, as JSON, that needed a correction."""

    partition: str
    counts: Counts
    position: str | None = None


@dataclass(frozen=True, slots=True)
class RecordedChunk:
    """Corrections that are written, measured and recorded: main at `base_version` lacks exactly these.

    path : None when the chunk needs no correction
    """

    number: int
    epoch: int
    merge_round: int
    base_version: int
    path: str | None
    num_rows: int
    digest: int
    num_bytes: int
    partitions: tuple[PartitionCounts, ...] = field(default=())


def partition_name(values: Sequence[str | None]) -> str:
    """Return the name of the partition with these values, each cast to a string."""
    return json.dumps(list(values), ensure_ascii=False, separators=(",", ":"))


def partition_values(name: str) -> tuple[str | None, ...]:
    """Return the values in a partition's name."""
    return tuple(json.loads(name))


def plan_chunks(partitions: Iterable[SealedPartition], *, chunk_rows: int, is_partitioned: bool) -> tuple[Chunk, ...]:
    """Cut the sealed partitions into chunks of about `chunk_rows` rows; a partition is never cut.

    returns : one chunk for the whole table when it all fits; otherwise runs of partitions in their order by name, and
              the rest last
    """
    ordered = sorted(partitions, key=lambda p: p.partition)
    if not is_partitioned or (sum(p.num_rows for p in ordered) <= chunk_rows and len(ordered) <= _MAX_PARTITIONS):
        return (Chunk(0, None),)
    runs: list[list[str]] = [[]]
    rows = 0
    for each in ordered:
        if runs[-1] and (rows + each.num_rows > chunk_rows or len(runs[-1]) == _MAX_PARTITIONS):
            runs.append([])
            rows = 0
        runs[-1].append(each.partition)
        rows += each.num_rows
    return (*(Chunk(number, tuple(run)) for number, run in enumerate(runs)), Chunk(REST, ()))


def bucket_count(most_rows: int) -> int:
    """Return how many buckets the keys of each partition are put into: a power of two, eight to sixteen rows each.

    most_rows : rows of the largest partition. More buckets find fewer rows to compare, and cost more to sum up.
    """
    return max(_MIN_BUCKETS, min(_MAX_BUCKETS, 1 << (most_rows // _ROWS_PER_BUCKET).bit_length()))


def digests_to_keep(seal: Seal, refresh_id: str) -> PublishedDigests | None:
    """Return the digests that the next refresh may compare with, or None when it should count buckets anew."""
    ideal = bucket_count(max((p.num_rows for p in seal.partitions), default=0))
    if not ideal // 4 <= seal.num_buckets <= ideal * 4:
        return None
    return PublishedDigests(refresh_id, seal.digests, seal.num_buckets, seal.num_rows, seal.digest)


def total(recorded: Iterable[RecordedChunk]) -> Counts:
    """Return the sum of all recorded counts."""
    return sum((p.counts for chunk in recorded for p in chunk.partitions), Counts())


def unstorable(name: str, columns: Sequence[str]) -> str | None:
    """Say what is wrong with a partition's values, or None when Delta stores them as they are.

    Delta turns the empty string and Hive's default marker into NULL without a word: the row would come back as another.
    """
    for column, value in zip(columns, partition_values(name), strict=True):
        if value is None:
            continue
        if value in ("", _DELTA_NULL):
            return f"column {column!r} holds {value!r}, which Delta stores as NULL."
        if len(_escaped(column)) + 1 + len(_escaped(value)) > _MAX_DIRECTORY_BYTES:
            return f"column {column!r} holds a value of {len(value)} characters, too long for a directory's name."
    return None


def _escaped(value: str) -> bytes:
    """Return about the directory name that Spark makes of a value: special bytes become %XX."""
    special = b"\"#%'*/:=?\\\x7f{[]^"
    return b"".join(b"%%%02X" % b if b < 32 or b in special else bytes([b]) for b in value.encode())
