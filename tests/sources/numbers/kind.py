"""What numbers can do as source."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_mv_provider.core.definition.kinds import SourceKind
from airflow_mv_provider.sources.numbers.frontier import NumbersFrontier
from airflow_mv_provider.sources.numbers.model import Numbers

if TYPE_CHECKING:
    from airflow_mv_provider.sources.numbers.reader import NumbersReader


def _reader() -> type[NumbersReader]:
    from airflow_mv_provider.sources.numbers.reader import NumbersReader

    return NumbersReader


KIND = SourceKind(model=Numbers, frontier=NumbersFrontier, reader=_reader, is_repeatable=True, keeps_versions=True)
