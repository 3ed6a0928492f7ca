"""The order of partition values that are given as text: Spark's order of values of the column's type.

    string                       as text: '11' comes before '9'
    byte … long, decimal(p,s)    as numbers; a decimal is rounded as a cast rounds it
    date, timestamp              as times; one without a zone is in UTC, as in every session of this package
    boolean                      false comes before true

A definition does not contain the type; main and the source do. Each seal records it. Before the first seal all texts
are ordered as text; later, a text that is no value of the type is ordered as text, after all values.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import ROUND_HALF_UP, Context, Decimal, InvalidOperation
from typing import Any

Order = Callable[[str], tuple[int, Any]]

_INTEGERS = frozenset({"byte", "short", "integer", "long"})
_WHOLE = re.compile(r"[+-]?[0-9]+")
_DECIMAL = re.compile(r"decimal\((\d+),(-?\d+)\)")
_DATE = re.compile(r"([+-]?\d{4,7})(?:-(\d{1,2})(?:-(\d{1,2}))?)?", re.ASCII)
_TIME = re.compile(r"[ T](\d{1,2}):(\d{1,2})(?::(\d{1,2})(?:\.(\d{1,6}))?)?", re.ASCII)
_OFFSET = re.compile(r"(?:Z|UTC|([+-])(\d{1,2}):(\d{2}))", re.ASCII)
_BOOLEANS = dict.fromkeys(("true", "t", "yes", "y", "1"), True) | dict.fromkeys(("false", "f", "no", "n", "0"), False)
_MAX_DIGITS = 38


def order_of(kind: str | None) -> Order:
    """Return the sort key for texts of a column's values.

    kind : the column's type, as Spark's JSON names it; None if it is not known yet
    """

    def order(text: str) -> tuple[int, Any]:
        value = None if kind is None else value_of(kind, text)
        return (1, text) if value is None else (0, value)

    return order


def value_of(kind: str, text: str) -> Any:
    """Return a value that sorts like a cast of `text` to the type; None if there is no cast, or none known here."""
    if kind == "string":
        return text
    text = text.strip()
    if kind in _INTEGERS:
        return int(text) if _WHOLE.fullmatch(text) and len(text) <= _MAX_DIGITS else None
    if (found := _DECIMAL.fullmatch(kind)) is not None:
        return _decimal(text, int(found[2]))
    if kind == "boolean":
        return _BOOLEANS.get(text.lower())
    if kind == "date":
        return _date(text)
    return _timestamp(text) if kind in ("timestamp", "timestamp_ntz") else None


def _decimal(text: str, scale: int) -> Decimal | None:
    try:
        value = Decimal(text)
        if not value.is_finite() or "_" in text:
            return None
        return value.quantize(Decimal(1).scaleb(-scale), ROUND_HALF_UP, Context(prec=2 * _MAX_DIGITS))
    except InvalidOperation:
        return None


def _date(text: str) -> int | None:
    found = _DATE.fullmatch(re.split("[ T]", text, maxsplit=1)[0])
    return None if found is None else _days(found)


def _timestamp(text: str) -> int | None:
    """Return the microseconds since 0000-03-01, also for years that `datetime` does not support."""
    day = _DATE.match(text)
    if day is None:
        return None
    rest = text[day.end() :]
    time = _TIME.match(rest)
    zone = rest[time.end() :].strip() if time else rest
    offset = _OFFSET.fullmatch(zone)
    if zone and offset is None:
        return None  # a zone named by region, or not a time
    hours, minutes, seconds = (int(part or 0) for part in time.groups()[:3]) if time else (0, 0, 0)
    if offset is not None and offset[1]:
        sign = -1 if offset[1] == "+" else 1
        hours, minutes = hours + sign * int(offset[2]), minutes + sign * int(offset[3])
    micros = int((time[4] or "").ljust(6, "0")) if time else 0
    return (((_days(day) * 24 + hours) * 60 + minutes) * 60 + seconds) * 1_000_000 + micros


def _days(found: re.Match[str]) -> int:
    """Return the days since 0000-03-01 in the proleptic Gregorian calendar, which Spark uses."""
    year, month, day = (int(part or 1) for part in found.groups())
    year, month = (year, month - 3) if month > 2 else (year - 1, month + 9)  # so that a leap day ends its year
    return 365 * year + year // 4 - year // 100 + year // 400 + (153 * month + 2) // 5 + day - 1
