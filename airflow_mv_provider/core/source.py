"""What a table is kept equal to: one model per kind of source, each with the definition's own projection."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

_CSV_OPTIONS = frozenset(
    {
        *("header", "sep", "delimiter", "quote", "escape", "comment", "nullValue", "nanValue", "positiveInf"),
        *(
            "negativeInf",
            "emptyValue",
            "encoding",
            "charset",
            "dateFormat",
            "timestampFormat",
            "timestampNTZFormat",
        ),
        *("ignoreLeadingWhiteSpace", "ignoreTrailingWhiteSpace", "multiLine", "lineSep", "maxCharsPerColumn"),
        *("maxColumns", "locale"),
    }
)
# Spark re-evaluates these each time the source is read, so neither the pin nor an unchanged token says anything.
_NON_DETERMINISTIC = re.compile(
    r"\b(rand|randn|random|randstr|uuid|uuid4|shuffle|now|curdate|current_date|current_timestamp|current_time"
    r"|localtimestamp|unix_timestamp(?=\s*\(\s*\))|monotonically_increasing_id|spark_partition_id|current_user|user"
    r"|session_user|input_file_name|input_file_block_start|input_file_block_length"
    r"|uniform|reflect|try_reflect|java_method"
    r"|select)\b",  # a subquery reads something that is not pinned
    re.IGNORECASE,
)


class Part(BaseModel):
    """A part of a definition: a key that it does not know is an error, and nothing in it changes."""

    model_config = ConfigDict(extra="forbid", frozen=True)


def _says_its_type(schema: dict[str, Any]) -> None:
    """Require `type` of a source in a document, though Python's classes set it: it decides what the rest means."""
    schema["required"] = [*schema["required"], "type"]


def _says_its_type_and_schema(schema: dict[str, Any]) -> None:
    _says_its_type(schema)
    of_csv = {"properties": {"format": {"const": "csv"}}}
    says_it = {"required": ["schema"], "properties": {"schema": {"type": "string", "minLength": 1}}}
    schema["if"], schema["then"] = of_csv, says_it
    schema["else"] = {"properties": {"options": {"maxProperties": 0}}}


class _Source(Part):
    path: str = Field(description="Relative to the warehouse, or absolute under an allowed root.")
    select: tuple[str, ...] | None = Field(
        default=None,
        description="The projection: one SQL expression per column. Trusted, as all of a definition is.",
    )

    def __init__(self, path: str | None = None, /, **data: Any) -> None:
        super().__init__(**(data if path is None else {"path": path, **data}))

    @property
    def is_deterministic(self) -> bool:
        """False if the projection names a function whose value changes between two reads of the same rows."""
        return not any(_NON_DETERMINISTIC.search(expression) for expression in self.select or ())


class DeltaSource(_Source):
    """A Delta table, pinned by its version."""

    model_config = ConfigDict(json_schema_extra=_says_its_type)

    type: Literal["delta"] = "delta"


class Files(_Source):
    """Files under one path or glob, pinned by a listing with sizes and times."""

    model_config = ConfigDict(json_schema_extra=_says_its_type_and_schema)

    type: Literal["files"] = "files"
    format: Literal["csv", "parquet"]
    schema_: str | None = Field(default=None, alias="schema", description="Spark DDL. Required for csv.")
    options: dict[str, str] = Field(
        default_factory=dict,
        description="Spark's reader options; csv only.",
        json_schema_extra={"propertyNames": {"enum": [*sorted(_CSV_OPTIONS)]}},
    )

    @field_validator("options")
    @classmethod
    def _known_options(cls, options: dict[str, str]) -> dict[str, str]:
        unknown = sorted(name for name in options if name not in _CSV_OPTIONS)
        if unknown:
            raise ValueError(f"unknown or forbidden options: {', '.join(unknown)}")
        return options

    @model_validator(mode="after")
    def _csv_says_its_schema(self) -> Self:
        if self.format == "csv" and not self.schema_:
            raise ValueError("a csv source needs a schema: guessed types change with the data")
        if self.format == "parquet" and self.options:
            raise ValueError("a parquet source takes no options")
        return self


Source = Annotated[DeltaSource | Files, Field(discriminator="type")]
