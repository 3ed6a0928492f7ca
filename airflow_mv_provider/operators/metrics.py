"""Metrics of refreshes, sent to StatsD or OpenTelemetry as Airflow's own `[metrics]` section configures.

docs/metrics.md lists them. The gauge of stalled tables is sent by each task that ended a refresh or could not begin
one, and for all tables by RecoverTablesOperator. The task that ends a refresh counts it, also if it ends it for a dead
owner; callers that joined the refresh count it too.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from airflow_mv_provider.compat import Stats
from airflow_mv_provider.core.approval.audit import Audit, Finding
from airflow_mv_provider.core.outcome import GOOD, RefreshReport
from airflow_mv_provider.exceptions import MvError
from airflow_mv_provider.report_text.figures import total_seconds

if TYPE_CHECKING:
    from airflow_mv_provider.metadata.overview import TableLine


def count_ended(report: RefreshReport) -> None:
    """Send a refresh's metrics, if it has ended."""
    took = total_seconds(report)
    if took is None:
        return
    table, outcome = report.table, str(report.outcome)
    Stats.incr("mv.refresh.ended", tags={"table": table, "outcome": outcome, "trigger": report.trigger or ""})
    Stats.timing("mv.refresh.duration", timedelta(seconds=took), tags={"table": table, "outcome": outcome})
    for phase, seconds in report.phase_seconds.items():
        Stats.timing("mv.refresh.phase", timedelta(seconds=seconds), tags={"table": table, "phase": phase})
    rows = {"inserted": report.rows_inserted, "updated": report.rows_updated, "deleted": report.rows_deleted}
    rows["rejected"] = report.rows_rejected
    for change, num_rows in rows.items():
        if num_rows:
            Stats.incr("mv.refresh.rows", num_rows, tags={"table": table, "change": change})
    for check in report.checks:
        result = "skipped" if check.skipped else "passed" if check.is_passed else "failed"
        Stats.incr("mv.refresh.check", tags={"table": table, "severity": check.severity, "result": result})
    for measured_from, seconds in lags_s(report).items():
        Stats.gauge("mv.table.lag", seconds, tags={"table": table, "measured_from": measured_from})
    for place, num_bytes in (("main", report.bytes_main), ("staging", report.bytes_staging)):
        if num_bytes:
            Stats.incr("mv.refresh.bytes", num_bytes, tags={"table": table, "place": place})


def lags_s(report: RefreshReport) -> dict[str, float]:
    """Return how old a table is at the end of a refresh, in seconds, from each time from which its age may count.

    Returns:
        Nothing if that is unknown: it was no good refresh of everything, or its rows are not of the source.
    """
    is_good = report.outcome in GOOD and report.is_whole and report.is_of_source
    if not is_good or report.finished_at is None or report.started_at is None:
        return {}
    checked, ended = (
        datetime.fromisoformat(each) for each in (report.checked_at or report.started_at, report.finished_at)
    )
    source = datetime.fromisoformat(report.source_at) if report.source_at else checked
    return {"check": (ended - checked).total_seconds(), "source": (ended - min(source, checked)).total_seconds()}


def count_audit(found: Audit) -> None:
    """Send an audit's metrics."""
    is_whole = all(side.finding is Finding.SAME for side in found.sides)
    result = "drift" if found.is_drift else "same" if is_whole else "partly"
    Stats.incr("mv.audit.ended", tags={"table": found.table, "result": result})
    for side in found.sides:
        for kind, num_rows in side.counts.items():
            if num_rows and side.finding is Finding.DRIFT:
                tags = {"table": found.table, "against": str(side.against), "change": kind}
                Stats.incr("mv.audit.rows", num_rows, tags=tags)


def count_error(error: MvError) -> None:
    """Count an error that a task met."""
    Stats.incr("mv.refresh.error", tags={"code": error.code})


def show_stalled(lines: Iterable[TableLine]) -> None:
    """Send whether tables are stalled."""
    for line in lines:
        Stats.gauge("mv.table.stalled", int(line.health.is_stalled), tags={"table": line.table})
