"""A SQL query as the definition's source."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Literal

from pydantic import Field, field_validator

from airflow_mv_provider.core.definition.identifier import RESERVED_PREFIX, check_catalog_name
from airflow_mv_provider.core.definition.source import Part, Source

_COMMENT = r"(?>\s+|--[^\n]*\n|/\*.*?\*/)*+"  # possessive: a failed match does not backtrack into it
_BEGINS_QUERY = re.compile(rf"{_COMMENT}(?:\(|(?:select|with|from|values|table)\b)", re.IGNORECASE | re.DOTALL)
_NAME = r"^[A-Za-z_][A-Za-z0-9_]{0,127}$"


class NamedTable(Part):
    """An input by its name in Spark's catalog."""

    table: str = Field(
        description="The table's name in Spark's catalog.",
        examples=["spark_catalog.raw.rates"],
    )

    @field_validator("table")
    @classmethod
    def _is_name(cls, table: str) -> str:
        return check_catalog_name(table)


class Query(Source):
    """A SQL query over Delta tables, each of them pinned by its version."""

    first = "sql"

    type: Literal["query"] = "query"
    sql: str = Field(
        description="One query. It reads its inputs by their names, and nothing else.",
        examples=["SELECT customer_id, sum(total) AS total FROM orders GROUP BY customer_id"],
    )
    inputs: dict[str, str | NamedTable] = Field(
        min_length=1,
        description="Name of each input → path of its Delta table, relative to the warehouse or under an allowed root;"
        " or {table: spark_catalog.schema.table}.",
        json_schema_extra={"propertyNames": {"pattern": _NAME}},
        examples=[{"orders": "shop/orders", "rates": {"table": "spark_catalog.raw.rates"}}],
    )

    @field_validator("sql")
    @classmethod
    def _is_query(cls, sql: str) -> str:
        if not _BEGINS_QUERY.match(sql):
            raise ValueError("expected one query: SELECT, WITH, FROM, VALUES or TABLE")
        if RESERVED_PREFIX in sql.lower():
            raise ValueError(f"the prefix {RESERVED_PREFIX} is reserved")
        return sql

    @field_validator("inputs")
    @classmethod
    def _have_names(cls, inputs: dict[str, str | NamedTable]) -> dict[str, str | NamedTable]:
        for name in inputs:
            if not re.fullmatch(_NAME, name) or name.lower().startswith(RESERVED_PREFIX):
                hint = f"use letters, digits and underscores, without {RESERVED_PREFIX}"
                raise ValueError(f"{name[:60]!r} is not an input's name: {hint}")
        if len({name.lower() for name in inputs}) < len(inputs):
            raise ValueError("an input is named twice")
        return inputs

    @property
    def paths(self) -> tuple[str, ...]:
        """See `Source`."""
        return tuple(each for each in self.inputs.values() if isinstance(each, str))

    @property
    def names(self) -> tuple[str, ...]:
        """See `Source`."""
        return tuple(each.table for each in self.inputs.values() if isinstance(each, NamedTable))

    @property
    def named_paths(self) -> Mapping[str, str]:
        """See `Source`."""
        return {name: each for name, each in self.inputs.items() if isinstance(each, str)}
