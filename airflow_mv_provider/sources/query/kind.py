"""What a query can do as source."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_mv_provider.core.definition.kinds import SourceKind
from airflow_mv_provider.sources.query.frontier import QueryFrontier
from airflow_mv_provider.sources.query.model import Query

if TYPE_CHECKING:
    from airflow_mv_provider.sources.query.reader import QueryReader


def _reader() -> type[QueryReader]:
    from airflow_mv_provider.sources.query.reader import QueryReader

    return QueryReader


KIND = SourceKind(model=Query, frontier=QueryFrontier, reader=_reader, is_repeatable=True)
