"""The buckets in which two sides differ, counted per partition, from the joined digests of both.

    digests of the desired rows ──┐
                                  ├─▶ bucketwise ──▶ Buckets: where rows differ, and where keys do
    digests of main ──────────────┘

A comparison reads rows only in these buckets.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from airflow_mv_provider.core.definition.table import RefreshableTable
from airflow_mv_provider.core.progress.chunk import Chunk
from airflow_mv_provider.core.progress.partition import WHOLE_TABLE
from airflow_mv_provider.core.progress.seal import Seal, SealedPartition
from airflow_mv_provider.exceptions import SealBrokenError
from airflow_mv_provider.spark import partitions
from airflow_mv_provider.spark.compare.digest_algebra import (
    BUCKET,
    DIFFERS,
    DIGEST,
    KEYS_DIFFER,
    MAIN_DIGEST,
    MAIN_ROWS,
    MIXED,
    NULL_KEYS,
    ROWS,
    STANDS_FOR,
    bucketwise,
)
from airflow_mv_provider.spark.errors import FROM_SPARK, translated
from airflow_mv_provider.spark.layout import columns

log = logging.getLogger(__name__)

MIN_ROWS_TO_CHOOSE = 200_000  # with fewer rows, filtering rows by bucket costs more jobs than it saves
MAX_DIFFERING = 0.5  # share of all buckets; above it, filtering rows by bucket costs more than it saves


@dataclass(frozen=True, slots=True)
class BucketCounts:
    """One partition on both sides; `differing_*` count and digest the desired rows in buckets that differ.

    buckets : number of buckets with rows; an upper bound if a large bucket stands for several
    """

    sealed: SealedPartition
    main_rows: int
    buckets: int
    differing: int
    differing_rows: int
    differing_digest: int


@dataclass(frozen=True, slots=True)
class Buckets:
    """The buckets in which two sides differ.

    beside    : as `bucketwise` returns it
    differing : (*partition_by, _mv_bucket) of the buckets that differ
    mixed     : sum of the desired rows' mixed hashes
    new_keys  : as `differing`, only buckets in which the desired keys are not main's
    num_new_keys : number of buckets in `new_keys`
    rows_with_other_keys : number of main's rows in `new_keys`
    kept      : what Spark caches in memory, or on disk, until `close`: all of `beside`, only what differs, or nothing
    has_large : a row of `beside` with equal sides is a large bucket, which stands for many small ones
    """

    beside: DataFrame
    differing: DataFrame
    new_keys: DataFrame
    num_new_keys: int
    kept: DataFrame | None
    num_buckets: int
    null_keys: int
    rows_with_other_keys: int
    main_rows: int
    main_digest: int
    partitions: Mapping[str, BucketCounts]
    mixed: int
    has_large: bool = False

    @property
    def num_differing(self) -> int:
        """The number of buckets that differ."""
        return sum(part.differing for part in self.partitions.values())

    @property
    def can_be_sliced(self) -> bool:
        """True if `beside` can be counted again by slices (runs of small buckets): it is cached, without large ones."""
        return self.kept is self.beside and not self.has_large

    @property
    def sealed(self) -> tuple[SealedPartition, ...]:
        """The partitions of the desired side."""
        return tuple(
            p.sealed for name, p in sorted(self.partitions.items()) if p.sealed.num_rows or name == WHOLE_TABLE
        )

    def members(self, chunk: Chunk) -> tuple[str, ...]:
        """Return the partitions of a chunk; the rest chunk has those that are in main and not in the seal."""
        if chunk.partitions is None:
            return tuple(sorted(self.partitions))
        if chunk.is_rest:
            return tuple(sorted(name for name, p in self.partitions.items() if not p.sealed.num_rows))
        return chunk.partitions

    def differing_in(self, chunk: Chunk) -> list[BucketCounts]:
        """Return the partitions of a chunk in which a bucket differs."""
        return [p for name in self.members(chunk) if (p := self.partitions.get(name)) and p.differing]

    @staticmethod
    def is_worth_choosing(members: Iterable[BucketCounts]) -> bool:
        """True if the partitions are large enough, and few enough buckets differ, to filter rows by bucket."""
        num_rows = num_buckets = num_differing = 0
        for part in members:
            num_rows += part.sealed.num_rows + part.main_rows
            num_buckets += part.buckets
            num_differing += part.differing
        return num_rows >= MIN_ROWS_TO_CHOOSE and num_differing <= MAX_DIFFERING * num_buckets

    def check_sealed(self, where: str, seal: Seal) -> None:
        """Check that the desired side still matches the seal.

        raises : SealBrokenError
        """
        for part in seal.partitions:
            found = self.partitions.get(part.partition)
            if (found.sealed if found else SealedPartition(part.partition, 0, 0)) != part:
                raise SealBrokenError(where, f"partition {part.partition} no longer has the rows that were sealed.")
        if self.mixed != seal.mixed:
            raise SealBrokenError(where, "the digests are no longer of the rows that were sealed.")

    def close(self) -> None:
        """Release the buckets that Spark caches."""
        if self.kept is not None:
            forget(self.kept)


def compared(desired: DataFrame, main: DataFrame, table: RefreshableTable, num_buckets: int) -> Buckets:
    """Compare the digests of both sides.

    cost : one scan of both digest tables
    """
    return kept_in_memory(bucketwise(desired, main, table), table, num_buckets)


def kept_in_memory(beside: DataFrame, table: RefreshableTable, num_buckets: int) -> Buckets:
    """Cache two joined sides in Spark, and count where they differ.

    beside  : as `bucketwise` returns it
    returns : must be closed by the caller
    """
    with ExitStack() as undo, translated(table.name):
        kept = beside.persist()
        undo.callback(forget, kept)
        found = counted(kept, table, num_buckets, kept)
        undo.pop_all()
    return found


def differing_in_memory(found: Buckets, table: RefreshableTable) -> Buckets:
    """Cache the buckets that differ, of digests that are in files, and check that their number is as counted."""
    if not found.num_differing:
        return found
    differs, keys_differ = F.col(DIFFERS), F.col(KEYS_DIFFER)
    place = _place(table)
    with ExitStack() as undo, translated(table.name):
        kept = found.beside.where(differs | keys_differ).select(*place, differs, keys_differ).persist()
        undo.callback(forget, kept)
        counts = kept.agg(F.count_if(differs), F.count_if(keys_differ)).collect()[0]
        if tuple(counts) != (found.num_differing, found.num_new_keys):
            raise SealBrokenError(table.name, "the digests are not as they were written when they are read again.")
        undo.pop_all()
    return replace(
        found, differing=kept.where(differs).select(*place), new_keys=kept.where(keys_differ).select(*place), kept=kept
    )


def counted(beside: DataFrame, table: RefreshableTable, num_buckets: int, kept: DataFrame | None = None) -> Buckets:
    """Count where two joined sides differ.

    kept : what Spark caches of them
    cost : one scan
    """
    names = partitions.names(table, F.col(BUCKET), num_buckets)
    differs = F.col(DIFFERS)
    sums = (
        *(F.sum(ROWS), F.bit_xor(DIGEST), F.sum(NULL_KEYS)),
        *(F.sum(MAIN_ROWS), F.bit_xor(MAIN_DIGEST), F.sum(MIXED)),
        *(F.sum(STANDS_FOR), F.count_if(differs), F.count_if(KEYS_DIFFER)),
        *(F.sum(F.when(differs, F.col(ROWS))), F.bit_xor(F.when(differs, F.col(DIGEST)))),
        F.sum(F.when(F.col(KEYS_DIFFER), F.col(MAIN_ROWS))),
    )
    with translated(table.name):
        found = beside.groupBy(*names).agg(*sums).collect()
    parts: dict[str, BucketCounts] = {}
    num_null_keys = num_new_keys = num_main_rows = whole_main_digest = whole_mixed = rows_with_other_keys = 0
    for row in found:
        whole, counted = row[len(names) :][:6], row[len(names) :][6:]
        rows, digest, null_keys, main_rows, main_digest, mixed = (value or 0 for value in whole)
        buckets, differing, new_keys, differing_rows, differing_digest, other = (value or 0 for value in counted)
        sealed = SealedPartition(partitions.name(table, row[: len(names)]), rows, digest)
        parts[sealed.partition] = BucketCounts(sealed, main_rows, buckets, differing, differing_rows, differing_digest)
        num_null_keys += null_keys
        num_new_keys += new_keys
        rows_with_other_keys += other
        num_main_rows += main_rows
        whole_main_digest ^= main_digest
        whole_mixed += mixed
    place = _place(table)
    return Buckets(
        beside=beside,
        differing=beside.where(differs).select(*place),
        new_keys=beside.where(KEYS_DIFFER).select(*place),
        num_new_keys=num_new_keys,
        kept=kept,
        num_buckets=num_buckets,
        null_keys=num_null_keys,
        rows_with_other_keys=rows_with_other_keys,
        main_rows=num_main_rows,
        main_digest=whole_main_digest,
        partitions=parts,
        mixed=whole_mixed,
    )


def sliced(buckets: Buckets, table: RefreshableTable, chunk: Chunk) -> Buckets:
    """Return the part of `buckets` in a chunk that is a slice of its only partition.

    buckets : with `can_be_sliced`
    cost    : one scan of the cached digests
    """
    assert chunk.slice is not None
    assert chunk.partitions is not None
    assert buckets.can_be_sliced
    bucket, num_buckets = F.col(BUCKET), buckets.num_buckets
    is_of_chunk = partitions.is_member(buckets.beside, table, chunk.partitions)
    is_of_slice = partitions.is_in_slice(bucket, chunk.slice, num_buckets)
    return counted(buckets.beside.where(is_of_chunk & is_of_slice), table, num_buckets)


def _place(table: RefreshableTable) -> list[Column]:
    return [*columns(table.partition_by), F.col(BUCKET)]


def forget(kept: DataFrame) -> None:
    """Release what Spark caches of rows; a failure leaves it to the session's end."""
    try:
        kept.unpersist()
    except FROM_SPARK as error:
        # Connect analyses the plan again, its files may be removed, or Spark died.
        log.debug("The cached rows could not be removed from Spark: %s", error)
