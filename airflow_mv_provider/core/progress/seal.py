"""The seal: what staging has read, complete, measured and frozen; MERGING publishes exactly this."""

from __future__ import annotations

from dataclasses import dataclass

from airflow_mv_provider.core.approval.check import CheckResult
from airflow_mv_provider.core.definition.schema import Column
from airflow_mv_provider.core.guard import NullCount
from airflow_mv_provider.core.progress.published import Kept
from airflow_mv_provider.core.progress.totals import Totals, total
from airflow_mv_provider.core.strategy_names import Strategy


@dataclass(frozen=True, slots=True)
class SealedPartition:
    """The totals of one partition's sealed rows, see `Totals`."""

    partition: str
    num_rows: int
    digest: int
    mixed: int = 0

    @property
    def totals(self) -> Totals:
        return Totals(self.num_rows, self.digest, self.mixed)


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

    rows         : path of the staged copy of whole rows; None if the source is read again at its pinned frontier
    partitions   : of the rows that were read
    columns      : the columns that were read, as main will have them
    rejected     : the records that cannot be rows of main
    strategy     : how main is brought up to date, unless another writer changes main
    changes      : path of the corrections that turn main at `base` into these rows; None if no row differs, or if main
                   is overwritten without a comparison
    base         : main's version
    fingerprints : their layers for the rows that were read; none if they are not kept
    num_shards   : of the fingerprints
    files        : the totals of the source's rows by file, if they are kept
    checks       : the results of the definition's checks
    nulls        : of the columns that a guard names, over all rows that were read
    """

    rows: str | None
    num_bytes: int
    partitions: tuple[SealedPartition, ...]
    columns: tuple[Column, ...] = ()
    rejected: Rejected = Rejected()
    strategy: Strategy = "corrections"
    changes: str | None = None
    base: int = 0
    fingerprints: tuple[Kept, ...] = ()
    num_shards: int = 0
    files: Kept | None = None
    checks: tuple[CheckResult, ...] = ()
    nulls: tuple[NullCount, ...] = ()

    @property
    def is_unchanged(self) -> bool:
        """True if no row differs from main's."""
        return self.changes is None and self.strategy != "replace"

    @property
    def kept(self) -> tuple[Kept, ...]:
        """The files that are kept for the next refresh, if this one publishes."""
        return self.fingerprints if self.files is None else (*self.fingerprints, self.files)

    @property
    def totals(self) -> Totals:
        """The totals of all rows that were read."""
        return total(part.totals for part in self.partitions)

    @property
    def num_rows(self) -> int:
        return sum(p.num_rows for p in self.partitions)
