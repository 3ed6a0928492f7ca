"""Digest tables: a side of the comparison, summed up by buckets of keys, so that what is equal is never looked at.

    source ──▶ digests/<refresh>/<epoch> ──┐
                                           ├─▶ buckets that differ, counted per partition
    main ────▶ digests of its last publish ┘    (summed up anew when they cannot be believed)

A refresh writes the digests of what it read. When it is published they are main's, and the next refresh compares with
them instead of reading main.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import reduce
from operator import xor

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from airflow_mv_provider.core.identifier import quoted
from airflow_mv_provider.core.progress import (
    WHOLE_TABLE,
    Chunk,
    PublishedDigests,
    Seal,
    SealedPartition,
    bucket_count,
    unstorable,
)
from airflow_mv_provider.core.table import RefreshableTable
from airflow_mv_provider.exceptions import MvError, SealBrokenError
from airflow_mv_provider.spark import diff, partitions, storage
from airflow_mv_provider.spark.errors import translated
from airflow_mv_provider.spark.layout import Layout

log = logging.getLogger(__name__)

MIN_ROWS_TO_CHOOSE = 200_000  # below, choosing rows by their bucket costs more jobs than it saves
_LARGE, _LARGE_IN_PARTITION = 1 << 12, 1 << 4  # buckets that are looked at first, of a table or of each partition
_MAX_DIFFERING = 0.5  # of all buckets: beyond that, choosing rows by their bucket costs more than it saves


@dataclass(frozen=True, slots=True)
class BucketCounts:
    """One partition on both sides; `differing_*` of the desired rows that lie in buckets which differ.

    buckets : that have rows; at most so many, where one that is large stands for them
    """

    sealed: SealedPartition
    main_rows: int
    buckets: int
    differing: int
    differing_rows: int
    differing_digest: int


@dataclass(frozen=True, slots=True)
class Buckets:
    """Where two sides differ.

    beside    : as `diff.bucketwise` returns it
    differing : (*partition_by, _mv_bucket)
    new_keys  : those of them in which the desired keys are not main's
    num_new_keys : how many these are
    rows_with_other_keys : main's rows in them
    kept      : what Spark keeps in memory, or on disk, until `close`
    has_large : where the two are the same, one row of `beside` is a large bucket, which stands for many
    """

    beside: DataFrame
    differing: DataFrame
    new_keys: DataFrame
    num_new_keys: int
    kept: tuple[DataFrame, ...]
    num_buckets: int
    null_keys: int
    rows_with_other_keys: int
    main_rows: int
    main_digest: int
    partitions: Mapping[str, BucketCounts]
    has_large: bool = False

    @property
    def num_differing(self) -> int:
        """How many buckets differ."""
        return sum(part.differing for part in self.partitions.values())

    @property
    def sealed(self) -> tuple[SealedPartition, ...]:
        """The partitions that the desired side has."""
        return tuple(
            p.sealed for name, p in sorted(self.partitions.items()) if p.sealed.num_rows or name == WHOLE_TABLE
        )

    def members(self, chunk: Chunk) -> tuple[str, ...]:
        """Return the partitions of a chunk; those of the rest are what main has and the seal has not."""
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
        """True if these partitions are large enough, and few enough of their buckets differ, to look at those alone."""
        num_rows = num_buckets = num_differing = 0
        for part in members:
            num_rows += part.sealed.num_rows + part.main_rows
            num_buckets += part.buckets
            num_differing += part.differing
        return num_rows >= MIN_ROWS_TO_CHOOSE and num_differing <= _MAX_DIFFERING * num_buckets

    def check_sealed(self, where: str, seal: Seal) -> None:
        """Confirm that the desired side still is what was sealed.

        raises : SealBrokenError
        """
        for part in seal.partitions:
            found = self.partitions.get(part.partition)
            if (found.sealed if found else SealedPartition(part.partition, 0, 0)) != part:
                raise SealBrokenError(where, f"partition {part.partition} no longer has the rows that were sealed.")

    def close(self) -> None:
        """Let Spark forget the buckets."""
        for each in self.kept:
            _forget(each)


def write(rows: DataFrame, table: RefreshableTable, path: str, published: PublishedDigests | None) -> int:
    """Sum up `rows` by buckets of keys and commit them at `path`.

    rows      : (*group_by, _mv_hash bigint)
    published : digests to be compared with later, which settle the number of buckets
    returns   : the number of buckets
    cost      : one scan of the rows; one more of the partition columns when nothing is published yet
    """
    with translated(table.name):
        num_buckets = (
            published.num_buckets if published else bucket_count(_most_rows(rows, table), table.hash_partitions or 1)
        )
        storage.write(diff.digested(rows, table, num_buckets), path)
    return num_buckets


def compared_by_large(rows: DataFrame, layout: Layout, published: PublishedDigests) -> Buckets | None:
    """Compare rows with what was published, by buckets that are few and large.

    rows    : (*group_by, _mv_hash bigint), all of the table's
    returns : for the caller to close; None where most differ, or what was published is not what was recorded
    cost    : a scan of the rows without a shuffle of them
    raises  : SealBrokenError, when the published digests are gone
    """
    table, most = layout.table, _LARGE_IN_PARTITION if layout.table.partition_by else _LARGE
    num_buckets = min(published.num_buckets, most)
    before = read(rows.sparkSession, layout, published.path)
    theirs = diff.by_fewer(before, table, num_buckets)
    found = _kept(diff.bucketwise(diff.digested(rows, table, num_buckets), theirs, table), table, num_buckets)
    is_believed = (found.main_rows, found.main_digest) == (published.num_rows, published.digest)
    num_all = sum(part.buckets for part in found.partitions.values())
    if is_believed and found.num_differing <= _MAX_DIFFERING * num_all:
        return replace(found, has_large=True)
    found.close()
    return None


def write_changed(
    rows: DataFrame, layout: Layout, path: str, published: PublishedDigests, large: Buckets
) -> Buckets | None:
    """As `write`, but only large buckets that differ are summed up by small ones; the others are as published.

    rows    : as they were given to `compared_by_large`, whose answer is `large`
    returns : the comparison with what was published, for the caller to close; None for hash partitions, which are runs
              of small buckets
    cost    : a second scan of the rows, but for files that hold none of the partitions that differ; two of both digests
    raises  : SealBrokenError, when what is written is not what was read the first time
    """
    table, spark, num_buckets = layout.table, rows.sparkSession, published.num_buckets
    before = read(spark, layout, published.path)
    members = [name for name, part in large.partitions.items() if part.differing]
    with translated(table.name):
        if _may_be_named(members, table):
            rows = rows.where(partitions.is_member(rows, table, members))
        small = diff.digested(diff.within(rows, large.differing, table, large.num_buckets), table, num_buckets)
        storage.write(diff.outside(before, large.differing, table, large.num_buckets).unionByName(small), path)
    after = read(spark, layout, path)
    if summed(after, table) != _totals(large):
        raise SealBrokenError(table.name, "what was read is not the same when it is read again.")
    if table.hash_partitions is not None:
        return None
    mine, main = (diff.inside(side, large.differing, table, large.num_buckets) for side in (after, before))
    same = diff.standing_for(large.beside.where(~F.col(diff.DIFFERS)), num_buckets // large.num_buckets)
    return replace(_kept(same.unionByName(diff.bucketwise(mine, main, table)), table, num_buckets), has_large=True)


def unchanged(spark: SparkSession, layout: Layout, published: PublishedDigests) -> Buckets:
    """Return the comparison of main with rows that `compared_by_large` has seen to be exactly what was published.

    raises : SealBrokenError, when the digests are gone
    """
    same = diff.beside_itself(read(spark, layout, published.path))
    return _counted(same, layout.table, published.num_buckets, kept=())


def read(spark: SparkSession, layout: Layout, path: str) -> DataFrame:
    """Return digests as they were written.

    raises : SealBrokenError, when they are gone
    """
    table = layout.table
    partition_by = [layout.column(name) for name in table.partition_by]
    return storage.read(spark, table.name, path, [*partition_by, *diff.DIGEST_COLUMNS])


def merged(
    spark: SparkSession, layout: Layout, published: PublishedDigests, seal: Seal, path: str
) -> PublishedDigests | None:
    """Put the digests of main before the publish of some partitions and the seal's together, and write them at `path`.

    published : of the same number of buckets, and certain
    returns   : main's digests after the publish; None when what was published cannot be read any more
    cost      : a scan of both
    """
    try:
        others = partitions.out_of_scope(read(spark, layout, published.path), layout)
        with translated(layout.table.name):
            storage.write(others.unionAll(read(spark, layout, seal.digests)), path)
        num_rows, digest = summed(read(spark, layout, path), layout.table)
    except MvError as error:
        log.warning("%s: no digests of main are kept: %s", layout.table.name, error)
        return None
    return replace(published, path=path, num_rows=num_rows, digest=digest)


def measured(digests: DataFrame, table: RefreshableTable, num_buckets: int) -> tuple[tuple[SealedPartition, ...], int]:
    """Return the partitions of one side, the one of a table without any included, and its number of NULL keys."""
    names = partitions.names(table, F.col(diff.BUCKET), num_buckets)
    sums = (F.sum(diff.ROWS), F.bit_xor(diff.DIGEST), F.sum(diff.NULL_KEYS))
    found, num_null_keys = [], 0
    for row in digests.groupBy(*names).agg(*sums).collect():
        rows, digest, null_keys = (value or 0 for value in row[len(names) :])
        found.append(SealedPartition(_name(row, table, len(names)), rows, digest))
        num_null_keys += null_keys
    return tuple(sorted(found, key=lambda p: p.partition)), num_null_keys


def summed(digests: DataFrame, table: RefreshableTable) -> tuple[int, int]:
    """Return the rows that digests stand for, and the xor of their hashes."""
    with translated(table.name):
        rows, digest = digests.agg(F.sum(diff.ROWS), F.bit_xor(diff.DIGEST)).collect()[0]
    return rows or 0, digest or 0


def differing_partitions(beside: DataFrame, table: RefreshableTable, limit: int) -> tuple[str, ...]:
    """Return the names of the first partitions in which two sides, put beside each other, differ."""
    names = partitions.names(table, F.col(diff.BUCKET), 1)
    found = beside.where(diff.DIFFERS).select(*names).distinct().orderBy(*(n for n in range(1, len(names) + 1)))
    return tuple(_name(row, table, len(names)) for row in found.limit(limit).collect())


def compared(desired: DataFrame, main: DataFrame, table: RefreshableTable, num_buckets: int) -> Buckets:
    """Compare the digests of both sides.

    cost : one scan of both digest tables
    """
    return _kept(diff.bucketwise(desired, main, table), table, num_buckets, main)


def sliced(buckets: Buckets, table: RefreshableTable, chunk: Chunk) -> Buckets:
    """Return what of `buckets` lies in a chunk that is a slice of its only partition.

    cost : one scan of what is kept of the digests
    """
    assert chunk.slice is not None
    assert chunk.partitions is not None
    assert not buckets.has_large  # slices are runs of small buckets
    bucket, num_buckets = F.col(diff.BUCKET), buckets.num_buckets
    is_of_chunk = partitions.is_member(buckets.beside, table, chunk.partitions)
    is_of_slice = partitions.is_in_slice(bucket, chunk.slice, num_buckets)
    return _counted(buckets.beside.where(is_of_chunk & is_of_slice), table, num_buckets, kept=())


def _kept(beside: DataFrame, table: RefreshableTable, num_buckets: int, *others: DataFrame) -> Buckets:
    """Count two sides, put beside each other, that Spark is to keep, with what it keeps for them already."""
    with ExitStack() as undo, translated(table.name):
        for each in others:
            undo.callback(_forget, each)
        kept = beside.persist()
        undo.callback(_forget, kept)
        found = _counted(kept, table, num_buckets, kept=(kept, *others))
        undo.pop_all()
    return found


def _counted(beside: DataFrame, table: RefreshableTable, num_buckets: int, kept: tuple[DataFrame, ...]) -> Buckets:
    names = partitions.names(table, F.col(diff.BUCKET), num_buckets)
    differs = F.col(diff.DIFFERS)
    sums = (
        *(F.sum(diff.ROWS), F.bit_xor(diff.DIGEST), F.sum(diff.NULL_KEYS)),
        *(F.sum(diff.MAIN_ROWS), F.bit_xor(diff.MAIN_DIGEST)),
        *(F.sum(diff.STANDS_FOR), F.count_if(differs), F.count_if(diff.KEYS_DIFFER)),
        *(F.sum(F.when(differs, F.col(diff.ROWS))), F.bit_xor(F.when(differs, F.col(diff.DIGEST)))),
        F.sum(F.when(F.col(diff.KEYS_DIFFER), F.col(diff.MAIN_ROWS))),
    )
    with translated(table.name):
        found = beside.groupBy(*names).agg(*sums).collect()
    parts: dict[str, BucketCounts] = {}
    num_null_keys = num_new_keys = num_main_rows = whole_main_digest = rows_with_other_keys = 0
    for row in found:
        whole, counted = row[len(names) :][:5], row[len(names) :][5:]
        rows, digest, null_keys, main_rows, main_digest = (value or 0 for value in whole)
        buckets, differing, new_keys, differing_rows, differing_digest, other = (value or 0 for value in counted)
        sealed = SealedPartition(_name(row, table, len(names)), rows, digest)
        parts[sealed.partition] = BucketCounts(sealed, main_rows, buckets, differing, differing_rows, differing_digest)
        num_null_keys += null_keys
        num_new_keys += new_keys
        rows_with_other_keys += other
        num_main_rows += main_rows
        whole_main_digest ^= main_digest
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
    )


def _may_be_named(members: Sequence[str], table: RefreshableTable) -> bool:
    """True if a condition may name these partitions, so that files of others are skipped."""
    if not table.partition_by or len(members) > partitions.MAX_NAMED:
        return False
    return not any(unstorable(name, table.partition_by) for name in members)


def _totals(buckets: Buckets) -> tuple[int, int]:
    return sum(p.num_rows for p in buckets.sealed), reduce(xor, (p.digest for p in buckets.sealed), 0)


def _forget(kept: DataFrame) -> None:
    try:
        kept.unpersist()
    except PySparkException as error:
        # Spark Connect looks at a plan anew, and its files may be gone: the session's end frees what it kept.
        log.debug("Spark could not be told to forget the buckets: %s", error)


def _place(table: RefreshableTable) -> list[Column]:
    return [*(F.col(quoted(p)) for p in table.partition_by), F.col(diff.BUCKET)]


def _most_rows(rows: DataFrame, table: RefreshableTable) -> int:
    """Return the rows of the largest partition; Delta and Parquet answer from their statistics where they can."""
    if not table.partition_by:
        return rows.count()
    counted = rows.groupBy(*(F.col(quoted(p)) for p in table.partition_by)).count()
    return counted.agg(F.coalesce(F.max("count"), F.lit(0)).alias("most")).collect()[0].most  # type: ignore[no-any-return]


def _name(row: Row, table: RefreshableTable, num_values: int) -> str:
    return partitions.name(table, list(row)[:num_values])
