"""What a table is kept equal to: one model per kind of source, each with the definition's own projection."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

# What Spark's readers may be told. None of these can make a bad record pass, or read another file.
OPTIONS: Mapping[str, frozenset[str]] = {
    "csv": frozenset(
        {
            *("header", "sep", "delimiter", "quote", "escape", "comment", "nullValue", "nanValue", "positiveInf"),
            *("negativeInf", "emptyValue", "encoding", "charset", "dateFormat", "timestampFormat"),
            *("timestampNTZFormat", "ignoreLeadingWhiteSpace", "ignoreTrailingWhiteSpace", "multiLine", "lineSep"),
            *("maxCharsPerColumn", "maxColumns", "locale"),
        }
    ),
    "json": frozenset(
        {
            *("multiLine", "lineSep", "encoding", "charset", "dateFormat", "timestampFormat", "timestampNTZFormat"),
            *("locale", "allowComments", "allowUnquotedFieldNames", "allowSingleQuotes", "allowNumericLeadingZeros"),
            *("allowBackslashEscapingAnyCharacter", "allowUnquotedControlChars", "allowNonNumericNumbers"),
        }
    ),
    "orc": frozenset(),
    "parquet": frozenset(),
}
_NEEDS_SCHEMA = ("csv", "json", "orc")
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


def _says_what_its_format_takes(schema: dict[str, Any]) -> None:
    _says_its_type(schema)
    schema["allOf"] = [
        {"if": {"properties": {"format": {"const": name}}}, "then": _of_format(name, options)}
        for name, options in OPTIONS.items()
    ]


def _of_format(name: str, options: frozenset[str]) -> dict[str, Any]:
    taken = {"propertyNames": {"enum": sorted(options)}} if options else {"maxProperties": 0}
    if name not in _NEEDS_SCHEMA:
        return {"properties": {"options": taken}}
    return {"required": ["schema"], "properties": {"options": taken, "schema": {"type": "string", "minLength": 1}}}


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

    model_config = ConfigDict(json_schema_extra=_says_what_its_format_takes)

    type: Literal["files"] = "files"
    format: Literal["csv", "json", "orc", "parquet"]
    schema_: str | None = Field(
        default=None,
        alias="schema",
        description="Spark DDL that names every column there is. Required, except for parquet.",
    )
    options: dict[str, str] = Field(default_factory=dict, description="Spark's reader options; csv and json only.")

    @model_validator(mode="after")
    def _is_told_what_its_format_takes(self) -> Self:
        article = "an" if self.format == "orc" else "a"
        if self.format in _NEEDS_SCHEMA and not self.schema_:
            raise ValueError(f"{article} {self.format} source needs a schema: guessed types change with the data")
        known = OPTIONS[self.format]
        if self.options and not known:
            raise ValueError(f"{article} {self.format} source takes no options")
        if unknown := sorted(name for name in self.options if name not in known):
            raise ValueError(f"unknown or forbidden options: {', '.join(unknown)}")
        return self


Source = Annotated[DeltaSource | Files, Field(discriminator="type")]
