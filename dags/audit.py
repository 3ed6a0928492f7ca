"""Audit the table `flights` every night: does it still have the rows that were published?

The table is compared with its own version of the last publish, and with its files as they were then. If another program
has written to it, the task fails with MV-DRIFT, and its log names the commits and some of the rows. `repair=True` would
let the same task refresh what has drifted, as the table's guards allow.
"""

from datetime import datetime, timedelta

from airflow.sdk import DAG

from airflow_mv_provider import AuditTableOperator

with DAG(
    dag_id="audit_flights",
    description="Find rows of the table flights that others have changed",
    schedule="@daily",
    start_date=datetime(2026, 1, 1),
    catchup=False,
    max_active_runs=1,
    default_args={"retries": 1, "retry_delay": timedelta(minutes=5)},
    tags=["mv", "example"],
    doc_md=__doc__,
):
    AuditTableOperator(task_id="audit", table="flights")
