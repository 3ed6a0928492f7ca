"""The history of a table's rows, by its definition."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import datetime
from typing import Literal, Self

from pydantic import Field, field_validator, model_validator

from airflow_mv_provider.core.definition import schema
from airflow_mv_provider.core.definition.freshness import Duration
from airflow_mv_provider.core.definition.identifier import check_column_name, check_columns
from airflow_mv_provider.core.definition.source import Part

REFRESH, SOURCE = "refresh", "source"
OPENED, CHANGED, DELETED = "insert", "update", "delete"
_NAMES = ("valid_from", "valid_to", "is_current", "operation", "refresh_id")
_TIMES = ("timestamp", "timestamp_ntz", "date")
_CLOCK_MS = 60_000  # by which the clocks of two machines may differ
_ZONES_MS = 14 * 3600 * 1000 + _CLOCK_MS


class History(Part):
    """Every version of every row is kept in a second table, `<table>__history` (slowly changing dimension, type 2)."""

    time: str = Field(
        default=REFRESH,
        description="From when a version is valid. refresh: from the commit that brought it into the table. source:"
        " from when the source came to that state, if it knows. Else a column of the table.",
        examples=["updated_at"],
    )
    deletes: Literal["close", "keep", "mark"] = Field(
        default="close",
        description="What a deleted row does to its current version: it ends; it stays current; or it ends, and a"
        " version with operation delete follows.",
    )
    columns: tuple[str, ...] = Field(
        default=(),
        description="Only a change of one of these columns begins a new version; others change in the current one."
        " All columns by default.",
        examples=[["price", "status"]],
    )
    exclude: tuple[str, ...] = Field(
        default=(),
        description="A change of these columns alone changes the current version and begins no new one.",
        examples=[["seen_at"]],
    )
    keep: Duration | None = Field(
        default=None,
        description="Versions that ended longer ago are removed by `amv recover`. None by default.",
        examples=["730d"],
    )
    valid_to_current: str | None = Field(
        default=None,
        description="The end of a version that has none: NULL, or a time such as 9999-12-31.",
        examples=["9999-12-31"],
    )
    valid_from: str = Field(
        default="valid_from", description="Name of the column with a version's begin.", examples=["dbt_valid_from"]
    )
    valid_to: str = Field(
        default="valid_to",
        description="Name of the column with its end, which is not part of it.",
        examples=["dbt_valid_to"],
    )
    is_current: str = Field(
        default="is_current", description="Name of the column that is true for current versions.", examples=["current"]
    )
    operation: str = Field(
        default="operation",
        description="Name of the column with how a version began: insert, update or delete.",
        examples=["op"],
    )
    refresh_id: str = Field(
        default="refresh_id", description="Name of the column with the refresh that began it.", examples=["run"]
    )

    @field_validator("columns", "exclude")
    @classmethod
    def _are_columns(cls, columns: tuple[str, ...]) -> tuple[str, ...]:
        return check_columns(columns)

    @field_validator("time", *_NAMES)
    @classmethod
    def _is_column(cls, name: str) -> str:
        return check_column_name(name)

    @field_validator("valid_to_current")
    @classmethod
    def _is_time(cls, text: str | None) -> str | None:
        if text is None:
            return None
        if re.fullmatch(r"9\d{3}-\d\d-\d\d([ T]\d\d:\d\d(:\d\d)?)?", text) is None:
            raise ValueError(f"{text[:40]!r} is not a time of the far future in UTC, such as 9999-12-31")
        return datetime.fromisoformat(text).isoformat(" ")

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if self.columns and self.exclude:
            raise ValueError("`columns` and `exclude` say the same in two ways: give one")
        if len({name.lower() for name in self.names}) < len(_NAMES):
            raise ValueError("two of its own columns have the same name")
        return self

    @property
    def names(self) -> tuple[str, ...]:
        """Its own columns: begin, end, whether current, operation, refresh."""
        return tuple(getattr(self, name) for name in _NAMES)

    @property
    def own_columns(self) -> tuple[schema.Column, ...]:
        """The columns that a history has behind those of its table."""
        types = ("timestamp", "timestamp", "boolean", "string", "string")
        return tuple(schema.Column(name, kind) for name, kind in zip(self.names, types, strict=True))

    @property
    def follows_corrections(self) -> bool:
        """True if it follows from a row's change alone what becomes of its version, whatever that is and since when."""
        is_plain = self.deletes == "close" and self.time_column is None
        return is_plain and not (self.columns or self.exclude)

    @property
    def time_column(self) -> str | None:
        """The column of the table from whose value a version is valid; None if it is no column."""
        return None if self.time in (REFRESH, SOURCE) else self.time

    def tracked(self, names: tuple[str, ...]) -> tuple[str, ...]:
        """Return which of the table's columns begin a new version when they change."""
        if self.columns:
            return tuple(name for name in names if name in self.columns)
        return tuple(name for name in names if name not in self.exclude)

    @staticmethod
    def latest_ms(kind: schema.Type, now_ms: int) -> int:
        """Return the latest time that a row may have now, by the type of the column that has it.

        A DATE and a TIMESTAMP_NTZ are read as UTC, and where a source writes them clocks may show up to 14 hours more.
        """
        return now_ms + (_CLOCK_MS if kind == "timestamp" else _ZONES_MS)

    def problem(self, columns: tuple[schema.Column, ...], key: tuple[str, ...]) -> str | None:
        """Return why a table with these columns cannot have this history; None if it can."""
        kinds = {column.name: column.type for column in columns}
        lower = {name.lower(): name for name in kinds}
        if (taken := next((name for name in self.names if name.lower() in lower), None)) is not None:
            return f"the table has a column {lower[taken.lower()]!r}, as its history would"
        named = (*self.columns, *self.exclude, *((self.time,) if self.time_column else ()))
        if (unknown := next((name for name in named if name not in kinds), None)) is not None:
            return f"there is no column {unknown!r}, which `history` names"
        if self.time_column and kinds[self.time] not in _TIMES:
            return f"column {self.time!r} is no time: its type is {kinds[self.time]}"
        if (excluded := next((name for name in key if name in self.exclude), None)) is not None:
            return f"column {excluded!r} is part of the key, and cannot be left out"
        return None

    @staticmethod
    def kept(columns: Iterable[schema.Column]) -> tuple[schema.Column, ...]:
        """Return which of the table's columns versions have: those whose values can be compared.

        Another program may have given the table a MAP or a VARIANT.
        """
        return tuple(column for column in columns if schema.is_comparable(column.type))

    def before_ms(self, now_ms: int) -> int | None:
        """Return the time before which versions must have ended to be removed; None if all are kept."""
        return None if self.keep is None else now_ms - 1000 * self.keep
