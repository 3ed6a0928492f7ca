"""Refreshable Delta tables for Apache Airflow: load beside the table, compare, publish only what differs.

What DAGs are written with is exported here and imported at first use, because every `airflow` command imports this.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from airflow_mv_provider.core.definition.guards import Guards
    from airflow_mv_provider.core.definition.ingestion import Ingestion
    from airflow_mv_provider.core.definition.table import RefreshableTable
    from airflow_mv_provider.deadlines import freshness_deadline
    from airflow_mv_provider.hooks.mv import MvHook
    from airflow_mv_provider.notifications import FreshnessNotifier, RefreshNotifier
    from airflow_mv_provider.operators.audit import AuditTableOperator
    from airflow_mv_provider.operators.factory import refresh_dags
    from airflow_mv_provider.operators.form import refresh_params
    from airflow_mv_provider.operators.groups import ingest_group, refresh_table_group
    from airflow_mv_provider.operators.ingest import (
        FinishIngestionOperator,
        IngestOperator,
        PublishIngestedOperator,
        StageIngestionOperator,
    )
    from airflow_mv_provider.operators.maintenance import (
        CancelRefreshOperator,
        PauseTableOperator,
        RecoverTablesOperator,
        ResumeTableOperator,
        RollbackOperator,
    )
    from airflow_mv_provider.operators.refresh import (
        BeginRefreshOperator,
        CleanupRefreshOperator,
        MergeRefreshOperator,
        RefreshOptions,
        RefreshTableOperator,
        StageRefreshOperator,
    )
    from airflow_mv_provider.operators.retry import retry_policy
    from airflow_mv_provider.operators.row_history import WhyRowOperator
    from airflow_mv_provider.operators.submit import SubmitRefreshTableOperator
    from airflow_mv_provider.operators.transfer import ExportTableOperator, LoadTableOperator
    from airflow_mv_provider.sensors.freshness import TableFreshnessSensor
    from airflow_mv_provider.sensors.health import HealthSensor
    from airflow_mv_provider.sensors.phase import TablePhaseSensor
    from airflow_mv_provider.sources.delta.model import DeltaSource
    from airflow_mv_provider.sources.files.model import Files
    from airflow_mv_provider.sources.function.model import Function
    from airflow_mv_provider.sources.jdbc.model import Jdbc
    from airflow_mv_provider.sources.kafka.model import Kafka
    from airflow_mv_provider.sources.query.model import Query
    from airflow_mv_provider.sources.spark.model import SparkSource
    from airflow_mv_provider.triggers.commits import DeltaCommitTrigger, delta_asset
    from airflow_mv_provider.triggers.wait import TableTrigger

__version__ = "0.1.0"
__all__ = [
    "AuditTableOperator",
    "BeginRefreshOperator",
    "CancelRefreshOperator",
    "CleanupRefreshOperator",
    "DeltaCommitTrigger",
    "DeltaSource",
    "ExportTableOperator",
    "Files",
    "FinishIngestionOperator",
    "FreshnessNotifier",
    "Function",
    "Guards",
    "HealthSensor",
    "IngestOperator",
    "Ingestion",
    "Jdbc",
    "Kafka",
    "LoadTableOperator",
    "MergeRefreshOperator",
    "MvHook",
    "PauseTableOperator",
    "PublishIngestedOperator",
    "Query",
    "RecoverTablesOperator",
    "RefreshNotifier",
    "RefreshOptions",
    "RefreshTableOperator",
    "RefreshableTable",
    "ResumeTableOperator",
    "RollbackOperator",
    "SparkSource",
    "StageIngestionOperator",
    "StageRefreshOperator",
    "SubmitRefreshTableOperator",
    "TableFreshnessSensor",
    "TablePhaseSensor",
    "TableTrigger",
    "WhyRowOperator",
    "delta_asset",
    "freshness_deadline",
    "ingest_group",
    "refresh_dags",
    "refresh_params",
    "refresh_table_group",
    "retry_policy",
]

_MODULES = {
    "AuditTableOperator": "airflow_mv_provider.operators.audit",
    "BeginRefreshOperator": "airflow_mv_provider.operators.refresh",
    "CancelRefreshOperator": "airflow_mv_provider.operators.maintenance",
    "CleanupRefreshOperator": "airflow_mv_provider.operators.refresh",
    "DeltaCommitTrigger": "airflow_mv_provider.triggers.commits",
    "DeltaSource": "airflow_mv_provider.sources.delta.model",
    "ExportTableOperator": "airflow_mv_provider.operators.transfer",
    "Files": "airflow_mv_provider.sources.files.model",
    "FinishIngestionOperator": "airflow_mv_provider.operators.ingest",
    "FreshnessNotifier": "airflow_mv_provider.notifications",
    "Function": "airflow_mv_provider.sources.function.model",
    "Guards": "airflow_mv_provider.core.definition.guards",
    "HealthSensor": "airflow_mv_provider.sensors.health",
    "IngestOperator": "airflow_mv_provider.operators.ingest",
    "Ingestion": "airflow_mv_provider.core.definition.ingestion",
    "Jdbc": "airflow_mv_provider.sources.jdbc.model",
    "Kafka": "airflow_mv_provider.sources.kafka.model",
    "LoadTableOperator": "airflow_mv_provider.operators.transfer",
    "MergeRefreshOperator": "airflow_mv_provider.operators.refresh",
    "MvHook": "airflow_mv_provider.hooks.mv",
    "PauseTableOperator": "airflow_mv_provider.operators.maintenance",
    "PublishIngestedOperator": "airflow_mv_provider.operators.ingest",
    "Query": "airflow_mv_provider.sources.query.model",
    "RecoverTablesOperator": "airflow_mv_provider.operators.maintenance",
    "RefreshNotifier": "airflow_mv_provider.notifications",
    "RefreshOptions": "airflow_mv_provider.operators.refresh",
    "RefreshTableOperator": "airflow_mv_provider.operators.refresh",
    "RefreshableTable": "airflow_mv_provider.core.definition.table",
    "ResumeTableOperator": "airflow_mv_provider.operators.maintenance",
    "RollbackOperator": "airflow_mv_provider.operators.maintenance",
    "SparkSource": "airflow_mv_provider.sources.spark.model",
    "StageIngestionOperator": "airflow_mv_provider.operators.ingest",
    "StageRefreshOperator": "airflow_mv_provider.operators.refresh",
    "SubmitRefreshTableOperator": "airflow_mv_provider.operators.submit",
    "TableFreshnessSensor": "airflow_mv_provider.sensors.freshness",
    "TablePhaseSensor": "airflow_mv_provider.sensors.phase",
    "TableTrigger": "airflow_mv_provider.triggers.wait",
    "WhyRowOperator": "airflow_mv_provider.operators.row_history",
    "delta_asset": "airflow_mv_provider.triggers.commits",
    "freshness_deadline": "airflow_mv_provider.deadlines",
    "ingest_group": "airflow_mv_provider.operators.groups",
    "refresh_dags": "airflow_mv_provider.operators.factory",
    "refresh_params": "airflow_mv_provider.operators.form",
    "refresh_table_group": "airflow_mv_provider.operators.groups",
    "retry_policy": "airflow_mv_provider.operators.retry",
}


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_MODULES[name]), name)
