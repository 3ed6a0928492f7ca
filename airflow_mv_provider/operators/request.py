"""Who asks, read from a task's run."""

from __future__ import annotations

import os
import socket

from airflow.sdk import BaseOperator, Context

from airflow_mv_provider.core.state import Caller

_TRIGGERS = {"manual": "manual", "backfill": "backfill"}


def caller(context: Context, *, scope: str | None, away_ms: int = 0) -> Caller:
    """Return who asks: the same key for every task, try and twin that works on one refresh of one run.

    scope   : what tells two refreshes of one run apart: the group of phase tasks, the id of a task that does it all
    away_ms : how long a task that waits may be gone before it loses its place in the queue
    """
    ti, run = context["ti"], context["dag_run"]
    return Caller(
        # The run id comes last: it alone may hold a colon.
        key=f"airflow:{ti.dag_id}:{scope or ''}:{ti.map_index}:{ti.run_id}",
        process=f"{socket.gethostname()}:{os.getpid()}",
        trigger=_TRIGGERS.get(str(getattr(run.run_type, "value", run.run_type)), "dag"),
        user=getattr(run, "triggering_user_name", None),
        will_retry=ti.try_number <= ti.max_tries,
        away_ms=away_ms,
    )


def group_of(operator: BaseOperator) -> str | None:
    """Return the id of the task group that an operator is in, if any."""
    group = operator.task_group
    return group.group_id if group is not None else None


def was_cleared(context: Context, retries: int | None) -> bool:
    """True if this try is the first after somebody cleared the task: what it has to do was done once already."""
    ti = context["ti"]
    is_first_try = ti.try_number <= ti.max_tries - (retries or 0) + 1  # clearing adds the tries made to max_tries
    return is_first_try and bool(getattr(context["dag_run"], "clear_number", 0))
