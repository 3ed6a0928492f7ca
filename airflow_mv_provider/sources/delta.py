"""A Delta table as source, pinned by its version."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame, SparkSession

from airflow_mv_provider.core.frontier import DeltaFrontier, Frontier
from airflow_mv_provider.core.source import DeltaSource
from airflow_mv_provider.exceptions import SourceChangedError, SourceNotFoundError
from airflow_mv_provider.sources.place import confined
from airflow_mv_provider.sources.projection import projected
from airflow_mv_provider.spark import delta


class DeltaReader:
    """Reads a Delta table at a version; a version stays what it is as long as VACUUM leaves its files."""

    def __init__(self, spark: SparkSession, source: DeltaSource, warehouse: str, roots: Sequence[str]) -> None:
        self._spark = spark
        self._source = source
        self._location = confined(source.path, warehouse, roots)
        self.locations = (self._location,)

    def probe(self) -> DeltaFrontier:
        """Return the table's id and newest version; see `SourceReader`."""
        found = delta.detail(self._spark, self._location)
        if found is None:
            raise SourceNotFoundError("source", f"{self._location} is not a Delta table.")
        return DeltaFrontier(found.delta_id, delta.latest_version(self._spark, self._location))

    def read(self, frontier: Frontier) -> DataFrame:
        """Return the rows at the pinned version; see `SourceReader`."""
        assert isinstance(frontier, DeltaFrontier)
        rows = delta.read(self._spark, self._location, frontier.version)
        return projected(rows, self._source.select)

    def verify(self, frontier: Frontier) -> None:
        """Confirm that the table was not replaced by another; see `SourceReader`."""
        assert isinstance(frontier, DeltaFrontier)
        found = delta.detail(self._spark, self._location)
        if found is None or found.delta_id != frontier.table_id:
            raise SourceChangedError("source", f"{self._location} was dropped or replaced while it was read.")
