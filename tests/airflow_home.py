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
    "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{HOME / 'airflow.db'}",
    "AIRFLOW__LOGGING__LOGGING_LEVEL": "INFO",
}


# Airflow puts its handlers on the root logger; PySpark's gateway says goodbye after they are closed.
logging.getLogger("py4j").setLevel(logging.WARNING)


@dataclass(frozen=True)
class Run:
    """What one DAG run did."""

    run_id: str
    state: str
    states: dict[str, str]
    tries: dict[str, int]
    reschedules: dict[str, int]
    xcoms: dict[tuple[str, str], Any]
    logical_date: Any


@dataclass(frozen=True)
class Airflow:
    """Writes DAG files, loads them as Airflow does, and runs them."""

    dags: Path = DAGS

    def load(self, dag_id: str, text: str | None = None) -> Any:
        """Return a DAG from DAGS_FOLDER, after writing its file if `text` is given."""
        from airflow.dag_processing.dagbag import DagBag

        if text is not None:
            (self.dags / f"{dag_id}_file.py").write_text(text, encoding="utf-8")
        bag = DagBag(str(self.dags))
        assert bag.import_errors == {}
        return bag.dags[dag_id]

    def run(self, dag: Any, **more: Any) -> Run:
        """Run a DAG in this process until its run has ended."""
        return self._look(dag.test(**more))

    def clear(self, dag: Any, run: Run, task_id: str) -> Run:
        """Run one task of an ended run again, as clearing it does."""
        from airflow.sdk import DAG

        assert isinstance(dag, DAG)
        keep = {t for t in dag.task_dict if t != task_id}
        for other in keep:
            assert run.states[other]
        from airflow.models.dagrun import DagRun
        from airflow.sdk.definitions.dag import _run_task
        from airflow.utils.session import create_session
        from sqlalchemy import select

        with create_session() as session:
            found = session.scalars(select(DagRun).where(DagRun.run_id == run.run_id)).one()
            ti = found.get_task_instance(task_id, session=session)
            ti.try_number += 1
            ti.max_tries = ti.try_number - 1
            session.commit()
            session.expunge_all()
        _run_task(ti=ti, task=dag.task_dict[task_id])
        with create_session() as session:
            return self._look(session.scalars(select(DagRun).where(DagRun.run_id == run.run_id)).one())

    def _look(self, dag_run: Any) -> Run:
        from airflow.models.taskreschedule import TaskReschedule
        from airflow.models.xcom import XComModel
        from airflow.utils.session import create_session
        from sqlalchemy import func, select

        with create_session() as session:
            tis = dag_run.get_task_instances(session=session)
            waits = dict(
                session.execute(select(TaskReschedule.ti_id, func.count()).group_by(TaskReschedule.ti_id)).all()
            )
            pushed = session.scalars(select(XComModel).where(XComModel.run_id == dag_run.run_id)).all()
            return Run(
                run_id=dag_run.run_id,
                state=str(dag_run.state.value),
                states={ti.task_id: str(ti.state) for ti in tis},
                tries={ti.task_id: ti.try_number for ti in tis},
                reschedules={ti.task_id: waits.get(ti.id, 0) for ti in tis},
                xcoms={(x.task_id, x.key): XComModel.deserialize_value(x) for x in pushed},
                logical_date=dag_run.logical_date,
            )


@cache
def _database() -> None:
    from airflow.utils.db import initdb

    initdb()


@pytest.fixture
def airflow() -> Iterator[Airflow]:
    """An Airflow with an empty DAGS_FOLDER."""
    _database()
    yield Airflow()
    for entry in DAGS.iterdir():
        shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
