"""What a Python function can do as source."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_mv_provider.core.definition.kinds import SourceKind
from airflow_mv_provider.core.frontier import NoFrontier
from airflow_mv_provider.sources.function.model import Function

if TYPE_CHECKING:
    from airflow_mv_provider.sources.function.reader import FunctionReader


def _reader() -> type[FunctionReader]:
    from airflow_mv_provider.sources.function.reader import FunctionReader

    return FunctionReader


KIND = SourceKind(model=Function, frontier=NoFrontier, reader=_reader)
