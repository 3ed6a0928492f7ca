"""End what dead owners left, of all tables, and remove the files of refreshes that have ended.

The next refresh of a table does the same for that table; this is for those that are refreshed seldom. It takes over
nothing whose owner is alive.
"""

from datetime import datetime, timedelta

from airflow.sdk import DAG

from airflow_mv_provider import RecoverTablesOperator

with DAG(
    dag_id="mv_maintenance",
    description="Recover all refreshable tables",
    schedule="@hourly",
    start_date=datetime(2026, 1, 1),
    catchup=False,
    max_active_runs=1,
    default_args={"retries": 1, "retry_delay": timedelta(minutes=5)},
    tags=["mv", "example"],
    doc_md=__doc__,
):
    RecoverTablesOperator(task_id="recover")
