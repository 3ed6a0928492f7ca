"""Whose log has lines of a refresh: the tries of Airflow's tasks that worked on it, and processes outside of Airflow.

No line passes through this application. When a user opens a log, the browser asks Airflow's own API for it
(`static/log.js`), so Airflow decides who may read it, and finds it on remote storage or on the worker that writes it.
What `amv` logs is printed where it was started, and not kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from airflow_mv_provider.api import words
from airflow_mv_provider.api.airflow_database import TaskTry
from airflow_mv_provider.api.attempts import CLOCKS_MS, Work
from airflow_mv_provider.core.outcome import RefreshReport


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
    until = (ended or max(now_ms, began)) + CLOCKS_MS
    worked = [each.task for each in work]
    keys = {each.attempt.owner_key for each in work}

    def has_lines(each: TaskTry) -> bool:
        ran = each.started_ms is not None and each.started_ms <= until
        has_ended_before = each.ended_ms is not None and not each.is_going_on and each.ended_ms < began - CLOCKS_MS
        return each in worked or (ran and not has_ended_before and any(_works_for(key, each) for key in keys))

    outside = (
        words.process_text(each.attempt.process) for each in work if words.run_of(each.attempt.owner_key) is None
    )
    return Logs(tuple(each for each in tries if has_lines(each)), tuple(dict.fromkeys(outside)))


def _works_for(owner_key: str | None, task: TaskTry) -> bool:
    """True if a task works on its owner's refresh; a key without a scope covers all tasks of a run, others' too."""
    parts = (owner_key or "").split(":", 4)
    has_scope = len(parts) == 5 and bool(parts[2])
    in_run = words.run_of(owner_key) == (task.dag_id, task.run_id)
    return in_run and has_scope and words.is_of(owner_key, task.task_id, task.map_index)
