"""Reports and statuses as text for people: plain lines and aligned columns, without wrapping or animation."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from airflow_mv_provider.core.definition.identifier import ERRORS_SUFFIX
from airflow_mv_provider.core.outcome import ErrorReport, Outcome, PartitionReport, RefreshReport
from airflow_mv_provider.core.phase import Phase
from airflow_mv_provider.core.progress.partition import partition_values
from airflow_mv_provider.core.refresh_plan import RefreshPlan
from airflow_mv_provider.core.scope.ledger import LedgerEntry

if TYPE_CHECKING:
    from airflow_mv_provider.metadata.queue import WaiterStatus
    from airflow_mv_provider.metadata.status import TableStatus

_MAX_PARTITIONS = 20
_MIN_SHOWN_S = 0.1


def refresh_text(report: RefreshReport) -> str:
    """Return the text of one refresh: its changes, the changed partitions, and the time of each phase."""
    if report.refresh_id is None:
        return ""  # it never began; the error has all the facts
    lines = [f"{report.table}: {_outcome(report)}{_duration(report)}", f"  refresh   {_identity(report)}"]
    for name, text in (("reason", report.reason), ("note", report.note)):
        lines += [f"  {name:<9} {shown(text)}"] if text else []
    if report.strategy and report.estimates:
        lines.append(f"  strategy  {_strategy(report)}")
    lines += [f"  schema    {shown(change)}" for change in report.schema_changes]
    if report.frozen:
        names = ", ".join(partition_text(name) for name in report.frozen[:5])
        lines.append(
            f"  frozen    {names}{', ...' if len(report.frozen) > 5 else ''}: different in the source, left unchanged"
        )
    if report.outcome in (Outcome.PUBLISHED, Outcome.DIFFERENCES):
        lines.append(f"  rows      {_rows(report)}")
    if report.rows_rejected:
        where = f"kept in {report.table}{ERRORS_SUFFIX}" if report.outcome is Outcome.PUBLISHED else "not published"
        lines.append(f"  rejected  {number(report.rows_rejected)} of the source's records, {where}")
    if report.outcome is Outcome.PUBLISHED:
        lines.append(f"  bytes     {size(report.bytes_main)} to main, {size(report.bytes_staging)} to staging")
    if report.main_version is not None:
        lines.append(f"  main      version {report.main_version}")
    if report.phase_seconds:
        lines.append(f"  phases    {phases_text(report)}")
    lines += _attempts(report)
    if report.recovered:
        lines.append(f"  recovered {', '.join(report.recovered)}")
    changed = [p for p in report.partitions if p.rows_inserted or p.rows_updated or p.rows_deleted]
    if changed and report.partitions[0].partition != "[]":
        lines += ["", *("  " + line for line in partitions_table(changed))]
        if unchanged := len(report.partitions) - len(changed):
            lines.append(f"  {unchanged} more {'partition is' if unchanged == 1 else 'partitions are'} unchanged")
    return "\n".join(lines)


def recovered_text(report: RefreshReport) -> str:
    """Return the result of recovering a refresh whose owner is dead."""
    who = f"refresh {report.refresh_id} of a dead owner"
    if report.finished_at:
        return f"{report.table}: {who} was ended: {_words(report.outcome)}."
    return f"{report.table}: {who} could not be ended; the next refresh or `amv recover` tries again."


def plan_text(plan: RefreshPlan) -> str:
    """Return what a refresh would do, and the strategies that were estimated."""
    lines = [f"{plan.table}: {plan.strategy}", f"  reason    {shown(plan.reason)}", f"  source    {shown(plan.source)}"]
    if plan.scope:
        lines.append(f"  scope     {shown(plan.scope)}")
    if plan.under_way:
        lines.append(f"  now       {shown(plan.under_way)} is refreshing it")
    if plan.estimates:
        rows = [(e.strategy, "-" if e.seconds is None else f"{e.seconds:.1f} s", e.why) for e in plan.estimates]
        lines += ["", *("  " + line for line in table(("strategy", "expected", "why"), rows, numbers_from=3))]
    return "\n".join(lines)


def partitions_table(partitions: Sequence[PartitionReport]) -> list[str]:
    """Return a table of a refresh's changes per partition; a long table ends in the count of the others."""
    rows = [
        (partition_text(p.partition), *map(number, (p.rows_inserted, p.rows_updated, p.rows_deleted, p.rows_unchanged)))
        for p in partitions[:_MAX_PARTITIONS]
    ]
    lines = table(("partition", "inserted", "updated", "deleted", "unchanged"), rows)
    rest = len(partitions) - _MAX_PARTITIONS
    return [*lines, f"and {rest} more; --json has them all"] if rest > 0 else lines


def phases_text(report: RefreshReport) -> str:
    """Return the wall time of each phase, in the order of the protocol, and the time outside of phases.

    Before its first phase an attempt opens the source and estimates sizes. Between attempts, nobody works.
    """
    spent = [(str(phase), report.phase_seconds[phase]) for phase in Phase if phase in report.phase_seconds]
    rest = (_total_seconds(report) or 0.0) - sum(seconds for _, seconds in spent)
    if rest >= _MIN_SHOWN_S:
        spent.insert(0, ("preparation" if len(report.attempts) < 2 else "preparation and waiting", rest))
    return " · ".join(f"{name} {seconds:.1f} s" for name, seconds in spent)


def statuses_text(statuses: Sequence[TableStatus]) -> str:
    """Return the status of all tables, one line each."""
    if not statuses:
        return "No table is registered yet. Register one with `amv apply FILE.yaml`."
    rows = [
        (
            s.table,
            f"{s.phase}, {_barred(s)}" if _barred(s) else s.phase,
            "-" if s.main_version is None else str(s.main_version),
            _progress(s),
            "never" if s.last is None else f"{_words(s.last.outcome)} {_time(s.last.finished_at)}",
        )
        for s in statuses
    ]
    return "\n".join(table(("table", "phase", "main version", "under way", "last refresh"), rows, numbers_from=5))


def status_text(status: TableStatus) -> str:
    """Return the status of one table: phase, owner, progress, and the outcome of the last refresh."""
    main = "not published yet" if status.main_version is None else f"version {status.main_version}"
    trust = "" if status.is_main_trusted or status.main_version is None else "; the next refresh compares all of it"
    lines = [f"{status.table}: {status.phase}", f"  main       {main}{trust}"]
    if status.refresh_id:
        alive = "its lease is live" if status.is_lease_live else "its lease has expired: the next refresh takes over"
        lines += [
            f"  refresh    {status.refresh_id}, epoch {status.epoch}",
            f"  owner      {status.owner} since {_time(status.owned_since)}; {alive}",
        ]
        if status.is_cancel_requested:
            lines.append("  cancel     requested")
        if status.partitions_total:
            lines.append(f"  compared   {status.partitions_completed} of {status.partitions_total} partitions")
    if status.pending_definition:
        fields = ", ".join(status.pending_definition)
        lines.append(f"  pending    a changed definition ({fields}), used from the next refresh on")
    if status.paused_since:
        who = f" by {shown(status.paused_by)}" if status.paused_by else ""
        lines.append(f"  paused     since {_time(status.paused_since)}{who}: no new refresh begins before `amv resume`")
    if status.is_dropping:
        lines.append("  dropping   `amv drop` did not finish: run it again")
    lines += [f"  waiting    {_waiter(waiter)}" for waiter in status.queue]
    if status.last is not None:
        lines.append(f"  last       {_outcome(status.last)} at {_time(status.last.finished_at)}")
        if status.last.error:
            lines.append(f"             {shown(status.last.error.message)}")
    if status.partitions and status.partitions[0].partition != "[]":
        lines += ["", *("  " + line for line in _progress_table(status))]
    return "\n".join(lines)


def ledger_text(name: str, entries: Sequence[LedgerEntry]) -> str:
    """Return a table's intervals and partitions, and the state of each."""
    if not entries:
        return f"{name}: no refresh yet."
    rows = [
        (
            partition_text(each.partition) if each.partition else each.start or "the first",
            "" if each.partition else each.end or "the last",
            str(each.state),
            _time(each.at),
            _time(each.done_at),
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
            _time(r.started_at),
            _words(r.outcome),
            r.trigger or "-",
            number(r.rows_inserted),
            number(r.rows_updated),
            number(r.rows_deleted),
            size(r.bytes_main),
            _seconds(r),
            (r.refresh_id or "")[:8],
        )
        for r in reports
    ]
    columns = ("started (UTC)", "outcome", "trigger", "inserted", "updated", "deleted", "bytes", "time", "refresh")
    lines = table(columns, rows, numbers_from=3)
    lines += [f"{(r.refresh_id or '')[:8]}  {shown(r.error.message)}" for r in reports if r.error]
    return "\n".join(lines)


def error_text(error: ErrorReport) -> str:
    """Return an error in two lines: what happened, and what to do."""
    return shown(f"[{error.code}] {error.message}\n  {error.hint}").rstrip()


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
    return "".join(c if c.isprintable() or c == "\n" else c.encode("unicode_escape").decode() for c in text)


def _outcome(report: RefreshReport) -> str:
    match report.outcome:
        case Outcome.NOTHING_TO_DO:
            return "nothing to do"
        case Outcome.DIFFERENCES:
            return "differences found, nothing written"
        case Outcome.RUNNING:
            return f"running ({report.phase})"
        case other:
            return str(other)


def _words(outcome: Outcome) -> str:
    return outcome.replace("_", " ")


def _identity(report: RefreshReport) -> str:
    return f"{report.refresh_id}, epoch {report.epoch}" if report.epoch else str(report.refresh_id)


def _strategy(report: RefreshReport) -> str:
    expected = next((e.seconds for e in report.estimates if e.strategy == report.strategy), None)
    others = ", ".join(
        f"{e.strategy} {'not possible' if e.seconds is None else f'{e.seconds:.1f} s'}"
        for e in report.estimates
        if e.strategy != report.strategy
    )
    return f"{report.strategy}, expected {'-' if expected is None else f'{expected:.1f} s'} ({others})"


def _attempts(report: RefreshReport) -> list[str]:
    """Return a line for each attempt of a refresh, if there was more than one."""
    lines = []
    for each in report.attempts if len(report.attempts) > 1 else ():
        figures = [f"{number(each.chunks)} {'chunk' if each.chunks == 1 else 'chunks'} compared"]
        figures += [f"{phase} {seconds:.1f} s" for phase, seconds in each.phase_seconds.items()]
        began = f"epoch {each.epoch} from {each.phase} at {_time(each.started_at)}"
        lines.append(f"  attempt   {began} by {shown(each.process)}: {', '.join(figures)}")
        if each.note is not None:
            lines.append(f"            {shown(each.note)}")
    return lines


def _rows(report: RefreshReport) -> str:
    counts = ("inserted", "updated", "deleted", "unchanged")
    return ", ".join(f"{number(getattr(report, f'rows_{count}'))} {count}" for count in counts)


def _barred(status: TableStatus) -> str:
    return "dropping" if status.is_dropping else "paused" if status.paused_since else ""


def _waiter(waiter: WaiterStatus) -> str:
    who = ", ".join(filter(None, (waiter.user, waiter.trigger)))
    whom = f", for {waiter.waits_for}" if waiter.waits_for else ", next"
    joins = f", joined to refresh {waiter.joins[:8]}" if waiter.joins else ""
    return shown(f"{waiter.place}. {waiter.process} ({who}) since {_time(waiter.since)}{whom}{joins}")


def _progress(status: TableStatus) -> str:
    waiting = f"{len(status.queue)} waiting" if status.queue else ""
    if status.refresh_id is None:
        return waiting or "-"
    owner = "" if status.is_lease_live else "lease expired"
    done = f"{status.partitions_completed} of {status.partitions_total} partitions"
    return ", ".join(filter(None, (done, owner, waiting)))


def cancelled_text(*, requested: bool, phase: Phase, is_alive: bool) -> str:
    """Return the effect of a request to cancel a refresh.

    is_alive : its owner is at work
    """
    if requested:
        dead = "cancel requested; its owner is dead, so the next refresh or `amv recover` ends it."
        return "cancel requested; its owner stops within seconds." if is_alive else dead
    is_late = phase is Phase.CLEANUP
    return "not cancelled: it is already published and cleaning up." if is_late else "no refresh is running."


def _progress_table(status: TableStatus) -> list[str]:
    rows = [
        (
            partition_text(p.partition),
            "compared" if p.is_completed else "waiting",
            *map(number, (p.sealed_rows, p.rows_inserted, p.rows_updated, p.rows_deleted)),
        )
        for p in status.partitions[:_MAX_PARTITIONS]
    ]
    columns = ("partition", "state", "staged", "to insert", "to update", "to delete")
    lines = table(columns, rows, numbers_from=2)
    rest = len(status.partitions) - _MAX_PARTITIONS
    return [*lines, f"and {rest} more; --json has them all"] if rest > 0 else lines


def _duration(report: RefreshReport) -> str:
    seconds = _seconds(report)
    return f" in {seconds}" if seconds != "-" else ""


def _seconds(report: RefreshReport) -> str:
    seconds = _total_seconds(report)
    return "-" if seconds is None else f"{seconds:.1f} s"


def _total_seconds(report: RefreshReport) -> float | None:
    if report.started_at is None or report.finished_at is None:
        return None
    return (datetime.fromisoformat(report.finished_at) - datetime.fromisoformat(report.started_at)).total_seconds()


def _time(iso: str | None) -> str:
    return "-" if iso is None else datetime.fromisoformat(iso).strftime("%Y-%m-%d %H:%M:%S")
