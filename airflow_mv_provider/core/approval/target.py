"""What a person means by a version of main, a refresh or a time."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from airflow_mv_provider.core.moment import time_of
from airflow_mv_provider.core.outcome import Outcome, RefreshReport
from airflow_mv_provider.exceptions import ArgumentError

_MIN_ID = 6  # digits of a refresh's id


def version_of(table: str, to: str, history: Sequence[RefreshReport]) -> int:
    """Return main's version to go back to.

    to      : a version of main; at least six digits of a refresh's id, whose version is meant; or a time, ISO 8601, UTC
              unless it has an offset: main as it was last published until then
    history : the table's refreshes, newest first
    raises  : ArgumentError, if no published refresh fits
    """
    published = [r for r in history if r.outcome is Outcome.PUBLISHED and r.main_version is not None]
    text = to.strip()
    if text.isascii() and text.isdecimal() and len(text) <= 9:
        return int(text)
    if len(text) >= _MIN_ID and all(c in "0123456789abcdef" for c in text):
        found = [r for r in published if (r.refresh_id or "").startswith(text)]
    else:
        at = _time(table, text)
        found = [r for r in published if r.finished_at and datetime.fromisoformat(r.finished_at) <= at][:1]
    if len(found) != 1 or found[0].main_version is None:
        problem = f"{text[:60]!r} names {len(found) or 'no'} published refreshes."
        raise ArgumentError(table, problem, hint="See `amv history`; a version of the table is a number.")
    return found[0].main_version


def _time(table: str, text: str) -> datetime:
    found = time_of(text)
    if found is None:
        hint = "Give a version of the table, a refresh's id, or a time such as 2026-01-31T12:00."
        raise ArgumentError(table, f"{text[:60]!r} is not a version, refresh or time.", hint=hint)
    return found


def parse_since(table: str, text: str | None) -> int | None:
    """Return a time bound in milliseconds since the epoch; None for none.

    raises : ArgumentError
    """
    if text is None:
        return None
    found = time_of(text.strip())
    if found is None:
        hint = "Give a time such as 2026-01-31T12:00, UTC unless it has an offset."
        raise ArgumentError(table, f"{text[:80]!r} is not a time.", hint=hint)
    return round(found.timestamp() * 1000)
