"""Load the source once, validate it, and measure it for the seal.

    source ──▶ rows     a copy (*columns, _mv_hash), unless the source can be read again at its pin
           ──▶ digests  the rows summarised by buckets of keys ──▶ counts and digests per partition

Each is written to a path of its own, so MERGING reads exactly what was measured. Keys are checked only in buckets whose
keys differ from those of the last publish: in all other buckets main has the same keys, each of them once.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, replace

from pyspark.sql import DataFrame, SparkSession

from airflow_mv_provider.core.location import again
from airflow_mv_provider.core.progress.digests import PublishedDigests
from airflow_mv_provider.core.progress.layers import Layer, all_paths
from airflow_mv_provider.core.progress.seal import Seal
from airflow_mv_provider.exceptions import InterruptedRefreshError, MvError
from airflow_mv_provider.spark import marking, storage
from airflow_mv_provider.spark.compare import digest_algebra, digests, hashing, keys, large_buckets
from airflow_mv_provider.spark.compare.buckets import Buckets
from airflow_mv_provider.spark.errors import translated
from airflow_mv_provider.spark.layout import Layout, columns


@dataclass(frozen=True, slots=True)
class Staged:
    """What one attempt has staged: the copy, if there is one, and the digests.

    buckets         : the comparison with the published digests; None without published digests that can be trusted
    is_as_published : no row differs, and `digests` is the path of the last publish's digests
    below           : the layers below those, see `Seal`
    """

    rows: str | None
    digests: str
    num_buckets: int
    buckets: Buckets | None = None
    is_as_published: bool = False
    below: tuple[Layer, ...] = ()

    @property
    def digest_paths(self) -> tuple[str, ...]:
        """Where all layers of the digests lie."""
        return all_paths(self.below, self.digests)

    @property
    def written(self) -> tuple[str, ...]:
        """The paths that this attempt has written."""
        return tuple(path for path in (self.rows, None if self.is_as_published else self.digests) if path)

    def close(self) -> None:
        """Release what Spark caches for this; called when nothing is sealed from it."""
        if self.buckets is not None:
            self.buckets.close()


def load(
    source: DataFrame,
    layout: Layout,
    places: tuple[str | None, str],
    published: PublishedDigests | None,
    *,
    is_large_first: bool = False,
    is_copied_at_once: bool = True,
) -> Staged:
    """Read the source once and write the rows and digests that will be sealed.

    source    : all of main's columns, in any order; a column `_mv_file` is kept in the copy
    places    : the path of the copy, None for no copy; and the path of the digests
    published : main's digests, which are known to match main's present rows
    is_large_first : compare large buckets first, because most rows are expected to be as published
    is_copied_at_once : if not, rows are copied only after large buckets have shown that some differ
    returns   : must be closed by the caller if nothing is sealed from it
    cost      : one scan of the source, or two if large buckets come first; one more for a copy; and one more if the
                published digests turn out to be untrustworthy
    raises    : SealBrokenError, when a second read returns other rows than the first
    """
    table, (copy, path) = layout.table, places
    rows = hashing.aligned(source, layout, *(name for name in (marking.IN_FILE,) if name in source.columns))
    if copy is not None and not is_copied_at_once:
        found = _unchanged(rows, layout, path, published)
        if found is not None:
            return found
    if copy is not None:
        with translated(table.name):
            # Whole partitions per file: a scan of some partitions then skips the row groups of all others.
            by = columns(table.partition_by)
            storage.write(rows.hint("rebalance", *by) if by else rows, copy)
            rows = storage.read(source.sparkSession, table.name, copy, [*layout.columns, hashing.HASHED])
    hashed = rows.select(*columns(table.group_by), hashing.HASH)
    if published is None:
        return Staged(copy, path, digests.write(hashed, table, path, None))
    try:
        if is_large_first and large_buckets.are_worth_comparing(layout, published):
            large = large_buckets.compared(hashed, layout, published)
            if large is not None:
                return _changed(hashed, layout, (copy, path), published, large)
        return Staged(copy, path, published.num_buckets, digests.write_beside(hashed, layout, path, published))
    except InterruptedRefreshError:
        raise
    except MvError as error:
        digests.raise_unless_damaged(source.sparkSession, layout, published, error)
        elsewhere = again(path)  # a task of the job that failed may still be writing
        return Staged(copy, elsewhere, digests.write(hashed, table, elsewhere, published))


def _unchanged(rows: DataFrame, layout: Layout, path: str, published: PublishedDigests | None) -> Staged | None:
    """Return the published digests if the rows still have them, without a copy; None if some differ or that is unknown.

    cost : a scan of the rows
    """
    if published is None or not large_buckets.are_worth_comparing(layout, published):
        return None
    hashed = rows.select(*columns(layout.table.group_by), hashing.HASH)
    try:
        large = large_buckets.compared(hashed, layout, published)
        if large is None:
            return None
        if not large.num_differing:
            return _changed(hashed, layout, (None, path), published, large)
        large.close()
    except InterruptedRefreshError:
        raise
    except MvError as error:
        digests.raise_unless_damaged(rows.sparkSession, layout, published, error)
    return None


def _changed(
    hashed: DataFrame, layout: Layout, places: tuple[str | None, str], published: PublishedDigests, large: Buckets
) -> Staged:
    """Digest the large buckets that differ; return the published digests unchanged if none does."""
    (copy, path), spark, num_buckets = places, hashed.sparkSession, published.num_buckets
    if large.num_differing:
        with closing(large):
            found = large_buckets.write_changed(hashed, layout, path, published, large)
        if found is None:
            found = digests.compared_with_published(digests.read(spark, layout, path), published, layout)
        return Staged(copy, path, num_buckets, found)
    if layout.table.hash_partitions is None:
        found = replace(large, num_buckets=num_buckets)
    else:  # hash partitions are runs of small buckets
        large.close()
        found = large_buckets.unchanged(spark, layout, published)
    assert published.path is not None
    return Staged(copy, published.path, num_buckets, found, is_as_published=True, below=published.below)


def seal(spark: SparkSession, staged: Staged, source: DataFrame, layout: Layout) -> Seal:
    """Validate the staged keys, and measure each partition.

    source  : read again if nothing was copied
    cost    : a scan of the keys in buckets with new keys; of all keys and the digests if nothing was compared
    raises  : NullKeyError, DuplicateKeyError, PartitionValueError, with up to ten samples
    """
    table, buckets = layout.table, staged.buckets
    with translated(table.name):
        if buckets is not None:
            parts, null_keys, mixed = buckets.sealed, buckets.null_keys, buckets.mixed
        else:
            mine = digests.read(spark, layout, *staged.digest_paths)
            parts, null_keys, mixed = digests.measured(mine, table, staged.num_buckets)
        num_bytes = sum(storage.num_bytes(spark, path) for path in staged.written)
        found = Seal(
            *(staged.rows, staged.digests, staged.num_buckets, num_bytes, parts, layout.columns),
            mixed=mixed,
            below=staged.below,
        )
        if null_keys:
            raise keys.null_key(storage.desired_rows(spark, found, lambda: source, layout), table, null_keys)
        if buckets is None or buckets.num_new_keys:
            rows = storage.desired_rows(spark, found, lambda: source, layout).select(*columns(table.group_by))
            # A key may be new in one partition and old in another; then all buckets are checked.
            is_local = set(table.partition_by) <= set(table.key)
            if buckets and is_local and buckets.is_worth_choosing(buckets.partitions.values()):
                rows = digest_algebra.within(rows, buckets.new_keys, table, staged.num_buckets)
            keys.check_unique(rows, table)
    keys.check_storable(table, parts, lambda: digests.read(spark, layout, *staged.digest_paths))
    return found
