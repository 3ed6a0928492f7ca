"""Files as the definition's source, with the allowed options of Spark's readers."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Literal, Self

from pydantic import ConfigDict, Field, field_validator, model_validator
from pydantic.config import JsonDict, JsonValue

from airflow_mv_provider.core.definition.problems import kind_of, nearest
from airflow_mv_provider.core.definition.source import PathSource, requires_type

# The allowed options of Spark's readers. None of them can let a bad record pass, or read another file.
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
FLAGS = frozenset(
    {
        *("header", "multiLine", "ignoreLeadingWhiteSpace", "ignoreTrailingWhiteSpace", "allowComments"),
        *("allowUnquotedFieldNames", "allowSingleQuotes", "allowNumericLeadingZeros", "allowUnquotedControlChars"),
        *("allowBackslashEscapingAnyCharacter", "allowNonNumericNumbers"),
    }
)
NUMBERS = frozenset({"maxCharsPerColumn", "maxColumns"})
_UNLIMITED = frozenset({"maxCharsPerColumn"})  # may be -1, which stands for no limit and is Spark's default
CHARACTERS = frozenset({"quote", "escape", "comment"})  # each takes at most one character
NOT_EMPTY = frozenset({"sep", "delimiter", "lineSep", "encoding", "charset"})
_FLAG: JsonDict = {"anyOf": [{"type": "boolean"}, {"enum": ["true", "false"]}]}
_POSITIVE = r"0*[1-9][0-9]{0,8}"


def _number_schema(name: str) -> JsonDict:
    positive: JsonDict = {"type": "integer", "minimum": 1, "maximum": 10**9 - 1}
    unlimited: list[JsonValue] = [{"enum": [-1, "-1"]}] if name in _UNLIMITED else []
    return {"anyOf": [positive, {"type": "string", "pattern": f"^{_POSITIVE}$"}, *unlimited]}


_OPTION_VALUES: JsonDict = {
    **dict.fromkeys(sorted(FLAGS), _FLAG),
    **{name: _number_schema(name) for name in sorted(NUMBERS)},
    **{name: {"type": "string", "maxLength": 1} for name in sorted(CHARACTERS)},
    **{name: {"type": "string", "minLength": 1} for name in sorted(NOT_EMPTY)},
}
_NEEDS_SCHEMA = ("csv", "json", "orc")
# Spark parses these types but cannot read a file with them, and its error does not name the column.
_NO_COLUMN_TYPE = re.compile(
    r"[\s:<](char(?:acter)?\s*\(|varchar\s*\(|time(?=\s*(?:$|[(,>]|not\b|comment\b|default\b))|string\s+collate\b)",
    re.IGNORECASE,
)


def option_value(name: object, value: object) -> object:
    if name in FLAGS:
        text = str(value).lower() if isinstance(value, bool) else value
        if text not in ("true", "false"):
            raise ValueError(f"{name}: expected true or false")
        return text
    if name in NUMBERS:
        text = str(value) if type(value) is int and value < 10**9 else value
        is_unlimited = name in _UNLIMITED and text == "-1"
        if not is_unlimited and (not isinstance(text, str) or not re.fullmatch(_POSITIVE, text)):
            or_none = ", or -1 for no limit" if name in _UNLIMITED else ""
            raise ValueError(f"{name}: expected a whole number of at least 1{or_none}, found {str(value)[:60]!r}")
        return text
    if not isinstance(value, str):
        raise ValueError(f"{name}: expected a string, found {kind_of(value)}: put it in quotes")
    if name in CHARACTERS and len(value.encode("utf-16-le", "surrogatepass")) > 2:  # as Spark counts
        raise ValueError(f"{name}: expected one character, found {len(value)}")
    if name in NOT_EMPTY and not value:
        raise ValueError(f"{name}: expected a string that is not empty")
    return value


def _columns_in(ddl: str) -> list[str]:
    """Return the columns of a schema's DDL, split at top-level commas; quoted texts are emptied."""
    columns, depth = [""], 0
    for char in re.sub(r"'[^']*'|\"[^\"]*\"", "''", ddl):
        depth += (char in "<(") - (char in ">)")
        if char == "," and depth <= 0:
            columns.append("")
        else:
            columns[-1] += char
    return columns


def _requires_by_format(schema: dict[str, Any]) -> None:
    requires_type(schema)
    schema["allOf"] = [
        {"if": {"properties": {"format": {"const": name}}}, "then": _of_format(name, options)}
        for name, options in OPTIONS.items()
    ]


def _of_format(name: str, options: frozenset[str]) -> dict[str, Any]:
    taken = {"propertyNames": {"enum": sorted(options)}} if options else {"maxProperties": 0}
    if name not in _NEEDS_SCHEMA:
        return {"properties": {"options": taken}}
    return {"required": ["schema"], "properties": {"options": taken, "schema": {"type": "string", "minLength": 1}}}


class Files(PathSource):
    """Files under one path or glob, pinned by a listing with sizes and times."""

    model_config = ConfigDict(json_schema_extra=_requires_by_format)

    not_content = PathSource.not_content | {"fingerprint"}

    type: Literal["files"] = "files"
    format: Literal["csv", "json", "orc", "parquet"] = Field(description="The format of all files under the path.")
    schema_: str | None = Field(
        default=None,
        alias="schema",
        description="Spark DDL of all columns. Required, except for parquet.",
        examples=["order_id BIGINT, amount DECIMAL(12,2)"],
    )
    options: dict[str, str] = Field(
        default_factory=dict,
        description="Spark's reader options; csv and json only.",
        json_schema_extra={"properties": _OPTION_VALUES},
        examples=[{"sep": ";"}],
    )
    fingerprint: Literal["mtime", "checksum"] = Field(
        default="mtime",
        description="How a replaced file is detected: by size and time, or also by a checksum, which reads its bytes.",
    )

    @property
    def is_text(self) -> bool:
        """See `Source`."""
        return self.format in ("csv", "json")

    @field_validator("schema_")
    @classmethod
    def _has_types_of_columns(cls, ddl: str | None) -> str | None:
        for column in _columns_in(ddl or ""):
            if found := _NO_COLUMN_TYPE.search(column):
                kind, where = found.group(1).upper().rstrip(" ("), column.strip()[:60]
                problem = f"files cannot be read with the type {kind} (in {where!r})"
                raise ValueError(f"{problem}: declare a STRING, and cast it in select")
        return ddl

    @field_validator("options", mode="before")
    @classmethod
    def _are_texts(cls, options: object) -> object:
        """Take true, false and numbers for options of that type; for any other option YAML has misread a text."""
        if not isinstance(options, dict):
            return options
        return {name: option_value(name, value) for name, value in options.items()}

    @model_validator(mode="after")
    def _has_what_its_format_takes(self) -> Self:
        article = "an" if self.format == "orc" else "a"
        if self.format in _NEEDS_SCHEMA and not self.schema_:
            raise ValueError(f"{article} {self.format} source needs a schema: guessed types change with the data")
        known = OPTIONS[self.format]
        if self.options and not known:
            raise ValueError(f"{article} {self.format} source takes no options")
        if unknown := sorted(name for name in self.options if name not in known):
            raise ValueError(f"unknown or forbidden options: {', '.join(unknown)}{nearest(unknown[0], known)}")
        return self

    @property
    def may_have_no_bytes(self) -> bool:
        """True if an empty file is one without rows, not a truncated one: no header is expected, one record a line."""
        is_by_line = self.options.get("multiLine", "").lower() != "true"
        is_headless = self.format == "csv" and self.options.get("header", "").lower() == "false"
        return is_headless or (self.format == "json" and is_by_line)
