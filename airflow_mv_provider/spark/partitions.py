"""Conditions on partitions, by name or by scope, with typed literals so that Delta can skip files."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from airflow_mv_provider.core.definition.identifier import literal, quoted
from airflow_mv_provider.core.definition.table import RefreshableTable
from airflow_mv_provider.core.progress.chunk import Slice
from airflow_mv_provider.core.progress.partition import (
    WHOLE_TABLE,
    hash_partition_index,
    hash_partition_name,
    partition_name,
    partition_values,
)
from airflow_mv_provider.core.scope.scope import Scope, check_order
from airflow_mv_provider.spark import typed_values
from airflow_mv_provider.spark.layout import Layout, sql_type

MAX_NAMED = 200  # the most partitions that one condition names to skip the files of all others


def in_scope(rows: DataFrame, layout: Layout) -> DataFrame:
    """Return the rows that a refresh compares: those in its scope and in no frozen partition."""
    return rows if layout.is_whole else rows.where(_looked_at(rows, layout))


def out_of_scope(rows: DataFrame, layout: Layout) -> DataFrame:
    """Return the rows that a refresh does not compare."""
    return rows.where(F.lit(False)) if layout.is_whole else rows.where(_is_not(_looked_at(rows, layout)))


def is_frozen(rows: DataFrame, table: RefreshableTable) -> Column:
    """Return the condition that a row lies in a partition older than the definition's bound; never NULL."""
    return F.coalesce(_first(rows, table) < _bound(rows, table, table.frozen_before), F.lit(False))


def check_values(spark: SparkSession, layout: Layout) -> None:
    """Check that bounds and partitions are values of their columns, ranges are not empty, and no partition is frozen.

    cost   : one job without rows, if there is a value to check
    raises : DefinitionError, FrozenPartitionError
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
    texts = typed_values.spelled(spark, [(layout.column(column), value) for column, value in found], "scope")
    # Values of the first partition column → Spark's text of them.
    spelled: dict[str | None, str | None] = {
        value: text for (column, value), text in zip(found, texts, strict=True) if column == table.partition_by[0]
    }
    frozen = table.model_copy(update={"frozen_before": spelled.get(table.frozen_before)})
    firsts = (partition_values(name) for name in layout.scope.partitions)
    members = tuple(partition_name([spelled.get(first), *others]) for first, *others in firsts)
    asked = Scope(members, spelled.get(layout.scope.start), spelled.get(layout.scope.end))
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


def names(table: RefreshableTable, bucket: Column, num_buckets: int) -> list[Column]:
    """Return the columns that name a row's partition; `name` combines their values.

    bucket : the bucket of the row's key; used for hash partitions only
    """
    if table.hash_partitions is not None:
        return [_run_of(bucket, table.hash_partitions, num_buckets).cast("string").alias("_mv_p0")]
    return [F.col(quoted(p)).cast("string").alias(f"_mv_p{n}") for n, p in enumerate(table.partition_by)]


def name(table: RefreshableTable, values: Sequence[str | None]) -> str:
    """Return the name of the partition with these values of the columns that `names` returns."""
    if table.hash_partitions is not None:
        return hash_partition_name(int(values[0] or 0))
    return partition_name(values) if values else WHOLE_TABLE


def is_in(rows: DataFrame, table: RefreshableTable, members: Sequence[str], bucket: Column, num_buckets: int) -> Column:
    """Return the condition that a row lies in one of `members`, natural partitions or hash partitions."""
    if table.hash_partitions is None:
        return is_member(rows, table, members)
    return _run_of(bucket, table.hash_partitions, num_buckets).isin([hash_partition_index(m) for m in members])


def is_in_slice(bucket: Column, part: Slice, num_buckets: int) -> Column:
    """Return the condition that a row lies in one slice of its partition."""
    return _run_of(bucket, part.count, num_buckets) == part.index


def _run_of(bucket: Column, num_runs: int, num_buckets: int) -> Column:
    """Return which of `num_runs` equal runs of buckets a bucket lies in."""
    return F.floor(bucket.cast("bigint") * F.lit(num_runs) / F.lit(num_buckets)).cast("int")


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
    return reduce(Column.__or__, each, F.lit(False))


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
