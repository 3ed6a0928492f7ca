"""Chunks and partitions: the units of work in Merging, and their progress.

A partition is named by the JSON list of its values as strings (`["2013-01-01"]`, `[null]`; `[]` for a table
without partitions). A chunk is a run of partitions compared in one step; its number and members are fixed at the seal,
so that a takeover finds the same chunks.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import reduce
from operator import xor

from airflow_mv_provider.core.cost import Strategy
from airflow_mv_provider.core.definition.schema import Column, fingerprint
from airflow_mv_provider.core.guard import Counts

WHOLE_TABLE = "[]"
REST = -1  # the chunk of main's partitions that the seal lacks: all their rows are deleted
_MAX_PARTITIONS = 500
_MAX_SLICES = 64  # per partition: each slice scans the whole partition
_ROWS_PER_BUCKET = 8
_MIN_BUCKETS, _MAX_BUCKETS = 1 << 6, 1 << 23
_DELTA_NULL = "__HIVE_DEFAULT_PARTITION__"
_MAX_DIRECTORY_BYTES = 255


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


@dataclass(frozen=True, slots=True)
class SealedPartition:
    """The sealed row count and digest of one partition. `digest` is the xor of its rows' hashes."""

    partition: str
    num_rows: int
    digest: int


@dataclass(frozen=True, slots=True)
class Rejected:
    """The records collected for the error table; `digest` is the xor of their hashes.

    path : None when there are none
    """

    path: str | None = None
    num_rows: int = 0
    digest: int = 0


@dataclass(frozen=True, slots=True)
class Seal:
    """The result of staging that Merging publishes: complete, measured and frozen.

    rows        : path of the staged copy of whole rows; None if the source is read again at its pinned frontier
    digests     : path of the digests of the rows that were read, per bucket of keys
    num_buckets : buckets of keys in each partition, a power of two
    columns     : the columns that were read, as main will have them
    rejected    : the records that cannot be rows of main
    strategy    : how main is brought up to date, unless another writer changes main
    changes     : path of the corrections derived from a change feed; valid only for main as of the last publish
    mixed       : the sum of all rows' mixed hashes; detects differences that leave the row count and the xor equal
    """

    rows: str | None
    digests: str
    num_buckets: int
    num_bytes: int
    partitions: tuple[SealedPartition, ...]
    columns: tuple[Column, ...] = ()
    rejected: Rejected = Rejected()
    strategy: Strategy = "corrections"
    changes: str | None = None
    mixed: int = 0

    @property
    def num_rows(self) -> int:
        return sum(p.num_rows for p in self.partitions)

    @property
    def digest(self) -> int:
        """The xor of all rows' hashes."""
        return reduce(xor, (p.digest for p in self.partitions), 0)


@dataclass(frozen=True, slots=True)
class PublishedDigests:
    """The digests of main that a publish left behind, per bucket of keys; valid until another writer changes main.

    refresh_id       : the refresh that published; its workspace holds them
    num_rows, digest, mixed : the required totals, as in the seal; digests with other totals are not used
    columns          : the fingerprint of the columns that the digests cover; other columns are not in them
    """

    refresh_id: str
    path: str
    num_buckets: int
    num_rows: int
    digest: int
    mixed: int
    columns: str

    @property
    def sums(self) -> tuple[int, int, int]:
        """Count, xor and mixed sum: equal for equal rows, and different for others unless a collision was crafted."""
        return self.num_rows, self.digest, self.mixed


@dataclass(frozen=True, slots=True)
class PartitionCounts:
    """The result of comparing one partition. `position` is the last key, as JSON, that needed a correction."""

    partition: str
    counts: Counts
    position: str | None = None


@dataclass(frozen=True, slots=True)
class RecordedChunk:
    """Corrections that are written, measured and recorded: exactly those that main at `base_version` needs.

    path : None when the chunk needs no correction
    committed_version : main's version with these corrections; only a progressive refresh commits chunk by chunk
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
    committed_version: int | None = None

    @property
    def is_committed(self) -> bool:
        """True if main is known to contain it: it needed no correction, or its own commit is recorded."""
        return self.path is None or self.committed_version is not None


@dataclass(frozen=True, slots=True)
class DoneChunks:
    """The durable state of a refresh's chunks, by their numbers.

    recorded   : chunks whose corrections are recorded
    committed  : chunks that main contains, or that need no correction
    has_commit : a commit of at least one chunk is recorded
    """

    recorded: frozenset[int]
    committed: frozenset[int]
    has_commit: bool


def partition_name(values: Sequence[str | None]) -> str:
    """Return the name of the partition with these values, each cast to a string."""
    return json.dumps(list(values), ensure_ascii=False, separators=(",", ":"))


def partition_values(name: str) -> tuple[str | None, ...]:
    """Return the values in a partition's name."""
    return tuple(json.loads(name))


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


def hash_partition_name(index: int) -> str:
    """Return the name of a hash partition; `index` starts at 0."""
    return partition_name([f"hash {index}"])


def hash_partition_index(name: str) -> int:
    """Return the index in a hash partition's name."""
    return int((partition_values(name)[0] or "").removeprefix("hash "))


def bucket_count(most_rows: int, at_least: int = 1) -> int:
    """Return the number of key buckets in each partition: a power of two, four to eight rows per bucket.

    most_rows : rows of the largest partition. More buckets leave fewer rows to compare, and cost more to compute.
    at_least  : number of hash partitions, which are runs of buckets
    """
    fewest = max(_MIN_BUCKETS, 1 << (at_least - 1).bit_length())
    return max(fewest, min(_MAX_BUCKETS, 1 << (most_rows // _ROWS_PER_BUCKET).bit_length()))


def digests_to_keep(seal: Seal, refresh_id: str) -> PublishedDigests | None:
    """Return the digests for the next refresh, or None if their bucket count is wrong by more than a factor of 4."""
    ideal = bucket_count(max((p.num_rows for p in seal.partitions), default=0))
    if not ideal // 4 <= seal.num_buckets <= ideal * 4:
        return None
    sums = (seal.num_rows, seal.digest, seal.mixed)
    return PublishedDigests(refresh_id, seal.digests, seal.num_buckets, *sums, fingerprint(seal.columns))


def total(recorded: Iterable[RecordedChunk]) -> Counts:
    """Return the sum of all recorded counts."""
    return sum((p.counts for chunk in recorded for p in chunk.partitions), Counts())


def unstorable(name: str, columns: Sequence[str]) -> str | None:
    """Return the problem with a partition's values, or None if Delta stores them unchanged.

    Delta silently turns the empty string and Hive's default marker into NULL: the row would be read back as another.
    """
    for column, value in zip(columns, partition_values(name), strict=True):
        if value is None:
            continue
        if value in ("", _DELTA_NULL):
            return f"column {column!r} holds {value!r}, which Delta stores as NULL."
        if "\0" in value:
            return f"column {column!r} holds {value[:80]!r}: no file system has a name with a NUL character in it."
        if len(_escaped(column)) + 1 + len(_escaped(value)) > _MAX_DIRECTORY_BYTES:
            return f"column {column!r} holds a value of {len(value)} characters, too long for a directory's name."
    return None


def _escaped(value: str) -> bytes:
    """Return approximately the directory name that Spark derives from a value: special bytes become %XX."""
    special = b"\"#%'*/:=?\\\x7f{[]^"
    return b"".join(b"%%%02X" % b if b < 32 or b in special else bytes([b]) for b in value.encode())
