"""Create a DAG for each table of a definition file, and for each ingestion with its tables.

    from airflow_mv_provider.operators.factory import refresh_dags

    globals().update(refresh_dags("tables.yaml"))

The file's `dags` section sets schedule, interval and tasks (`core.definition.dag_options`). Each DAG has the params of
the trigger form, the retry policy, and its table's asset among its outlets. A run registers its definition first, as
all operators do. Parsing reads only the YAML file, and reads it at each parse.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pendulum
from airflow.sdk import DAG, Asset, AssetAny

from airflow_mv_provider import definition_file as definitions
from airflow_mv_provider.asset import asset_uri
from airflow_mv_provider.compat import HAS_RETRY_POLICIES, Callback, CronDataIntervalTimetable
from airflow_mv_provider.core.definition.dag_options import DagOptions
from airflow_mv_provider.core.definition.ingestion import Ingestion
from airflow_mv_provider.core.definition.table import RefreshableTable
from airflow_mv_provider.deadlines import freshness_deadline
from airflow_mv_provider.exceptions import DefinitionError
from airflow_mv_provider.operators.form import refresh_params
from airflow_mv_provider.operators.groups import ingest_group, refresh_table_group
from airflow_mv_provider.operators.ingest import IngestOperator
from airflow_mv_provider.operators.refresh import RefreshTableOperator
from airflow_mv_provider.operators.retry import retry_policy


def refresh_dags(definition_file: str | Path, *, on_late: Callback | None = None, **task_args: Any) -> dict[str, DAG]:
    """Return the DAGs of a definition file, by DAG id.

    Args:
        definition_file: Path relative to the calling file.
        on_late: Called when a run has not ended before its table is late, for tables with a freshness target; see
            `deadlines`.
        task_args: Arguments of every task: mv_conn_id, on_failure_callback, queue, ...

    Raises:
        DefinitionError: Which Airflow shows as an import error.
    """
    found = definitions.load_file(Path(sys._getframe(1).f_code.co_filename).parent / definition_file)
    with_own = [table for table in found.tables if table.name in found.dags]
    dags = [refresh_dag(table, found.dags[table.name], on_late=on_late, **task_args) for table in with_own]
    dags += [
        ingest_dag(each, found.tables, found.ingestion_dags[each.name], on_late=on_late, **task_args)
        for each in found.ingestions
        if any(_is_of(table, each) for table in found.tables)
    ]
    by_id = {dag.dag_id: dag for dag in dags}
    if len(by_id) < len(dags):
        ids = [dag.dag_id for dag in dags]
        twice = next(each for each in ids if ids.count(each) > 1)
        raise DefinitionError(str(definition_file), f"two DAGs have the id {twice!r}.", hint="Give one a `dag_id`.")
    return by_id


def refresh_dag(
    table: RefreshableTable, options: DagOptions | None = None, *, on_late: Callback | None = None, **task_args: Any
) -> DAG:
    """Return the DAG of one table.

    Args:
        on_late: See `refresh_dags`.
        task_args: Arguments of its tasks.
    """
    options = options or DagOptions()
    more: dict[str, Any] = {}
    if on_late is not None and table.freshness is not None:
        more["deadline"] = freshness_deadline(table, on_late, mv_conn_id=task_args.get("mv_conn_id"))
    zone = _timezone(table.name, options.timezone)
    given: dict[str, Any] = {"interval": options.interval, "interval_format": options.interval_format}
    schedule = _schedule(table, options, zone, task_args.get("mv_conn_id"))
    what = f"Refresh the table {table.name}"
    with _dag(options, f"refresh_{table.name}", what, schedule, zone, params=refresh_params(), **more) as dag:
        _tasks(table, options, given | _waiting(options) | task_args)
    return dag


def ingest_dag(
    ingestion: Ingestion,
    tables: Sequence[RefreshableTable],
    options: DagOptions | None = None,
    *,
    on_late: Callback | None = None,
    **task_args: Any,
) -> DAG:
    """Return the DAG of an ingestion.

    Args:
        tables: Its tables, perhaps with others.
        on_late: See `refresh_dags`.
        task_args: Arguments of its tasks.
    """
    options, name = options or DagOptions(), ingestion.name
    mine = [table for table in tables if _is_of(table, ingestion)]
    zone, given = _timezone(name, options.timezone), _waiting(options) | task_args
    schedule = _after(options.after) if options.after else options.schedule
    what, more = f"Refresh the tables of {name} in one state", dict[str, Any]()
    if on_late is not None and (late := [table for table in mine if table.freshness is not None]):
        conn_id = task_args.get("mv_conn_id")
        more["deadline"] = [freshness_deadline(each, on_late, mv_conn_id=conn_id) for each in late]
    with _dag(options, f"ingest_{name}", what, schedule, zone, **more) as dag:
        if options.tasks == "one":
            IngestOperator(task_id="ingest", ingestion=name, tables=mine, **given)
        else:
            ingest_group(name, mine, group_id="ingest", **given)
    return dag


def _is_of(table: RefreshableTable, ingestion: Ingestion) -> bool:
    mark = table.source.ingested
    return mark is not None and mark.name == ingestion.name


def _waiting(options: DagOptions) -> dict[str, Any]:
    return {} if options.queue_timeout_s is None else {"queue_timeout": options.queue_timeout_s}


def _dag(options: DagOptions, dag_id: str, what: str, schedule: Any, zone: Any, **more: Any) -> DAG:
    """Return a DAG without tasks; a task group finds it by its context."""
    if options.max_active_runs is not None:
        more["max_active_runs"] = options.max_active_runs
    return DAG(
        dag_id=options.dag_id or dag_id,
        description=options.description or what,
        schedule=schedule,
        start_date=datetime(options.start_date.year, options.start_date.month, options.start_date.day, tzinfo=zone),
        catchup=options.catchup,
        tags=["mv", *options.tags],
        default_args={
            "retries": options.retries,
            "retry_delay": timedelta(seconds=options.retry_delay_s),
            **({"retry_policy": retry_policy()} if HAS_RETRY_POLICIES else {}),
            **({} if options.pool is None else {"pool": options.pool}),
        },
        **more,
    )


def _tasks(table: RefreshableTable, options: DagOptions, given: dict[str, Any]) -> None:
    match options.tasks:
        case "phases":
            refresh_table_group(table, group_id="refresh", **given)
        case "one" | None:
            RefreshTableOperator(task_id="refresh", table=table, **given)
        case "submit":
            from airflow_mv_provider.operators.submit import SubmitRefreshTableOperator

            SubmitRefreshTableOperator(task_id="refresh", table=table, conn_id=options.spark_conn_id, **given)


def _after(tables: Sequence[str]) -> AssetAny:
    """Return a schedule by which one published table is enough: a refresh that finds nothing new sends no event."""
    return AssetAny(*(Asset(asset_uri(name)) for name in tables))


def _schedule(table: RefreshableTable, options: DagOptions, zone: Any, mv_conn_id: str | None) -> Any:
    if options.after:
        return _after(options.after)
    if options.schedule == "source" and table.source_kind.has_triggers:
        from airflow_mv_provider.triggers.commits import delta_asset

        (path,) = table.source.paths
        return delta_asset(path, mv_conn_id=mv_conn_id)
    if options.interval is not None and options.schedule is not None:
        # Runs of a plain "@daily" schedule have no data interval.
        return CronDataIntervalTimetable(options.schedule, timezone=zone)
    return options.schedule


def _timezone(table: str, name: str) -> Any:
    try:
        return pendulum.timezone(name)
    except Exception as error:  # pendulum raises its own exception classes
        raise DefinitionError(f"dags of {table!r}", f"{name[:60]!r} is not a time zone.") from error
