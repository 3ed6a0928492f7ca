"""A Delta table as the definition's source."""

from __future__ import annotations

from typing import Literal

from airflow_mv_provider.core.definition.source import PathSource


class DeltaSource(PathSource):
    """A Delta table, pinned by its version."""

    type: Literal["delta"] = "delta"
