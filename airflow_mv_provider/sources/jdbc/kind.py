"""What a database can do as source."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_mv_provider.core.definition.kinds import SourceKind
from airflow_mv_provider.sources.jdbc.frontier import JdbcFrontier
from airflow_mv_provider.sources.jdbc.model import Jdbc

if TYPE_CHECKING:
    from airflow_mv_provider.sources.jdbc.reader import JdbcReader
    from airflow_mv_provider.sources.jdbc.shared import SharedSnapshot


def _reader() -> type[JdbcReader]:
    from airflow_mv_provider.sources.jdbc.reader import JdbcReader

    return JdbcReader


def _shared() -> type[SharedSnapshot]:
    from airflow_mv_provider.sources.jdbc.shared import SharedSnapshot

    return SharedSnapshot


KIND = SourceKind(
    model=Jdbc, frontier=JdbcFrontier, reader=_reader, shared=_shared, needs_credentials=True, lists_upserts=True
)
