"""What Airflow knows of the run to which a refresh belongs: who works, who comes next, and what to clear to go on.

Only runs of DAGs that the user may read are looked at.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from airflow_mv_provider.api import access
from airflow_mv_provider.api.airflow_database import DeclaringDag, TaskTry, run_state, task_tries
from airflow_mv_provider.core.airflow_key import is_of, run_of


@dataclass(frozen=True, slots=True)
class GoOn:
    """What Airflow's API is asked for: `POST dags/{dag_id}/clearTaskInstances`.

    failed : the try after which nothing happens by itself
    tasks  : task id and map index of those that are cleared
    is_new : the refresh has ended, so another one begins, from the first of its tasks
    """

    failed: TaskTry
    tasks: tuple[tuple[str, int], ...]
    is_new: bool

    @property
    def body(self) -> str:
        """The request's body, as JSON; downstream tasks that wait for these are cleared as well."""
        named = [task if index < 0 else [task, index] for task, index in self.tasks]
        asked = {"dag_run_id": self.failed.run_id, "task_ids": named, "only_failed": not self.is_new}
        return json.dumps({"dry_run": False, "include_downstream": True, "reset_dag_runs": True} | asked)


@dataclass(frozen=True, slots=True)
class OwnersRun:
    """The Airflow run whose tasks work on a refresh.

    state : as Airflow has it; None if the run was deleted
    next  : the task that works, or that Airflow will start by itself; None if there is none
    go_on : what to clear after its task has failed; None if none has, or the user may not
    """

    dag_id: str
    run_id: str
    state: str | None
    next: TaskTry | None = None
    go_on: GoOn | None = None

    @property
    def is_going_on(self) -> bool:
        """True if Airflow will start another task or try of it by itself."""
        return self.state in ("queued", "running")


TriesOf = Callable[[Iterable[str | None]], tuple[TaskTry, ...]]
"""Returns the tries of the tasks of the runs in owners' keys, as far as the user may see them."""


def go_on_of(owner_key: str | None, tries: Sequence[TaskTry], *, has_ended: bool) -> GoOn | None:
    """Return what to clear after a task of a refresh has failed for good; None if Airflow goes on by itself.

    owner_key : of the refresh's last attempt
    tries     : of all tasks of its run, as far as the user may see them
    has_ended : a phase's task cannot continue such a refresh, so that all tasks of its phases are cleared
    """
    run = run_of(owner_key)
    newest: dict[tuple[str, int], TaskTry] = {}
    for each in tries:
        if (each.dag_id, each.run_id) == run and is_of(owner_key, each.task_id, each.map_index):
            known = newest.get((each.task_id, each.map_index))
            if known is None or each.number >= known.number:
                newest[each.task_id, each.map_index] = each
    failed = [each for each in newest.values() if each.state == "failed"]
    if not failed or any(each.is_going_on for each in newest.values()):
        return None
    is_for_all = not (owner_key or "").split(":", 4)[2]  # such a key covers all tasks of its run, others' too
    if has_ended and is_for_all:
        return None
    cleared = list(newest) if has_ended else [(each.task_id, each.map_index) for each in failed]
    return GoOn(failed[-1], tuple(sorted(cleared)), has_ended)


def tries_of_runs(session: Any, dags: Iterable[DeclaringDag]) -> TriesOf:
    """Return what looks for the tries of these DAGs' tasks.

    dags : those that the user may see
    """
    seen = {dag.dag_id for dag in dags}

    @cache
    def of_runs(runs: frozenset[tuple[str, str]]) -> tuple[TaskTry, ...]:
        return task_tries(session, runs)

    def tries(owner_keys: Iterable[str | None]) -> tuple[TaskTry, ...]:
        return of_runs(frozenset(found for key in owner_keys if (found := run_of(key)) and found[0] in seen))

    return tries


def may_clear(user: Any, go_on: GoOn, dags: Iterable[DeclaringDag]) -> bool:
    """True if a user may clear these tasks."""
    return any(access.may_clear(user, dag) for dag in dags if dag.dag_id == go_on.failed.dag_id)


def owners_run(
    session: Any, user: Any, owner_key: str | None, dags: Iterable[DeclaringDag], tries_of: TriesOf
) -> OwnersRun | None:
    """Return the run to which the running refresh belongs; None for another caller, or for an unseen DAG."""
    found = run_of(owner_key)
    if found is None or found[0] not in {dag.dag_id for dag in dags}:
        return None
    tries = tries_of([owner_key])
    going_on = (t for t in tries if t.is_going_on and is_of(owner_key, t.task_id, t.map_index))
    go_on = go_on_of(owner_key, tries, has_ended=False)
    is_allowed = go_on is not None and may_clear(user, go_on, dags)
    return OwnersRun(*found, run_state(session, *found), next(going_on, None), go_on if is_allowed else None)
