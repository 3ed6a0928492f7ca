"""One refresh as text: what it changed, in which phases, and what went wrong."""

from __future__ import annotations

from collections.abc import Sequence

from airflow_mv_provider.core.definition.identifier import ERRORS_SUFFIX
from airflow_mv_provider.core.outcome import (
    MAX_PARTITIONS_IN_HISTORY,
    ErrorReport,
    HoldReport,
    Outcome,
    PartitionReport,
    RefreshReport,
)
from airflow_mv_provider.core.phase import Phase
from airflow_mv_provider.report_text.figures import (
    MAX_PARTITIONS,
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

_MIN_SHOWN_S = 0.1


def refresh_text(report: RefreshReport) -> str:
    """Return the text of one refresh: its changes, the changed partitions, and the time of each phase."""
    if report.refresh_id is None:
        return ""  # it never began; the error has all the facts
    lines = [f"{report.table}: {outcome_text(report)}{_duration(report)}", f"  refresh   {_identity(report)}"]
    for name, text in (("reason", report.reason), ("note", report.note)):
        lines += [f"  {name:<9} {shown(text)}"] if text else []
    lines += [f"  {name:<9} {text}" for name, text in hold_lines(report.hold)]
    if report.strategy and report.estimates:
        lines.append(f"  strategy  {_strategy(report)}")
    lines += [f"  schema    {shown(change)}" for change in report.schema_changes]
    lines += [f"  {'check' if each.is_passed else each.severity:<9} {shown(each.sentence)}" for each in report.checks]
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
        lines += [f"  kept      {kept_text(report.rows_kept)}"] if report.rows_kept else []
        lines.append(f"  bytes     {size(report.bytes_main)} to the table, {size(report.bytes_staging)} to staging")
    if report.main_version is not None:
        lines.append(f"  version   {report.main_version}")
    if report.phase_seconds:
        lines.append(f"  phases    {phases_text(report)}")
    lines += _attempts(report)
    if report.recovered:
        lines.append(f"  recovered {', '.join(report.recovered)}")
    changed = [p for p in report.partitions if p.rows_inserted or p.rows_updated or p.rows_deleted]
    if changed and report.partitions[0].partition != "[]":
        is_cut = len(report.partitions) >= MAX_PARTITIONS_IN_HISTORY
        lines += ["", *("  " + line for line in partitions_table(changed, is_cut=is_cut))]
        if unchanged := len(report.partitions) - len(changed):
            how_many = f"{'at least ' if is_cut else ''}{unchanged} more"
            lines.append(f"  {how_many} {'partition is' if unchanged == 1 else 'partitions are'} unchanged")
    return "\n".join(lines)


def hold_lines(hold: HoldReport | None) -> list[tuple[str, str]]:
    """Return a refresh's hold in words, each line with its name; nothing if it was not held."""
    if hold is None:
        return []
    lines = [("approval", shown(f"{hold.reason} Since {time_text(hold.since)}, until {time_text(hold.until)}."))]
    if hold.decision is not None:
        note = f": {hold.note}" if hold.note else ""
        who = hold.decided_by or "an unnamed user"
        decision = hold.decision if hold.decision != "without deletes" else "approved without deletes"
        lines.append(("decision", shown(f"{decision} by {who} at {time_text(hold.decided_at)}{note}")))
    return lines


def kept_text(num_rows: int) -> str:
    """Return that main has rows whose deletes were left out."""
    rows = "1 row" if num_rows == 1 else f"{number(num_rows)} rows"
    return f"{rows} that the source no longer has: an approval left out the deletes"


def recovered_text(report: RefreshReport) -> str:
    """Return the result of recovering a refresh whose owner is dead."""
    who = f"refresh {report.refresh_id} of a dead owner"
    if report.finished_at:
        return f"{report.table}: {who} was ended: {outcome_words(report.outcome)}."
    return f"{report.table}: {who} could not be ended; the next refresh or `amv recover` tries again."


def partitions_table(partitions: Sequence[PartitionReport], *, is_cut: bool = False) -> list[str]:
    """Return a table of a refresh's changes per partition; a long table ends in the count of the others.

    Args:
        is_cut: The history has only some of the refresh's partitions, those with changes first.
    """
    rows = [
        (partition_text(p.partition), *map(number, (p.rows_inserted, p.rows_updated, p.rows_deleted, p.rows_unchanged)))
        for p in partitions[:MAX_PARTITIONS]
    ]
    lines = table(("partition", "inserted", "updated", "deleted", "unchanged"), rows)
    if (rest := len(partitions) - MAX_PARTITIONS) <= 0:
        return lines
    others = f"at least {rest} more; --json has {len(partitions)}" if is_cut else f"{rest} more; --json has them all"
    return [*lines, f"and {others}"]


def phases_text(report: RefreshReport) -> str:
    """Return the wall time of each phase, in the order of the protocol, and the time outside of phases.

    Before its first phase an attempt opens the source and estimates sizes. Between attempts, no process works.
    """
    spent = [(str(phase), report.phase_seconds[phase]) for phase in Phase if phase in report.phase_seconds]
    rest = (total_seconds(report) or 0.0) - sum(seconds for _, seconds in spent)
    if rest >= _MIN_SHOWN_S:
        spent.insert(0, ("preparation" if len(report.attempts) < 2 else "preparation and waiting", rest))
    return " · ".join(f"{name} {seconds:.1f} s" for name, seconds in spent)


def error_text(error: ErrorReport) -> str:
    """Return an error in two lines: what happened, and what to do."""
    return shown(f"[{error.code}] {error.message}\n  {error.hint}").rstrip()


def outcome_text(report: RefreshReport) -> str:
    """Return how a refresh ended, or the phase that it is in."""
    match report.outcome:
        case Outcome.NOTHING_TO_DO:
            return "nothing to do"
        case Outcome.DIFFERENCES:
            found = "differences" if _num_changed(report) else "no difference"
            return f"{found} found, nothing written"
        case Outcome.RUNNING if report.hold is not None and report.hold.decision is None:
            return "awaiting approval"
        case Outcome.RUNNING:
            return f"running ({report.phase})"
        case other:
            return str(other)


def _identity(report: RefreshReport) -> str:
    return str(report.refresh_id)


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
    for nth, each in enumerate(report.attempts if len(report.attempts) > 1 else (), start=1):
        figures = [f"{number(each.chunks)} {'batch' if each.chunks == 1 else 'batches'} compared"]
        figures += [f"{phase} {seconds:.1f} s" for phase, seconds in each.phase_seconds.items()]
        began = f"{nth} from {each.phase} at {time_text(each.started_at)}"
        lines.append(f"  attempt   {began} by {shown(each.process)}: {', '.join(figures)}")
        if each.note is not None:
            lines.append(f"            {shown(each.note)}")
    return lines


def _num_changed(report: RefreshReport) -> int:
    return report.rows_inserted + report.rows_updated + report.rows_deleted


def _rows(report: RefreshReport) -> str:
    counts = ("inserted", "updated", "deleted", "unchanged")
    return ", ".join(f"{number(getattr(report, f'rows_{count}'))} {count}" for count in counts)


def _duration(report: RefreshReport) -> str:
    seconds = seconds_text(report)
    return f" in {seconds}" if seconds != "-" else ""
