"""The page's access to Airflow's database: the DAGs that declare a table, their next runs, and the audit log.

A DAG declares a table if one of its tasks has the table's asset (see `asset`) among its outlets. Of task instances only
the few columns of `task_tries` are read, of parsed DAGs only what our own operators add to them, and XComs not at all:
their tables change between Airflow versions.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from airflow.models.asset import AssetModel, DagScheduleAssetReference, TaskOutletAssetReference
from airflow.models.dag import DagModel, DagTag
from airflow.models.dagbundle import DagBundleModel
from airflow.models.dagrun import DagRun
from airflow.models.log import Log
from airflow.models.serialized_dag import SerializedDagModel
from airflow.models.taskinstance import TaskInstance
from airflow.models.taskinstancehistory import TaskInstanceHistory
from airflow.models.team import dag_bundle_team_association_table as bundle_teams
from airflow.utils.types import DagRunType
from sqlalchemy import ColumnElement, Row, Select, literal, null, or_, select, tuple_, union_all
from sqlalchemy.orm import Session

from airflow_mv_provider.asset import ASSET_PREFIX, ROW_ANSWERS_URI, table_of_asset
from airflow_mv_provider.compat import conf
from airflow_mv_provider.core.scope.declared_refresh import DeclaredRefresh, from_json
from airflow_mv_provider.exceptions import MvError


@dataclass(frozen=True, slots=True)
class DeclaringDag:
    """A DAG with a task that publishes a table.

    schedule : the timetable's description
    next_run : when the scheduler creates the next run; None if none is planned or the DAG is paused
    can_run  : users can start runs: the DAG allows manual runs and has no import error
    owners   : those of its tasks, without the one that tasks have by default
    """

    dag_id: str
    title: str
    team: str | None
    schedule: str | None
    next_run: datetime | None
    is_paused: bool
    can_run: bool
    owners: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TaskTry:
    """One try of a task in a run.

    map_index  : -1 for a task that is not mapped
    state      : as Airflow has it; None if it is not scheduled yet
    started_ms, ended_ms : of its process; of a try that is rescheduled, the last look
    """

    dag_id: str
    run_id: str
    task_id: str
    map_index: int
    number: int
    state: str | None
    pid: int | None
    started_ms: int | None
    ended_ms: int | None

    @property
    def text(self) -> str:
        """The task and the try, in words; without the names of its groups."""
        name = self.task_id.rpartition(".")[2]
        return f"{name}{f' [{self.map_index}]' if self.map_index >= 0 else ''}, try {max(self.number, 1)}"

    @property
    def is_going_on(self) -> bool:
        """True if Airflow runs it, or starts it by itself."""
        return self.state in _GOING_ON

    @property
    def is_asking(self) -> bool:
        """True if it waits for an answer to a required action."""
        return self.state == "awaiting_input"

    @property
    def may_ask(self) -> bool:
        """True if it waits for such an answer, or is about to: also while it is woken for a moment to look around."""
        return self.state in _MAY_ASK


_GOING_ON = frozenset(
    ("scheduled", "queued", "running", "restarting", "up_for_retry", "up_for_reschedule", "deferred", "awaiting_input")
)

_MAY_ASK = _GOING_ON - {"up_for_reschedule", "deferred"}

_WAITS_FOR_ITS_START = (None, "scheduled", "queued")

Declared = Mapping[str, tuple[DeclaringDag, ...]]
"""The DAGs of each table, by its name, in the order of their ids; or of each asset, by its URI."""


def declared(session: Session) -> Declared:
    """Return every table that a DAG declares, with the DAGs.

    cost : one query, one row per pair of a DAG and a table, and per tag of the DAG
    """
    query = _dags_of(TaskOutletAssetReference).where(_IS_TABLE).order_by(DagModel.dag_id, DagTag.name)
    return _by_table(session.execute(query))


def answering(session: Session) -> tuple[DeclaringDag, ...]:
    """Return the DAGs that answer what has happened to a row, by their ids; one query."""
    query = _dags_of(TaskOutletAssetReference).where(AssetModel.uri == ROW_ANSWERS_URI).order_by(DagModel.dag_id)
    return _by_name((row.uri, row) for row in session.execute(query)).get(ROW_ANSWERS_URI, ())


def declared_and_started(session: Session) -> tuple[Declared, Declared]:
    """Return what `declared` returns; and by the URI of each asset the DAGs that its events start.

    returns : of assets, those of tables, and those that start a DAG that declares a table
    cost    : one query, a row as above, and one per pair of such an asset and a DAG that it starts, and per tag
    """
    declaring = select(TaskOutletAssetReference.dag_id).join(AssetModel).where(_IS_TABLE)
    is_ours = or_(_IS_TABLE, DagModel.dag_id.in_(declaring))
    outlets = _dags_of(TaskOutletAssetReference).where(_IS_TABLE).add_columns(literal(1).label("is_outlet"))
    schedules = _dags_of(DagScheduleAssetReference).where(is_ours).add_columns(literal(0).label("is_outlet"))
    rows = sorted(session.execute(union_all(outlets, schedules)), key=lambda row: (row.dag_id, row.tag or ""))
    return _by_table(row for row in rows if row.is_outlet), _by_name(
        (row.uri, row) for row in rows if not row.is_outlet
    )


# Before Airflow 3.2 every DAG takes runs of all types, and no DAG is a team's.
_TEAM: ColumnElement[Any] = bundle_teams.c.get("team_name", null().label("team_name"))
_RUN_TYPES: ColumnElement[Any] = getattr(DagModel, "allowed_run_types", null().label("allowed_run_types"))
_IS_TABLE = AssetModel.uri.startswith(ASSET_PREFIX, autoescape=True)


def _dags_of(reference: type[TaskOutletAssetReference] | type[DagScheduleAssetReference]) -> Select[Any]:
    """Return the query for the DAGs that refer to assets, and the assets' URIs; a row for each tag."""
    return (
        select(
            AssetModel.uri,
            DagModel.dag_id,
            DagModel._dag_display_property_value.label("title"),
            DagModel.timetable_summary,
            DagModel.timetable_description,
            DagModel.next_dagrun_create_after,
            DagModel.is_paused,
            DagModel.has_import_errors,
            _RUN_TYPES,
            _TEAM,
            DagModel.owners,
            DagTag.name.label("tag"),
        )
        .join(reference, reference.asset_id == AssetModel.id)
        .join(DagModel, DagModel.dag_id == reference.dag_id)
        .join(DagBundleModel, DagBundleModel.name == DagModel.bundle_name)
        .outerjoin(bundle_teams, bundle_teams.c.dag_bundle_name == DagBundleModel.name)
        .outerjoin(DagTag, DagTag.dag_id == DagModel.dag_id)
        # Airflow calls a DAG stale whose file has an error, too: its tables are no free-for-all meanwhile.
        .where(or_(~DagModel.is_stale, DagModel.has_import_errors.is_(True)))
    )


def _by_table(rows: Iterable[Row[Any]]) -> Declared:
    named = ((table_of_asset(row.uri), row) for row in rows)
    return _by_name((table, row) for table, row in named if table is not None)


def _by_name(rows: Iterable[tuple[str, Row[Any]]]) -> Declared:
    """Return the DAGs in rows of `_dags_of` by name; a DAG with several tags has a row for each."""
    found: dict[str, dict[str, DeclaringDag]] = defaultdict(dict)
    default = conf.get("operators", "default_owner", fallback="airflow")
    for name, row in rows:
        dag = found[name].get(row.dag_id)
        if dag is None:
            found[name][row.dag_id] = _dag(row, default)
        elif row.tag not in dag.tags:
            found[name][row.dag_id] = replace(dag, tags=(*dag.tags, row.tag))
    return {name: tuple(dags.values()) for name, dags in found.items()}


def _dag(row: Row[Any], default_owner: str) -> DeclaringDag:
    takes_people = row.allowed_run_types is None or DagRunType.MANUAL in row.allowed_run_types
    owners = (each for each in map(str.strip, (row.owners or "").split(",")) if each not in ("", default_owner))
    return DeclaringDag(
        dag_id=row.dag_id,
        title=row.title or row.dag_id,
        team=row.team_name,
        schedule=row.timetable_description or row.timetable_summary,
        next_run=None if row.is_paused or row.has_import_errors else row.next_dagrun_create_after,
        is_paused=bool(row.is_paused),
        can_run=takes_people and not row.has_import_errors,
        owners=tuple(owners),
        tags=() if row.tag is None else (row.tag,),
    )


def written_tasks(session: Session, dag_ids: Iterable[str]) -> dict[str, tuple[DeclaredRefresh, ...]]:
    """Return the tasks of some DAGs that begin refreshes, as their authors have written them; by DAG.

    A task whose table or partitions are known only at run time is left out, as are mapped tasks and those of DAGs that
    were parsed by an older version.

    cost : one query, and each DAG as it was parsed
    """
    asked = list(dag_ids)
    found = SerializedDagModel.get_latest_serialized_dags(dag_ids=asked, session=session) if asked else ()
    return {each.dag_id: tuple(_written_in(each.data)) for each in found}


def _written_in(parsed: Any) -> Iterable[DeclaredRefresh]:
    for task in ((parsed or {}).get("dag") or {}).get("tasks") or ():
        stored = (task.get("__var") or {}).get("mv_written")
        if isinstance(stored, str):
            with suppress(ValueError, KeyError, TypeError, MvError):
                yield from_json(stored)


def run_state(session: Session, dag_id: str, run_id: str) -> str | None:
    """Return the state of a DAG run; None if there is no such run."""
    found = session.scalar(select(DagRun.state).where(DagRun.dag_id == dag_id, DagRun.run_id == run_id))
    return None if found is None else str(getattr(found, "value", found))


def task_tries(session: Session, runs: Iterable[tuple[str, str]]) -> tuple[TaskTry, ...]:
    """Return the tries of all tasks of some runs, in the order in which they started; those without a start come last.

    Airflow keeps a task's newest try apart from the earlier ones. While that one waits for its start, its row still has
    the process and the times of the try before it; while it waits for a retry, it is among the earlier ones too.

    runs : DAG id and run id
    cost : two queries
    """
    asked, found = set(runs), dict[tuple[Any, ...], TaskTry]()
    for model in (TaskInstanceHistory, TaskInstance) if asked else ():
        query = select(
            *(model.dag_id, model.run_id, model.task_id, model.map_index, model.try_number, model.state),
            *(model.pid, model.start_date, model.end_date),
        ).where(tuple_(model.dag_id, model.run_id).in_(asked))
        for row in session.execute(query):
            has_begun = model is TaskInstanceHistory or row.state not in _WAITS_FOR_ITS_START
            process = (row.pid, _ms(row.start_date), _ms(row.end_date)) if has_begun else (None, None, None)
            found[tuple(row[:5])] = TaskTry(*row[:6], *process)
    return tuple(sorted(found.values(), key=lambda each: (each.started_ms is None, each.started_ms or 0, each.number)))


def _ms(time: datetime | None) -> int | None:
    return None if time is None else round(time.timestamp() * 1000)


def note_action(session: Session, event: str, table: str, user: str, dags: Iterable[DeclaringDag]) -> None:
    """Write an action to Airflow's audit log, for each DAG that declares the table; committed before the action.

    As with Airflow's other entries, users who may read none of these DAGs do not see it.
    """
    dag_ids: list[str | None] = [dag.dag_id for dag in dags]
    for dag_id in dag_ids or [None]:
        entry = Log(event=event, owner=user, owner_display_name=user, extra=json.dumps({"table": table}), dag_id=dag_id)
        session.add(entry)
    session.commit()
