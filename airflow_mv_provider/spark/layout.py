"""The columns of one table, their order, and the rows that a refresh compares."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, StructType

from airflow_mv_provider.core.definition import schema
from airflow_mv_provider.core.definition.identifier import quoted
from airflow_mv_provider.core.definition.table import RefreshableTable
from airflow_mv_provider.core.scope.scope import EVERYTHING, Scope


@dataclass(frozen=True, slots=True)
class Layout:
    """The definition of one table, with main's columns in main's order.

    columns      : the columns that are compared and written, with the types that main will have
    scope        : the partitions that are compared; frozen partitions never are
    main_columns : main's columns as they are now; None when nothing is written
    """

    table: RefreshableTable
    columns: tuple[schema.Column, ...]
    scope: Scope = EVERYTHING
    main_columns: tuple[schema.Column, ...] | None = None

    @property
    def is_evolving(self) -> bool:
        """True if the refresh adds a column to main or widens a type."""
        return bool(self.added or self.widened)

    @property
    def changes_main(self) -> bool:
        """True if the refresh changes main's schema: it adds, widens or drops a column."""
        return self.is_evolving or bool(self.dropped)

    @property
    def added(self) -> tuple[schema.Column, ...]:
        """The columns that the refresh adds to main."""
        have = {c.name for c in self.main_columns or self.columns}
        return tuple(c for c in self.columns if c.name not in have)

    @property
    def widened(self) -> tuple[schema.Column, ...]:
        """The columns whose type the refresh widens in main."""
        types = {c.name: c.type for c in self.main_columns or self.columns}
        return tuple(c for c in self.columns if types.get(c.name, c.type) != c.type)

    @property
    def dropped(self) -> tuple[str, ...]:
        """The columns that the refresh drops from main."""
        return self._others if self.table.on_lost_column == "drop" else ()

    @property
    def left_alone(self) -> tuple[str, ...]:
        """Main's columns that are neither compared nor written; an overwrite of main would lose their values."""
        return () if self.table.on_lost_column == "drop" else self._others

    @property
    def _others(self) -> tuple[str, ...]:
        names = set(self.names)
        return tuple(c.name for c in self.main_columns or () if c.name not in names)

    def in_main(self, alias: str) -> Callable[[schema.Column], str]:
        """Return a function from a column to the SQL of its value in main; NULL for a column that main lacks so far."""
        added, widened = ({column.name for column in each} for each in (self.added, self.widened))

        def value(column: schema.Column) -> str:
            if column.name in added:
                return f"CAST(NULL AS {sql_type(column)})"
            found = f"{quoted(alias)}.{quoted(column.name)}"
            return f"CAST({found} AS {sql_type(column)})" if column.name in widened else found

        return value

    @property
    def is_whole(self) -> bool:
        """True if the refresh compares every row of main."""
        return self.scope.is_everything and self.table.frozen_before is None

    @property
    def partition_type(self) -> str | None:
        """The type of the first partition column; None for a table without partition columns."""
        return self.column(self.table.partition_by[0]).shown_type if self.table.partition_by else None

    @property
    def names(self) -> list[str]:
        return [c.name for c in self.columns]

    def shaped(self, rows: DataFrame, *more: str) -> DataFrame:
        """Return rows of either side with exactly `columns`: others dropped, missing ones NULL, types widened.

        more : internal columns that are kept as well
        """
        have = {c.name: c.type for c in schema.columns_of(rows.schema.jsonValue()) if c.name not in more}
        if have == {c.name: c.type for c in self.columns}:
            return rows
        types = {f.name: sql_of(f.dataType) for f in struct_type(self.columns).fields}
        return rows.select(
            *(
                (F.col(quoted(name)) if name in have else F.lit(None)).cast(types[name]).alias(name)
                for name in self.names
            ),
            *more,
        )

    def column(self, name: str) -> schema.Column:
        """Return one of main's columns."""
        return next(c for c in self.columns if c.name == name)


def columns(names: Sequence[str]) -> list[Column]:
    """Return the columns with these names."""
    return [F.col(quoted(name)) for name in names]


def same_values(left: str, right: str, names: Sequence[str]) -> list[Column]:
    """Return the conditions that rows of two aliases have the same values in these columns, NULL among them."""
    return [F.col(f"{left}.{quoted(name)}").eqNullSafe(F.col(f"{right}.{quoted(name)}")) for name in names]


def any_null(names: Sequence[str]) -> Column:
    """Return the condition that one of these columns is NULL."""
    return reduce(Column.__or__, (column.isNull() for column in columns(names)), F.lit(False))


def struct_type(columns: Sequence[schema.Column]) -> StructType:
    """Return Spark's type of rows with these columns."""
    kind = _nullable({"type": "struct", "fields": [{"name": c.name, "type": c.type} for c in columns]})
    return StructType.fromJson(kind)


def sql_type(column: schema.Column) -> str:
    """Return a column's type as SQL text."""
    return sql_of(struct_type([column]).fields[0].dataType)


def sql_of(kind: DataType) -> str:
    """Return a type as SQL text with its field names quoted, which Spark's own `simpleString` does not do.

    Cast to this, never to the type: a Connect client sends a string's collation with it, and main would get the type
    `string collate UTF8_BINARY`, which few readers know.
    """
    if isinstance(kind, StructType):
        return f"struct<{', '.join(f'{quoted(field.name)}: {sql_of(field.dataType)}' for field in kind.fields)}>"
    return f"array<{sql_of(kind.elementType)}>" if isinstance(kind, ArrayType) else kind.simpleString()


def _nullable(kind: Any) -> Any:
    """Return a type in Spark's JSON form, nullable at every level: a file guarantees no more to its reader."""
    if isinstance(kind, str):
        return kind
    if kind["type"] == "struct":
        fields = [{**f, "type": _nullable(f["type"]), "nullable": True, "metadata": {}} for f in kind["fields"]]
        return {"type": "struct", "fields": fields}
    return {"type": "array", "elementType": _nullable(kind["elementType"]), "containsNull": True}
