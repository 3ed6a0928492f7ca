"""What the runner asks of every source, and which reader answers for a definition's source.

probe   → the frontier: what the source is now, cheap, reads no rows
read    → its rows at a frontier, lazily, after the definition's projection
verify  → after the rows were read: the source was at that frontier all the time

A table that asks for an error table reads its source through `TableSource` all the same: rows that cannot be rows of
main are left out of `read`, and are what `rejected` returns.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Protocol, assert_never

from pyspark.sql import DataFrame, SparkSession

from airflow_mv_provider.core.definition.source import DeltaSource, Files, Function, Query
from airflow_mv_provider.core.definition.table import RefreshableTable
from airflow_mv_provider.core.frontier import Frontier
from airflow_mv_provider.core.strategy import Determinism, SourceChanges
from airflow_mv_provider.sources.delta.reader import DeltaReader
from airflow_mv_provider.sources.files.reader import FilesReader
from airflow_mv_provider.sources.function.reader import FunctionReader
from airflow_mv_provider.sources.query.reader import QueryReader
from airflow_mv_provider.spark import rejected


class SourceReader(Protocol):
    """One source of one table."""

    @property
    def locations(self) -> tuple[str, ...]:
        """Where what it reads lies, absolute; nothing where only its code knows."""

    def probe(self) -> Frontier:
        """Return what the source is now.

        raises : SourceNotFoundError, UnsafeLocationError
        """

    def read(self, frontier: Frontier, beside: Sequence[str] = ()) -> DataFrame:
        """Return the rows at `frontier`, projected; lazy.

        beside : columns that rows are ordered by, which need not be in the projection; see `projected`
        raises : KeyColumnError, when one of these is nowhere; DefinitionError, when Spark does not understand the
                 projection or query; SourceFunctionError
        """

    def changes(self, since: Frontier, until: Frontier) -> SourceChanges | None:
        """Say what it tells of the time between two of its frontiers, without reading a row; None, if nothing."""

    def determinism(self, frontier: Frontier) -> Determinism:
        """Say whether reading it again at `frontier` gives the same rows; reads none.

        raises : DefinitionError, when Spark does not understand the projection or query
        """

    def num_bytes(self, frontier: Frontier) -> int | None:
        """Return about how many bytes there are to read; None where nobody knows, or it is gone."""

    def verify(self, frontier: Frontier) -> None:
        """Confirm that what was read was `frontier`.

        raises : SourceChangedError
        """


@dataclass(frozen=True, slots=True)
class TableSource:
    """One table's source: its reader, and which of its rows are the table's."""

    reader: SourceReader
    table: RefreshableTable

    @property
    def locations(self) -> tuple[str, ...]:
        """See `SourceReader`."""
        return self.reader.locations

    def probe(self, overrides: Collection[str] = ()) -> Frontier:
        """As the reader says; see `SourceReader`.

        overrides : names of guards a person has set aside
        raises    : also where there is no file or one without a byte, unless `allow_empty` is set
        """
        frontier = self.reader.probe()
        is_allowed = self.table.guards.allow_empty or "allow_empty" in overrides
        if isinstance(self.reader, FilesReader) and not is_allowed:
            self.reader.check_not_empty(frontier)
        return frontier

    @property
    def passed_over(self) -> Sequence[str]:
        """The files that the last probe found beside those that are read."""
        return self.reader.passed_over if isinstance(self.reader, FilesReader) else ()

    def knows_columns(self, frontier: Frontier) -> bool:
        """True if the source says what its columns are: without a file and a schema nothing does."""
        return not isinstance(self.reader, FilesReader) or self.reader.knows_columns(frontier)

    def determinism(self, frontier: Frontier) -> Determinism:
        """See `SourceReader`."""
        return self.reader.determinism(frontier)

    def num_bytes(self, frontier: Frontier) -> int | None:
        """See `SourceReader`."""
        return self.reader.num_bytes(frontier)

    def verify(self, frontier: Frontier) -> None:
        """See `SourceReader`."""
        self.reader.verify(frontier)

    def read(self, frontier: Frontier, beside: Sequence[str] = ()) -> DataFrame:
        """Return the rows that can be main's; see `SourceReader`."""
        if self.table.errors is None:
            return self.reader.read(frontier, beside)
        rows = rejected.decoded(self._marked(frontier, beside, is_numbered=False)).drop(rejected.ORIGIN)
        return rejected.keyed(self._projected(rows, beside), self.table.key)

    def changes(self, since: Frontier, until: Frontier) -> SourceChanges | None:
        """As the reader says, or as a watermark lets it; see `SourceReader`."""
        found = self.reader.changes(since, until)
        if found is None or found.is_another or self.table.source.watermark is None:
            return found
        return SourceChanges(found.at_most, None)  # its author says how changes are known

    def feed(self, since: Frontier, until: Frontier) -> DataFrame:
        """Return the rows that it lost (-1) and got (+1) between two frontiers, in any order; lazy.

        returns : (columns after the projection, _mv_sign int)
        raises  : SchemaMismatchError; EngineError, also while it is read: a feed can be vacuumed away
        """
        assert isinstance(self.reader, DeltaReader | FilesReader)
        return self.reader.feed(since, until)

    def rejected(self, frontier: Frontier) -> rejected.Bad | None:
        """Return the records that cannot be rows of main, as `rejected.bad` does; None if the table does not ask."""
        if self.table.errors is None or not self.knows_columns(frontier):
            return None
        marked = self._marked(frontier, is_numbered=True)
        rows = self._projected(rejected.decoded(marked), (), rejected.ORIGIN)
        return rejected.bad(marked, rows, self.table.key)

    def _marked(self, frontier: Frontier, beside: Sequence[str] = (), *, is_numbered: bool) -> DataFrame:
        if isinstance(self.reader, FilesReader):
            return self.reader.marked(frontier, beside, is_numbered=is_numbered)
        return self.reader.read(frontier, beside).select("*", rejected.origin())

    def _projected(self, marked: DataFrame, beside: Sequence[str], *more: str) -> DataFrame:
        """Return marked rows after the projection: a file's records are marked before it."""
        return self.reader.project(marked, beside, *more) if isinstance(self.reader, FilesReader) else marked


def open_source(spark: SparkSession, table: RefreshableTable, warehouse: str, roots: Sequence[str] = ()) -> TableSource:
    """Return a table's source.

    roots  : directories outside the warehouse that a source may lie under
    raises : UnsafeLocationError
    """
    return TableSource(_reader(spark, table, warehouse, roots), table)


def _reader(spark: SparkSession, table: RefreshableTable, warehouse: str, roots: Sequence[str]) -> SourceReader:
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
