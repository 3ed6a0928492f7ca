"""Compare large buckets first, if most rows are expected to be as published: they are digested without a shuffle.

    source ──▶ large buckets ──┬─▶ the totals of all rows equal those of the last publish: none differs
    main's digests ────────────┴─▶ those that differ ──▶ small buckets of these only

If most large buckets differ, all small buckets are digested at once: `digests.write_beside`.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from functools import reduce
from operator import xor

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from airflow_mv_provider.core.definition.table import RefreshableTable
from airflow_mv_provider.core.progress.digests import PublishedDigests
from airflow_mv_provider.core.progress.partition import unstorable
from airflow_mv_provider.exceptions import SealBrokenError
from airflow_mv_provider.spark import partitions, storage
from airflow_mv_provider.spark.compare import buckets, digests
from airflow_mv_provider.spark.compare.buckets import Buckets
from airflow_mv_provider.spark.compare.digest_algebra import (
    DIFFERS,
    bucketwise,
    desired_side,
    digested,
    equal_sides,
    in_fewer_buckets,
    inside,
    outside,
    with_represented_buckets,
    within,
)
from airflow_mv_provider.spark.errors import translated
from airflow_mv_provider.spark.layout import Layout

_IN_TABLE, _IN_PARTITION = 1 << 12, 1 << 4  # number of large buckets of a table, or of each partition


def are_worth_comparing(layout: Layout, published: PublishedDigests) -> bool:
    """True if all rows of the table are compared, and there are enough of them to filter rows by bucket."""
    return layout.is_whole and published.num_rows >= buckets.MIN_ROWS_TO_CHOOSE


def compared(rows: DataFrame, layout: Layout, published: PublishedDigests) -> Buckets | None:
    """Compare rows with the published digests by few, large buckets.

    rows    : (*group_by, _mv_hash bigint), all rows of the table
    returns : must be closed by the caller; None if most buckets differ, or the published digests are not as recorded
    cost    : a scan of the rows without a shuffle of them; a scan of the published digests, if a row differs
    raises  : SealBrokenError, when a row differs and the published digests are missing
    """
    table, most = layout.table, _IN_PARTITION if layout.table.partition_by else _IN_TABLE
    num_buckets = min(published.num_buckets, most)
    mine = buckets.kept_in_memory(equal_sides(digested(rows, table, num_buckets)), table, num_buckets)
    # The xor alone is not enough: among a hundred changed rows, some can be chosen so that the xor stays the same.
    if _totals(mine) == published.sums:
        return replace(mine, has_large=True)
    with closing(mine):
        before = digests.read(rows.sparkSession, layout, *published.paths)
        theirs = in_fewer_buckets(before, table, num_buckets)
        beside = bucketwise(desired_side(mine.beside), theirs, table)
        found = buckets.kept_in_memory(beside, table, num_buckets)
    is_believed = digests.is_as_recorded(found, before, layout, published)
    num_all = sum(part.buckets for part in found.partitions.values())
    if is_believed and found.num_differing <= buckets.MAX_DIFFERING * num_all:
        return replace(found, has_large=True)
    found.close()
    return None


def write_changed(
    rows: DataFrame, layout: Layout, path: str, published: PublishedDigests, large: Buckets
) -> Buckets | None:
    """As `digests.write`, but digest only the large buckets that differ; all others keep their published digests.

    rows    : the argument of `compared`, whose result is `large`
    returns : the comparison with the published digests, which the caller must close; None for hash partitions, which
              are runs of small buckets
    cost    : a second scan of the rows, except files without a partition that differs; two scans of both digests
    raises  : SealBrokenError, when the second read of the rows differs from the first
    """
    table, spark, num_buckets = layout.table, rows.sparkSession, published.num_buckets
    before = digests.read(spark, layout, *published.paths)
    members = [name for name, part in large.partitions.items() if part.differing]
    with translated(table.name):
        if _may_be_named(members, table):
            rows = rows.where(partitions.is_member(rows, table, members))
        small = digested(within(rows, large.differing, table, large.num_buckets), table, num_buckets)
        storage.write(outside(before, large.differing, table, large.num_buckets).unionByName(small), path)
    after = digests.read(spark, layout, path)
    if digests.summed(after, table) != _totals(large):
        raise SealBrokenError(table.name, "the rows are not the same when they are read again.")
    if table.hash_partitions is not None:
        return None
    mine, main = (inside(side, large.differing, table, large.num_buckets) for side in (after, before))
    same = with_represented_buckets(large.beside.where(~F.col(DIFFERS)), num_buckets // large.num_buckets)
    return replace(
        buckets.kept_in_memory(same.unionByName(bucketwise(mine, main, table)), table, num_buckets),
        has_large=True,
    )


def unchanged(spark: SparkSession, layout: Layout, published: PublishedDigests) -> Buckets:
    """Return the comparison of main with rows that `compared` has found to equal the published ones.

    raises : SealBrokenError, when the digests are missing or differ from what was recorded
    """
    before = digests.read(spark, layout, *published.paths)
    found = buckets.counted(equal_sides(before), layout.table, published.num_buckets)
    if not digests.is_as_recorded(found, before, layout, published):
        raise digests.not_as_recorded(layout, published)
    return found


def _may_be_named(members: Sequence[str], table: RefreshableTable) -> bool:
    """True if a condition can name these partitions, so that files of all others are skipped."""
    if not table.partition_by or len(members) > partitions.MAX_NAMED:
        return False
    return not any(unstorable(name, table.partition_by) for name in members)


def _totals(buckets: Buckets) -> tuple[int, int, int]:
    digest = reduce(xor, (p.digest for p in buckets.sealed), 0)
    return sum(p.num_rows for p in buckets.sealed), digest, buckets.mixed
