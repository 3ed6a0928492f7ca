"""The hash of a row, by which rows are compared.

A row is compared by one 64-bit hash over all its columns. Spark's xxhash64 skips NULLs and ignores where an array ends.
Therefore `row_hash` adds a marker before every value that may be NULL and the length of every array. Equal hash input
then means equal rows; only hash collisions remain (2⁻⁶⁴ for a changed row). NaN equals NaN, and -0.0 equals 0.0, as in
SQL.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from airflow_mv_provider.core.definition import schema
from airflow_mv_provider.core.definition.identifier import quoted
from airflow_mv_provider.spark.layout import Layout, columns

HASH = "_mv_hash"
HASHED = schema.Column(HASH, "long")


def row_hash(columns: Sequence[schema.Column], value: Callable[[schema.Column], str] | None = None) -> str:
    """Return the SQL of a row's hash, a BIGINT that is never NULL.

    columns : all columns of main, in main's order; both sides must be hashed with the same list
    value   : returns the SQL of a column's value; None if that is the quoted name
    """
    parts = [part for c in columns for part in _marked(value(c) if value else quoted(c.name), c.type, 0)]
    return f"xxhash64({', '.join(parts)})"


def aligned(source: DataFrame, layout: Layout, *more: str) -> DataFrame:
    """Return the source's rows with main's columns in main's order, and the row hash.

    more    : internal columns that are kept as well
    returns : (*columns, _mv_hash bigint, *more)
    """
    return source.select(
        *columns(layout.names),
        F.expr(row_hash(layout.columns)).alias(HASH),
        *more,
    )


def mixed(hashed: Column) -> Column:
    """Return a row's summand of the `mixed` sum: 32 bits, so that four billion of them do not overflow."""
    return F.shiftright(F.xxhash64(hashed), 32)


def _marked(sql: str, kind: schema.Type, depth: int) -> list[str]:
    """Return the arguments of xxhash64 that distinguish a value from every other value of its type."""
    if isinstance(kind, str):
        return [f"isnull({sql})", sql]
    if kind["type"] == "struct":
        fields = [p for f in kind["fields"] for p in _marked(f"{sql}.{quoted(f['name'])}", f["type"], depth)]
        return [f"isnull({sql})", *fields]
    element = f"e{depth}"
    parts = ", ".join(_marked(element, kind["elementType"], depth + 1))
    return [f"isnull({sql})", f"size({sql})", f"transform({sql}, {element} -> struct({parts}))"]
