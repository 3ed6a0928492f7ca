"""Values that people write as text, as values of a column's type."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import SparkSession

from airflow_mv_provider.core.definition.identifier import literal
from airflow_mv_provider.core.definition.schema import Column
from airflow_mv_provider.exceptions import ArgumentError
from airflow_mv_provider.spark.errors import translated
from airflow_mv_provider.spark.layout import sql_type

# Spark evaluates these words when it plans the query, so they would name another value tomorrow.
_MOVING = frozenset({"epoch", "now", "today", "tomorrow", "yesterday"})
_TIMES = frozenset({"date", "timestamp", "timestamp_ntz"})


def canonicalize(spark: SparkSession, values: Sequence[tuple[Column, str]], where: str) -> list[str]:
    """Return each value as Spark casts it to its column's type, and that to a string.

    where  : begins the error
    cost   : one job without rows
    raises : ArgumentError, if one is not a value of its column
    """
    casts = (f"try_cast({literal(value)} AS {sql_type(column)})" for column, value in values)
    with translated(where):
        row = spark.sql(f"SELECT array({', '.join(f'CAST({cast} AS STRING)' for cast in casts)}) AS texts").collect()[0]
    for (column, value), text in zip(values, row.texts, strict=True):
        kind = column.shown_type
        if text is None or (kind in _TIMES and value.strip().lower() in _MOVING):
            problem = f"{value[:80]!r} is not a value of {column.name!r}, which is a {kind}."
            raise ArgumentError(where, problem, hint=f"Give a value of the type {kind}.")
    return list(row.texts)
