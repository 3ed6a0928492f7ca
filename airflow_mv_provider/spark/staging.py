"""Load the source once, validate it, and measure what becomes the seal.

    source ──▶ (*group_by, _mv_hash)           when the source can be read again at its pin
               (*columns, _mv_hash)            otherwise: a copy
           ──▶ one Delta commit at staging-<epoch> ──▶ counts and digests per partition

The staging table has one version and a path that nobody else writes, so what was measured is what Merging reads.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from airflow_mv_provider.core import schema
from airflow_mv_provider.core.identifier import quoted
from airflow_mv_provider.core.progress import WHOLE_TABLE, Seal, SealedPartition, partition_name, unstorable
from airflow_mv_provider.core.table import RefreshableTable
from airflow_mv_provider.exceptions import (
    DuplicateKeyError,
    MvError,
    NullKeyError,
    PartitionValueError,
    SealBrokenError,
)
from airflow_mv_provider.spark import delta, diff
from airflow_mv_provider.spark.errors import translated

_NUM_SAMPLES = 10


@dataclass(frozen=True, slots=True)
class Layout:
    """How rows of one table are named: the definition, and main's columns in main's order."""

    table: RefreshableTable
    columns: tuple[schema.Column, ...]

    @property
    def names(self) -> list[str]:
        return [c.name for c in self.columns]


def aligned(source: DataFrame, layout: Layout) -> DataFrame:
    """Return the source's rows as main's: its columns in main's order, and their hash.

    returns : (*columns, _mv_hash bigint)
    """
    return source.select(
        *(F.col(quoted(name)) for name in layout.names),
        F.expr(diff.row_hash(layout.columns)).alias(diff.HASH),
    )


def load(source: DataFrame, layout: Layout, path: str, *, is_copy: bool) -> None:
    """Read the source once and commit it as the staging table at `path`.

    source : all of main's columns, in any order
    """
    rows = aligned(source, layout)
    if not is_copy:
        rows = rows.select(*_columns(layout.table.group_by), diff.HASH)
    elif layout.table.partition_by:
        # Delta keeps statistics of the first 32 columns: with the partition columns among them a chunk skips files.
        others = [name for name in layout.names if name not in layout.table.partition_by]
        rows = rows.select(*_columns([*layout.table.partition_by, *others]), diff.HASH)
    if layout.table.partition_by:
        rows = rows.hint("rebalance", *_columns(layout.table.partition_by))
    with translated(layout.table.name):
        rows.write.format("delta").mode("errorifexists").save(path)


def seal(spark: SparkSession, layout: Layout, path: str, *, is_copy: bool) -> Seal:
    """Validate the keys of the staging table, and measure each partition.

    cost   : two scans of the key and hash columns, and a shuffle of one 64-bit hash a row
    raises : NullKeyError, DuplicateKeyError, PartitionValueError, with up to ten samples
    """
    table = layout.table
    with translated(table.name):
        staged = spark.read.format("delta").load(path)
        measured, num_null_keys = _measured(staged, table)
        if num_null_keys:
            raise _null_key(staged, table, num_null_keys)
        _check_duplicates(staged, table)
    for part in measured:
        if problem := unstorable(part.partition, table.partition_by):
            raise PartitionValueError(table.name, problem)
    written = delta.history(spark, path, 1)[0]
    return Seal(path, written.version, is_copy, int(written.operationMetrics["numOutputBytes"]), measured)


def measure(rows: DataFrame, table: RefreshableTable) -> tuple[SealedPartition, ...]:
    """Count and digest `rows` per partition; a table without partitions has one, however empty.

    rows : (*partition_by, _mv_hash bigint), and anything else
    """
    return _measured(rows, table)[0]


def _measured(rows: DataFrame, table: RefreshableTable) -> tuple[tuple[SealedPartition, ...], int]:
    """Return what `measure` does, and the number of rows without a key."""
    names = [F.col(quoted(name)).cast("string") for name in table.partition_by]
    has_null = reduce(Column.__or__, (F.col(quoted(name)).isNull() for name in table.key))
    counted = (
        rows.groupBy(*names)
        .agg(F.count(F.lit(1)).alias("n"), F.bit_xor(diff.HASH).alias("digest"), F.count_if(has_null).alias("nulls"))
        .collect()
    )
    num_null_keys = sum(row.nulls for row in counted)
    if not names:
        return (SealedPartition(WHOLE_TABLE, counted[0].n, counted[0].digest or 0),), num_null_keys
    found = (SealedPartition(partition_name(list(row)[: len(names)]), row.n, row.digest) for row in counted)
    return tuple(sorted(found, key=lambda p: p.partition)), num_null_keys


def desired_keys(spark: SparkSession, seal: Seal, table: RefreshableTable) -> DataFrame:
    """Return what is sealed: (*group_by, _mv_hash)."""
    return read_sealed(spark, table.name, seal.path, seal.version).select(*_columns(table.group_by), diff.HASH)


def read_sealed(spark: SparkSession, where: str, path: str, version: int) -> DataFrame:
    """Return a table in our workspace as it was recorded.

    raises : SealBrokenError, when it is gone
    """
    try:
        return delta.read(spark, path, version)
    except MvError as error:
        raise SealBrokenError(where, f"{path} is gone.") from error


def desired_rows(spark: SparkSession, seal: Seal, source: DataFrame | None, layout: Layout) -> DataFrame:
    """Return whole rows to merge from: the staged copy, or the source read again at its pin.

    returns : (*columns, _mv_hash bigint), the hash of what was read now
    """
    rows = read_sealed(spark, layout.table.name, seal.path, seal.version) if seal.is_copy else source
    assert rows is not None
    return aligned(rows, layout)


def sample_keys(rows: DataFrame, key: Sequence[str]) -> list[str]:
    """Return up to ten keys as JSON, for an error's message; none of the other columns is shown."""
    keys = rows.select(F.to_json(F.struct(*_columns(key)), {"ignoreNullFields": "false"}).alias("k"))
    return sorted(row.k for row in keys.distinct().limit(_NUM_SAMPLES).collect())


def _null_key(staged: DataFrame, table: RefreshableTable, num_rows: int) -> NullKeyError:
    is_null = {name: F.col(quoted(name)).isNull() for name in table.key}
    bad = staged.where(reduce(Column.__or__, is_null.values()))
    samples = sample_keys(bad, table.key)
    column = next(name for name, null in is_null.items() if bad.where(null).limit(1).collect())
    return NullKeyError(
        table.name,
        f"key column {column!r} is NULL in {num_rows:,} rows of the source, such as {_shown(samples)}.",
        column=column,
        samples=samples,
    )


def _check_duplicates(staged: DataFrame, table: RefreshableTable) -> None:
    """Look for a key that is there twice, by a 64-bit hash of it first: far fewer bytes are shuffled and compared."""
    hashed = (
        staged.groupBy(F.xxhash64(*_columns(table.key)).alias("h")).count().where("count > 1").select("h").limit(1000)
    )
    suspects = [row.h for row in hashed.collect()]
    if not suspects:
        return
    twice = (
        staged.where(F.xxhash64(*_columns(table.key)).isin(suspects))
        .groupBy(*_columns(table.key))
        .count()
        .where("count > 1")
    )
    if not (samples := sample_keys(twice, table.key)):
        if len(suspects) < 1000:
            return  # different keys with one hash
        twice = staged.groupBy(*_columns(table.key)).count().where("count > 1")
        if not (samples := sample_keys(twice, table.key)):
            return
    raise DuplicateKeyError(
        table.name,
        f"key ({', '.join(table.key)}) is not unique in the source; more than one row has {_shown(samples)}.",
        samples=samples,
    )


def _columns(names: Sequence[str]) -> list[Column]:
    return [F.col(quoted(name)) for name in names]


def _shown(samples: Sequence[str]) -> str:
    return ", ".join(samples)
