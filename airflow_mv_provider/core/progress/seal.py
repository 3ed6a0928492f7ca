"""The seal: what staging has read, complete, measured and frozen; MERGING publishes exactly this."""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from operator import xor

from airflow_mv_provider.core.approval.check import CheckResult
from airflow_mv_provider.core.cost import Strategy
from airflow_mv_provider.core.definition.schema import Column
from airflow_mv_provider.core.guard import NullCount
from airflow_mv_provider.core.progress.layers import Layer, all_paths


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
    digests     : path of the digests of the rows that were read, per bucket of keys; None if the rows themselves were
                  compared, see `core.progress.joined`
    num_buckets : buckets of keys in each partition, a power of two
    columns     : the columns that were read, as main will have them
    rejected    : the records that cannot be rows of main
    strategy    : how main is brought up to date, unless another writer changes main
    changes     : path of the corrections that staging has written already; valid only for main as of the last publish
    mixed       : the sum of all rows' mixed hashes; detects differences that leave the row count and the xor equal
    checks      : the results of the definition's checks
    nulls       : of the columns that a guard names, over all rows that were read
    kept_bytes  : size of the copies of the source's rows that are kept for the next refresh
    below       : published layers of digests on which those at `digests` lie; without any they are of all rows
    """

    rows: str | None
    digests: str | None
    num_buckets: int
    num_bytes: int
    partitions: tuple[SealedPartition, ...]
    columns: tuple[Column, ...] = ()
    rejected: Rejected = Rejected()
    strategy: Strategy = "corrections"
    changes: str | None = None
    mixed: int = 0
    kept_bytes: int = 0
    checks: tuple[CheckResult, ...] = ()
    nulls: tuple[NullCount, ...] = ()
    below: tuple[Layer, ...] = ()

    @property
    def digest_paths(self) -> tuple[str, ...]:
        """Where all layers of the digests lie."""
        return all_paths(self.below, self.digests)

    def is_as(self, published: str | None) -> bool:
        """True if no row differed from the last publish, whose digests lie at `published`."""
        return self.changes is None and self.digests == published

    @property
    def sums(self) -> tuple[int, int, int]:
        """Count, xor and mixed sum of all rows, as `PublishedDigests` has them."""
        return self.num_rows, self.digest, self.mixed

    @property
    def num_rows(self) -> int:
        return sum(p.num_rows for p in self.partitions)

    @property
    def digest(self) -> int:
        """The xor of all rows' hashes."""
        return reduce(xor, (p.digest for p in self.partitions), 0)
