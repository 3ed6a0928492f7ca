"""Load the source once, validate it, and measure it for the seal.

    source ──▶ rows     a copy (*columns, _mv_hash), unless the source can be read again at its pin
           ──▶ digests  the rows summarised by buckets of keys ──▶ counts and digests per partition

Each is written to a path of its own, so MERGING reads exactly what was measured. Keys are checked only in buckets whose
keys differ from those of the last publish: in all other buckets main has the same keys, each of them once.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from airflow_mv_provider.core.definition import schema
from airflow_mv_provider.core.definition.identifier import quoted
from airflow_mv_provider.core.location import again
from airflow_mv_provider.core.progress import PublishedDigests, Seal
from airflow_mv_provider.exceptions import InterruptedRefreshError, KeyMovedError, MvError
from airflow_mv_provider.spark import storage
from airflow_mv_provider.spark.compare import diff, digests, keys, large_buckets
from airflow_mv_provider.spark.compare.digests import Buckets
from airflow_mv_provider.spark.errors import translated
from airflow_mv_provider.spark.layout import Layout, any_null, columns
from airflow_mv_provider.spark.partitions import in_scope, is_frozen

log = logging.getLogger(__name__)

_KEY = "_mv_key"
_ORDERING = "_mv_by_"
_MAX_FROZEN_SHOWN = 20
_NOT_BELIEVED = "%s: the digests of the last publish cannot be believed (%s); main is read instead"


@dataclass(frozen=True, slots=True)
class Staged:
    """What one attempt has staged: the copy, if there is one, and the digests.

    buckets         : the comparison with the published digests; None without published digests that can be trusted
    is_as_published : no row differs, and `digests` is the path of the last publish's digests
    """

    rows: str | None
    digests: str
    num_buckets: int
    buckets: Buckets | None = None
    is_as_published: bool = False

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
) -> Staged:
    """Read the source once and write the rows and digests that will be sealed.

    source    : all of main's columns, in any order
    places    : the path of the copy, None for no copy; and the path of the digests
    published : main's digests, which are known to match main's present rows
    is_large_first : compare large buckets first, because most rows are expected to be as published
    returns   : must be closed by the caller if nothing is sealed from it
    cost      : one scan of the source, or two if large buckets come first; one more for a copy; and one more if the
                published digests turn out to be untrustworthy
    raises    : SealBrokenError, when a second read returns other rows than the first
    """
    table, (copy, path) = layout.table, places
    rows = diff.aligned(source, layout)
    if copy is not None:
        with translated(table.name):
            storage.write(_copied(rows, layout), copy)
            rows = storage.read(source.sparkSession, table.name, copy, [*layout.columns, diff.HASHED])
    hashed = rows.select(*columns(table.group_by), diff.HASH)
    if published is None:
        return Staged(copy, path, digests.write(hashed, table, path, None))
    try:
        if is_large_first and layout.is_whole and published.num_rows >= digests.MIN_ROWS_TO_CHOOSE:
            large = large_buckets.compared(hashed, layout, published)
            if large is not None:
                return _changed(hashed, layout, (copy, path), published, large)
        return Staged(copy, path, published.num_buckets, digests.write_beside(hashed, layout, path, published))
    except InterruptedRefreshError:
        raise
    except MvError as error:
        if digests.are_intact(source.sparkSession, layout, published):
            raise  # the published digests are intact, so the source caused the error
        log.warning(_NOT_BELIEVED, table.name, error.problem)
        elsewhere = again(path)  # a task of the job that failed may still be writing
        return Staged(copy, elsewhere, digests.write(hashed, table, elsewhere, published))


def _changed(
    hashed: DataFrame, layout: Layout, places: tuple[str | None, str], published: PublishedDigests, large: Buckets
) -> Staged:
    """Digest the large buckets that differ; return the published digests unchanged if none does."""
    (copy, path), spark, num_buckets = places, hashed.sparkSession, published.num_buckets
    if large.num_differing:
        with closing(large):
            found = large_buckets.write_changed(hashed, layout, path, published, large)
        if found is None:
            found = compared(spark, digests.read(spark, layout, path), published, layout)
        return Staged(copy, path, num_buckets, found)
    if layout.table.hash_partitions is None:
        found = replace(large, num_buckets=num_buckets)
    else:  # hash partitions are runs of small buckets
        large.close()
        found = large_buckets.unchanged(spark, layout, published)
    return Staged(copy, published.path, num_buckets, found, is_as_published=True)


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
            mine = digests.read(spark, layout, staged.digests)
            parts, null_keys, mixed = digests.measured(mine, table, staged.num_buckets)
        num_bytes = sum(storage.num_bytes(spark, path) for path in staged.written)
        found = Seal(staged.rows, staged.digests, staged.num_buckets, num_bytes, parts, layout.columns, mixed=mixed)
        if null_keys:
            raise keys.null_key(desired_rows(spark, found, lambda: source, layout), table, null_keys)
        if buckets is None or buckets.num_new_keys:
            rows = desired_rows(spark, found, lambda: source, layout).select(*columns(table.group_by))
            # A key may be new in one partition and old in another; then all buckets are checked.
            is_local = set(table.partition_by) <= set(table.key)
            if buckets and is_local and buckets.is_worth_choosing(buckets.partitions.values()):
                rows = diff.within(rows, buckets.new_keys, table, staged.num_buckets)
            keys.check_unique(rows, table)
    keys.check_storable(table, parts, lambda: digests.read(spark, layout, staged.digests))
    return found


def resolved(rows: DataFrame, layout: Layout, main: DataFrame | None) -> DataFrame:
    """Return the rows with one row per key, chosen by `on_conflict`; rows with a NULL key are kept for later checks.

    rows : all columns of the source, and the columns that order them
    main : main's rows, if the definition keeps a row that main has already; None while main does not exist
    cost : a scan of the keys and a shuffle of eight bytes each; a shuffle of all rows whose key occurs twice. If main's
           row is kept, also a shuffle of main's rows with those keys; with `keep`, with all keys
    """
    table = layout.table
    if table.on_conflict == "fail":
        return rows
    key, hashed = columns(table.key), F.xxhash64(*columns(table.key))
    keyed = rows.withColumn(_KEY, F.when(~any_null(table.key), hashed))
    twice = keyed.where(F.col(_KEY).isNotNull()).groupBy(_KEY).count().where("count > 1").select(_KEY)
    once = keyed.join(twice, _KEY, "left_anti").drop(_KEY)
    several = keyed.join(twice, _KEY, "left_semi").drop(_KEY)
    own = [column for column in schema.columns_of(rows.schema.jsonValue()) if not column.name.startswith(_ORDERING)]
    tie = F.expr(diff.row_hash(own)).desc()  # arbitrary, but deterministic
    by = [F.col(quoted(ordering(name) if ordering(name) in rows.columns else name)) for name in table.order_by]
    last = [each.desc_nulls_last() for each in by] if table.on_conflict == "overwrite" else [each.asc() for each in by]
    decided, contested = layout.shaped(once), layout.shaped(_first_of_each(several, key, [*last, tie]))
    decided, contested = (each.select(*columns(layout.names)) for each in (decided, contested))
    if table.on_conflict == "overwrite" or main is None:
        return decided.unionByName(contested)
    if table.on_conflict == "keep":
        return _unless_in(main, decided.unionByName(contested), layout)
    return decided.unionByName(_unless_in(main, contested, layout))


def _unless_in(main: DataFrame, rows: DataFrame, layout: Layout) -> DataFrame:
    """Return main's row for each key that main has, and the row of `rows` for each other key."""
    keys_of, tie = list(layout.table.key), F.expr(diff.row_hash(layout.columns)).desc()
    held = layout.shaped(main).join(rows.select(*columns(keys_of)), keys_of, "left_semi")
    stays = _first_of_each(held.select(*columns(layout.names)), columns(keys_of), [tie])
    new = rows.join(stays.select(*columns(keys_of)), keys_of, "left_anti").select(*columns(layout.names))
    return new.unionByName(stays)


def ordering(name: str) -> str:
    """Return the internal name of an ordering column that main does not have."""
    return f"{_ORDERING}{name}"


def _first_of_each(rows: DataFrame, key: Sequence[Column], order: Sequence[Column]) -> DataFrame:
    number = F.row_number().over(Window.partitionBy(*key).orderBy(*order))
    return rows.withColumn(_KEY, number).where(F.col(_KEY) == 1).drop(_KEY)


def compared(spark: SparkSession, mine: DataFrame, published: PublishedDigests, layout: Layout) -> Buckets | None:
    """Compare with the digests of the last publish; None when those are missing or differ from what was recorded."""
    table = layout.table
    with ExitStack() as undo:
        try:
            theirs = digests.read(spark, layout, published.path)
            found = digests.compared(mine, in_scope(theirs, layout), table, published.num_buckets)
            undo.callback(found.close)
            if digests.is_as_recorded(found, theirs, layout, published):
                undo.pop_all()
                return found
            log.warning(_NOT_BELIEVED, table.name, "they are not what was recorded")
        except InterruptedRefreshError:
            raise
        except MvError as error:
            if digests.are_intact(spark, layout, published):
                raise  # the published digests are intact, so the seal's own digests caused the error
            log.warning(_NOT_BELIEVED, table.name, error.problem)
    return None


def check_unmoved(
    spark: SparkSession,
    seal: Seal,
    source: DataFrame,
    main: DataFrame,
    layout: Layout,
    buckets: Buckets | None,
) -> None:
    """Refuse rows whose key main has in another partition.

    A commit of some partitions cannot delete such a row from the partition it left, so main would have it twice.

    main    : all of main's rows
    buckets : the comparison with main's digests, if there is one; a moved row is new in its present partition
    cost    : a scan of main's keys, and a shuffle of them
    raises  : KeyMovedError, with up to ten samples
    """
    table = layout.table
    desired = desired_rows(spark, seal, lambda: source, layout).select(*columns(table.group_by))
    if buckets is not None and not buckets.num_new_keys:
        return
    if buckets is not None:
        desired = diff.within(desired, buckets.new_keys, table, buckets.num_buckets)
    with translated(table.name):
        found = diff.moved(desired, main.select(*columns(table.group_by)), table)
        if samples := keys.samples(found, table.key):
            raise KeyMovedError(
                table.name,
                f"rows are in other partitions than in main: key {keys.shown(samples)}.",
                samples=samples,
            )


def frozen_differences(source: DataFrame, main: DataFrame, layout: Layout) -> tuple[str, ...]:
    """Return the first twenty frozen partitions in which the source and main differ.

    source, main : all of their rows
    cost         : a scan of the frozen rows on both sides
    """
    table = layout.table
    with translated(table.name):
        mine, theirs = (
            diff.digested(diff.aligned(layout.shaped(rows.where(is_frozen(rows, table))), layout), table, 1)
            for rows in (source, main)
        )
        beside = diff.bucketwise(mine, theirs, table)
        return digests.differing_partitions(beside, table, _MAX_FROZEN_SHOWN)


def desired_rows(spark: SparkSession, seal: Seal, read_source: Callable[[], DataFrame], layout: Layout) -> DataFrame:
    """Return the rows to merge: the staged copy, or the source read again at its pin; neither aligned nor hashed."""
    return read_source() if seal.rows is None else storage.read(spark, layout.table.name, seal.rows, layout.columns)


def _copied(rows: DataFrame, layout: Layout) -> DataFrame:
    """Return the copy's rows as written: whole partitions per file, the columns used for file skipping first."""
    partition_by = layout.table.partition_by
    if not partition_by:
        return rows
    # Delta keeps statistics of the first 32 columns; with the partition columns among them a chunk skips files.
    others = [name for name in layout.names if name not in partition_by]
    return rows.select(*columns([*partition_by, *others]), diff.HASH).hint("rebalance", *columns(partition_by))
