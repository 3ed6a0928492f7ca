"""Three levels of tables, each refreshed when the one below was published: a DAG for each table of revenue.yaml.

    raw/lines ──▶ shop.lines ──┐
    raw/orders ────────────────┴─▶ shop.orders ──▶ shop.revenue_by_month

`make demo-views` shows them over generated orders.
"""

from airflow_mv_provider import refresh_dags

globals().update(refresh_dags("revenue.yaml"))
