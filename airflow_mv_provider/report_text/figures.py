"""How figures, times, names and aligned columns are written."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

from airflow_mv_provider.core.outcome import Outcome, RefreshReport
from airflow_mv_provider.core.progress.partition import partition_values

MAX_PARTITIONS = 20
UNITS_S = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))
_MAX_VALUE = 80


def table(columns: Sequence[str], rows: Iterable[Sequence[str]], *, numbers_from: int = 1) -> list[str]:
    """Return aligned lines; columns from `numbers_from` on are right-aligned."""
    cells = [tuple(columns), *(tuple(shown(cell) for cell in row) for row in rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(columns))]
    return [
        "  ".join(
            cell.rjust(width) if i >= numbers_from else cell.ljust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in cells
    ]


def number(count: int) -> str:
    """Return a count with separators."""
    return f"{count:,}"


def size(num_bytes: int) -> str:
    """Return a size in the largest decimal unit that fits."""
    value = float(num_bytes)
    for unit in ("B", "kB", "MB", "GB"):
        if value < 1000:
            return f"{value:.0f} B" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:.1f} TB"


def partition_text(name: str) -> str:
    """Return a partition's values in a readable form."""
    values = partition_values(name)
    return " / ".join("NULL" if value is None else shown(value) for value in values) or "whole table"


def shown(text: str) -> str:
    """Return text with terminal control characters (escapes, carriage returns) spelled out; line breaks stay."""
    if text.isprintable():  # nearly always; a page asks this of thousands of texts
        return text
    return "".join(c if c.isprintable() or c == "\n" else c.encode("unicode_escape").decode() for c in text)


def value_text(value: Any) -> str:
    """Return a value of a row, as in JSON, on one line and not too long."""
    text = "NULL" if value is None else json.dumps(value, ensure_ascii=False)
    return shown(text if len(text) <= _MAX_VALUE else text[: _MAX_VALUE - 3] + "...")


def outcome_words(outcome: Outcome) -> str:
    """Return an outcome as words."""
    return outcome.replace("_", " ")


def seconds_text(report: RefreshReport) -> str:
    """Return how long a refresh took; a dash if it has not ended."""
    seconds = total_seconds(report)
    return "-" if seconds is None else f"{seconds:.1f} s"


def total_seconds(report: RefreshReport) -> float | None:
    """Return how long a refresh took, None if it has not ended."""
    if report.started_at is None or report.finished_at is None:
        return None
    return (datetime.fromisoformat(report.finished_at) - datetime.fromisoformat(report.started_at)).total_seconds()


def duration_text(seconds: float, *, alone_from: int | None = None) -> str:
    """Return a duration in its largest unit, and the next smaller one unless that is zero: "3 min", "1 h 5 min".

    Args:
        alone_from: The count of the largest unit from which on no smaller one is added.
    """
    whole = max(round(seconds), 0)
    for (size, name), (smaller, its_name) in pairwise((*UNITS_S, UNITS_S[-1])):  # no rest is less than a second
        if whole >= size:
            count, rest = divmod(whole, size)
            more = 0 if alone_from is not None and count >= alone_from else rest // smaller
            return f"{count} {name} {more} {its_name}" if more else f"{count} {name}"
    return "0 s"


def moment_text(ms: int | None) -> str:
    """Return a time in milliseconds since 1970 as `time_text` does."""
    return time_text(None if ms is None else datetime.fromtimestamp(ms / 1000, UTC).isoformat())


def time_text(iso: str | None) -> str:
    """Return a time to the second, UTC; a dash if there is none."""
    return "-" if iso is None else datetime.fromisoformat(iso).strftime("%Y-%m-%d %H:%M:%S")
