"""Task groups: the four phases of a table's refresh; the tables of an ingestion."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from airflow.sdk import TaskGroup

from airflow_mv_provider.core.definition.table import RefreshableTable
from airflow_mv_provider.core.scope.interval import Grain
from airflow_mv_provider.operators.ingest import (
    FinishIngestionOperator,
    PublishIngestedOperator,
    StageIngestionOperator,
)
from airflow_mv_provider.operators.refresh import (
    BeginRefreshOperator,
    CleanupRefreshOperator,
    MergeRefreshOperator,
    RefreshOptions,
    StageRefreshOperator,
)


def refresh_table_group(
    table: str | RefreshableTable | None = None,
    *,
    group_id: str | None = None,
    definition_file: str | None = None,
    options: RefreshOptions | None = None,
    interval: Grain | None = None,
    interval_format: str | None = None,
    **task_args: Any,
) -> TaskGroup:
    """Return the task group begin → stage → merge → cleanup for one table, in the current DAG context.

    Args:
        group_id: Defaults to `refresh_<table>`.
        task_args: Arguments of each of the four tasks: mv_conn_id, queue_timeout, retries, pool, queue, ... For the
            others see `operators.refresh`.

    `merge` has the table's asset among its outlets.

    If there is nothing to do, the group's tasks after `begin` are skipped. Downstream tasks with the default trigger
    rule are then skipped too; set `trigger_rule="none_failed"` on tasks that should run in any case.
    """
    name = table.name if isinstance(table, RefreshableTable) else table
    with TaskGroup(group_id or f"refresh_{(name or 'table').replace('.', '_')}") as group:
        begin = BeginRefreshOperator(
            task_id="begin",
            table=table,
            definition_file=definition_file,
            options=options,
            interval=interval,
            interval_format=interval_format,
            **task_args,
        )
        stage = StageRefreshOperator(task_id="stage", refresh_id=begin.output, **task_args)
        merge = MergeRefreshOperator(task_id="merge", refresh_id=begin.output, table=name, **task_args)
        cleanup = CleanupRefreshOperator(task_id="cleanup", refresh_id=begin.output, **task_args)
        stage >> merge >> cleanup
    return group


def ingest_group(
    ingestion: str,
    tables: Sequence[str | RefreshableTable],
    *,
    group_id: str | None = None,
    **task_args: Any,
) -> TaskGroup:
    """Return the task group stage → publish, a task for each table → finish, in the current DAG context.

    Args:
        ingestion: Its name.
        tables: Its tables; definitions are registered by `stage`, each time it runs.
        group_id: Defaults to `ingest_<ingestion>`.
        task_args: Arguments of each of the tasks: mv_conn_id, queue_timeout, retries, pool, queue, ...

    Each table's task has its asset among its outlets, and fails alone if its table is left behind. `finish` runs
    whatever became of the tables, and fails if one was left behind.
    """
    definitions = [each for each in tables if isinstance(each, RefreshableTable)]
    names = [each.name if isinstance(each, RefreshableTable) else each for each in tables]
    with TaskGroup(group_id or f"ingest_{ingestion.replace('.', '_')}") as group:
        stage = StageIngestionOperator(
            task_id="stage", ingestion=ingestion, tables=definitions, names=names, **task_args
        )
        publish = [
            PublishIngestedOperator(
                task_id=f"publish_{name.replace('.', '_')}", table=name, staged=stage.output, **task_args
            )
            for name in names
        ]
        last = {**task_args, "trigger_rule": "all_done"}
        finish = FinishIngestionOperator(task_id="finish", ingestion=ingestion, staged=stage.output, **last)
        stage >> publish >> finish
    return group
