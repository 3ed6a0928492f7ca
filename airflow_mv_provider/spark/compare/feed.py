"""Corrections from changes that a source lists, or from rows that came or changed.

    signed rows: a change feed, files that came and went ──▶ netted by key ──────────────┐
    rows that came or changed ──▶ main's rows with their keys, which they replace ──────┴─▶ corrections, written once

For a source with a watermark column the late rows are taken, together with main's rows for their keys. Rows that came
or changed show no deletes: the number of the source's rows does, or their totals, and then the keys of both sides.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from airflow_mv_provider.core.definition import schema
from airflow_mv_provider.core.definition.identifier import quoted
from airflow_mv_provider.core.definition.table import RefreshableTable
from airflow_mv_provider.exceptions import DefinitionError, DuplicateKeyError
from airflow_mv_provider.spark import key_ranges, storage
from airflow_mv_provider.spark.compare import corrections, hashing, keys, recorded_changes
from airflow_mv_provider.spark.compare.recorded_changes import Written
from airflow_mv_provider.spark.errors import translated
from airflow_mv_provider.spark.layout import Layout, columns, sql_type

MAX_BROADCAST_KEYS = 1_000_000
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
        if num_rows <= MAX_BROADCAST_KEYS:
            keys_of_new = F.broadcast(keys_of_new)
        old = layout.shaped(_in_range(main, layout, extremes)).join(keys_of_new, list(table.key), "left_semi")
        if source is not None:
            old = old.unionByName(layout.shaped(main).join(source.select(*key), list(table.key), "left_anti"))
        former = hashing.aligned(old, layout).select(*columns(table.group_by), hashing.HASH)
        storage.write(corrections.between(new, former, layout), path)


def check_keys(
    spark: SparkSession, layout: Layout, written: Written, main: DataFrame, *, are_new_known: bool = False
) -> None:
    """Refuse a NULL key in a new row, and a key that the source now has twice.

    written : corrections of main
    main    : its rows
    are_new_known : main is known to have no row with an inserted key, and each of them is one row
    cost    : a scan of main's keys in the range of those that are inserted, if any are
    raises  : NullKeyError, DuplicateKeyError
    """
    table, op, key = layout.table, F.col(corrections.OP), columns(layout.table.key)
    parts = written.partitions.values()
    changes, is_new = recorded_changes.read(spark, layout, written.path), corrections.brings_row()
    if null_keys := sum(part.null_keys for part in parts):
        raise keys.null_key(changes.where(is_new), table, null_keys)
    if any(part.twice for part in parts):
        raise _twice(changes.where(op == "?"), table)
    if not written.num_inserted or are_new_known:
        return
    with translated(table.name):
        inserted, deleted = (changes.where(op.isin(*each)).select(*key) for each in ("I", "DX"))
        extremes = changes.where(op == "I").agg(*key_ranges.extremes(layout)).collect()[0]
        main = _in_range(main, layout, extremes)
        # A row that moved is a delete in its old partition and an insert in its new one.
        new = inserted.join(deleted, list(table.key), "left_anti") if table.may_move else inserted
        twice = main.select(*key).join(new, list(table.key), "left_semi")
        if table.may_move:
            again = changes.where(is_new).groupBy(*key).count().where("count > 1")
            twice = twice.unionByName(again.select(*key))
        if keys.samples(twice, table.key):
            raise _twice(twice, table)


def _in_range(main: DataFrame, layout: Layout, extremes: Sequence[int | str | None]) -> DataFrame:
    """Return the rows of main in the range of some keys, so that Delta opens no other files of it.

    extremes : the values of `key_ranges.extremes` over the rows that have these keys
    """
    ranges = key_ranges.within_sql("main", key_ranges.key_ranges(layout, [extremes]))
    return main.alias("main").where(" AND ".join(ranges)) if ranges else main


def _twice(rows: DataFrame, table: RefreshableTable) -> DuplicateKeyError:
    return keys.duplicate_key(table, keys.samples(rows, table.key))
