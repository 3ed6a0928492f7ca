"""Keep the table `shop_orders` equal to a table of a PostgreSQL database.

The connection `shop` names the database and a login that may read it; the definition is in shop.yaml beside this file.
Spark needs PostgreSQL's driver where it starts (AMV_SOURCE_DATABASES, or `[mv] source_databases`). `make up` has all of
that. A run reads only the rows that were written since the last one.
"""

from datetime import datetime, timedelta

from airflow.sdk import DAG

from airflow_mv_provider import RefreshTableOperator, refresh_params

with DAG(
    dag_id="shop",
    description="Refresh the table shop_orders from PostgreSQL",
    schedule="@hourly",
    start_date=datetime(2026, 1, 1),
    catchup=False,
    max_active_runs=1,
    default_args={"retries": 2, "retry_delay": timedelta(minutes=1)},
    tags=["mv", "example"],
    doc_md=__doc__,
    params=refresh_params(),
):
    RefreshTableOperator(task_id="refresh_shop_orders", table="shop_orders", definition_file="shop.yaml")
