"""The guards of a table's definition: limits on what one refresh may change, fixed or against what is usual."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Discriminator, Field, Tag, field_validator

from airflow_mv_provider.core.definition.identifier import check_columns
from airflow_mv_provider.core.definition.source import Part

MAX_DELETED = 0.3


class TimesUsual(Part):
    """A limit as a multiple of what is usual: {usual: 3}."""

    usual: float = Field(
        ge=1.0,
        strict=True,
        allow_inf_nan=False,
        description="At most this many times what is usual in the history.",
        examples=[3],
    )


class PartOfUsual(Part):
    """A limit as a fraction of what is usual: {usual: 0.9}."""

    usual: float = Field(
        gt=0.0,
        le=1.0,
        strict=True,
        allow_inf_nan=False,
        description="At least this fraction of what is usual.",
        examples=[0.9],
    )


def _form(value: Any) -> str:
    return "[usual]" if isinstance(value, dict | Part) else "[fixed]"


# `problems` leaves these names out of the place of a problem.
_IS_USUAL, _IS_FIXED, _BY_FORM = Tag("[usual]"), Tag("[fixed]"), Discriminator(_form)
_Fraction = Annotated[float, Field(ge=0.0, le=1.0, strict=True), _IS_FIXED]
_Multiple = Annotated[float, Field(ge=0.0, strict=True, allow_inf_nan=False), _IS_FIXED]
_Rows = Annotated[int, Field(ge=1, le=10**15, strict=True), _IS_FIXED]
_Partitions = Annotated[int, Field(ge=0, le=10**9, strict=True), _IS_FIXED]
_Times = Annotated[TimesUsual, _IS_USUAL]
FractionLimit = Annotated[_Fraction | _Times, _BY_FORM]
MultipleLimit = Annotated[_Multiple | _Times, _BY_FORM]
RowsLimit = Annotated[_Rows | Annotated[PartOfUsual, _IS_USUAL], _BY_FORM]
PartitionsLimit = Annotated[_Partitions | _Times, _BY_FORM]


class Guards(Part):
    """Limits on the difference, judged on exact counts before the table is changed."""

    max_deleted_fraction: FractionLimit = Field(
        default=MAX_DELETED,
        description="Refuse to delete a larger fraction of the table's rows, or more than so many times as many as"
        " usual: {usual: 3}.",
    )
    max_updated_fraction: FractionLimit | None = Field(
        default=None,
        description="Refuse to update a larger fraction of the table's rows, or more than so many times as many as"
        " usual: {usual: 3}; no limit if it is not set.",
        examples=[0.5],
    )
    max_inserted_fraction: MultipleLimit | None = Field(
        default=None,
        description="Refuse to insert more than this fraction of the table's rows, or so many times as many as usual:"
        " {usual: 3}; no limit for an empty table.",
        examples=[{"usual": 3}],
    )
    max_changed_fraction: MultipleLimit | None = Field(
        default=None,
        description="Refuse to insert, update and delete together more than this fraction of the table's rows, or so"
        " many times as many as usual: {usual: 10}; no limit for an empty table.",
        examples=[{"usual": 10}],
    )
    min_rows: RowsLimit | None = Field(
        default=None,
        description="Refuse a source with fewer rows, or with less than this fraction of the usual number:"
        " {usual: 0.9}; judged if the whole table is refreshed.",
        examples=[1000],
    )
    max_changed_partitions: PartitionsLimit | None = Field(
        default=None,
        description="Refuse to change rows in more partitions of the table, or in so many times as many as usual:"
        " {usual: 3}.",
        examples=[31],
    )
    max_null_fraction: dict[str, FractionLimit] = Field(
        default_factory=dict,
        description="For each column that is named, refuse a larger fraction of NULLs among the rows that the table"
        " would have, or so many times the usual one: {amount: 0.01, mail: {usual: 3}}. A table with it is never"
        " refreshed incrementally.",
        examples=[{"email": 0.05}],
    )
    allow_empty: bool = Field(default=False, strict=True, description="Accept a source without rows.")

    @field_validator("max_null_fraction")
    @classmethod
    def _are_columns(cls, fractions: dict[str, FractionLimit]) -> dict[str, FractionLimit]:
        return dict(zip(check_columns(tuple(fractions)), fractions.values(), strict=True))

    @property
    def of_usual_changes(self) -> str | None:
        """The first guard that compares the number of changed rows or partitions with former refreshes'; or None."""
        fractions = (f"max_{done}_fraction" for done in ("deleted", "updated", "inserted", "changed"))
        return next((name for name in (*fractions, "max_changed_partitions") if _is_usual(getattr(self, name))), None)

    @property
    def needs_history(self) -> bool:
        """True if a guard has to know what former refreshes did."""
        others = (self.min_rows, *self.max_null_fraction.values())
        return self.of_usual_changes is not None or any(map(_is_usual, others))


def _is_usual(limit: object) -> bool:
    return isinstance(limit, TimesUsual | PartOfUsual)
