"""How old a table may become, by its definition."""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, WithJsonSchema

from airflow_mv_provider.core.definition.source import Part

_MAX_S = 10 * 365 * 24 * 3600
_UNITS_S = {"s": 1, "min": 60, "m": 60, "h": 3600, "d": 24 * 3600}
_DURATION = re.compile(r"(\d{1,9})\s*(s|min|m|h|d)")


class MeasuredFrom(StrEnum):
    """The time from which the age of a table is counted."""

    CHECK = "check"  # when a refresh last found that main has what its source has
    SOURCE = "source"  # when the source came to the state that main has


def _seconds(value: object) -> object:
    """Return a duration such as "90 min" in seconds; anything else is left to the field's own type."""
    found = _DURATION.fullmatch(value.strip()) if isinstance(value, str) else None
    if isinstance(value, str) and found is None:
        raise ValueError(
            f"{value[:40]!r} is not a duration: write seconds, or a whole number of s, min, h or d, as 90min"
        )
    return int(found[1]) * _UNITS_S[found[2]] if found else value


_SCHEMA: dict[str, Any] = {
    "anyOf": [
        {"type": "integer", "minimum": 1, "maximum": _MAX_S},
        {"type": "string", "pattern": rf"^\s*{_DURATION.pattern}\s*$"},
    ]
}
Duration = Annotated[int, Field(ge=1, le=_MAX_S, strict=True), BeforeValidator(_seconds), WithJsonSchema(_SCHEMA)]
"""Seconds, written as a number or as `90s`, `15min`, `1h`, `2d`."""


class Freshness(Part):
    """How old a table may become."""

    target: Duration = Field(
        description="Age after which the table is late: seconds, or a whole number with s, min, h or d, such as 1h.",
        examples=["6h"],
    )
    measured_from: MeasuredFrom = Field(
        default=MeasuredFrom.CHECK,
        description="check: the age counts from when a refresh of the whole table last checked the source, so a"
        " source without new data keeps the table fresh. source: from the time of the source's state that the table"
        " has, so a source that gets no new data makes the table late.",
    )
