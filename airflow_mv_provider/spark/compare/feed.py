"""Stage a source's change feed instead of all its rows.

    change feed ──▶ corrections, netted and written once ──┐
                                                           ├─▶ digests of main's future rows ──▶ seal
    digests of the last publish ───────────────────────────┘

The digests equal those of a full read, so the seal is like any other: if main has moved, the refresh compares it with
the source at its pin as usual, and the next refresh compares with these digests.

A feed is the source's change data feed, or the rows of files that were added or removed. For a source with a watermark
column it is the late rows, together with main's rows for their keys.

Where the rows of removed files are gone, every row that came or changed is at least in a file that is new. The rows of
new files replace main's rows with their keys, and the sums of all rows show whether that accounts for all changes. The
sums of unchanged files are kept for that (`file_sums`). Too few rows are rows that were deleted from files, which the
keys of both sides show.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from airflow_mv_provider.core.definition import schema
from airflow_mv_provider.core.definition.identifier import quoted
from airflow_mv_provider.core.definition.table import RefreshableTable
from airflow_mv_provider.core.progress.digests import PublishedDigests, with_changes
from airflow_mv_provider.core.progress.layers import all_paths, layers_below
from airflow_mv_provider.core.progress.seal import Seal
from airflow_mv_provider.exceptions import DefinitionError, DuplicateKeyError, SealBrokenError
from airflow_mv_provider.spark import storage
from airflow_mv_provider.spark.compare import corrections, digests, hashing, key_ranges, keys
from airflow_mv_provider.spark.compare.digest_algebra import added, digested_changes
from airflow_mv_provider.spark.errors import translated
from airflow_mv_provider.spark.layout import Layout, any_null, columns, sql_type

_MAX_BROADCAST_KEYS = 1_000_000
_ORDERED = ("byte", "short", "integer", "long", "decimal", "date", "timestamp", "timestamp_ntz", "string")


def write(feed: DataFrame, layout: Layout, path: str) -> None:
    """Write the net corrections of a feed at `path`.

    feed   : (columns of the source after its projection, _mv_sign int); cast here to main's types, as every compared
             row is, because an INT and a BIGINT of the same value have different hashes
    cost   : one scan of the feed and one shuffle of it
    raises : EngineError, and any other error of reading the feed
    """
    with translated(layout.table.name):
        storage.write(corrections.netted(layout.shaped(feed, corrections.SIGN), layout), path)


def late(rows: DataFrame, main: DataFrame, layout: Layout, watermark: str) -> DataFrame:
    """Return the feed of a source with a watermark column.

    rows    : all rows of the source; lazy
    main    : main's rows as of the last publish; rows with at least their greatest watermark, or none, are late
    returns : (*columns, _mv_sign int)
    cost    : a scan of one column of main now; when the feed is read, two scans of the late rows and one of main
    raises  : DefinitionError, when the column is missing or its type has no order
    """
    table, names = layout.table, columns(layout.names)
    found = next((c for c in layout.columns if c.name == watermark), None)
    if found is None or found.shown_type.split("(")[0] not in _ORDERED:
        raise DefinitionError(
            table.name, f"{watermark!r} cannot be a watermark: no such column, or its type has no order."
        )
    column = F.col(quoted(watermark))
    with translated(table.name):
        # Read as text, which casts back to the same value in every time zone of this process.
        last = main.agg(F.max(column).cast("string")).collect()[0][0]
        is_late = F.lit(True) if last is None else column.isNull() | (column >= F.lit(last).cast(sql_type(found)))
        new = layout.shaped(rows).where(is_late).select(*names)
        old = main.select(*names).join(new.select(*columns(table.key)), list(table.key), "left_semi").select(*names)
        return new.withColumn(corrections.SIGN, F.lit(1)).unionByName(old.withColumn(corrections.SIGN, F.lit(-1)))


def copied(rows: DataFrame, layout: Layout, path: str, *more: schema.Column) -> DataFrame:
    """Write some of the source's rows at `path`, and return them hashed.

    rows    : (columns of the source after its projection, *more)
    returns : (*columns, _mv_hash bigint, *more)
    cost    : one scan of these rows
    raises  : EngineError, and any other error of reading the source
    """
    name = layout.table.name
    with translated(name):
        names = [column.name for column in more]
        storage.write(hashing.aligned(layout.shaped(rows, *names), layout, *names), path)
    return storage.read(rows.sparkSession, name, path, [*layout.columns, hashing.HASHED, *more])


def write_replacing(
    new: DataFrame, main: DataFrame, layout: Layout, path: str, source: DataFrame | None = None
) -> None:
    """Write the corrections by which rows replace main's rows with their keys.

    new    : (*columns, _mv_hash bigint), each key once
    source : all the source's rows; if given, main's rows whose keys it has lost are deleted as well
    cost   : a scan of main in the range of the keys of `new`, and a join with them; with `source` a scan of all of
             main, and a join of the keys of both sides
    raises : EngineError
    """
    table, key = layout.table, columns(layout.table.key)
    with translated(table.name):
        keys_of_new = new.select(*key)
        num_rows, *extremes = new.agg(F.count(F.lit(1)), *key_ranges.extremes(layout)).collect()[0]
        if num_rows <= _MAX_BROADCAST_KEYS:
            keys_of_new = F.broadcast(keys_of_new)
        old = layout.shaped(_in_range(main, layout, extremes)).join(keys_of_new, list(table.key), "left_semi")
        if source is not None:
            old = old.unionByName(layout.shaped(main).join(source.select(*key), list(table.key), "left_anti"))
        write_between(new, hashing.aligned(old, layout), layout, path)


def write_between(new: DataFrame, former: DataFrame, layout: Layout, path: str) -> None:
    """Write the corrections by which rows replace their former ones.

    new    : (*columns, _mv_hash bigint), each key once
    former : (*group_by, _mv_hash bigint, ...)
    cost   : one shuffle of both, of `former` only keys and hashes: half of what `write` of both needs
    raises : EngineError
    """
    with translated(layout.table.name):
        old = former.select(*columns(layout.table.group_by), hashing.HASH)
        storage.write(corrections.between(new, old, layout), path)


def sums_with(spark: SparkSession, layout: Layout, path: str, published: PublishedDigests) -> tuple[int, int, int]:
    """Return count and sums of all rows of main with the corrections at `path`, as `hashing.measure` computes them.

    published : the digests of main without them
    """
    changes = storage.read(spark, layout.table.name, path, [*corrections.CHANGE_COLUMNS, *layout.columns])
    rows, digest, mixed = digests.summed(digested_changes(changes, layout.table, 1), layout.table)
    return published.num_rows + rows, published.digest ^ digest, published.mixed + mixed


def digests_of(main: DataFrame, layout: Layout, totals: PublishedDigests, path: str) -> PublishedDigests:
    """Write the digests of main at `path`, where only its totals were kept.

    main : its rows as of the last publish
    cost : a scan of main
    """
    with translated(layout.table.name):
        rows = hashing.aligned(layout.shaped(main), layout).select(*columns(layout.table.group_by), hashing.HASH)
        return replace(totals, path=path, num_buckets=digests.write(rows, layout.table, path, totals))


def seal(
    spark: SparkSession,
    layout: Layout,
    path: str,
    main: DataFrame,
    published: PublishedDigests,
    to: str,
    num_rows: Callable[[], int] | None = None,
    *,
    may_add_layer: bool = True,
) -> Seal:
    """Validate the corrections at `path`, and write at `to` the digests that main will have with them.

    main      : main's rows as of the last publish
    published : their digests, which are known to match main's present rows
    num_rows  : counts the source's rows; given if the feed does not report deleted rows
    may_add_layer : the published digests will be kept
    cost      : a scan of the digests, which are only written anew after many changes or refreshes
                (`core.progress.layers`); a scan of main's keys in the range of those that are inserted
    raises    : NullKeyError, DuplicateKeyError, PartitionValueError; SealBrokenError, when the digests are missing or
                differ from what was recorded, or when the source's row count differs from main's future one
    """
    table = layout.table
    if (before := digests.intact(spark, layout, published)) is None:
        raise SealBrokenError(table.name, "the digests of the last publish are gone or do not match their record.")
    changes = storage.read(spark, table.name, path, [*corrections.CHANGE_COLUMNS, *layout.columns])
    gained, num_changes = _check_keys(changes, layout, main)
    below = layers_below(published.layers, published.num_rows, num_changes) if may_add_layer else ()
    with translated(table.name):
        if num_rows is not None and (there := num_rows()) != published.num_rows + gained:
            expected = published.num_rows + gained
            raise SealBrokenError(table.name, f"the source has {there:,} rows, its changes account for {expected:,}.")
        more = digested_changes(changes, table, published.num_buckets)
        storage.write(more if below else added(digests.read_layers(spark, layout, *published.paths), more, table), to)
        parts, _, mixed = digests.measured(digests.read(spark, layout, to), table, published.num_buckets)
        if below:
            parts, mixed = with_changes(before[0], parts), before[1] + mixed
        num_bytes = sum(storage.num_bytes(spark, each) for each in (path, to))
    keys.check_storable(table, parts, lambda: digests.read(spark, layout, *all_paths(below, to)))
    return Seal(
        None,
        to,
        published.num_buckets,
        num_bytes,
        parts,
        layout.columns,
        strategy="incremental",
        changes=path,
        mixed=mixed,
        below=below,
    )


def _check_keys(changes: DataFrame, layout: Layout, main: DataFrame) -> tuple[int, int]:
    """Refuse a NULL key in a new row and a key that the source now has twice.

    returns : by how many rows main grows, and how many of its rows change
    """
    table, op, key = layout.table, F.col(corrections.OP), columns(layout.table.key)
    is_new = op.isin("I", "U")
    with translated(table.name):
        counts = (F.count(F.lit(1)), F.count_if(is_new & any_null(table.key)), *key_ranges.extremes(layout))
        found = {row[0]: row[1:] for row in changes.groupBy(op).agg(*counts).collect()}
        num_rows = {each: int(values[0]) for each, values in found.items()}
        if null_keys := sum(int(values[1]) for values in found.values()):
            raise keys.null_key(changes.where(is_new), table, null_keys)
        if "?" in found:
            raise _twice(changes.where(op == "?"), table)
        counted = num_rows.get("I", 0) - num_rows.get("D", 0), sum(num_rows.values())
        if "I" not in found:
            return counted
        main = _in_range(main, layout, found["I"][2:])
        inserted, deleted = (changes.where(op == each).select(*key) for each in ("I", "D"))
        # A row that moved is a delete in its old partition and an insert in its new one.
        new = inserted.join(deleted, list(table.key), "left_anti") if table.may_move else inserted
        twice = main.select(*key).join(new, list(table.key), "left_semi")
        if table.may_move:
            again = changes.where(is_new).groupBy(*key).count().where("count > 1")
            twice = twice.unionByName(again.select(*key))
        if keys.samples(twice, table.key):
            raise _twice(twice, table)
    return counted


def _in_range(main: DataFrame, layout: Layout, extremes: Sequence[int | str | None]) -> DataFrame:
    """Return the rows of main in the range of some keys, so that Delta opens no other files of it.

    extremes : the values of `key_ranges.extremes` over the rows that have these keys
    """
    ranges = key_ranges.within_sql("main", key_ranges.key_ranges(layout, [extremes]))
    return main.alias("main").where(" AND ".join(ranges)) if ranges else main


def _twice(rows: DataFrame, table: RefreshableTable) -> DuplicateKeyError:
    return keys.duplicate_key(table, keys.samples(rows, table.key))
