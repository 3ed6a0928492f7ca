"""A Delta table as the definition's source."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, Self

from pydantic import ConfigDict, Field, field_validator, model_validator

from airflow_mv_provider.core.definition.identifier import check_catalog_name
from airflow_mv_provider.core.definition.source import Source, requires_type


def _one_of_both(schema: dict[str, Any]) -> None:
    requires_type(schema)
    schema["oneOf"] = [{"required": ["path"]}, {"required": ["table"]}]
    for name in ("path", "table"):
        schema["properties"][name] = {"type": "string"} | {
            key: value
            for key, value in schema["properties"][name].items()
            if key in ("title", "description", "examples")
        }


class DeltaSource(Source):
    """A Delta table, by its path or by its name in Spark's catalog, pinned by its version."""

    model_config = ConfigDict(json_schema_extra=_one_of_both)

    first = "path"
    omitted = frozenset({"path", "table"})

    type: Literal["delta"] = "delta"
    path: str | None = Field(
        default=None,
        description="Relative to the warehouse, or absolute under an allowed root.",
        examples=["raw/customers"],
    )
    table: str | None = Field(
        default=None,
        description="Instead of a path, the table's name in Spark's catalog: spark_catalog.schema.table.",
        examples=["spark_catalog.raw.customers"],
    )

    @field_validator("table")
    @classmethod
    def _is_name(cls, table: str | None) -> str | None:
        return None if table is None else check_catalog_name(table)

    @model_validator(mode="after")
    def _is_one_of_both(self) -> Self:
        if (self.path is None) == (self.table is None):
            raise ValueError("give either path or table")
        return self

    @property
    def paths(self) -> tuple[str, ...]:
        """See `Source`."""
        return () if self.path is None else (self.path,)

    @property
    def named_paths(self) -> Mapping[str, str]:
        """See `Source`."""
        return {} if self.path is None else {"": self.path}

    @property
    def names(self) -> tuple[str, ...]:
        """See `Source`."""
        return () if self.table is None else (self.table,)

    @property
    def reads(self) -> str:
        """See `Source`."""
        return str(self.path or self.table)
