"""Compare the frozen partitions, which no refresh changes, so that a report can name those that differ."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from airflow_mv_provider.spark import partitions
from airflow_mv_provider.spark.compare import hashing
from airflow_mv_provider.spark.compare.digest_algebra import BUCKET, DIFFERS, bucketwise, digested
from airflow_mv_provider.spark.errors import translated
from airflow_mv_provider.spark.layout import Layout

_MAX_SHOWN = 20


def differing(source: DataFrame, main: DataFrame, layout: Layout) -> tuple[str, ...]:
    """Return the first twenty frozen partitions in which the source and main differ.

    source, main : all of their rows
    cost         : a scan of the frozen rows on both sides
    """
    table = layout.table
    with translated(table.name):
        frozen = (layout.shaped(rows.where(partitions.is_frozen(rows, table))) for rows in (source, main))
        mine, theirs = (digested(hashing.aligned(rows, layout), table, 1) for rows in frozen)
        names = partitions.names(table, F.col(BUCKET), 1)
        found = bucketwise(mine, theirs, table).where(DIFFERS).select(*names).distinct()
        first = found.orderBy(*range(1, len(names) + 1)).limit(_MAX_SHOWN).collect()
    return tuple(partitions.name(table, list(row)) for row in first)
