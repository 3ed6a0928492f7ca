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
from functools import cache
from pathlib import Path
from typing import Any

import pytest

HOME = Path(tempfile.mkdtemp(prefix="amv-airflow-"))
DAGS = HOME / "dags"
DAGS.mkdir()
atexit.register(shutil.rmtree, HOME, ignore_errors=True)
for _name in [name for name in os.environ if name.startswith("AIRFLOW_")]:
    del os.environ[_name]
os.environ |= {
    "AIRFLOW_HOME": str(HOME),
    "AIRFLOW__CORE__DAGS_FOLDER": str(DAGS),
    "AIRFLOW__CORE__LOAD_EXAMPLES": "false",
    "AIRFLOW__CORE__MIN_SERIALIZED_DAG_UPDATE_INTERVAL": "0",  # tests change a DAG within seconds
    "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{HOME / 'airflow.db'}",
}
# Airflow puts its handlers on the root logger; PySpark's gateway says goodbye after they are closed.
logging.getLogger("py4j").setLevel(logging.WARNING)


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

    def run(self, dag: Any, **conf: Any) -> Run:
        """Run a DAG in this process until its run has ended."""
        errors = _collect_errors(dag)
        return _look(dag.test(run_conf=conf or None), errors)

    def clear(self, dag: Any, run: Run, *task_ids: str) -> Run:
        """Clear tasks of a run that has ended, as a person does, and run them."""
        from airflow.models.dagrun import DagRun
        from airflow.sdk.definitions.dag import _run_task
        from airflow.serialization.serialized_objects import DagSerialization
        from airflow.utils.session import create_session
        from airflow.utils.state import DagRunState, TaskInstanceState
        from sqlalchemy import select

        errors = _collect_errors(dag)
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
                    _run_task(ti=ti, task=dag.task_dict[ti.task_id])
        return _look(again, errors)


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
        return Run(
            run_id=dag_run.run_id,
            state=str(dag_run.state.value),
            states={_name_of(ti): str(ti.state) for ti in tis},
            tries={_name_of(ti): ti.try_number for ti in tis},
            reschedules={_name_of(ti): waits.get(ti.id, 0) for ti in tis},
            errors=errors,
            xcoms={f"{_name_of(x)}:{x.key}": XComModel.deserialize_value(x) for x in pushed},
        )


def _name_of(row: Any) -> str:
    return f"{row.task_id}[{row.map_index}]" if row.map_index >= 0 else str(row.task_id)


@cache
def _database() -> None:
    from airflow.utils.db import initdb

    initdb()


@pytest.fixture
def airflow() -> Iterator[Airflow]:
    """An Airflow whose DAGS_FOLDER is empty."""
    _database()
    yield Airflow()
    for entry in DAGS.iterdir():
        if entry.is_dir():
            shutil.rmtree(entry)
        else:
            entry.unlink()
