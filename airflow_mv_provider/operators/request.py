"""What a task asks for, read from its run: who calls, and what a person wrote into the trigger form.

Whatever comes from a run's conf is literal text from whoever may trigger the DAG. It is checked here although the form
has checked it before: the REST API lets unknown keys pass, and a DAG without Params checks nothing. Nothing of it is
ever rendered as a template.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from airflow.sdk import BaseOperator, Context

from airflow_mv_provider.core.guard import NAMES as GUARD_NAMES
from airflow_mv_provider.core.state import Caller
from airflow_mv_provider.exceptions import DefinitionError

_TRIGGERS = {"manual": "manual", "backfill": "backfill"}


@dataclass(frozen=True, slots=True)
class Request:
    """How a refresh is to be done.

    overrides : names of guards set aside for this refresh
    force     : compare even if the source says that nothing is new
    """

    read_only: bool = False
    overrides: tuple[str, ...] = ()
    force: bool = False

    def __post_init__(self) -> None:
        for name, value in (("read_only", self.read_only), ("force", self.force)):
            if not isinstance(value, bool):
                raise _refused(name, value, "Use true or false.")
        for guard in self.overrides:
            if guard not in GUARD_NAMES:
                raise _refused("overrides", guard, f"Guards: {', '.join(GUARD_NAMES)}.")


def asked(arguments: Request, params: Mapping[str, Any]) -> Request:
    """Return what the operator's arguments and the run's params ask for together.

    A run may ask for more than the DAG's author wrote, never for less: read-only stays read-only.

    raises : DefinitionError, for a value that is not what it has to be
    """
    overrides = params.get("overrides") or ()
    if not isinstance(overrides, list | tuple):
        raise _refused("overrides", overrides, "Give a list of guards.")
    run = Request(read_only=_flag(params, "read_only"), overrides=tuple(overrides), force=_flag(params, "force"))
    return Request(
        read_only=arguments.read_only or run.read_only,
        overrides=tuple(dict.fromkeys((*arguments.overrides, *run.overrides))),
        force=arguments.force or run.force,
    )


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


def _flag(params: Mapping[str, Any], name: str) -> Any:
    value = params.get(name)
    return False if value is None else value


def _refused(name: str, value: object, hint: str) -> DefinitionError:
    return DefinitionError(f"param {name}", f"{repr(value)[:80]} is not allowed.", hint=hint)
