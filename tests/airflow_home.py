# ruff: noqa: TID251  a test looks into Airflow's own database, as neither tasks nor triggers can
"""An Airflow of the tests' own: a temporary AIRFLOW_HOME, SQLite, and DAG runs in this process by `dag.test()`.

Import it before airflow is imported: Airflow reads its environment once. `tests/provider` and `tests/dags` do so in
their conftest.
"""

from __future__ import annotations

import atexit
import logging
import os
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import pytest

# A worker that a test starts as a process of its own is told whose home it works in.
_OTHERS = os.environ.get("AMV_TEST_HOME")
HOME = Path(_OTHERS or tempfile.mkdtemp(prefix="amv-airflow-"))
DAGS = HOME / "dags"
if not _OTHERS:
    DAGS.mkdir()
    atexit.register(shutil.rmtree, HOME, ignore_errors=True)
for _name in [name for name in os.environ if name.startswith("AIRFLOW_") and not _OTHERS]:
    del os.environ[_name]
os.environ |= {
    "AIRFLOW_HOME": str(HOME),
    "AIRFLOW__CORE__DAGS_FOLDER": str(DAGS),
    "AIRFLOW__CORE__LOAD_EXAMPLES": "false",
    "AIRFLOW__CORE__MIN_SERIALIZED_DAG_UPDATE_INTERVAL": "0",  # tests change a DAG within seconds
    "AIRFLOW__WORKERS__MIN_HEARTBEAT_INTERVAL": "0",  # tasks have no supervisor here, so nobody waits for one
    "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{HOME / 'airflow.db'}",
}
# Airflow puts its handlers on the root logger; PySpark's gateway says goodbye after they are closed.
logging.getLogger("py4j").setLevel(logging.WARNING)


_NOW = object()


@dataclass(frozen=True)
class Run:
    """What one DAG run did, by task id; errors are in the order in which they happened."""

    run_id: str
    state: str
    states: dict[str, str]
    tries: dict[str, int]
    reschedules: dict[str, int]
    errors: dict[str, list[BaseException]]
    xcoms: dict[str, Any]
    links: dict[str, str]  # Airflow keeps what an operator's extra links point at beside its XComs

    @property
    def refresh_id(self) -> str:
        """The one value that this run has pushed."""
        [value] = self.xcoms.values()
        assert isinstance(value, str)
        return value


class Airflow:
    """Writes DAG files, loads them as Airflow does, and runs them."""

    def load(self, dag_id: str, text: str | None = None) -> Any:
        """Return a DAG from DAGS_FOLDER, after writing its file if `text` is given."""
        from airflow.dag_processing.dagbag import DagBag

        if text is not None:
            (DAGS / f"{dag_id}_file.py").write_text(text, encoding="utf-8")
        bag = DagBag(str(DAGS))
        assert bag.import_errors == {}
        return bag.dags[dag_id]

    def load_all(self) -> set[str]:
        """Return the ids of all DAGs in DAGS_FOLDER, none of which may fail to load."""
        from airflow.dag_processing.dagbag import DagBag

        bag = DagBag(str(DAGS))
        assert bag.import_errors == {}
        return set(bag.dags)

    def run(self, dag: Any, *, logical_date: Any = _NOW, keep_callbacks: bool = False, **conf: Any) -> Run:
        """Run a DAG in this process until its run has ended.

        logical_date   : None for a run without one, as the REST API makes it
        keep_callbacks : what the DAG's author wrote is called on failure, and errors are not collected
        """
        errors = {} if keep_callbacks else _collect_errors(dag)
        more = {} if logical_date is _NOW else {"logical_date": logical_date}
        return _look(dag.test(run_conf=conf or None, **more), errors)

    def register(self, dag: Any) -> Any:
        """Return a DAG as the scheduler has it, with sessions of Airflow's database that this ends."""
        return _register(dag)

    def create_run(self, dag: Any, session: Any) -> Any:
        """Create a run of a DAG from `register` as the scheduler does, without working on it."""
        from airflow.utils.state import DagRunState
        from airflow.utils.types import DagRunTriggeredByType, DagRunType

        now = datetime.now(UTC)
        return dag.create_dagrun(
            run_id=f"scheduled__{now.isoformat()}",
            logical_date=now,
            data_interval=(now, now),
            run_after=now,
            run_type=DagRunType.SCHEDULED,
            triggered_by=DagRunTriggeredByType.TIMETABLE,
            state=DagRunState.QUEUED,
            session=session,
        )

    def clear(self, dag: Any, run: Run, *task_ids: str, keep_callbacks: bool = False) -> Run:
        """Clear tasks of a run that has ended, as a person does, and run them; `keep_callbacks` as in `run`."""
        from airflow.models.dagrun import DagRun
        from airflow.sdk.definitions.dag import _run_task
        from airflow.serialization.serialized_objects import DagSerialization
        from airflow.utils.session import create_session
        from airflow.utils.state import DagRunState, TaskInstanceState
        from sqlalchemy import select

        errors = {} if keep_callbacks else _collect_errors(dag)
        serialized = DagSerialization.deserialize_dag(DagSerialization.serialize_dag(dag))
        with create_session() as session:
            serialized.clear(run_id=run.run_id, task_ids=list(task_ids), session=session)
            again = session.scalars(select(DagRun).where(DagRun.run_id == run.run_id)).one()
            again.dag = serialized
            again.state = DagRunState.RUNNING
            session.commit()
            while again.state == DagRunState.RUNNING:
                session.expire_all()
                ready, _ = again.update_state(session=session)
                for ti in ready:
                    ti.try_number += 1
                    ti.state = TaskInstanceState.SCHEDULED
                session.commit()
                for ti in ready:
                    _run_task(ti=ti, task=dag.task_dict[ti.task_id], run_triggerer=True)
        return _look(again, errors)

    def delete(self, run: Run) -> None:
        """Delete a run, as a person does."""
        from airflow.models.dagrun import DagRun
        from airflow.utils.session import create_session
        from sqlalchemy import delete

        with create_session() as session:
            session.execute(delete(DagRun).where(DagRun.run_id == run.run_id))

    def events(self, uri: str) -> list[Any]:
        """Return the events of an asset, oldest first."""
        from airflow.models.asset import AssetEvent, AssetModel
        from airflow.utils.session import create_session
        from sqlalchemy import select

        query = select(AssetEvent).join(AssetModel, AssetModel.id == AssetEvent.asset_id).where(AssetModel.uri == uri)
        with create_session() as session:
            found = list(session.scalars(query.order_by(AssetEvent.id)))
            session.expunge_all()
        return found

    def retry(self, dag: Any, task_id: str) -> Run:
        """Run a task once more whose worker was killed in the newest run of its DAG, as the scheduler does."""
        from airflow.models.dagrun import DagRun
        from airflow.sdk.definitions.dag import _run_task
        from airflow.utils.session import create_session
        from airflow.utils.state import TaskInstanceState
        from sqlalchemy import select

        errors = _collect_errors(dag)
        with create_session() as session:
            newest = select(DagRun).where(DagRun.dag_id == dag.dag_id).order_by(DagRun.id.desc()).limit(1)
            run = session.scalars(newest).one()
            run.dag = _register(dag)
            ti = run.get_task_instance(task_id, session=session)
            assert ti is not None
            assert ti.state == TaskInstanceState.RUNNING
            ti.try_number += 1
            ti.state = TaskInstanceState.SCHEDULED
            session.commit()
            _run_task(ti=ti, task=dag.task_dict[task_id], run_triggerer=True)
            session.expire_all()
            run.update_state(session=session)
        return _look(run, errors)

    def backfill(self, dag: Any, first: str, last: str, *, reprocess: bool = False, **conf: Any) -> list[Run]:
        """Create a backfill as `airflow backfill create` does, and work on all of its runs at once.

        One task of each run after the other, so that every run has begun before the first one has ended.
        """
        from airflow.models.backfill import Backfill, BackfillDagRun, ReprocessBehavior, _create_backfill
        from airflow.models.dagrun import DagRun
        from airflow.sdk.definitions.dag import _run_task
        from airflow.serialization.definitions.dag import SerializedDAG
        from airflow.utils.session import create_session
        from airflow.utils.state import DagRunState, TaskInstanceState
        from sqlalchemy import select

        errors = _collect_errors(dag)
        serialized = _register(dag)
        assert isinstance(serialized, SerializedDAG)
        backfill: Backfill = _create_backfill(
            dag_id=dag.dag_id,
            from_date=_midnight(first),
            to_date=_midnight(last),
            max_active_runs=30,
            reverse=False,
            dag_run_conf=conf,
            triggering_user_name="anna",
            reprocess_behavior=ReprocessBehavior.COMPLETED if reprocess else ReprocessBehavior.NONE,
        )
        with create_session() as session:
            ids = select(BackfillDagRun.dag_run_id).where(BackfillDagRun.backfill_id == backfill.id)
            query = select(DagRun).where(DagRun.id.in_(ids)).order_by(DagRun.logical_date)
            runs = {run.id: run for run in session.scalars(query)}
            assert runs
            for run in runs.values():
                run.dag = serialized
                run.state = DagRunState.RUNNING
                run.verify_integrity(dag_version_id=run.created_dag_version_id, session=session)
        unfinished = list(runs)
        while unfinished:
            for run_id in list(unfinished):
                # A session of its own for each step: Airflow's part of a task that runs here closes the thread's.
                with create_session() as session:
                    run = runs[run_id] = session.get_one(DagRun, run_id)
                    run.dag = serialized
                    ready, _ = run.update_state(session=session)
                    tis = ready[:1]
                    for ti in tis:
                        if ti.state != TaskInstanceState.UP_FOR_RESCHEDULE:
                            ti.try_number += 1
                        ti.state = TaskInstanceState.SCHEDULED
                    if run.state != DagRunState.RUNNING:
                        unfinished.remove(run_id)
                    session.flush()
                    session.refresh(run)
                    session.expunge(run)
                for ti in tis:
                    _run_task(ti=ti, task=dag.task_dict[ti.task_id], run_triggerer=True)
        with create_session() as session:  # what the scheduler does once it sees that all runs have ended
            session.get_one(Backfill, backfill.id).completed_at = datetime.now(UTC)
        return [_look(run, errors) for run in runs.values()]


def _midnight(day: str) -> datetime:
    return datetime.fromisoformat(day).replace(tzinfo=UTC)


def _register(dag: Any) -> Any:
    """Write a DAG into Airflow's database, as its processor does; return it as the scheduler has it."""
    from airflow.dag_processing.bundles.manager import DagBundlesManager
    from airflow.dag_processing.dagbag import BundleDagBag, sync_bag_to_db
    from airflow.models.serialized_dag import SerializedDagModel

    manager = DagBundlesManager()
    manager.sync_bundles_to_db()
    [bundle] = manager.get_all_dag_bundles()
    bundle.initialize()
    bag = BundleDagBag(dag_folder=bundle.path, bundle_path=bundle.path, bundle_name=bundle.name)
    sync_bag_to_db(bag, bundle.name, bundle.version)
    found = SerializedDagModel.get_dag(dag.dag_id)
    assert found is not None
    return found


def _collect_errors(dag: Any) -> dict[str, list[BaseException]]:
    errors: dict[str, list[BaseException]] = {}

    def note(context: Any) -> None:
        errors.setdefault(context["ti"].task_id, []).append(context["exception"])

    for task in dag.tasks:
        task.on_failure_callback = [note]
        task.on_retry_callback = [note]
    return errors


def _look(dag_run: Any, errors: dict[str, list[BaseException]]) -> Run:
    from airflow.models.taskreschedule import TaskReschedule
    from airflow.models.xcom import XComModel
    from airflow.utils.session import create_session
    from sqlalchemy import func, select

    with create_session() as session:
        tis = dag_run.get_task_instances(session=session)
        counted = select(TaskReschedule.ti_id, func.count()).group_by(TaskReschedule.ti_id)
        waits = dict(session.execute(counted).all())
        pushed = session.scalars(select(XComModel).where(XComModel.run_id == dag_run.run_id)).all()
        values = {f"{_name_of(x)}:{x.key}": XComModel.deserialize_value(x) for x in pushed}
        return Run(
            run_id=dag_run.run_id,
            state=str(getattr(dag_run.state, "value", dag_run.state)),
            states={_name_of(ti): str(ti.state) for ti in tis},
            tries={_name_of(ti): ti.try_number for ti in tis},
            reschedules={_name_of(ti): waits.get(ti.id, 0) for ti in tis},
            errors=errors,
            xcoms={name: value for name, value in values.items() if ":_link_" not in name},
            links={name: value for name, value in values.items() if ":_link_" in name},
        )


def _name_of(row: Any) -> str:
    return f"{row.task_id}[{row.map_index}]" if row.map_index >= 0 else str(row.task_id)


@cache
def migrated() -> None:
    """Make Airflow's database, once."""
    from airflow.utils.db import initdb

    initdb()


@pytest.fixture
def airflow() -> Iterator[Airflow]:
    """An Airflow whose DAGS_FOLDER is empty."""
    migrated()
    yield Airflow()
    for entry in DAGS.iterdir():
        if entry.is_dir():
            shutil.rmtree(entry)
        else:
            entry.unlink()
