"""How old a table is, when it is late, and what will bring it up to date, in words."""

from __future__ import annotations

from datetime import UTC, datetime

from airflow_mv_provider.core.definition.freshness import MeasuredFrom
from airflow_mv_provider.core.freshness.lateness import Forecast
from airflow_mv_provider.report_text.figures import duration_text


def forecast_text(found: Forecast) -> str:
    """Return when a table is late, and when its next run starts: "late at 14:05 UTC; the next run starts 14:10 …"."""
    usual = "" if found.takes_ms is None else f"usually takes {duration_text(found.takes_ms / 1000)}"
    if found.next_run_ms is None:
        rest = f"; a refresh {usual}" if usual else ""
    else:
        is_due = found.next_run_ms <= found.now_ms
        starts = "is due" if is_due else f"starts {clock_text(found.next_run_ms, found.now_ms)}"
        rest = f"; the next run {starts}{f' and {usual}' if usual else ''}"
    return f"{_late_text(found)}{rest}"


def _late_text(found: Forecast) -> str:
    if found.late_ms is None:
        return "late: no refresh of everything has succeeded"
    return f"late {'since' if found.is_late else 'at'} {clock_text(found.late_ms, found.now_ms)} UTC"


def measure_text(measured_from: MeasuredFrom) -> str:
    """Return from when a table's age counts."""
    if measured_from is MeasuredFrom.SOURCE:
        return "since the source came to the state that the table has"
    return "since the source was last checked"


def clock_text(ms: int, now_ms: int) -> str:
    """Return a time of day in UTC; with the date if it is another day than now."""
    then, now = (datetime.fromtimestamp(each / 1000, UTC) for each in (ms, now_ms))
    return then.strftime("%H:%M" if then.date() == now.date() else "%Y-%m-%d %H:%M")
