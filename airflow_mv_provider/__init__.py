"""Refreshable Delta tables for Apache Airflow: load beside the table, compare, publish only what differs.

The classes of definitions are exported here and imported at first use, because every `airflow` command imports this.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from airflow_mv_provider.core.definition.source import DeltaSource, Files, Function, Query
    from airflow_mv_provider.core.definition.table import Guards, RefreshableTable

__version__ = "0.1.0"
__all__ = ["DeltaSource", "Files", "Function", "Guards", "Query", "RefreshableTable"]

_SOURCE, _TABLE = "airflow_mv_provider.core.definition.source", "airflow_mv_provider.core.definition.table"
_MODULES = {
    **dict.fromkeys(("DeltaSource", "Files", "Function", "Query"), _SOURCE),
    **dict.fromkeys(("Guards", "RefreshableTable"), _TABLE),
}


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_MODULES[name]), name)
