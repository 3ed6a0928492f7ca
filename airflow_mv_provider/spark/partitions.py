"""Conditions on partitions, by name or by scope, with typed literals so that Delta can skip files."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import reduce
from typing import TypeVar

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from airflow_mv_provider.core.definition.identifier import literal, quoted
from airflow_mv_provider.core.definition.table import RefreshableTable
from airflow_mv_provider.core.progress.partition import WHOLE_TABLE, partition_name, partition_values
from airflow_mv_provider.core.scope.scope import Scope, check_order
from airflow_mv_provider.spark import typed_values
from airflow_mv_provider.spark.layout import Layout, sql_type

T = TypeVar("T")
_PLACE = "_mv_place"
MAX_NAMED = 200  # the most partitions that one condition names to skip the files of all others


def in_scope(rows: DataFrame, layout: Layout) -> DataFrame:
    """Return the rows that a refresh compares: those in its scope and in no frozen partition."""
    return rows if layout.is_whole else rows.where(_looked_at(rows, layout))


def is_frozen(rows: DataFrame, table: RefreshableTable) -> Column:
    """Return the condition that a row lies in a partition older than the definition's bound; never NULL."""
    return F.coalesce(_first(rows, table) < _bound(rows, table, table.frozen_before), F.lit(False))


def check_values(spark: SparkSession, layout: Layout) -> None:
    """Check that bounds and partitions are values of their columns, ranges are not empty, and no partition is frozen.

    cost   : one job without rows, if there is a value to check
    raises : ArgumentError, FrozenPartitionError
    """
    table = layout.table
    scopes = [layout.scope, *layout.scope.without]
    found: list[tuple[str, str]] = [
        (table.partition_by[0], value)
        for value in (table.frozen_before, *(bound for scope in scopes for bound in (scope.start, scope.end)))
        if value is not None
    ]
    for name in (name for scope in scopes for name in scope.partitions):
        pairs = zip(table.partition_by, partition_values(name), strict=True)
        found += [(column, value) for column, value in pairs if value is not None]
    if not found:
        return
    texts = typed_values.canonicalize(spark, [(layout.column(column), value) for column, value in found], "scope")
    # Values of the first partition column → Spark's text of them.
    canonical: dict[str | None, str | None] = {
        value: text for (column, value), text in zip(found, texts, strict=True) if column == table.partition_by[0]
    }
    frozen = table.model_copy(update={"frozen_before": canonical.get(table.frozen_before)})
    firsts = (partition_values(name) for name in layout.scope.partitions)
    members = tuple(partition_name([canonical.get(first), *others]) for first, *others in firsts)
    asked = Scope(members, canonical.get(layout.scope.start), canonical.get(layout.scope.end))
    check_order(asked, frozen, layout.column(table.partition_by[0]).shown_type)


def _looked_at(rows: DataFrame, layout: Layout) -> Column:
    found = _covers(rows, layout.table, layout.scope)
    return found if layout.table.frozen_before is None else found & ~is_frozen(rows, layout.table)


def _covers(rows: DataFrame, table: RefreshableTable, scope: Scope) -> Column:
    """Return the condition that a row lies in a scope; it may be NULL for a row that does not.

    The NULL is not coalesced to false, because Delta skips files by plain comparisons only.
    """
    if scope.partitions:
        return is_member(rows, table, scope.partitions)
    covered = F.lit(True)
    if scope.start is not None:
        covered = covered & (_first(rows, table) >= _bound(rows, table, scope.start))
    if scope.end is not None:
        covered = covered & (_first(rows, table) < _bound(rows, table, scope.end))
    for other in scope.without:
        covered = covered & _is_not(_covers(rows, table, other))
    return covered


def _is_not(condition: Column) -> Column:
    """Return the negation of a condition, where NULL counts as false: a row that is not inside is outside."""
    return ~F.coalesce(condition, F.lit(False))


def _first(rows: DataFrame, table: RefreshableTable) -> Column:
    return F.col(quoted(table.partition_by[0]))


def _bound(rows: DataFrame, table: RefreshableTable, value: str | None) -> Column:
    (kind,) = (f.dataType for f in rows.schema.fields if f.name == table.partition_by[0])
    return F.lit(value).cast(kind)


def names(table: RefreshableTable) -> list[Column]:
    """Return the columns that name a row's partition; `name` combines their values."""
    return [F.col(quoted(p)).cast("string").alias(f"_mv_p{n}") for n, p in enumerate(table.partition_by)]


def name(values: Sequence[str | None]) -> str:
    """Return the name of the partition with these values of the columns that `names` returns."""
    return partition_name(values) if values else WHOLE_TABLE


def of_scope(spark: SparkSession, layout: Layout, found: Mapping[str, T]) -> dict[str, T]:
    """Return what there is of the partitions that a refresh compares.

    found : by the names of partitions
    cost  : one job without files
    """
    table, names = layout.table, sorted(found)
    text = json.dumps([partition_values(name) for name in names])
    rows = spark.range(1, numPartitions=1).select(F.posexplode(F.from_json(F.lit(text), "array<array<string>>")))
    values = (
        F.col("col")[place].cast(sql_type(layout.column(column))).alias(column)
        for place, column in enumerate(table.partition_by)
    )
    with_place = rows.select(F.col("pos").alias(_PLACE), *values)
    return {names[row[_PLACE]]: found[names[row[_PLACE]]] for row in in_scope(with_place, layout).collect()}


def is_member(rows: DataFrame, table: RefreshableTable, members: Sequence[str]) -> Column:
    """Return the condition that a row lies in one of `members`, with typed literals so that Delta can skip files."""
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
    return _any(list(each))


def _any(conditions: Sequence[Column]) -> Column:
    """Return that one of many conditions holds, as a flat tree: a chain of some hundred overflows Spark's stack."""
    if len(conditions) <= 1:
        return conditions[0] if conditions else F.lit(False)
    half = len(conditions) // 2
    return _any(conditions[:half]) | _any(conditions[half:])


def is_member_sql(alias: str, layout: Layout, members: Sequence[str]) -> str:
    """Return `is_member` as SQL over the relation `alias`."""
    table = layout.table

    def equals(column: str, value: str | None) -> str:
        if value is None:
            return f"{alias}.{quoted(column)} IS NULL"
        return f"{alias}.{quoted(column)} = CAST({literal(value)} AS {sql_type(layout.column(column))})"

    each = (
        "(" + " AND ".join(equals(c, v) for c, v in zip(table.partition_by, partition_values(m), strict=True)) + ")"
        for m in members
    )
    return f"({' OR '.join(each) or 'false'})"
