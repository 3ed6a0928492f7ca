"""Corrections as they were recorded: read back, verified, and written again without their deletes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from airflow_mv_provider.core.progress.recorded import KeptRows, RecordedChunk
from airflow_mv_provider.exceptions import SealBrokenError
from airflow_mv_provider.spark import delta, partitions, storage
from airflow_mv_provider.spark.compare import digest_algebra, keys
from airflow_mv_provider.spark.compare.corrections import CHANGE_COLUMNS, COPIES, NEW_HASH, OLD_HASH, OP
from airflow_mv_provider.spark.compare.key_ranges import KeyRange, extremes, key_ranges
from airflow_mv_provider.spark.errors import translated
from airflow_mv_provider.spark.layout import Layout, any_null, columns, struct_type


@dataclass(frozen=True, slots=True)
class Corrections:
    """The verified changes of some chunks.

    rows         : (op, hashes, copies, *columns); lazy
    has_null_key : one of them concerns a row with a NULL in its key
    ranges       : which keys they have
    """

    rows: DataFrame
    has_null_key: bool
    ranges: tuple[KeyRange, ...]


def verified(spark: SparkSession, layout: Layout, chunks: Sequence[RecordedChunk]) -> Corrections:
    """Return the verified changes of all chunks.

    cost   : a scan of them
    raises : SealBrokenError, when a chunk no longer reads back as recorded
    """
    table = layout.table
    written = [chunk for chunk in chunks if chunk.path]
    if not written:
        return Corrections(delta.no_rows(spark, struct_type([*CHANGE_COLUMNS, *layout.columns])), False, ())
    by_number = {chunk.number: read(spark, layout, chunk.path) for chunk in written if chunk.path}
    numbered = (rows.withColumn("_mv_chunk", F.lit(number)) for number, rows in by_number.items())
    has_null = F.coalesce(F.bool_or(any_null(table.key)), F.lit(False))
    with translated(table.name):
        by_chunk = reduce(DataFrame.unionAll, numbered).groupBy("_mv_chunk")
        found = by_chunk.agg(*measure(), has_null, *extremes(layout)).collect()
    facts = {number: (rows, digest) for number, rows, digest, *_ in found}
    for chunk in written:
        if facts.get(chunk.number) != (chunk.num_rows, chunk.digest):
            raise SealBrokenError(table.name, f"the corrections at {chunk.path} are not what was recorded.")
    ranges = key_ranges(layout, [row[4:] for row in found])
    return Corrections(reduce(DataFrame.unionAll, by_number.values()), any(row[3] for row in found), ranges)


def new_rows(spark: SparkSession, layout: Layout, path: str) -> DataFrame:
    """Return the rows that written corrections insert or update, as the source has them: (*columns); lazy."""
    return read(spark, layout, path).where(F.col(NEW_HASH).isNotNull()).select(*columns(layout.names))


def present_keys(main: delta.Main, layout: Layout, chunks: Sequence[RecordedChunk]) -> DataFrame | None:
    """Return the keys that main keeps, or gets, in another partition than one from which they are deleted.

    Such a row is no row that the source has lost: it has moved, or another writer has copied it to a second partition.

    chunks  : all of the refresh: a row may leave the partitions of one and come to those of another
    returns : None if no row can move to another partition
    cost    : lazy; a scan of main's keys and partition columns, joined with the deleted keys
    """
    table = layout.table
    if not table.may_move:
        return None
    found = verified(main.spark, layout, chunks).rows
    gone, key = found.where(_is_gone()), columns(table.key)
    base_version = max(chunk.base_version for chunk in chunks)
    rows = delta.read(main.spark, main.ref, base_version).select(*columns(table.group_by))
    staying = keys.missing(rows.join(gone.select(*key).distinct(), list(table.key), "left_semi"), gone, table)
    return found.where(F.col(NEW_HASH).isNotNull()).select(*key).unionAll(staying.select(*key))


def _is_gone() -> Column:
    return F.col(OP).isin("D", "X") & F.col(NEW_HASH).isNull()  # an X with a new hash makes room for its R


def without_deletes(
    spark: SparkSession,
    layout: Layout,
    num_buckets: int,
    chunk: RecordedChunk,
    path: str,
    present: DataFrame | None = None,
) -> KeptRows | None:
    """Write a chunk's corrections again without those of keys that the source no longer has.

    num_buckets : of the seal
    path        : where they are written, if any is left
    present     : keys that main has in another partition too: the row here is deleted, or main would have two
    returns     : None if the chunk deletes no such key
    cost        : two scans of the chunk's corrections, and of `present` if rows can move; a write of what is left of
                  them
    raises      : SealBrokenError, when the chunk no longer reads back as recorded
    """
    table = layout.table
    found = verified(spark, layout, [chunk]).rows
    gone, left = found.where(_is_gone()), found.where(~_is_gone())
    if present is not None:
        left = left.unionByName(gone.join(present, list(table.key), "left_semi"))
        gone = gone.join(present, list(table.key), "left_anti")
    values = partitions.names(table, digest_algebra.bucket(table, num_buckets), num_buckets)
    with translated(table.name):
        rows = gone.groupBy(*values).agg(F.sum(COPIES).alias("kept")).collect()
        deletes = {partitions.name(table, list(row)[: len(values)]): row.kept for row in rows if row.kept}
        if not deletes:
            return None
        storage.write(left, path)
        num_rows, digest = read(spark, layout, path).agg(*measure()).collect()[0]
    if not num_rows:
        return KeptRows(chunk.number, None, 0, 0, 0, deletes)
    return KeptRows(chunk.number, path, num_rows, digest, storage.num_bytes(spark, path), deletes)


def read(spark: SparkSession, layout: Layout, path: str) -> DataFrame:
    """Return the corrections at `path`, unverified: (op, hashes, copies, *columns); lazy."""
    return storage.read(spark, layout.table.name, path, [*CHANGE_COLUMNS, *layout.columns])


def measure() -> tuple[Column, Column]:
    """Return the aggregates of corrections: their number, and the xor of a hash over each one's op and hashes."""
    hashed = F.xxhash64(OP, F.coalesce(OLD_HASH, F.lit(0)), F.coalesce(NEW_HASH, F.lit(0)))
    return F.count(F.lit(1)).alias("num_rows"), F.coalesce(F.bit_xor(hashed), F.lit(0)).alias("digest")
