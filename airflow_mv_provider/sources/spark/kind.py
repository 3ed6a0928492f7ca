"""What a data source of Spark can do as source."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_mv_provider.core.definition.kinds import SourceKind
from airflow_mv_provider.sources.spark.frontier import SparkFrontier
from airflow_mv_provider.sources.spark.model import SparkSource

if TYPE_CHECKING:
    from airflow_mv_provider.sources.spark.reader import SparkReader


def _reader() -> type[SparkReader]:
    from airflow_mv_provider.sources.spark.reader import SparkReader

    return SparkReader


KIND = SourceKind(model=SparkSource, frontier=SparkFrontier, reader=_reader, needs_credentials=True)
