"""What the runner asks of every source, and which reader answers for a definition's source.

probe   → the frontier: what the source is now, cheap, reads no rows
read    → its rows at a frontier, lazily, after the definition's projection
verify  → after the rows were read: the source was at that frontier all the time
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, assert_never

from pyspark.sql import DataFrame, SparkSession

from airflow_mv_provider.core.frontier import Frontier
from airflow_mv_provider.core.source import DeltaSource, Files, Function, Query
from airflow_mv_provider.core.table import RefreshableTable
from airflow_mv_provider.sources.delta import DeltaReader
from airflow_mv_provider.sources.files import FilesReader
from airflow_mv_provider.sources.function import FunctionReader
from airflow_mv_provider.sources.query import QueryReader


class SourceReader(Protocol):
    """One source of one table."""

    @property
    def locations(self) -> tuple[str, ...]:
        """Where what it reads lies, absolute; nothing where only its code knows."""

    def probe(self) -> Frontier:
        """Return what the source is now.

        raises : SourceNotFoundError, UnsafeLocationError
        """

    def read(self, frontier: Frontier) -> DataFrame:
        """Return the rows at `frontier`, projected; lazy.

        raises : DefinitionError, when Spark does not understand the projection or query; SourceFunctionError
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
    match table.source:
        case DeltaSource() as source:
            return DeltaReader(spark, source, warehouse, roots)
        case Files() as source:
            return FilesReader(spark, source, warehouse, roots)
        case Query() as source:
            return QueryReader(spark, source, warehouse, roots)
        case Function() as source:
            return FunctionReader(spark, source)
        case _:
            assert_never(table.source)
