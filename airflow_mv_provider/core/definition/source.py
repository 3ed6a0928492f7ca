"""The source that a table is kept equal to: one model per kind of source, each with the definition's own projection."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator
from pydantic.config import JsonDict, JsonValue

from airflow_mv_provider.core.definition.identifier import RESERVED_PREFIX, check_column_name
from airflow_mv_provider.core.definition.problems import kind_of, nearest

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
_COMMENT = r"(?>\s+|--[^\n]*\n|/\*.*?\*/)*+"  # possessive: a failed match does not backtrack into it
_BEGINS_QUERY = re.compile(rf"{_COMMENT}(?:\(|(?:select|with|from|values|table)\b)", re.IGNORECASE | re.DOTALL)
# Spark parses these types but cannot read a file with them, and its error does not name the column.
_NO_COLUMN_TYPE = re.compile(
    r"[\s:<](char(?:acter)?\s*\(|varchar\s*\(|time(?=\s*(?:$|[(,>]|not\b|comment\b|default\b))|string\s+collate\b)",
    re.IGNORECASE,
)
_NAME = r"^[A-Za-z_][A-Za-z0-9_]{0,127}$"
_CALLABLE = r"^[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*:[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*$"


def _option(name: object, value: object) -> object:
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
        raise ValueError(f"{name}: expected a text, found {kind_of(value)}: put it in quotes")
    if name in CHARACTERS and len(value.encode("utf-16-le", "surrogatepass")) > 2:  # as Spark counts
        raise ValueError(f"{name}: expected one character, found {value[:60]!r}")
    if name in NOT_EMPTY and not value:
        raise ValueError(f"{name}: expected a text that is not empty")
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


class Part(BaseModel):
    """A part of a definition: an unknown key is an error, and its values are immutable."""

    model_config = ConfigDict(extra="forbid", frozen=True)


def _says_its_type(schema: dict[str, Any]) -> None:
    """Require `type` of a source in a document, although Python's classes set it: it decides what other keys mean."""
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
    first: ClassVar[str]  # the field that Python's callers pass as the positional argument

    select: tuple[str, ...] | None = Field(
        default=None,
        description="The projection: one SQL expression per column. Trusted, as all of a definition is.",
    )
    watermark: str | None = Field(
        default=None,
        description="A column, after the projection, that grows with every change: the author's word that whatever row"
        " is new or changed since the last refresh has there at least the greatest value that main has, or NULL.",
    )

    def __init__(self, first: str | None = None, /, **data: Any) -> None:
        super().__init__(**(data if first is None else {self.first: first, **data}))

    @field_validator("watermark")
    @classmethod
    def _is_column(cls, column: str | None) -> str | None:
        return None if column is None else check_column_name(column)


class _PathSource(_Source):
    first = "path"

    path: str = Field(description="Relative to the warehouse, or absolute under an allowed root.")

    @property
    def paths(self) -> tuple[str, ...]:
        """The paths that it reads, as written in the definition."""
        return (self.path,)


class DeltaSource(_PathSource):
    """A Delta table, pinned by its version."""

    model_config = ConfigDict(json_schema_extra=_says_its_type)

    type: Literal["delta"] = "delta"


class Files(_PathSource):
    """Files under one path or glob, pinned by a listing with sizes and times."""

    model_config = ConfigDict(json_schema_extra=_says_what_its_format_takes)

    type: Literal["files"] = "files"
    format: Literal["csv", "json", "orc", "parquet"]
    schema_: str | None = Field(
        default=None,
        alias="schema",
        description="Spark DDL that names every column there is. Required, except for parquet.",
    )
    options: dict[str, str] = Field(
        default_factory=dict,
        description="Spark's reader options; csv and json only.",
        json_schema_extra={"properties": _OPTION_VALUES},
    )
    fingerprint: Literal["mtime", "checksum"] = Field(
        default="mtime",
        description="What tells a file that was replaced: its size and time, or its bytes too, which are read for it.",
    )

    @field_validator("schema_")
    @classmethod
    def _has_types_of_columns(cls, ddl: str | None) -> str | None:
        for column in _columns_in(ddl or ""):
            if found := _NO_COLUMN_TYPE.search(column):
                problem = (
                    f"no file is read with the type {found.group(1).upper().rstrip(' (')} (in {column.strip()[:60]!r})"
                )
                raise ValueError(f"{problem}: declare a STRING, and cast it in select")
        return ddl

    @field_validator("options", mode="before")
    @classmethod
    def _are_texts(cls, options: object) -> object:
        """Take true, false and numbers for options of that type; for any other option YAML has misread a text."""
        if not isinstance(options, dict):
            return options
        return {name: _option(name, value) for name, value in options.items()}

    @model_validator(mode="after")
    def _is_told_what_its_format_takes(self) -> Self:
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


class Query(_Source):
    """A SQL query over Delta tables, each of them pinned by its version."""

    model_config = ConfigDict(json_schema_extra=_says_its_type)
    first = "sql"

    type: Literal["query"] = "query"
    sql: str = Field(description="One query. It reads its inputs by their names, and nothing else.")
    inputs: dict[str, str] = Field(
        min_length=1,
        description="Name of each input → path of its Delta table, relative to the warehouse or under an allowed root.",
        json_schema_extra={"propertyNames": {"pattern": _NAME}},
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
    def _have_names(cls, inputs: dict[str, str]) -> dict[str, str]:
        for name in inputs:
            if not re.fullmatch(_NAME, name) or name.lower().startswith(RESERVED_PREFIX):
                raise ValueError(
                    f"{name[:60]!r} is no name of an input: letters, digits and underscores, not {RESERVED_PREFIX}"
                )
        if len({name.lower() for name in inputs}) < len(inputs):
            raise ValueError("an input is named twice")
        return inputs

    @property
    def paths(self) -> tuple[str, ...]:
        """The paths that it reads, as written in the definition."""
        return tuple(self.inputs.values())


class Function(_Source):
    """A Python function that takes the Spark session and returns a DataFrame."""

    model_config = ConfigDict(json_schema_extra=_says_its_type)
    first = "callable"

    type: Literal["function"] = "function"
    callable: str = Field(
        description="`module:function`, importable where the refresh runs.", json_schema_extra={"pattern": _CALLABLE}
    )

    @field_validator("callable")
    @classmethod
    def _is_named(cls, name: str) -> str:
        if not re.fullmatch(_CALLABLE, name):
            raise ValueError(f"{name[:60]!r} is not of the form module:function")
        return name

    @field_validator("watermark")
    @classmethod
    def _is_read_whole(cls, column: str | None) -> None:
        if column is not None:
            raise ValueError("a function takes no watermark: nothing pins what it reads")

    @property
    def paths(self) -> tuple[str, ...]:
        """Empty: a definition does not name what a function reads."""
        return ()


Source = Annotated[DeltaSource | Files | Query | Function, Field(discriminator="type")]
