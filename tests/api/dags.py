"""DAGs that declare tables, as files: one process parses them, another asks Airflow's database for them."""

from __future__ import annotations

# `orders` is declared by two DAGs, one of which nobody may start by hand; `paused_one` by a DAG that is paused;
# `totals` by one that an asset's event starts. The authors of three more have written what their tables' tasks refresh.
DAG_FILE = """
from datetime import datetime

from airflow.sdk import DAG, Asset
from airflow.providers.standard.operators.empty import EmptyOperator

from airflow_mv_provider.asset import asset_uri
from airflow_mv_provider.operators.form import refresh_params, table_param
from airflow_mv_provider.operators.groups import ingest_group, refresh_table_group
from airflow_mv_provider.operators.refresh import RefreshTableOperator
from airflow_mv_provider.operators.row_history import WhyRowOperator


def dag(dag_id, *tables, **more):
    with DAG(dag_id, start_date=datetime(2026, 1, 1), catchup=False, **more):
        for table in tables:
            EmptyOperator(task_id=f"publish_{table}", outlets=[Asset(asset_uri(table))])
        EmptyOperator(task_id="other", outlets=[Asset("s3://bucket/elsewhere")])


dag("hourly", "orders", "customers", schedule="@hourly", is_paused_upon_creation=False)
dag("repair", "orders", schedule="@weekly", allowed_run_types=["scheduled"], is_paused_upon_creation=False)
dag("paused_dag", "paused_one", schedule="@daily", is_paused_upon_creation=True)
dag("alone", "regions", schedule=None, is_paused_upon_creation=False, dag_display_name="<b>Alone & bold</b>",
    tags=["<b>sales", "gold"], default_args={"owner": "ann & co"})
dag("summing", "totals", schedule=[Asset(asset_uri("customers")), Asset("s3://bucket/<landing>")])
dag("report", schedule=[Asset(asset_uri("totals"))], dag_display_name="Report & send")
with DAG("answering", schedule=None, is_paused_upon_creation=False):
    WhyRowOperator(task_id="why")
with DAG("first_months", schedule=None, is_paused_upon_creation=False):
    refresh_table_group("monthly", options={"from": "2026-01", "until": "2026-03"})
with DAG("of_the_day", schedule=None, is_paused_upon_creation=False):
    RefreshTableOperator(task_id="refresh", table="daily", options={"partitions": ["{{ ds }}"], "read_only": True})
    EmptyOperator(task_id="unpartitioned", outlets=[Asset(asset_uri("flat"))])
with DAG("ingest_shop", schedule=None, is_paused_upon_creation=False):
    ingest_group("shop", ["shop.items", "shop.prices"])
with DAG("many", schedule=None):
    EmptyOperator(task_id="publish", outlets=[Asset(asset_uri(f"many.t{number:03}")) for number in range(101)])
dag("nothing", schedule=None, params={"table": table_param("flights", ("flights",)), **refresh_params()})
"""
