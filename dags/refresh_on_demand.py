"""Refresh one table on request, from a form.

The table must be registered: by its own DAG, or with `amv apply FILE.yaml`. The list in the form is written here and
not read from the metadata database, since this file is parsed every few seconds; any registered name may be typed.
What the form sends is checked again when the task runs. If somebody else refreshes the table just then, the table's
`concurrency` decides: the task waits without a slot, and its log names the owner.
"""

from datetime import datetime, timedelta

from airflow.sdk import DAG

from airflow_mv_provider.operators.form import refresh_params, table_param
from airflow_mv_provider.operators.refresh import RefreshTableOperator

with DAG(
    dag_id="refresh_on_demand",
    description="Refresh one table on request",
    schedule=None,
    start_date=datetime(2026, 1, 1),
    catchup=False,
    default_args={"retries": 2, "retry_delay": timedelta(minutes=1)},
    tags=["mv", "example"],
    doc_md=__doc__,
    params={"table": table_param("flights", ("flights",)), **refresh_params()},
):
    RefreshTableOperator(task_id="refresh", table="{{ params.table }}")
