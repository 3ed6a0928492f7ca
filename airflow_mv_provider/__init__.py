"""Refreshable Delta tables for Apache Airflow: load beside the table, compare, publish only what differs.

The classes of definitions are exported here and imported at first use, because every `airflow` command imports this.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from airflow_mv_provider.core.definition.guards import Guards
    from airflow_mv_provider.core.definition.ingestion import Ingestion
    from airflow_mv_provider.core.definition.table import RefreshableTable
    from airflow_mv_provider.sources.delta.model import DeltaSource
    from airflow_mv_provider.sources.files.model import Files
    from airflow_mv_provider.sources.function.model import Function
    from airflow_mv_provider.sources.jdbc.model import Jdbc
    from airflow_mv_provider.sources.kafka.model import Kafka
    from airflow_mv_provider.sources.query.model import Query
    from airflow_mv_provider.sources.spark.model import SparkSource

__version__ = "0.1.0"
__all__ = [
    "DeltaSource",
    "Files",
    "Function",
    "Guards",
    "Ingestion",
    "Jdbc",
    "Kafka",
    "Query",
    "RefreshableTable",
    "SparkSource",
]

_MODULES = {
    "DeltaSource": "airflow_mv_provider.sources.delta.model",
    "Files": "airflow_mv_provider.sources.files.model",
    "Function": "airflow_mv_provider.sources.function.model",
    "Guards": "airflow_mv_provider.core.definition.guards",
    "Ingestion": "airflow_mv_provider.core.definition.ingestion",
    "Jdbc": "airflow_mv_provider.sources.jdbc.model",
    "Kafka": "airflow_mv_provider.sources.kafka.model",
    "Query": "airflow_mv_provider.sources.query.model",
    "RefreshableTable": "airflow_mv_provider.core.definition.table",
    "SparkSource": "airflow_mv_provider.sources.spark.model",
}


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_MODULES[name]), name)
