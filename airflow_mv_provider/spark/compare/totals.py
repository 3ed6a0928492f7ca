"""The totals of rows (`core.progress.totals`): of those that pass, by partition, and of what corrections add."""

from __future__ import annotations

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, Observation
from pyspark.sql import functions as F

from airflow_mv_provider.core.definition.table import RefreshableTable
from airflow_mv_provider.core.progress.totals import Totals
from airflow_mv_provider.spark import partitions
from airflow_mv_provider.spark.compare.corrections import NEW_HASH, OLD_HASH, OP
from airflow_mv_provider.spark.compare.hashing import HASH, mixed
from airflow_mv_provider.spark.errors import translated
from airflow_mv_provider.spark.layout import any_null

_ROWS, _DIGEST, _MIXED, _NULL_KEYS = "num_rows", "digest", "mixed", "null_keys"


def measure() -> tuple[Column, Column, Column]:
    """Return the aggregates of hashed rows (`_mv_hash`) that make their totals."""
    zero = F.lit(0)
    return (
        F.count(F.lit(1)).alias(_ROWS),
        F.coalesce(F.bit_xor(HASH), zero).alias(_DIGEST),
        F.coalesce(F.sum(mixed(F.col(HASH))), zero).alias(_MIXED),
    )


def null_keys(table: RefreshableTable) -> Column:
    """Return the aggregate of rows that counts those with a NULL key."""
    return F.count_if(any_null(table.key)).alias(_NULL_KEYS)


def observed(seen: Observation) -> tuple[Totals, int]:
    """Return the totals of rows that were observed by `measure`, after the job, and the number of their NULL keys."""
    try:
        found = seen.get
        return Totals(found[_ROWS], found[_DIGEST], found[_MIXED]), found.get(_NULL_KEYS, 0)
    except (Py4JError, PySparkException, KeyError):
        return Totals(), 0  # Spark found the input empty and optimised the observation away


def by_partition(rows: DataFrame, table: RefreshableTable) -> tuple[dict[str, Totals], int]:
    """Return the totals of each partition, and the number of NULL keys.

    rows    : (*group_by, _mv_hash bigint)
    returns : a table without partition columns is one partition, also if it is empty
    cost    : one scan
    """
    names = partitions.names(table)
    with translated(table.name):
        found = rows.groupBy(*names).agg(*measure(), null_keys(table)).collect()
    parts = {partitions.name(row[: len(names)]): Totals(*row[len(names) : -1]) for row in found}
    return dict(sorted(parts.items())), sum(row[-1] for row in found)


def added() -> tuple[Column, Column, Column]:
    """Return the aggregates of corrections that make what I, U and D add to the totals of main's rows."""
    old, new, zero, op = F.col(OLD_HASH), F.col(NEW_HASH), F.lit(0).cast("bigint"), F.col(OP)
    gained, lost = (F.when(each.isNotNull(), mixed(each)).otherwise(zero) for each in (new, old))
    return (
        F.sum(F.when(op == "I", 1).when(op == "D", -1).otherwise(0)).alias(_ROWS),
        F.bit_xor(F.coalesce(old, zero).bitwiseXOR(F.coalesce(new, zero))).alias(_DIGEST),
        F.sum(gained - lost).alias(_MIXED),
    )
