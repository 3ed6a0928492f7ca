"""A table's history and the ledger of its intervals as text."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence

from airflow_mv_provider.core.outcome import RefreshReport
from airflow_mv_provider.core.scope.ledger import LedgerEntry
from airflow_mv_provider.report_text.figures import (
    number,
    outcome_words,
    partition_text,
    seconds_text,
    shown,
    size,
    table,
    time_text,
    total_seconds,
)


def ledger_text(name: str, entries: Sequence[LedgerEntry]) -> str:
    """Return a table's intervals and partitions, and the state of each."""
    if not entries:
        return f"{name}: no refresh yet."
    rows = [
        (
            partition_text(each.partition) if each.partition else each.start or "the first",
            "" if each.partition else each.end or "the last",
            str(each.state),
            time_text(each.at),
            time_text(each.done_at),
            each.refresh_id or "",
        )
        for each in entries
    ]
    return "\n".join(table(("from", "until", "state", "last try", "last done", "refresh"), rows, numbers_from=6))


def history_text(name: str, reports: Sequence[RefreshReport]) -> str:
    """Return a table's refreshes, newest first, one line each; errors below."""
    if not reports:
        return f"{name}: no refresh yet."
    rows = [
        (
            time_text(r.started_at),
            "awaiting approval" if r.hold and not (r.hold.decision or r.finished_at) else outcome_words(r.outcome),
            r.trigger or "-",
            number(r.rows_inserted),
            number(r.rows_updated),
            number(r.rows_deleted),
            size(r.bytes_main),
            seconds_text(r),
            (r.refresh_id or "")[:8],
        )
        for r in reports
    ]
    columns = ("started (UTC)", "outcome", "trigger", "inserted", "updated", "deleted", "bytes", "time", "refresh")
    lines = table(columns, rows, numbers_from=3)
    lines += [f"{(r.refresh_id or '')[:8]}  {shown(r.error.message)}" for r in reports if r.error]
    return "\n".join(lines)


_FACTS = (
    *("refresh_id", "outcome", "started_at", "finished_at", "trigger", "user", "strategy", "reason", "scope", "note"),
    *("rows_inserted", "rows_updated", "rows_deleted", "rows_unchanged", "rows_rejected", "rows_kept"),
    *("bytes_main", "bytes_staging", "main_version", "source"),
)


def history_csv(reports: Sequence[RefreshReport]) -> str:
    """Return refreshes as comma-separated values, with a line of names; the names are those of `--json`.

    Text that a spreadsheet would take for a formula begins with an apostrophe.
    """
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow((*_FACTS, "seconds", "error"))
    for report in reports:
        seconds, error = total_seconds(report), None if report.error is None else report.error.message
        facts = (getattr(report, name) for name in _FACTS)
        writer.writerow([_cell(each) for each in (*facts, None if seconds is None else f"{seconds:.1f}", error)])
    return file.getvalue().rstrip("\n")


def _cell(value: str | int | None) -> str:
    text = "" if value is None else shown(str(value))
    return f"'{text}" if text.startswith(("=", "+", "-", "@")) else text
