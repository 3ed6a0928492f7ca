"""The DAGs of the end-to-end tests, parsed by a real DAG processor.

Tasks would look each second whether they may begin; Airflow bears no interval as short as that, so it is longer.
"""

from datetime import datetime, timedelta
from pathlib import Path

from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.sdk import DAG, AsyncCallback, CronDataIntervalTimetable

from airflow_mv_provider.deadlines import freshness_deadline
from airflow_mv_provider.definition_file import load
from airflow_mv_provider.notifications import FreshnessNotifier
from airflow_mv_provider.operators.form import refresh_params, table_param
from airflow_mv_provider.operators.groups import refresh_table_group
from airflow_mv_provider.operators.refresh import RefreshTableOperator
from airflow_mv_provider.triggers.commits import delta_asset

START = datetime(2026, 1, 1)
ADMIN = {"id": "admin", "name": "admin"}  # who alone may decide about what is held
AGAIN = {"retries": 2, "retry_delay": timedelta(seconds=1)}

with DAG("sales", schedule=None, start_date=START, default_args=AGAIN):
    refresh_table_group("sales", definition_file="e2e_tables.yaml", poll_interval=1, deferrable=True, approvers=[ADMIN])

with DAG("stock", schedule=None, start_date=START, default_args=AGAIN):  # atomic, as what is held has to be
    refresh_table_group("stock", definition_file="e2e_tables.yaml", poll_interval=1, approvers=[ADMIN])

with DAG(
    "days",
    schedule=CronDataIntervalTimetable("@daily", timezone="UTC"),
    start_date=datetime(2030, 1, 1),  # nothing but backfills
    catchup=False,
    default_args=AGAIN | {"owner": "ann <i> co"},
    tags=["<b>daily & night"],
):
    RefreshTableOperator(
        task_id="refresh", table="days", definition_file="e2e_tables.yaml", interval="day", poll_interval=1
    )

with DAG(
    "refresh_on_demand",
    schedule=None,
    start_date=START,
    default_args=AGAIN,
    params={"table": table_param("sales", ("sales", "days")), **refresh_params()},
):
    RefreshTableOperator(task_id="refresh", table="{{ params.table }}", poll_interval=1)

with DAG("on_commits", schedule=[delta_asset("raw/feed", poke_interval=10)], start_date=START):
    EmptyOperator(task_id="told")

[WATCHED] = load(Path(__file__).with_name("e2e_watched.yaml"))
LATE = AsyncCallback(FreshnessNotifier, {"table": WATCHED.name, "http_conn_id": "alerts"})

with DAG("watched", schedule=None, start_date=START, deadline=freshness_deadline(WATCHED, LATE)):
    RefreshTableOperator(task_id="refresh", table=WATCHED, poll_interval=1)
