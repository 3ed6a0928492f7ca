"""The definition's own projection, on top of whatever a source returns."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame

from airflow_mv_provider.spark.errors import understood


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
