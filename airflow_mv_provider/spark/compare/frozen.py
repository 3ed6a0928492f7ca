"""Compare the frozen partitions, which no refresh changes, so that a report can name those that differ."""

from __future__ import annotations

from pyspark.sql import DataFrame

from airflow_mv_provider.spark import partitions
from airflow_mv_provider.spark.compare import hashing, totals
from airflow_mv_provider.spark.layout import Layout

_MAX_SHOWN = 20


def differing(source: DataFrame, main: DataFrame, layout: Layout) -> tuple[str, ...]:
    """Return the first twenty frozen partitions in which the source and main differ.

    source, main : all of their rows
    cost         : a scan of the frozen rows on both sides
    """
    frozen = (layout.shaped(rows.where(partitions.is_frozen(rows, layout.table))) for rows in (source, main))
    mine, theirs = (totals.by_partition(hashing.aligned(rows, layout), layout.table)[0] for rows in frozen)
    names = sorted({*mine, *theirs})
    return tuple(name for name in names if mine.get(name) != theirs.get(name))[:_MAX_SHOWN]
