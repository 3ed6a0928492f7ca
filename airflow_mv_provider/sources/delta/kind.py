"""What a Delta table can do as source."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_mv_provider.core.definition.kinds import SourceKind
from airflow_mv_provider.sources.delta.frontier import DeltaFrontier
from airflow_mv_provider.sources.delta.model import DeltaSource

if TYPE_CHECKING:
    from airflow_mv_provider.sources.delta.reader import DeltaReader


def _reader() -> type[DeltaReader]:
    from airflow_mv_provider.sources.delta.reader import DeltaReader

    return DeltaReader


KIND = SourceKind(
    model=DeltaSource,
    frontier=DeltaFrontier,
    reader=_reader,
    is_repeatable=True,
    keeps_versions=True,
    is_cheap_to_probe=True,
    has_triggers=True,
)
