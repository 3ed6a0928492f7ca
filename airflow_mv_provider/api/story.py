"""What happened in a refresh, as sentences in the order of time: who worked, who waited for what, and how it ended."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from airflow_mv_provider.api import words
from airflow_mv_provider.api.airflow_database import TaskTry
from airflow_mv_provider.api.attempts import LOST, Work
from airflow_mv_provider.core.approval.hold import Decision
from airflow_mv_provider.core.outcome import HoldReport, Outcome, RefreshReport
from airflow_mv_provider.core.phase import Phase
from airflow_mv_provider.core.strategy_names import MEANINGS
from airflow_mv_provider.report_text.figures import number

_MIN_SHOWN_MS = 1_000  # a shorter wait is not worth a sentence


@dataclass(frozen=True, slots=True)
class Event:
    """One sentence of a refresh's story, without its full stop.

    kind    : CSS class of the stretch in the picture that it is about; empty for a moment
    seconds : how long it took; None for a moment
    task    : Airflow's task and try that did it, if it was one and the user may see it
    process : which did it, in words; None if none did
    """

    at_ms: int
    text: str
    kind: str = ""
    seconds: float | None = None
    task: TaskTry | None = None
    process: str | None = None


def story(report: RefreshReport, work: Sequence[Work]) -> tuple[Event, ...]:
    """Return the story of a refresh; nothing for one that never began.

    work : its attempts, by `work_of`
    """
    began, ended = words.ms_of(report.started_at), words.ms_of(report.finished_at)
    if began is None:
        return ()
    events = [Event(began, text) for text in _beginning(report)]
    for each in work:
        events += _attempt(report, each, began, is_last=each is work[-1])
    events += _hold(report.hold) if report.hold else ()
    events.sort(key=lambda each: each.at_ms)  # keeps the order of what happened at one time
    if ended is not None:
        events += [Event(max(ended, events[-1].at_ms), text) for text in _ending(report)]
    return tuple(events)


def _beginning(report: RefreshReport) -> list[str]:
    asked = [part for part in (report.scope, ", ".join(report.overrides) and "some guards overridden") if part]
    who = f"{report.user} started it" if report.user else "It was started"
    by = f" ({report.trigger})" if report.trigger else ""
    lines = [f"{who}{by}{': ' if asked else ''}{', '.join(asked)}"]
    if report.note:
        lines.append(f"The reason given: {report.note}")
    if report.strategy and report.outcome is not Outcome.NOTHING_TO_DO:
        expected = next((way.seconds for way in report.estimates if way.strategy == report.strategy), None)
        time = "" if expected is None else f"; expected to take {words.short(expected)}"
        why = f", because {report.reason}" if report.reason else ""
        lines.append(f"It was decided to {MEANINGS[report.strategy]}{why}{time}")
    return lines


def _attempt(report: RefreshReport, work: Work, began: int, *, is_last: bool) -> list[Event]:
    """Return what one attempt did; of a process that only waited, its wait alone."""
    events: list[Event] = []
    at = float(began + work.start_ms)
    process = words.process_text(work.attempt.process)
    for place, (phase, ms) in enumerate(work.parts):
        if phase is None:
            if ms >= _MIN_SHOWN_MS:
                is_first = place == 0 and len(work.parts) > 1
                events.append(Event(round(at), _wait(report, at, at + ms, is_first=is_first), "waiting", ms / 1000))
        else:
            is_now = is_last and report.finished_at is None and place == len(work.parts) - 1
            text = _phase_text(report, phase, at, is_now=is_now)
            events.append(Event(round(at), text, phase.lower(), ms / 1000, work.task, process))
        at += ms
    return events


def _wait(report: RefreshReport, since: float, until: float, *, is_first: bool) -> str:
    held = words.ms_of(report.hold.since) if report.hold else None
    if held is not None and since - _MIN_SHOWN_MS <= held <= until:
        return "It waited for a decision, then for the next task and its Spark"
    if is_first:
        return "It prepared its work"
    return "No process worked: the next task, or try, and its Spark had to start"


def _phase_text(report: RefreshReport, phase: Phase | str, at: float, *, is_now: bool) -> str:
    if phase == LOST:
        return "It was killed, or failed: the work of this time was lost"
    if is_now:
        return _NOW[Phase(phase)]
    held = words.ms_of(report.hold.since) if report.hold else None
    if phase == Phase.MERGING and ((held is not None and at < held) or report.outcome not in _WRITTEN):
        return "It compared the rows with the table's"
    return _DONE[Phase(phase)].get(report.strategy or "", _DONE[Phase(phase)][""])


_WRITTEN = (Outcome.PUBLISHED, Outcome.RUNNING)
_NOW = {
    Phase.REFRESHING: "It reads the source",
    Phase.MERGING: "It compares the rows with the table's, and publishes what differs",
    Phase.CLEANUP: "It removes its working files",
    Phase.NORMAL: "It ends",
}
_DONE = {
    Phase.REFRESHING: {"": "It read the source", "incremental": "It read what changed in the source"},
    Phase.MERGING: {
        "": "It compared the rows with the table's, and merged what differs",
        "incremental": "It merged the changes into the table",
        "replace": "It rewrote all rows of the table",
    },
    Phase.CLEANUP: {"": "It removed its working files"},
    Phase.NORMAL: {"": "It ended"},
}


def _hold(hold: HoldReport) -> list[Event]:
    events = [Event(words.ms_of(hold.since) or 0, f"Waited for approval: {hold.reason.rstrip('.')}")]
    if hold.decision and hold.decided_at:
        by, note = f" by {hold.decided_by}" if hold.decided_by else "", f": {hold.note}" if hold.note else ""
        events.append(Event(words.ms_of(hold.decided_at) or 0, f"It was {_DECIDED[Decision(hold.decision)]}{by}{note}"))
    return events


_DECIDED = {
    Decision.APPROVED: "approved",
    Decision.WITHOUT_DELETES: "approved, without its deletes,",
    Decision.REJECTED: "rejected",
    Decision.SUPERSEDED: "superseded",
}


def _ending(report: RefreshReport) -> list[str]:
    failed = [check for check in report.checks if not check.is_passed]
    checks = [f"{len(report.checks) - len(failed)} of {len(report.checks)} checks passed"] if report.checks else []
    rows = ", ".join(
        f"{number(count)} {name}"
        for name, count in (
            ("inserted", report.rows_inserted),
            ("updated", report.rows_updated),
            ("deleted", report.rows_deleted),
            ("unchanged", report.rows_unchanged),
        )
    )
    why = f" ({report.error.code})" if report.error else ""
    match report.outcome:
        case Outcome.PUBLISHED:
            version = f" as Delta version {report.main_version}" if report.main_version is not None else ""
            return [*checks, f"Published{version}: rows {rows}"]
        case Outcome.DIFFERENCES:
            return [*checks, f"Nothing was written, it only compared: rows {rows}"]
        case Outcome.NOTHING_TO_DO:
            return [f"There was nothing to do{f', because {report.reason}' if report.reason else ''}"]
        case Outcome.REFUSED:
            return [*checks, f"Refused{why}; the table is as it was"]
        case Outcome.FAILED:
            return [*checks, f"Failed{why}"]
        case Outcome.CANCELLED:
            return ["Cancelled"]
        case Outcome.ABANDONED:
            return [f"Given up by the process that took it over{why}"]
        case Outcome.RUNNING:
            return []
