"""The definition's own projection, on top of whatever a source returns."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame, SparkSession

from airflow_mv_provider.core.query_plan import is_row_by_row
from airflow_mv_provider.spark.errors import understood

MORE_THAN_ROWS = "the projection does more than one row at a time"


def projected_with(rows: DataFrame, select: Sequence[str] | None, column: str) -> DataFrame:
    """As `projected`, with one more column of `rows` kept."""
    found = projected(rows, select)
    return found if column in found.columns else projected(rows, (*(select or ()), column))


def projected(rows: DataFrame, select: Sequence[str] | None) -> DataFrame:
    """Return `rows` after the projection `select`, if there is one; lazy.

    raises : DefinitionError, when Spark does not understand it
    """
    with understood("select"):
        return rows.selectExpr(*select) if select else rows


def takes_single_rows(spark: SparkSession, select: Sequence[str] | None, relation: str) -> bool:
    """True if every row of `relation` (SQL) gives one row, whatever the others are, as Spark's plan says."""
    if not select:
        return True
    with understood("select"):
        wanted = ", ".join(select)
        sql = f"EXPLAIN EXTENDED SELECT {wanted} FROM {relation}"  # nosec B608  # the author's projection, which is trusted
        return is_row_by_row(spark.sql(sql).collect()[0][0])
