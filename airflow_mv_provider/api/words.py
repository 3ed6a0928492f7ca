"""Text for times, counts and outcomes on the page. The templates escape it, not this module."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime

from airflow_mv_provider.core.outcome import Outcome
from airflow_mv_provider.core.phase import Phase
from airflow_mv_provider.core.strategy_names import HEADINGS
from airflow_mv_provider.report_text.figures import UNITS_S, duration_text, outcome_words

TONES = {
    Outcome.RUNNING: "busy",
    Outcome.PUBLISHED: "good",
    Outcome.NOTHING_TO_DO: "good",
    Outcome.DIFFERENCES: "plain",
    Outcome.REFUSED: "warn",
    Outcome.FAILED: "bad",
    Outcome.CANCELLED: "warn",
    Outcome.ABANDONED: "warn",
}
"""The colour of each outcome; the page always shows its word beside the colour."""


SCOPES = (
    ("as usual", "as usual"),
    ("everything", "everything"),
    ("range", "a range"),
    ("partitions", "single ones"),
    ("stale", "only what is stale"),
)
"""The partitions of a run that can be asked for, and how they are called."""


def outcome_word(outcome: Outcome) -> str:
    """Return an outcome as one or two words."""
    return "differences only" if outcome is Outcome.DIFFERENCES else outcome_words(outcome)


def way(strategy: str | None) -> str:
    """Return a strategy as a heading; an empty text for none."""
    return HEADINGS.get(strategy or "", strategy or "")


def clock(ms: int) -> str:
    """Return the time of day, to the second, in UTC."""
    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%H:%M:%S")


def phase_word(phase: Phase) -> str:
    """Return a phase with a capital first letter only: Merging, not MERGING."""
    return phase.capitalize()


def process_text(process: str) -> str:
    """Return an owner's `host:pid` in words."""
    host, found, pid = process.rpartition(":")
    return f"process {pid} on {host}" if found and pid.isdecimal() else process


def short(seconds: float) -> str:
    """Return a duration in its largest unit; in its two largest if the count is below ten."""
    return f"{max(seconds, 0):.1f} s" if seconds < 10 else duration_text(seconds, alone_from=10)


def ago(then_ms: int, now_ms: int) -> str:
    """Return a time relative to now, such as "5 min ago" or "in 2 h"."""
    seconds = (now_ms - then_ms) / 1000
    if abs(seconds) < 5:
        return "just now" if seconds >= 0 else "now"
    size, name = next((size, name) for size, name in UNITS_S if abs(seconds) >= size)
    count = int(abs(seconds) // size)
    return f"{count} {name} ago" if seconds > 0 else f"in {count} {name}"


def iso(ms: int) -> str:
    """Return a time in the form of HTML's `datetime` attribute."""
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="seconds")


def ms_of(text: str | datetime | None) -> int | None:
    """Return a report's or Airflow's time as milliseconds since 1970; None for None."""
    if text is None:
        return None
    found = datetime.fromisoformat(text) if isinstance(text, str) else text
    return round(found.timestamp() * 1000)


def listed(names: Iterable[str], limit: int = 5) -> str:
    """Return names separated by commas; beyond `limit`, the number of further ones."""
    found = list(names)
    rest = len(found) - limit
    return ", ".join(found[:limit]) + (f" and {rest:,} more" if rest > 0 else "")
