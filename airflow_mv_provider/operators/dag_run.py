"""The caller and the partition interval of a task, derived from its DAG run."""

from __future__ import annotations

import logging
import os
import socket
from datetime import datetime, tzinfo
from http import HTTPStatus
from zoneinfo import ZoneInfo

from airflow.sdk import DAG, BaseOperator, Context
from airflow.sdk.api.client import ServerResponseError
from airflow.sdk.exceptions import AirflowRuntimeError
from airflow.sdk.execution_time.task_runner import RuntimeTaskInstance

from airflow_mv_provider.core.airflow_key import key_of, run_of
from airflow_mv_provider.core.scope.interval import Grain, window
from airflow_mv_provider.core.state import Caller
from airflow_mv_provider.exceptions import DefinitionError

log = logging.getLogger(__name__)

_ENDED = ("success", "failed")
_TRIGGERS = {"manual": "manual", "backfill": "backfill"}


def caller(context: Context, *, scope: str | None, away_ms: int = 0) -> Caller:
    """Return the caller; its key is the same for every task, try and duplicate that works on one refresh of one run.

    Args:
        scope: Distinguishes refreshes within one run: the id of the phase tasks' group, or of a task with all
            phases.
        away_ms: How long a waiting task may be rescheduled before it loses its place in the queue.
    """
    ti, run = context["ti"], context["dag_run"]
    return Caller(
        key=key_of(ti.dag_id, scope, ti.map_index, ti.run_id),
        process=f"{socket.gethostname()}:{os.getpid()}",
        trigger=_trigger(run),
        user=getattr(run, "triggering_user_name", None),
        will_retry=ti.try_number <= ti.max_tries,
        away_ms=away_ms,
    )


def is_over(owner_key: str) -> bool:
    """Return whether the run of a refresh's owner has ended or was deleted, so that no task of it will come."""
    run = run_of(owner_key)
    if run is None:
        return False
    try:
        return RuntimeTaskInstance.get_dagrun_state(*run) in _ENDED
    except (AirflowRuntimeError, ServerResponseError) as error:  # the second from `dag.test`, which has no supervisor
        if _status_of(error) == HTTPStatus.NOT_FOUND:
            return True
        log.warning("Airflow does not say whether run %s of %s has ended: %s", *reversed(run), error)
        return False


def _status_of(error: AirflowRuntimeError | ServerResponseError) -> int | None:
    if isinstance(error, ServerResponseError):
        return error.response.status_code
    return (error.error.detail or {}).get("status_code")


def interval_of(context: Context, grain: Grain, text: str | None) -> tuple[str, str] | None:
    """Return the partition bounds of a run's interval; None for a run without an interval.

    Raises:
        DefinitionError: In a backfill whose runs have no interval, because each would refresh everything.
    """
    run = context["dag_run"]
    bounds = window(
        grain,
        _zone(context["dag"]),
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


def _zone(dag: DAG) -> tzinfo:
    """Return the zone that a DAG's intervals are made in: its timetable's, if that has one of its own."""
    timetable = getattr(dag.timetable, "timetable", dag.timetable)  # that of an AssetOrTimeSchedule lies within it
    zone = getattr(timetable, "timezone", None) or dag.timezone
    return ZoneInfo(zone) if isinstance(zone, str) else zone


def _trigger(run: object) -> str:
    kind = getattr(run, "run_type", None)
    return _TRIGGERS.get(str(getattr(kind, "value", kind)), "dag")


def group_of(operator: BaseOperator) -> str | None:
    """Return the id of an operator's task group; None without one."""
    group = operator.task_group
    return group.group_id if group is not None else None


def was_cleared(context: Context, retries: int | None) -> bool:
    """True if this try is the first after a user cleared the task, which has completed its work before."""
    ti = context["ti"]
    is_first_try = ti.try_number <= ti.max_tries - (retries or 0) + 1  # clearing adds the tries made to max_tries
    # Others of the run's tasks may have been cleared, and this one has never run.
    return is_first_try and ti.try_number > 1 and bool(getattr(context["dag_run"], "clear_number", 0))


def had_ended(context: Context, finished_at: str | None) -> bool:
    """True if a refresh had ended before this try began, which may have been rescheduled or deferred since."""
    ti = context["ti"]
    began = ti.get_first_reschedule_date(context) or ti.start_date
    return finished_at is not None and datetime.fromisoformat(finished_at) < began
