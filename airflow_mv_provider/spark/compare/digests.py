"""Digest tables: one side of the comparison, summarised by buckets of keys, so that equal buckets are never read.

    source ──▶ digests/<refresh>/<epoch> ──┐
                                           ├─▶ buckets that differ, counted per partition
    main ────▶ digests of its last publish ┘    (recomputed from main when they cannot be trusted)

A refresh writes the digests of the rows it read. After its publish they are main's digests, and the next refresh
compares with them instead of reading main.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace

from pyspark.sql import Column, DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from airflow_mv_provider.core.definition.identifier import quoted
from airflow_mv_provider.core.definition.schema import Column as SchemaColumn
from airflow_mv_provider.core.definition.table import RefreshableTable
from airflow_mv_provider.core.progress import (
    WHOLE_TABLE,
    Chunk,
    PublishedDigests,
    Seal,
    SealedPartition,
    bucket_count,
)
from airflow_mv_provider.exceptions import InterruptedRefreshError, MvError, SealBrokenError
from airflow_mv_provider.spark import partitions, storage
from airflow_mv_provider.spark.compare import diff
from airflow_mv_provider.spark.errors import FROM_SPARK, translated
from airflow_mv_provider.spark.layout import Layout

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

    beside    : as `diff.bucketwise` returns it
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
            _forget(self.kept)


def write(rows: DataFrame, table: RefreshableTable, path: str, published: PublishedDigests | None) -> int:
    """Write the digests of `rows` by buckets of keys at `path`.

    rows      : (*group_by, _mv_hash bigint)
    published : the digests of a later comparison, which determine the number of buckets
    returns   : the number of buckets
    cost      : one scan of the rows; one more of the partition columns if nothing is published yet
    """
    with translated(table.name):
        num_buckets = (
            published.num_buckets if published else bucket_count(_most_rows(rows, table), table.hash_partitions or 1)
        )
        storage.write(diff.digested(rows, table, num_buckets), path)
    return num_buckets


def write_beside(rows: DataFrame, layout: Layout, path: str, published: PublishedDigests) -> Buckets:
    """As `write`, joined with the published digests, so that the comparison needs no further read of either side.

    rows    : (*group_by, _mv_hash bigint), of the layout's scope
    returns : the comparison, as read back from `path`; must be closed by the caller
    cost    : one scan of the rows; a shuffle of both digests; a scan of them, and one more if a bucket differs
    raises  : SealBrokenError, when the published digests are missing or differ from what was recorded, or when the
              written digests read back differently
    """
    table, spark = layout.table, rows.sparkSession
    before = read(spark, layout, published.path)
    with translated(table.name):
        mine = diff.digested(rows, table, published.num_buckets)
        storage.write(diff.slim(diff.bucketwise(mine, partitions.in_scope(before, layout), table)), path)
    beside = diff.restored(_stored(spark, layout, path, diff.BESIDE_COLUMNS))
    if published.num_rows < MIN_ROWS_TO_CHOOSE:
        found = kept_in_memory(beside, table, published.num_buckets)
    else:
        found = _differing_in_memory(counted(beside, table, published.num_buckets), table)
    with ExitStack() as undo:
        undo.callback(found.close)
        if not is_as_recorded(found, before, layout, published):
            raise SealBrokenError(table.name, f"the digests at {published.path} are not what was recorded.")
        undo.pop_all()
    return found


def is_as_recorded(found: Buckets, before: DataFrame, layout: Layout, published: PublishedDigests) -> bool:
    """True if the digests used in a comparison are those that were recorded when they were published.

    before : all published digests
    cost   : a scan of them, if the comparison covered some partitions only
    """
    sums = (found.main_rows, found.main_digest) if layout.is_whole else summed(before, layout.table)
    return sums == published.sums[: len(sums)]


def are_intact(spark: SparkSession, layout: Layout, published: PublishedDigests) -> bool:
    """True if published digests are readable and match what was recorded, so that they did not cause a failure.

    cost   : a scan of them
    raises : InterruptedRefreshError
    """
    try:
        return summed(read(spark, layout, published.path), layout.table) == published.sums
    except InterruptedRefreshError:
        raise
    except MvError as error:
        log.debug("%s: the digests at %s cannot be read: %s", layout.table.name, published.path, error)
        return False


def read(spark: SparkSession, layout: Layout, path: str) -> DataFrame:
    """Return digests as they were written, by `write` or by `write_beside`.

    raises : SealBrokenError, when they are missing
    """
    return _stored(spark, layout, path, diff.DIGEST_COLUMNS).where(F.col(diff.ROWS).isNotNull())


def merged(
    spark: SparkSession, layout: Layout, published: PublishedDigests, seal: Seal, path: str
) -> PublishedDigests | None:
    """Write main's digests after a publish of some partitions at `path`: the seal's, and the former ones outside of it.

    published : with the same number of buckets, and known to match main before the publish
    returns   : main's digests after the publish; None if the published digests cannot be read any more
    cost      : a scan of both
    """
    try:
        others = partitions.out_of_scope(read(spark, layout, published.path), layout)
        with translated(layout.table.name):
            storage.write(others.unionAll(read(spark, layout, seal.digests)), path)
        num_rows, digest, mixed = summed(read(spark, layout, path), layout.table)
    except MvError as error:
        log.warning("%s: no digests of main are kept: %s", layout.table.name, error)
        return None
    return replace(published, path=path, num_rows=num_rows, digest=digest, mixed=mixed)


def measured(
    digests: DataFrame, table: RefreshableTable, num_buckets: int
) -> tuple[tuple[SealedPartition, ...], int, int]:
    """Return the partitions of one side, its number of NULL keys, and `mixed`; a table without any is one partition."""
    names = partitions.names(table, F.col(diff.BUCKET), num_buckets)
    sums = (F.sum(diff.ROWS), F.bit_xor(diff.DIGEST), F.sum(diff.NULL_KEYS), F.sum(diff.MIXED))
    found, num_null_keys, whole_mixed = [], 0, 0
    for row in digests.groupBy(*names).agg(*sums).collect():
        rows, digest, null_keys, mixed = (value or 0 for value in row[len(names) :])
        found.append(SealedPartition(_name(row, table, len(names)), rows, digest))
        num_null_keys += null_keys
        whole_mixed += mixed
    return tuple(sorted(found, key=lambda p: p.partition)), num_null_keys, whole_mixed


def summed(digests: DataFrame, table: RefreshableTable) -> tuple[int, int, int]:
    """Return the number of digested rows, the xor of their hashes, and the sum of their mixed hashes."""
    with translated(table.name):
        found = digests.agg(F.sum(diff.ROWS), F.bit_xor(diff.DIGEST), F.sum(diff.MIXED)).collect()[0]
    rows, digest, mixed = (value or 0 for value in found)
    return rows, digest, mixed


def differing_partitions(beside: DataFrame, table: RefreshableTable, limit: int) -> tuple[str, ...]:
    """Return the names of the first partitions in which two joined sides differ."""
    names = partitions.names(table, F.col(diff.BUCKET), 1)
    found = beside.where(diff.DIFFERS).select(*names).distinct().orderBy(*(n for n in range(1, len(names) + 1)))
    return tuple(_name(row, table, len(names)) for row in found.limit(limit).collect())


def kept_in_memory(beside: DataFrame, table: RefreshableTable, num_buckets: int) -> Buckets:
    """Cache two joined sides in Spark, and count where they differ.

    beside  : as `diff.bucketwise` returns it
    returns : must be closed by the caller
    """
    with ExitStack() as undo, translated(table.name):
        kept = beside.persist()
        undo.callback(_forget, kept)
        found = counted(kept, table, num_buckets, kept)
        undo.pop_all()
    return found


def compared(desired: DataFrame, main: DataFrame, table: RefreshableTable, num_buckets: int) -> Buckets:
    """Compare the digests of both sides.

    cost : one scan of both digest tables
    """
    return kept_in_memory(diff.bucketwise(desired, main, table), table, num_buckets)


def sliced(buckets: Buckets, table: RefreshableTable, chunk: Chunk) -> Buckets:
    """Return the part of `buckets` in a chunk that is a slice of its only partition.

    buckets : with `can_be_sliced`
    cost    : one scan of the cached digests
    """
    assert chunk.slice is not None
    assert chunk.partitions is not None
    assert buckets.can_be_sliced
    bucket, num_buckets = F.col(diff.BUCKET), buckets.num_buckets
    is_of_chunk = partitions.is_member(buckets.beside, table, chunk.partitions)
    is_of_slice = partitions.is_in_slice(bucket, chunk.slice, num_buckets)
    return counted(buckets.beside.where(is_of_chunk & is_of_slice), table, num_buckets)


def counted(beside: DataFrame, table: RefreshableTable, num_buckets: int, kept: DataFrame | None = None) -> Buckets:
    """Count where two joined sides differ.

    kept : what Spark caches of them
    cost : one scan
    """
    names = partitions.names(table, F.col(diff.BUCKET), num_buckets)
    differs = F.col(diff.DIFFERS)
    sums = (
        *(F.sum(diff.ROWS), F.bit_xor(diff.DIGEST), F.sum(diff.NULL_KEYS)),
        *(F.sum(diff.MAIN_ROWS), F.bit_xor(diff.MAIN_DIGEST), F.sum(diff.MIXED)),
        *(F.sum(diff.STANDS_FOR), F.count_if(differs), F.count_if(diff.KEYS_DIFFER)),
        *(F.sum(F.when(differs, F.col(diff.ROWS))), F.bit_xor(F.when(differs, F.col(diff.DIGEST)))),
        F.sum(F.when(F.col(diff.KEYS_DIFFER), F.col(diff.MAIN_ROWS))),
    )
    with translated(table.name):
        found = beside.groupBy(*names).agg(*sums).collect()
    parts: dict[str, BucketCounts] = {}
    num_null_keys = num_new_keys = num_main_rows = whole_main_digest = whole_mixed = rows_with_other_keys = 0
    for row in found:
        whole, counted = row[len(names) :][:6], row[len(names) :][6:]
        rows, digest, null_keys, main_rows, main_digest, mixed = (value or 0 for value in whole)
        buckets, differing, new_keys, differing_rows, differing_digest, other = (value or 0 for value in counted)
        sealed = SealedPartition(_name(row, table, len(names)), rows, digest)
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
        new_keys=beside.where(diff.KEYS_DIFFER).select(*place),
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


def _differing_in_memory(found: Buckets, table: RefreshableTable) -> Buckets:
    """Cache the buckets that differ, of digests that are in files, and check that their number is as counted."""
    if not found.num_differing:
        return found
    differs, keys_differ = F.col(diff.DIFFERS), F.col(diff.KEYS_DIFFER)
    place = _place(table)
    with ExitStack() as undo, translated(table.name):
        kept = found.beside.where(differs | keys_differ).select(*place, differs, keys_differ).persist()
        undo.callback(_forget, kept)
        counts = kept.agg(F.count_if(differs), F.count_if(keys_differ)).collect()[0]
        if tuple(counts) != (found.num_differing, found.num_new_keys):
            raise SealBrokenError(table.name, "the digests are not as they were written when they are read again.")
        undo.pop_all()
    return replace(
        found, differing=kept.where(differs).select(*place), new_keys=kept.where(keys_differ).select(*place), kept=kept
    )


def _forget(kept: DataFrame) -> None:
    try:
        kept.unpersist()
    except FROM_SPARK as error:
        # Connect analyses the plan again, its files may be removed, or Spark died; the session's end frees the cache.
        log.debug("Spark could not be told to forget the buckets: %s", error)


def _place(table: RefreshableTable) -> list[Column]:
    return [*(F.col(quoted(p)) for p in table.partition_by), F.col(diff.BUCKET)]


def _most_rows(rows: DataFrame, table: RefreshableTable) -> int:
    """Return the row count of the largest partition; Delta and Parquet answer from statistics if possible."""
    if not table.partition_by:
        return rows.count()
    counted = rows.groupBy(*(F.col(quoted(p)) for p in table.partition_by)).count()
    return counted.agg(F.coalesce(F.max("count"), F.lit(0)).alias("most")).collect()[0].most  # type: ignore[no-any-return]


def _stored(spark: SparkSession, layout: Layout, path: str, columns: Sequence[SchemaColumn]) -> DataFrame:
    table = layout.table
    return storage.read(spark, table.name, path, [*(layout.column(name) for name in table.partition_by), *columns])


def _name(row: Row, table: RefreshableTable, num_values: int) -> str:
    return partitions.name(table, list(row)[:num_values])
