"""Who asks, read from a task's run."""

from __future__ import annotations

import os
import socket

from airflow.sdk import BaseOperator, Context

from airflow_mv_provider.core.scope.interval import Grain, window
from airflow_mv_provider.core.state import Caller
from airflow_mv_provider.exceptions import DefinitionError

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
        trigger=_trigger(run),
        user=getattr(run, "triggering_user_name", None),
        will_retry=ti.try_number <= ti.max_tries,
        away_ms=away_ms,
    )


def interval_of(context: Context, grain: Grain, text: str | None) -> tuple[str, str] | None:
    """Return the bounds of the partitions that a run stands for; None if it stands for none of its own.

    raises : DefinitionError, in a backfill whose runs have no interval: each of them would refresh everything
    """
    run = context["dag_run"]
    bounds = window(
        grain,
        context["dag"].timezone,
        start=getattr(run, "data_interval_start", None),
        end=getattr(run, "data_interval_end", None),
        partition_key=getattr(run, "partition_key", None),
        text=text,
    )
    if bounds is None and _trigger(run) == "backfill":
        raise DefinitionError(
            "backfill",
            "the runs of this DAG have no interval, so each would refresh everything.",
            hint="Schedule it by CronDataIntervalTimetable or CronPartitionTimetable.",
        )
    return bounds


def _trigger(run: object) -> str:
    kind = getattr(run, "run_type", None)
    return _TRIGGERS.get(str(getattr(kind, "value", kind)), "dag")


def group_of(operator: BaseOperator) -> str | None:
    """Return the id of the task group that an operator is in, if any."""
    group = operator.task_group
    return group.group_id if group is not None else None


def was_cleared(context: Context, retries: int | None) -> bool:
    """True if this try is the first after somebody cleared the task: what it has to do was done once already."""
    ti = context["ti"]
    is_first_try = ti.try_number <= ti.max_tries - (retries or 0) + 1  # clearing adds the tries made to max_tries
    return is_first_try and bool(getattr(context["dag_run"], "clear_number", 0))
