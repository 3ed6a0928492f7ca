"""What the runner asks of every source, and which reader answers for a definition's source.

probe   → the frontier: what the source is now, cheap, reads no rows
read    → its rows at a frontier, lazily, after the definition's projection
verify  → after the rows were read: the source was at that frontier all the time
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from pyspark.sql import DataFrame, SparkSession

from airflow_mv_provider.core.frontier import Frontier
from airflow_mv_provider.core.source import DeltaSource
from airflow_mv_provider.core.table import RefreshableTable
from airflow_mv_provider.sources.delta import DeltaReader
from airflow_mv_provider.sources.files import FilesReader


class SourceReader(Protocol):
    """One source of one table."""

    @property
    def location(self) -> str:
        """Where the source lies, absolute."""

    def probe(self) -> Frontier:
        """Return what the source is now.

        raises : SourceNotFoundError, UnsafeLocationError
        """

    def read(self, frontier: Frontier) -> DataFrame:
        """Return the rows at `frontier`, projected; lazy.

        raises : DefinitionError, when Spark does not understand the projection
        """

    def verify(self, frontier: Frontier) -> None:
        """Confirm that what was read was `frontier`.

        raises : SourceChangedError
        """


def open_source(
    spark: SparkSession, table: RefreshableTable, warehouse: str, roots: Sequence[str] = ()
) -> SourceReader:
    """Return the reader of a table's source.

    roots  : directories outside the warehouse that a source may lie under
    raises : UnsafeLocationError
    """
    if isinstance(table.source, DeltaSource):
        return DeltaReader(spark, table.source, warehouse, roots)
    return FilesReader(spark, table.source, warehouse, roots)
