"""Conditions on partitions, by name, with typed literals so that files can be skipped."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from airflow_mv_provider.core.identifier import literal, quoted
from airflow_mv_provider.core.progress import partition_values
from airflow_mv_provider.core.table import RefreshableTable
from airflow_mv_provider.spark.layout import Layout


def is_member(rows: DataFrame, table: RefreshableTable, members: Sequence[str]) -> Column:
    """Return the condition that a row lies in one of `members`, with typed literals so that files can be skipped."""
    types = {f.name: f.dataType for f in rows.schema.fields}

    def equals(column: str, value: str | None) -> Column:
        return F.col(quoted(column)).eqNullSafe(F.lit(value).cast(types[column]))

    if len(table.partition_by) == 1:
        (column,) = table.partition_by
        values = [partition_values(m)[0] for m in members]
        present = [F.lit(v).cast(types[column]) for v in values if v is not None]
        found = F.col(quoted(column)).isin(present) if present else F.lit(False)
        return found | F.col(quoted(column)).isNull() if None in values else found
    each = (
        reduce(
            Column.__and__,
            (equals(c, v) for c, v in zip(table.partition_by, partition_values(m), strict=True)),
        )
        for m in members
    )
    return reduce(Column.__or__, each, F.lit(False))


def is_member_sql(alias: str, layout: Layout, members: Sequence[str]) -> str:
    """Return `is_member` as SQL over the relation `alias`."""
    table = layout.table
    types = {c.name: c.type for c in layout.columns}
    sql_names = {"long": "bigint", "integer": "int", "short": "smallint", "byte": "tinyint"}

    def equals(column: str, value: str | None) -> str:
        if value is None:
            return f"{alias}.{quoted(column)} IS NULL"
        kind = str(types[column])
        return f"{alias}.{quoted(column)} = CAST({literal(value)} AS {sql_names.get(kind, kind)})"

    each = (
        "(" + " AND ".join(equals(c, v) for c, v in zip(table.partition_by, partition_values(m), strict=True)) + ")"
        for m in members
    )
    return f"({' OR '.join(each) or 'false'})"
