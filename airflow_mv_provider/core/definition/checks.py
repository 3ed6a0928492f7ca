"""Checks of a snapshot, as users write them: one rule each, and what follows if it does not hold.

not_null, accepted_values, matches, expression    about each row; a row passes if the rule is true or NULL
references                                        about each row beside another table; a row with NULL passes
unique, expect                                    about all rows together
"""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, field_validator, model_validator

from airflow_mv_provider.core.definition.identifier import check_column_name, check_table_name
from airflow_mv_provider.core.definition.source import Part

Severity = Literal["fail", "hold", "quarantine", "warn"]
_RULES = ("not_null", "unique", "accepted_values", "matches", "expression", "expect", "references")
_WITHOUT_COLUMN = ("expression", "expect")
_MAX_NAME = 100
_MAX_SHOWN_VALUES = 10


class AcceptedValues(Part):
    """A column has one of these values, or NULL; compared as text, as Spark casts a value to a string."""

    column: str = Field(description="A column of the table.", examples=["status"])
    values: tuple[bool | int | str, ...] = Field(
        min_length=1, max_length=10_000, description="Texts, whole numbers, true or false.", examples=[["open", "paid"]]
    )

    @field_validator("values", mode="before")
    @classmethod
    def _are_exact(cls, values: object) -> object:
        if isinstance(values, list | tuple) and any(not isinstance(value, bool | int | str) for value in values):
            raise ValueError("a value is not a string, a whole number, true or false: use `expression`")
        return values

    @property
    def texts(self) -> tuple[str, ...]:
        """The values as Spark casts them to strings."""
        return tuple(str(value).lower() if isinstance(value, bool) else str(value) for value in self.values)


class Matches(Part):
    """A column's whole value matches a regular expression of Java, or is NULL."""

    column: str = Field(description="A column of the table.", examples=["email"])
    pattern: str = Field(
        min_length=1,
        max_length=10_000,
        description="The expression that the whole value has to match.",
        examples=[".+@.+"],
    )


class References(Part):
    """A column's values are among those of a column of another refreshable table, as it was published last, or NULL."""

    column: str = Field(description="A column of the table.", examples=["customer_id"])
    table: str = Field(description="The name of another registered table.", examples=["customers"])
    key: str = Field(description="A column of that table.", examples=["customer_id"])

    @field_validator("column", "key")
    @classmethod
    def _is_column(cls, name: str) -> str:
        return check_column_name(name)

    @field_validator("table")
    @classmethod
    def _is_table(cls, name: str) -> str:
        return check_table_name(name)


class Check(Part):
    """A rule that the source's rows must keep before they are published."""

    name: str = Field(
        default="",
        max_length=_MAX_NAME,
        description="By default the rule and its columns.",
        examples=["amounts are positive"],
    )
    not_null: tuple[str, ...] | None = Field(
        default=None, min_length=1, description="Columns that have no NULL.", examples=[["customer_id"]]
    )
    unique: tuple[str, ...] | None = Field(
        default=None,
        min_length=1,
        description="Columns whose values together occur once; rows with a NULL do not count.",
        examples=[["email"]],
    )
    accepted_values: AcceptedValues | None = Field(
        default=None,
        description="A column, and the only values that it may have.",
        examples=[{"column": "status", "values": ["open", "paid"]}],
    )
    matches: Matches | None = Field(
        default=None,
        description="A column, and the pattern of its values.",
        examples=[{"column": "email", "pattern": ".+@.+"}],
    )
    expression: str | None = Field(
        default=None,
        min_length=1,
        description="An SQL condition over the columns of one row. Trusted.",
        examples=["amount >= 0"],
    )
    expect: str | None = Field(
        default=None,
        min_length=1,
        description="An SQL condition over aggregates of all rows: count(*) > 0. Trusted.",
        examples=["count(*) > 1000"],
    )
    references: References | None = Field(
        default=None,
        description="A column, and the column of another table that has all its values.",
        examples=[{"column": "customer_id", "table": "customers", "key": "customer_id"}],
    )
    severity: Severity = Field(
        default="fail",
        description="If the rule does not hold: publish nothing, wait for a person's decision, leave the rows out of"
        " the table and keep them in the error table, or only report it.",
    )

    @field_validator("not_null", "unique")
    @classmethod
    def _are_columns(cls, columns: tuple[str, ...] | None) -> tuple[str, ...] | None:
        for column in columns or ():
            check_column_name(column)
        return columns

    @field_validator("name")
    @classmethod
    def _is_readable(cls, name: str) -> str:
        if not name.isprintable():
            raise ValueError("a name has a character that cannot be shown")
        return name.strip()

    @model_validator(mode="after")
    def _has_one_rule(self) -> Self:
        given = [rule for rule in _RULES if getattr(self, rule) is not None]
        if len(given) != 1:
            found = f"{' and '.join(given)} are given" if given else "none is given"
            raise ValueError(f"expected one rule of {', '.join(_RULES)}; {found}")
        if not self.name and given[0] in _WITHOUT_COLUMN:
            raise ValueError(f"{given[0]} needs a name, under which its result is reported")
        if self.severity == "quarantine" and self.is_of_all_rows:
            raise ValueError(f"{given[0]} is about all rows, so no row can be left out for it: use fail, hold or warn")
        if self.severity == "quarantine" and self.references is not None:
            # Staging leaves rows out by a condition of the row; this rule is a join.
            raise ValueError("references is about another table, which leaves no row out: use fail, hold or warn")
        return self

    @property
    def rule(self) -> str:
        """The name of its rule."""
        return next(rule for rule in _RULES if getattr(self, rule) is not None)

    @property
    def title(self) -> str:
        """Its name, or its rule and columns, cut to 100 characters."""
        return self.name or f"{self.rule} {', '.join(self.columns)}"[:_MAX_NAME]

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that it names; none if it is written in SQL."""
        one = self.accepted_values or self.matches or self.references
        return self.not_null or self.unique or ((one.column,) if one else ())

    @property
    def is_of_all_rows(self) -> bool:
        """True if some rows do not show whether it holds: it needs all of the table's rows."""
        return self.unique is not None or self.expect is not None

    @property
    def text(self) -> str:
        """What it demands, in words."""
        names = ", ".join(self.columns)
        if self.accepted_values is not None:
            values = self.accepted_values.texts
            more = f" and {len(values) - _MAX_SHOWN_VALUES} more" if len(values) > _MAX_SHOWN_VALUES else ""
            return f"{names} is one of {', '.join(values[:_MAX_SHOWN_VALUES])}{more}"
        if self.matches is not None:
            return f"{names} matches {self.matches.pattern}"
        if self.references is not None:
            return f"{names} is among {self.references.key} of {self.references.table}"
        if self.not_null is not None:
            return f"{names} {'is' if len(self.columns) == 1 else 'are'} not NULL"
        if self.unique is not None:
            return f"{names} {'is' if len(self.columns) == 1 else 'are together'} unique"
        return self.expression or self.expect or ""
