"""Refresh one table on request, from a form.

The table must be registered: by its own DAG, or with `amv apply FILE.yaml`. The list in the form is written here and
not read from the metadata database, since this file is parsed every few seconds; any registered name may be typed.
What the form sends is checked again when the task runs.
"""

from datetime import datetime, timedelta

from airflow.sdk import DAG, Param

from airflow_mv_provider.core.guard import NAMES as GUARDS
from airflow_mv_provider.core.request import STRATEGIES
from airflow_mv_provider.operators.refresh import RefreshTableOperator

with DAG(
    dag_id="refresh_on_demand",
    description="Refresh one table on request",
    schedule=None,
    start_date=datetime(2026, 1, 1),
    catchup=False,
    allowed_run_types=["manual"],
    default_args={"retries": 2, "retry_delay": timedelta(minutes=1)},
    tags=["mv", "example"],
    doc_md=__doc__,
    params={
        "table": Param(
            "flights",
            type="string",
            pattern=r"^\w+(\.\w+){0,2}$",
            examples=["flights"],
            title="Table",
            description="The name of a registered table.",
        ),
        "partitions": Param(
            [],
            type="array",
            items={"type": "string"},
            title="Only these partitions",
            description="One value a line, such as 2026-01-01. Nothing outside is changed.",
        ),
        "from": Param(
            None,
            type=["null", "string"],
            title="Only partitions from",
            description="The first one, by the first partition column.",
        ),
        "until": Param(
            None,
            type=["null", "string"],
            title="Only partitions until",
            description="The first one that is left out.",
        ),
        "stale": Param(
            False,
            type="boolean",
            title="Only what is stale",
            description="Leave out partitions that were refreshed by themselves since the source last changed.",
        ),
        "read_only": Param(
            False,
            type="boolean",
            title="Read only",
            description="Work out and report the differences, write nothing.",
        ),
        "strategy": Param(
            None,
            type=["null", "string"],
            enum=[None, *STRATEGIES],
            title="Strategy",
            description="How the table is brought up to date; empty is as its definition says.",
        ),
        "overrides": Param(
            [],
            type="array",
            items={"type": "string", "enum": list(GUARDS)},
            examples=list(GUARDS),
            title="Guards to set aside",
            description="For this run only. A guard has refused for a reason: look at the refused run first.",
        ),
        "force": Param(
            False,
            type="boolean",
            title="Force",
            description="Compare even if the source says that nothing is new.",
        ),
    },
):
    RefreshTableOperator(task_id="refresh", table="{{ params.table }}")
