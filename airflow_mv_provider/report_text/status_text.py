"""The status of tables as text: phase, owner, progress, who waits, and the effect of a cancel."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, assert_never

from airflow_mv_provider.core.definition.freshness import MeasuredFrom
from airflow_mv_provider.core.phase import Phase
from airflow_mv_provider.core.state import Cancelled
from airflow_mv_provider.report_text.figures import (
    MAX_PARTITIONS,
    duration_text,
    moment_text,
    number,
    outcome_words,
    partition_text,
    shown,
    table,
    time_text,
)
from airflow_mv_provider.report_text.refresh_text import hold_lines, kept_text, outcome_text

if TYPE_CHECKING:
    from airflow_mv_provider.core.health.health import Obstacle
    from airflow_mv_provider.metadata.queue import WaiterStatus
    from airflow_mv_provider.metadata.status import TableStatus


def statuses_text(statuses: Sequence[TableStatus]) -> str:
    """Return the status of all tables, one line each."""
    if not statuses:
        return (
            "No table is registered in this metadata database. Register one with `amv apply FILE.yaml`."
            " In Airflow's environment use `airflow mv`, which has Airflow's settings."
        )
    rows = [
        (
            s.table,
            ", ".join(filter(None, (s.phase, _barred(s), "late" if s.is_late else "", _stalled(s)))),
            "-" if s.main_version is None else str(s.main_version),
            _progress(s),
            "never" if s.last is None else f"{outcome_words(s.last.outcome)} {time_text(s.last.finished_at)}",
        )
        for s in statuses
    ]
    return "\n".join(table(("table", "phase", "version", "in progress", "last refresh"), rows, numbers_from=5))


def status_text(status: TableStatus) -> str:
    """Return the status of one table: phase, owner, progress, and the outcome of the last refresh."""
    main = "not published yet" if status.main_version is None else str(status.main_version)
    trust = "" if status.is_main_trusted or status.main_version is None else "; the next refresh compares all of it"
    lines = [f"{status.table}: {status.phase}", f"  version    {main}{trust}"]
    if status.freshness_target is not None:
        lines.append(f"  fresh      {_freshness(status)}")
    if status.rows_kept:
        lines.append(f"  kept       {kept_text(status.rows_kept)}; the next refresh compares")
    if status.refresh_id:
        alive = "waits for `amv approve` or `amv reject`" if status.is_held else _lease(status)
        lines += [
            f"  refresh    {status.refresh_id}",
            f"  owner      {_owner(status)} since {time_text(status.owned_since)}; {alive}",
        ]
        lines += [f"  {name:<10} {text}" for name, text in hold_lines(status.hold)]
        if status.is_cancel_requested:
            lines.append("  cancel     requested")
        if status.partitions_total:
            lines.append(f"  {status.done:<10} {status.partitions_completed} of {status.partitions_total} partitions")
    if status.pending_definition:
        fields = ", ".join(status.pending_definition)
        lines.append(f"  pending    a changed definition ({fields}), used from the next refresh on")
    lines += [f"  stalled    {shown(each)}" for each in _obstacle(status.obstacle)]
    if status.paused_since:
        who = f" by {shown(status.paused_by)}" if status.paused_by else ""
        lines.append(
            f"  paused     since {time_text(status.paused_since)}{who}: no new refresh begins before `amv resume`"
        )
    if status.is_dropping:
        lines.append("  dropping   `amv drop` did not finish: run it again")
    lines += [f"  waiting    {_waiter(waiter)}" for waiter in status.queue]
    if status.last is not None:
        lines.append(f"  last       {outcome_text(status.last)} at {time_text(status.last.finished_at)}")
        if status.last.error:
            lines.append(f"             {shown(status.last.error.message)}")
    if status.partitions and status.partitions[0].partition != "[]":
        lines += ["", *("  " + line for line in _progress_table(status))]
    return "\n".join(lines)


def _stalled(status: TableStatus) -> str:
    return "stalled" if status.obstacle else ""


def _obstacle(found: Obstacle | None) -> tuple[str, ...]:
    """Return since when no refresh could begin, and why; nothing if the newest one began."""
    if found is None:
        return ()
    since, last = (moment_text(ms) for ms in (found.since_ms, found.last_ms))
    tries = f"{found.num_tries} tries since {since}, the last at {last}" if found.num_tries > 1 else f"since {since}"
    return f"no refresh could begin, {tries}", f"[{found.error.code}] {found.error.message} {found.error.hint}"


def _freshness(status: TableStatus) -> str:
    target = timedelta(seconds=status.freshness_target or 0)
    as_of = f"as of {time_text(status.fresh_as_of)}"
    if status.fresh_as_of is None:
        as_of = "never refreshed" if status.main_version is None else "unknown since a rollback or a load"
    by_source = status.measured_from is MeasuredFrom.SOURCE and status.source_as_of is not None
    of_source = f"; its source's state is of {time_text(status.source_as_of)}" if status.source_as_of else ""
    counts = ", from the source's state" if by_source else ""
    return f"{as_of}{of_source}; {'late, ' if status.is_late else ''}its target is {target}{counts}{_to_come(status)}"


def _to_come(status: TableStatus) -> str:
    """Return when the table is late, if that is known and lies ahead."""
    if status.late_at is None or status.is_late:
        return ""
    usual = "" if status.usual_ms is None else f"; a refresh usually takes {duration_text(status.usual_ms / 1000)}"
    return f"; late at {time_text(status.late_at)}{usual}"


def _lease(status: TableStatus) -> str:
    return (
        "its lease is live"
        if status.is_lease_live
        else "its lease has expired: the next refresh continues or restarts it"
    )


def _owner(status: TableStatus) -> str:
    if status.is_held:
        return "no process"
    return status.owner or shown(f"no process: it waits for the next one of {status.kept_for}")


def _barred(status: TableStatus) -> str:
    return "dropping" if status.is_dropping else "paused" if status.paused_since else ""


def _waiter(waiter: WaiterStatus) -> str:
    who = ", ".join(filter(None, (waiter.user, waiter.trigger)))
    whom = f", for {waiter.waits_for}" if waiter.waits_for else ", next"
    joins = f", joined to refresh {waiter.joins[:8]}" if waiter.joins else ""
    return shown(f"{waiter.place}. {waiter.process} ({who}) since {time_text(waiter.since)}{whom}{joins}")


def _progress(status: TableStatus) -> str:
    waiting = f"{len(status.queue)} waiting" if status.queue else ""
    if status.refresh_id is None:
        return waiting or "-"
    owner = "awaiting approval" if status.is_held else "" if status.is_lease_live else "lease expired"
    done = f"{status.partitions_completed} of {status.partitions_total} partitions"
    return ", ".join(filter(None, (done, owner, waiting)))


def cancelled_text(result: Cancelled, phase: Phase) -> str:
    """Return the effect of a request to cancel a refresh; `phase` is the table's afterwards."""
    match result:
        case Cancelled.REQUESTED:
            return "cancel requested; its owner stops within seconds."
        case Cancelled.KEPT:
            return (
                "cancel requested; no process works on the refresh now, so its next task ends it. If it has none,"
                " because its run has ended: `amv recover TABLE --owner-is-dead --note TEXT`."
            )
        case Cancelled.LEFT:
            return "cancel requested; its owner is dead, so the next refresh or `amv recover` ends it."
        case Cancelled.ENDED:
            return "cancelled: no process worked on the refresh, and it has ended."
        case Cancelled.NOTHING:
            is_late = phase is Phase.CLEANUP
            return "not cancelled: it is already published and cleaning up." if is_late else "no refresh is running."
        case _:
            assert_never(result)


def _progress_table(status: TableStatus) -> list[str]:
    rows = [
        (
            partition_text(p.partition),
            status.done if p.is_completed else "waiting",
            *map(number, (p.sealed_rows, p.rows_inserted, p.rows_updated, p.rows_deleted)),
        )
        for p in status.partitions[:MAX_PARTITIONS]
    ]
    columns = ("partition", "state", "staged", "to insert", "to update", "to delete")
    lines = table(columns, rows, numbers_from=2)
    rest = len(status.partitions) - MAX_PARTITIONS
    return [*lines, f"and {rest} more; --json has them all"] if rest > 0 else lines
