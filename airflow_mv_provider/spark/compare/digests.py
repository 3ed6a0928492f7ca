"""Stored digests: one side of the comparison, summarised by buckets of keys, so that equal buckets are never read.

    source ──▶ digests/<refresh>/<epoch> ──┐
                                           ├─▶ buckets that differ, counted per partition
    main ────▶ digests of its last publish ┘    (recomputed from main when they cannot be trusted)

A refresh writes the digests of the rows it read. After its publish they are main's digests, and the next refresh
compares with them instead of reading main.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import ExitStack
from functools import reduce
from operator import xor

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from airflow_mv_provider.core.definition.schema import Column as SchemaColumn
from airflow_mv_provider.core.definition.table import RefreshableTable
from airflow_mv_provider.core.progress.digests import PublishedDigests, bucket_count
from airflow_mv_provider.core.progress.seal import Seal, SealedPartition
from airflow_mv_provider.exceptions import InterruptedRefreshError, MvError, SealBrokenError
from airflow_mv_provider.spark import partitions, storage
from airflow_mv_provider.spark.compare import buckets, digest_algebra
from airflow_mv_provider.spark.compare.buckets import Buckets
from airflow_mv_provider.spark.compare.corrections import OP
from airflow_mv_provider.spark.compare.digest_algebra import BUCKET, DIGEST, MIXED, NULL_KEYS, ROWS
from airflow_mv_provider.spark.errors import translated
from airflow_mv_provider.spark.layout import Layout, columns

log = logging.getLogger(__name__)

_NOT_BELIEVED = "%s: what is kept of its rows since the last publish cannot be used (%s); the table is read instead"


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
        storage.write(digest_algebra.digested(rows, table, num_buckets), path)
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
    before = read(spark, layout, *published.paths)
    with translated(table.name):
        mine = digest_algebra.digested(rows, table, published.num_buckets)
        storage.write(
            digest_algebra.slim(digest_algebra.bucketwise(mine, partitions.in_scope(before, layout), table)), path
        )
    beside = digest_algebra.restored(_stored(spark, layout, path, digest_algebra.BESIDE_COLUMNS))
    if published.num_rows < buckets.MIN_ROWS_TO_CHOOSE:
        found = buckets.kept_in_memory(beside, table, published.num_buckets)
    else:
        found = buckets.differing_in_memory(buckets.counted(beside, table, published.num_buckets), table)
    with ExitStack() as undo:
        undo.callback(found.close)
        if not is_as_recorded(found, before, layout, published):
            raise not_as_recorded(layout, published)
        undo.pop_all()
    return found


def read(spark: SparkSession, layout: Layout, *paths: str) -> DataFrame:
    """Return digests as they were written, by `write` or by `write_beside`.

    paths  : of all their layers
    cost   : a shuffle of them if there are several layers
    raises : SealBrokenError, when they are missing
    """
    found = read_layers(spark, layout, *paths)
    return found if len(paths) == 1 else digest_algebra.joined(found, layout.table)


def read_layers(spark: SparkSession, layout: Layout, *paths: str) -> DataFrame:
    """As `read`, but a bucket has a row in each of the layers; enough for sums over many buckets."""
    layers = (_stored(spark, layout, path, digest_algebra.DIGEST_COLUMNS) for path in paths)
    return reduce(DataFrame.unionAll, layers).where(F.col(ROWS).isNotNull())


def compared_with_published(mine: DataFrame, published: PublishedDigests, layout: Layout) -> Buckets | None:
    """Compare with the digests of the last publish; None when those are missing or differ from what was recorded."""
    table, spark = layout.table, mine.sparkSession
    with ExitStack() as undo:
        try:
            theirs = read(spark, layout, *published.paths)
            found = buckets.compared(mine, partitions.in_scope(theirs, layout), table, published.num_buckets)
            undo.callback(found.close)
            if is_as_recorded(found, theirs, layout, published):
                undo.pop_all()
                return found
            log.warning(_NOT_BELIEVED, table.name, "they are not what was recorded")
        except InterruptedRefreshError:
            raise
        except MvError as error:
            raise_unless_damaged(spark, layout, published, error)
    return None


def raise_unless_damaged(spark: SparkSession, layout: Layout, published: PublishedDigests, error: MvError) -> None:
    """Raise an error of a comparison if the published digests are intact, because then they did not cause it.

    cost : a scan of them
    """
    if are_intact(spark, layout, published):
        raise error
    log.warning(_NOT_BELIEVED, layout.table.name, error.problem)


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
    return intact(spark, layout, published) is not None


def intact(
    spark: SparkSession, layout: Layout, published: PublishedDigests
) -> tuple[tuple[SealedPartition, ...], int] | None:
    """Return the partitions of published digests and `mixed`; None if they cannot be read, or not as was recorded.

    cost   : a scan of them
    raises : InterruptedRefreshError
    """
    try:
        with translated(layout.table.name):
            found = read_layers(spark, layout, *published.paths)
            parts, _, mixed = measured(found, layout.table, published.num_buckets)
    except InterruptedRefreshError:
        raise
    except MvError as error:
        log.debug("%s: the digests at %s cannot be read: %s", layout.table.name, published.path, error)
        return None
    sums = sum(part.num_rows for part in parts), reduce(xor, (part.digest for part in parts), 0), mixed
    return (parts, mixed) if sums == published.sums else None


def not_as_recorded(layout: Layout, published: PublishedDigests) -> SealBrokenError:
    """Return the error of digests that are not what was recorded when they were published."""
    return SealBrokenError(layout.table.name, f"the digests at {published.path} do not match their record.")


def merged(
    spark: SparkSession, layout: Layout, published: PublishedDigests, seal: Seal, path: str
) -> PublishedDigests | None:
    """Write main's digests after a publish of some partitions at `path`: the seal's, and the former ones outside of it.

    published : with the same number of buckets, and known to match main before the publish
    returns   : main's digests after the publish; None if the published digests cannot be read any more
    cost      : a scan of both
    """
    try:
        others = partitions.out_of_scope(read(spark, layout, *published.paths), layout)
        with translated(layout.table.name):
            storage.write(others.unionAll(read(spark, layout, *seal.digest_paths)), path)
        num_rows, digest, mixed = summed(read(spark, layout, path), layout.table)
    except MvError as error:
        log.warning(
            "%s: the next refresh has to read the table, because nothing is kept of its rows: %s",
            layout.table.name,
            error,
        )
        return None
    return published.rewritten(path, (num_rows, digest, mixed))


def corrected(
    spark: SparkSession, layout: Layout, published: PublishedDigests, changes: DataFrame, path: str
) -> PublishedDigests | None:
    """Write main's digests after corrections at `path`.

    published : known to match main before them
    changes   : (*CHANGE_COLUMNS, *columns)
    returns   : None if a correction concerns a key that main had more than once, or if digests cannot be read any more
    cost      : a scan of the digests and of the corrections
    """
    table = layout.table
    try:
        with translated(table.name):
            if changes.where(~F.col(OP).isin("I", "U", "D")).limit(1).count():
                return None
        if not are_intact(spark, layout, published):
            return None
        with translated(table.name):
            more = digest_algebra.digested_changes(changes, table, published.num_buckets)
            storage.write(digest_algebra.added(read_layers(spark, layout, *published.paths), more, table), path)
        num_rows, digest, mixed = summed(read(spark, layout, path), table)
    except InterruptedRefreshError:
        raise
    except MvError as error:
        log.warning(
            "%s: the next refresh has to read the table, because nothing is kept of its rows: %s", table.name, error
        )
        return None
    return published.rewritten(path, (num_rows, digest, mixed))


def measured(
    digests: DataFrame, table: RefreshableTable, num_buckets: int
) -> tuple[tuple[SealedPartition, ...], int, int]:
    """Return the partitions of one side, its number of NULL keys, and `mixed`; a table without any is one partition."""
    names = partitions.names(table, F.col(BUCKET), num_buckets)
    sums = (F.sum(ROWS), F.bit_xor(DIGEST), F.sum(NULL_KEYS), F.sum(MIXED))
    found, num_null_keys, whole_mixed = [], 0, 0
    for row in digests.groupBy(*names).agg(*sums).collect():
        rows, digest, null_keys, mixed = (value or 0 for value in row[len(names) :])
        if names and not (rows or digest or mixed):
            continue  # it has lost all its rows in a higher layer
        found.append(SealedPartition(partitions.name(table, row[: len(names)]), rows, digest))
        num_null_keys += null_keys
        whole_mixed += mixed
    return tuple(sorted(found, key=lambda p: p.partition)), num_null_keys, whole_mixed


def summed(digests: DataFrame, table: RefreshableTable) -> tuple[int, int, int]:
    """Return the number of digested rows, the xor of their hashes, and the sum of their mixed hashes."""
    with translated(table.name):
        found = digests.agg(F.sum(ROWS), F.bit_xor(DIGEST), F.sum(MIXED)).collect()[0]
    rows, digest, mixed = (value or 0 for value in found)
    return rows, digest, mixed


def _most_rows(rows: DataFrame, table: RefreshableTable) -> int:
    """Return the row count of the largest partition; Delta and Parquet answer from statistics if possible."""
    if not table.partition_by:
        return rows.count()
    counted = rows.groupBy(*columns(table.partition_by)).count()
    return counted.agg(F.coalesce(F.max("count"), F.lit(0)).alias("most")).collect()[0].most  # type: ignore[no-any-return]


def _stored(spark: SparkSession, layout: Layout, path: str, columns: Sequence[SchemaColumn]) -> DataFrame:
    table = layout.table
    return storage.read(spark, table.name, path, [*(layout.column(name) for name in table.partition_by), *columns])
