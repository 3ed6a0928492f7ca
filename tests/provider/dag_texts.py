"""DAGs as text that tests of operators run, and what the database has of their refreshes."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.slow
TASKS = ("begin", "stage", "merge", "cleanup")
ALL_DONE = {"g.begin": "success", "g.stage": "success", "g.merge": "success", "g.cleanup": "success"}
NOTHING_DONE = {"g.begin": "success", "g.stage": "skipped", "g.merge": "skipped", "g.cleanup": "skipped"}


def group_dag(table: str = "'orders'", **arguments: object) -> str:
    given = "".join(f", {name}={value!r}" for name, value in arguments.items())
    return f"""
from datetime import timedelta
from airflow.sdk import DAG
from airflow_mv_provider import DeltaSource
from airflow_mv_provider.core.definition.table import RefreshableTable
from airflow_mv_provider.operators.groups import refresh_table_group

with DAG("phases", schedule=None, default_args={{"retry_delay": timedelta(0)}}):
    refresh_table_group({table}, group_id="g"{given})
"""


def one_task_dag(arguments: str = "table='orders'") -> str:
    return f"""
from datetime import timedelta
from airflow.sdk import DAG
from airflow_mv_provider.operators.refresh import RefreshTableOperator

with DAG("single", schedule=None, default_args={{"retry_delay": timedelta(0)}}):
    RefreshTableOperator(task_id="refresh", {arguments})
"""


def history(home, name="orders"):
    return home.store.history(home.store.table(name).id)


def let_leases_expire(home):
    """What time does."""
    with home.store.engine.begin() as db:
        db.exec_driver_sql("UPDATE refresh_state SET lease_expires_ms = 0")
