"""Why is this row as it is? What each commit of a table did to one row, and which refresh, or who else, made it.

Run it with `{"table": "flights", "key": {"flight_date": "2013-01-05", ...}}`, or use the form on the table's page,
which starts a run of it. The answer is in the task's log, and on the table's page for whoever may act on the table.
"""

from datetime import datetime

from airflow.sdk import DAG, Param

from airflow_mv_provider import WhyRowOperator

with DAG(
    dag_id="why_row",
    description="Tell what has changed one row of a table",
    schedule=None,
    start_date=datetime(2026, 1, 1),
    catchup=False,
    tags=["mv", "example"],
    doc_md=__doc__,
    params={
        "table": Param("flights", type="string", minLength=1, title="Table"),
        "key": Param({}, type="object", title="Key", description="The value of each column of the table's key."),
        "column": Param(None, type=["string", "null"], title="Column", description="Only what has changed this one."),
    },
):
    WhyRowOperator(task_id="why")
