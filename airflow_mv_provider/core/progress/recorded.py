"""What is recorded of a refresh's chunks: their corrections, their counts, and which of them main contains."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from airflow_mv_provider.core.guard import Counts


@dataclass(frozen=True, slots=True)
class PartitionCounts:
    """The result of comparing one partition."""

    partition: str
    counts: Counts


@dataclass(frozen=True, slots=True)
class RecordedChunk:
    """Corrections that are written, measured and recorded: exactly those that main at `base_version` needs.

    path     : None when the chunk needs no correction; where the corrections of other chunks may lie, too
    is_whole : it is the only chunk
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
    is_whole: bool = True

    @property
    def is_overwrite(self) -> bool:
        """True if main is overwritten as a whole, so that no corrections are written."""
        return self.path is None and self.num_rows > 0

    @property
    def is_committed(self) -> bool:
        """True if main is known to contain it: it needed no correction, or its own commit is recorded."""
        return self.path is None or self.committed_version is not None


@dataclass(frozen=True, slots=True)
class KeptRows:
    """A recorded chunk's corrections written again without their deletes.

    path    : None when no other correction is left
    deletes : the deletes that were left out, by partition
    """

    number: int
    path: str | None
    num_rows: int
    digest: int
    num_bytes: int
    deletes: Mapping[str, int]


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

    def after(self, numbers: Collection[int], found: DoneChunks) -> DoneChunks | None:
        """Return the state after a step of the refresh's owner that worked on the chunks `numbers`.

        found   : the state of these chunks after the step
        returns : None if one of them is no longer recorded: a new round has begun, which discards all records
        """
        if any(number in self.recorded and number not in found.recorded for number in numbers):
            return None
        committed, has_commit = self.committed | found.committed, self.has_commit or found.has_commit
        return DoneChunks(self.recorded | found.recorded, committed, has_commit)


def total(recorded: Iterable[RecordedChunk]) -> Counts:
    """Return the sum of all recorded counts."""
    return sum((p.counts for chunk in recorded for p in chunk.partitions), Counts())


def changed_partitions(parts: Iterable[PartitionCounts]) -> int:
    """Return in how many partitions a row is to be changed."""
    return sum(1 for part in parts if part.counts.changes)
