"""Fingerprints of main's rows, by which most rows of a source are recognised without reading main.

    rows ──▶ shards of 32 to 64 rows by their hash ──▶ the fingerprints in each: other 32 bits of the hash
    corrections ──▶ a layer: what they remove from shards, and what they add to them

A row whose fingerprint is not in its shard is not one of main's. The reverse is wrong once in a hundred million rows,
and where fingerprints are damaged or outdated; the totals of all rows show that (`compare.whole`).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import reduce

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from airflow_mv_provider.core.definition import schema
from airflow_mv_provider.core.definition.identifier import quoted
from airflow_mv_provider.core.definition.table import RefreshableTable
from airflow_mv_provider.spark import storage
from airflow_mv_provider.spark.compare.corrections import NEW_HASH, OLD_HASH
from airflow_mv_provider.spark.compare.hashing import HASH
from airflow_mv_provider.spark.errors import translated
from airflow_mv_provider.spark.layout import Layout, columns, same_values

_SHARD, _ADDED, _REMOVED, _GONE, _PRINT = "_mv_shard", "_mv_added", "_mv_removed", "_mv_gone", "_mv_print"
_LAYER = "_mv_layer"
_LIST: schema.Type = {"type": "array", "elementType": "integer", "containsNull": True}
_PART_OF_DRIVER = 6  # of the driver's memory; above it, looking up rows was slower than joining them
_UNITS = {"": 1, "b": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
_COLUMNS = (schema.Column(_SHARD, "long"), schema.Column(_ADDED, _LIST), schema.Column(_REMOVED, _LIST))


def write(rows: DataFrame, table: RefreshableTable, num_shards: int, path: str) -> None:
    """Write the fingerprints of rows.

    rows : (*partition_by, _mv_hash bigint)
    cost : a scan of them, and a shuffle of 12 bytes and the partition of each; about 4 bytes a row are written
    """
    with translated(table.name):
        storage.write(_listed(rows, table, num_shards, HASH, _ADDED), path)


def write_layer(changes: DataFrame, table: RefreshableTable, num_shards: int, path: str) -> None:
    """Write what corrections add to fingerprints, and what they remove.

    changes : (*CHANGE_COLUMNS, *columns)
    """
    with translated(table.name):
        storage.write(_layer(changes, table, num_shards), path)


def write_with(changes: DataFrame, layout: Layout, num_shards: int, below: Sequence[str], path: str) -> None:
    """Write the fingerprints of rows after corrections, as one layer.

    changes : (*CHANGE_COLUMNS, *columns)
    below   : where the layers before them lie
    cost    : a scan and a shuffle of all fingerprints
    """
    table, empty = layout.table, F.array().cast("array<int>")
    lowest, *others = [*read(changes.sparkSession, layout, below), _layer(changes, table, num_shards)]
    place = [*table.partition_by, _SHARD]
    numbered = (each.withColumn(_LAYER, F.lit(n)) for n, each in enumerate(others))
    # Of each layer what it removes comes first: NULL is sorted before what is added.
    steps = F.array_sort(F.collect_list(F.struct(_LAYER, _ADDED, _REMOVED)))

    def after(left: Column, step: Column) -> Column:
        return F.concat(F.array_except(left, F.coalesce(step[_REMOVED], empty)), F.coalesce(step[_ADDED], empty))

    gone = F.flatten(F.collect_list(_REMOVED)).alias(_GONE)
    folded = reduce(DataFrame.unionByName, numbered).groupBy(*columns(place))
    b, o = lowest.alias("b"), folded.agg(F.aggregate(steps, empty, after).alias(_ADDED), gone).alias("o")
    on = same_values("b", "o", place)
    both = b.join(o, reduce(Column.__and__, on), "full_outer")
    of_below, gone_from, plus = (F.coalesce(name, empty) for name in (f"b.{_ADDED}", f"o.{_GONE}", f"o.{_ADDED}"))
    left = F.concat(F.array_except(of_below, gone_from), plus)
    names = [F.coalesce(f"b.{quoted(name)}", f"o.{quoted(name)}").alias(name) for name in place]
    found = both.select(*names, left.alias(_ADDED), F.lit(None).cast("array<int>").alias(_REMOVED))
    found = found.where(F.size(_ADDED) > 0)  # of rows and partitions that are gone
    with translated(table.name):
        storage.write(found, path)


def read(spark: SparkSession, layout: Layout, paths: Sequence[str]) -> tuple[DataFrame, ...]:
    """Return the layers of fingerprints, the lowest first: (*partition_by, _mv_shard bigint, ...); lazy.

    raises : SealBrokenError, when a layer is missing
    """
    kinds = [*(layout.column(name) for name in layout.table.partition_by), *_COLUMNS]
    return tuple(storage.read(spark, layout.table.name, path, kinds) for path in paths)


def _layer(changes: DataFrame, table: RefreshableTable, num_shards: int) -> DataFrame:
    gained, lost = (
        _listed(changes.where(F.col(name).isNotNull()), table, num_shards, name, to)
        for name, to in ((NEW_HASH, _ADDED), (OLD_HASH, _REMOVED))
    )
    return gained.unionByName(lost)


def _joined(layers: Sequence[DataFrame]) -> DataFrame:
    """Return what all layers add, without what one of them removes.

    A row that came again after it had gone is missing then, until the layers are written as one: it is looked up in
    main, where it is the same.
    """
    every = reduce(DataFrame.unionByName, layers)
    if len(layers) == 1:
        return every.drop(_REMOVED)
    removed = every.where(F.col(_REMOVED).isNotNull()).groupBy(_SHARD)
    gone = F.broadcast(removed.agg(F.flatten(F.collect_list(_REMOVED)).alias(_GONE)))
    both = every.where(F.col(_ADDED).isNotNull()).drop(_REMOVED).join(gone, _SHARD, "left_outer")
    left = F.when(F.col(_GONE).isNull(), F.col(_ADDED)).otherwise(F.array_except(_ADDED, _GONE))
    return both.withColumn(_ADDED, left).drop(_GONE)


def fit(spark: SparkSession, num_bytes: int) -> bool:
    """True if fingerprints of so many bytes in memory can be sent to every task."""
    return num_bytes <= _driver_bytes(spark) // _PART_OF_DRIVER


def unknown(rows: DataFrame, layers: Sequence[DataFrame], table: RefreshableTable, num_shards: int) -> DataFrame:
    """Return the rows whose fingerprints are not known.

    rows   : (*partition_by, _mv_hash bigint, ...)
    layers : as `read` returns them, of all partitions or of some; what they add and remove is sent to every task
    """
    r = rows.withColumns({_SHARD: _shard(table, num_shards, HASH), _PRINT: _print(HASH)}).alias("r")
    k = F.broadcast(_joined(layers).select(_SHARD, _ADDED).alias("k"))
    is_known = (F.col(f"r.{_SHARD}") == F.col(f"k.{_SHARD}")) & F.array_contains(f"k.{_ADDED}", F.col(f"r.{_PRINT}"))
    return r.join(k, is_known, "left_anti").drop(_SHARD, _PRINT)


def _listed(rows: DataFrame, table: RefreshableTable, num_shards: int, hashed: str, to: str) -> DataFrame:
    place = [*columns(table.partition_by), _shard(table, num_shards, hashed).alias(_SHARD)]
    lists = rows.select(*place, _print(hashed).alias(_PRINT)).groupBy(*columns(table.partition_by), _SHARD)
    found, none = F.collect_list(_PRINT), F.lit(None).cast("array<int>")
    return lists.agg(*((found if name == to else none).alias(name) for name in (_ADDED, _REMOVED)))


def _shard(table: RefreshableTable, num_shards: int, hashed: str) -> Column:
    """Return a row's shard: the low bits are of its hash, the others of its partition.

    Two partitions may share shards, which only makes their lists longer.
    """
    in_partition = F.col(hashed).bitwiseAND(F.lit(num_shards - 1).cast("bigint"))
    if not table.partition_by:
        return in_partition
    of_partition = F.xxhash64(*columns(table.partition_by)).bitwiseAND(F.lit(-num_shards).cast("bigint"))
    return of_partition.bitwiseOR(in_partition)


def _driver_bytes(spark: SparkSession) -> int:
    text = spark.conf.get("spark.driver.memory", "1g") or "1g"
    found = re.fullmatch(r"(\d+)([bkmgt]?)b?", text.strip().lower())
    return int(found[1]) * _UNITS[found[2]] if found else 1 << 30


def _print(hashed: str) -> Column:
    return F.shiftright(hashed, 32).cast("int")
