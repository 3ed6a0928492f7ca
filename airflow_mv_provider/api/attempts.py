"""Which processes worked on a refresh, and when none did: one answer for its picture, its events, duration and logs.

No log line passes through this application. When a user opens a log, the browser asks Airflow's own API for it
(`static/log.js`), so Airflow decides who may read it, and finds it on remote storage or on the worker that writes it.
What `amv` logs is printed where it was started, and not kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from airflow_mv_provider.api import words
from airflow_mv_provider.api.airflow_database import TaskTry
from airflow_mv_provider.core.airflow_key import is_of, run_of
from airflow_mv_provider.core.outcome import AttemptReport, Outcome, RefreshReport
from airflow_mv_provider.core.phase import Phase
from airflow_mv_provider.report_text.figures import total_seconds

WORKING = (Phase.REFRESHING, Phase.MERGING, Phase.CLEANUP)
LOST = "lost"  # the work of a killed process
_MIN_WAIT_MS = 100
_CLOCKS_MS = 5_000  # Airflow's clock and the metadata database's may differ by so much

Part = tuple[Phase | str | None, float]
"""A phase, LOST, or None for waiting; and its milliseconds."""


@dataclass(frozen=True, slots=True)
class Work:
    """One attempt of a refresh.

    task     : Airflow's task and try that worked, if it was one and the user may see it
    start_ms : since the refresh began
    parts    : what it did and when it waited, in the order of time
    """

    attempt: AttemptReport
    task: TaskTry | None
    start_ms: int
    parts: Sequence[Part]


def work_of(
    report: RefreshReport, now_ms: int, *, is_waiting: bool = False, tries: Sequence[TaskTry] = ()
) -> tuple[Work, ...]:
    """Return the attempts of a refresh, each with its phases; nothing for a refresh without attempts.

    Between its phases and the next attempt's begin no process worked, because a task and its Spark had to start; or a
    process worked that was killed, until Airflow noticed its end. Spark starts before an attempt begins, so an attempt
    begins with its work.

    is_waiting : no process works on the refresh now
    tries      : of the tasks of the runs that worked on it, as far as the user may see them
    """
    began, ended = words.ms_of(report.started_at), words.ms_of(report.finished_at)
    if began is None or not report.attempts:
        return ()
    until = ended or max(now_ms, began)
    starts = [(words.ms_of(a.started_at) or began) - began for a in report.attempts]
    ends = [*starts[1:], until - began]
    found = []
    for attempt, start, end in zip(report.attempts, starts, ends, strict=True):
        task = task_of(attempt, tries)
        parts = _parts(attempt, end - start, report, _killed_ms(task, began + start), is_waiting=is_waiting)
        found.append(Work(attempt, task, start, parts))
    return tuple(found)


def waited_s(report: RefreshReport) -> float:
    """Return for how many seconds of a refresh that has ended no phase was worked on; 0 if no phase was timed."""
    if not report.phase_seconds:
        return 0.0  # it only compared, or failed before its first phase
    return max((total_seconds(report) or 0.0) - sum(report.phase_seconds.values()), 0.0)


def took_ms(report: RefreshReport) -> int | None:
    """Return how long a refresh took, in milliseconds; None if it has not ended."""
    began, ended = words.ms_of(report.started_at), words.ms_of(report.finished_at)
    return None if began is None or ended is None else ended - began


def task_of(attempt: AttemptReport, tries: Sequence[TaskTry]) -> TaskTry | None:
    """Return the task and try whose process made an attempt; None for another caller, or a process of its own.

    tries : in the order in which they started
    """
    run, began = run_of(attempt.owner_key), words.ms_of(attempt.started_at)
    pid = attempt.process.rpartition(":")[2]
    found = [
        each
        for each in tries
        if (each.dag_id, each.run_id) == run
        and is_of(attempt.owner_key, each.task_id, each.map_index)
        and str(each.pid) == pid
        and each.started_ms is not None
        and began is not None
        and each.started_ms <= began + _CLOCKS_MS
    ]
    return found[-1] if found else None


def dead_owner(owner_key: str | None, process: str | None, tries: Sequence[TaskTry]) -> TaskTry | None:
    """Return the try whose process owns a refresh but has ended, as Airflow knows before the lease expires.

    Containers may give all processes the same number, so a try of that number that runs is the owner.

    process : of the owner, `host:pid`; None if no process owns it
    tries   : of the run's tasks, as far as the user may see them, in the order in which they started
    returns : None if the owner runs, is no task, or is unknown to Airflow
    """
    pid = (process or "").rpartition(":")[2]
    of_owner = [
        each
        for each in tries
        if (each.dag_id, each.run_id) == run_of(owner_key)
        and is_of(owner_key, each.task_id, each.map_index)
        and str(each.pid) == pid
    ]
    has_ended = all(each.ended_ms is not None and each.state in _ENDED for each in of_owner)
    return of_owner[-1] if of_owner and has_ended else None


_ENDED = ("failed", "up_for_retry", "success", "removed", "skipped")


def _killed_ms(task: TaskTry | None, start_ms: int) -> float | None:
    """Return for how long a process worked that did not come to its own end; None if it did, or if that is unknown."""
    if task is None or task.ended_ms is None or task.state not in ("failed", "up_for_retry"):
        return None
    return task.ended_ms - start_ms


def _parts(
    attempt: AttemptReport, length: float, report: RefreshReport, killed: float | None, *, is_waiting: bool
) -> Sequence[Part]:
    """Return one epoch's phases, what was lost and its wait, in the order of time.

    length : milliseconds until the next attempt began, or the refresh ended, or until now
    killed : milliseconds after which its process was killed
    """
    known = [(phase, attempt.phase_seconds[phase] * 1000) for phase in WORKING if phase in attempt.phase_seconds]
    rest = length - sum(ms for _, ms in known)
    if rest < _MIN_WAIT_MS:
        return known
    if attempt is not report.attempts[-1] or is_waiting:
        lost = min(max((killed or 0) - (length - rest), 0), rest)
        return [*known, *(((LOST, lost),) if lost else ()), *(((None, rest - lost),) if lost < rest else ())]
    if report.outcome is Outcome.RUNNING:
        return [*known, (report.phase, rest)]
    return [(None, rest), *known]  # its last phase's end was the refresh's: it prepared before


@dataclass(frozen=True, slots=True)
class Logs:
    """Where a refresh's log lines are.

    tries     : of Airflow's tasks, in the order in which they started
    processes : those outside of Airflow, in words
    """

    tries: tuple[TaskTry, ...]
    processes: tuple[str, ...] = ()


def logs_of(report: RefreshReport, work: Sequence[Work], tries: Sequence[TaskTry], now_ms: int) -> Logs:
    """Return whose logs have lines of a refresh.

    A run that was cleared has tries of an earlier refresh too, so tries count only if they ran while this one did:
    those that worked on it, those that waited for it, and those whose Spark did not start.

    work  : its attempts, by `work_of`
    tries : of all tasks of its runs, as far as the user may see them, in the order in which they started
    """
    began, ended = words.ms_of(report.started_at), words.ms_of(report.finished_at)
    if began is None:
        return Logs(())
    until = (ended or max(now_ms, began)) + _CLOCKS_MS
    worked = [each.task for each in work]
    keys = {each.attempt.owner_key for each in work}

    def has_lines(each: TaskTry) -> bool:
        ran = each.started_ms is not None and each.started_ms <= until
        has_ended_before = each.ended_ms is not None and not each.is_going_on and each.ended_ms < began - _CLOCKS_MS
        return each in worked or (ran and not has_ended_before and any(_works_for(key, each) for key in keys))

    outside = (words.process_text(each.attempt.process) for each in work if run_of(each.attempt.owner_key) is None)
    return Logs(tuple(each for each in tries if has_lines(each)), tuple(dict.fromkeys(outside)))


def _works_for(owner_key: str | None, task: TaskTry) -> bool:
    """True if a task works on its owner's refresh; a key without a scope covers all tasks of a run, others' too."""
    parts = (owner_key or "").split(":", 4)
    has_scope = len(parts) == 5 and bool(parts[2])
    in_run = run_of(owner_key) == (task.dag_id, task.run_id)
    return in_run and has_scope and is_of(owner_key, task.task_id, task.map_index)
