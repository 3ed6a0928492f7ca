"""A Delta table as source, pinned by its version."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame, SparkSession

from airflow_mv_provider.core.frontier import DeltaFrontier, Frontier
from airflow_mv_provider.core.source import DeltaSource
from airflow_mv_provider.exceptions import SourceChangedError, SourceNotFoundError
from airflow_mv_provider.sources.place import confined
from airflow_mv_provider.spark import delta
from airflow_mv_provider.spark.errors import translated


class DeltaReader:
    """Reads a Delta table at a version; a version stays what it is as long as VACUUM leaves its files."""

    def __init__(self, spark: SparkSession, source: DeltaSource, warehouse: str, roots: Sequence[str]) -> None:
        self._spark = spark
        self._source = source
        self.location = confined(source.path, warehouse, roots)

    def probe(self) -> DeltaFrontier:
        """Return the table's id and newest version; see `SourceReader`."""
        found = delta.detail(self._spark, self.location)
        if found is None:
            raise SourceNotFoundError("source", f"{self.location} is not a Delta table.")
        return DeltaFrontier(found.delta_id, delta.latest_version(self._spark, self.location))

    def read(self, frontier: Frontier) -> DataFrame:
        """Return the rows at the pinned version; see `SourceReader`."""
        assert isinstance(frontier, DeltaFrontier)
        rows = delta.read(self._spark, self.location, frontier.version)
        with translated("select"):
            return rows.selectExpr(*self._source.select) if self._source.select else rows

    def verify(self, frontier: Frontier) -> None:
        """Confirm that the table was not replaced by another; see `SourceReader`."""
        assert isinstance(frontier, DeltaFrontier)
        found = delta.detail(self._spark, self.location)
        if found is None or found.delta_id != frontier.table_id:
            raise SourceChangedError("source", f"{self.location} was dropped or replaced while it was read.")
