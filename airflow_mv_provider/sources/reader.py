"""The interface of every source, and the choice of the reader for a definition's source.

probe   → the frontier, which identifies the source's present state; cheap, reads no rows
read    → the rows at a frontier, after the definition's projection; lazy
verify  → called after the rows were read: raises unless the source was at that frontier all the time

Every table reads its source through `TableSource`. If the table has an error table, `read` leaves out the rows that
cannot be rows of main, and `rejected` returns them.
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
from airflow_mv_provider.spark import marking, rejected


class SourceReader(Protocol):
    """One source of one table."""

    @property
    def locations(self) -> tuple[str, ...]:
        """The absolute locations that it reads; empty for a function, whose code decides."""

    def probe(self) -> Frontier:
        """Return the source's present frontier.

        raises : SourceNotFoundError, UnsafeLocationError
        """

    def read(self, frontier: Frontier, beside: Sequence[str] = ()) -> DataFrame:
        """Return the rows at `frontier`, projected; lazy.

        beside : columns that rows are ordered by, which need not be in the projection; see `projected`
        raises : KeyColumnError, if one of these does not exist; DefinitionError, if Spark cannot analyse the
                 projection or query; SourceFunctionError
        """

    def changes(self, since: Frontier, until: Frontier) -> SourceChanges | None:
        """Return what its log or listing shows of the changes between two frontiers, without reading a row.

        returns : None if it shows nothing
        """

    def determinism(self, frontier: Frontier) -> Determinism:
        """Return whether reading it again at `frontier` gives the same rows; reads none.

        raises : DefinitionError, if Spark cannot analyse the projection or query
        """

    def num_bytes(self, frontier: Frontier) -> int | None:
        """Return about how many bytes there are to read; None if that is unknown, or the source is gone."""

    def verify(self, frontier: Frontier) -> None:
        """Check that the rows that were read are those at `frontier`.

        raises : SourceChangedError, if they may not be
        """


@dataclass(frozen=True, slots=True)
class TableSource:
    """One table's source: its reader, and the definition that selects the table's rows."""

    reader: SourceReader
    table: RefreshableTable

    @property
    def locations(self) -> tuple[str, ...]:
        """See `SourceReader`."""
        return self.reader.locations

    def probe(self, overrides: Collection[str] = ()) -> Frontier:
        """Return the reader's frontier; see `SourceReader`.

        overrides : names of the guards that a person has overridden
        raises    : also SourceNotFoundError if there is no file and SourceFileError if a file is empty, unless
                    `allow_empty` is set
        """
        frontier = self.reader.probe()
        is_allowed = self.table.guards.allow_empty or "allow_empty" in overrides
        if isinstance(self.reader, FilesReader) and not is_allowed:
            self.reader.check_not_empty(frontier)
        return frontier

    @property
    def passed_over(self) -> Sequence[str]:
        """The files that the last probe found and that Spark does not read; empty for other sources than files."""
        return self.reader.passed_over if isinstance(self.reader, FilesReader) else ()

    def knows_columns(self, frontier: Frontier) -> bool:
        """True if the source's columns are known; False only for files if there is neither a file nor a schema."""
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
        """Return the rows that can be rows of main; see `SourceReader`."""
        if self.table.errors is None:
            return self.reader.read(frontier, beside)
        rows = marking.decoded(self._marked(frontier, beside, is_numbered=False)).drop(marking.ORIGIN)
        return rejected.keyed(self._projected(rows, beside), self.table.key)

    def changes(self, since: Frontier, until: Frontier) -> SourceChanges | None:
        """Return the reader's changes; a declared watermark removes every obstacle to a feed; see `SourceReader`."""
        found = self.reader.changes(since, until)
        if found is None or found.is_another or self.table.source.watermark is None:
            return found
        return SourceChanges(found.at_most, None)  # the definition's watermark identifies the changed rows

    def feed(self, since: Frontier, until: Frontier) -> DataFrame:
        """Return the rows that the source lost (-1) and gained (+1) between two frontiers, in any order; lazy.

        returns : (columns after the projection, _mv_sign int)
        raises  : SchemaMismatchError; EngineError, also while the rows are read, because a feed can be vacuumed away
        """
        assert isinstance(self.reader, DeltaReader | FilesReader)
        return self.reader.feed(since, until)

    def rejected(self, frontier: Frontier) -> rejected.Bad | None:
        """Return the records that cannot be rows of main, as `rejected.bad` does.

        returns : None if the table has no error table, or the source's columns are unknown
        """
        if self.table.errors is None or not self.knows_columns(frontier):
            return None
        marked = self._marked(frontier, is_numbered=True)
        rows = self._projected(marking.decoded(marked), (), marking.ORIGIN)
        return rejected.bad(marked, rows, self.table.key)

    def _marked(self, frontier: Frontier, beside: Sequence[str] = (), *, is_numbered: bool) -> DataFrame:
        if isinstance(self.reader, FilesReader):
            return self.reader.marked(frontier, beside, is_numbered=is_numbered)
        return self.reader.read(frontier, beside).select("*", marking.origin())

    def _projected(self, marked: DataFrame, beside: Sequence[str], *more: str) -> DataFrame:
        """Return marked rows after the projection: only a file's records are marked before it."""
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
