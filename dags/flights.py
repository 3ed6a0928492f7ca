"""Keep the table `flights` equal to CSV files, one task per phase.

The files lie at raw/flights/*.csv under the warehouse (AMV_WAREHOUSE, or `[mv] warehouse`); the definition is in
flights.yaml beside this file. A run that finds the files unchanged ends after `begin`, and the other phases are
skipped. Two runs at once are safe too, one waits for the other; one at a time is easier to follow.
"""

from datetime import datetime, timedelta

from airflow.sdk import DAG

from airflow_mv_provider import refresh_params, refresh_table_group

with DAG(
    dag_id="flights",
    description="Refresh the table flights from CSV files, phase by phase",
    schedule="@daily",
    start_date=datetime(2026, 1, 1),
    catchup=False,
    max_active_runs=1,
    default_args={"retries": 2, "retry_delay": timedelta(minutes=1)},
    tags=["mv", "example"],
    doc_md=__doc__,
    params=refresh_params(),
):
    refresh_table_group("flights", definition_file="flights.yaml")
