"""The source of one table: its reader, and what of the table's definition applies to every kind of source.

Every table reads its source through `TableSource`. If the table has an error table, `read` leaves out the rows that
cannot be rows of main, and `rejected` returns them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession

from airflow_mv_provider.core.definition.table import RefreshableTable
from airflow_mv_provider.core.frontier import Frontier
from airflow_mv_provider.core.location import check_apart
from airflow_mv_provider.core.strategy import Determinism, SourceChanges
from airflow_mv_provider.sources.credentials import Lookup, of_environment
from airflow_mv_provider.sources.reader import FoundLines, SourceReader
from airflow_mv_provider.sources.shared import SharedState
from airflow_mv_provider.spark import marking, rejected
from airflow_mv_provider.spark.compare.replay import Cut
from airflow_mv_provider.spark.quality import evaluation, failing


@dataclass(frozen=True, slots=True)
class TableSource:
    """One table's source: its reader, and the definition that selects the table's rows.

    main : the location that it must not lie in or around; None for a rollback, whose source is main itself
    """

    reader: SourceReader[Any, Any]
    table: RefreshableTable
    main: str | None = None

    def __post_init__(self) -> None:
        self.reader.key = self.table.key

    def probe(self, overrides: Collection[str] = ()) -> Frontier:
        """Return the reader's frontier; see `SourceReader`.

        overrides : names of the guards that a person has overridden
        raises    : also SourceNotFoundError if there is no file and SourceFileError if a file is empty, unless
                    `allow_empty` is set; UnsafeLocationError, if a name of the catalog leads to main
        """
        frontier: Frontier = self.reader.probe()
        if self.table.source.names:
            self.check_apart()
        if not (self.table.guards.allow_empty or "allow_empty" in overrides):
            self.reader.check_not_empty(frontier)
        return frontier

    def share(self, state: SharedState[Any]) -> None:
        """See `SourceReader`."""
        self.reader.share(state)

    def check_apart(self) -> None:
        """Check that main and what is known of the source's locations do not overlap.

        raises : UnsafeLocationError
        """
        for location in self.reader.locations:
            if self.main is not None:
                check_apart(self.main, location)

    @property
    def probe_note(self) -> str:
        """See `SourceReader`."""
        return self.reader.probe_note

    def knows_columns(self, frontier: Frontier) -> bool:
        """See `SourceReader`."""
        return self.reader.knows_columns(frontier)

    def determinism(self, frontier: Frontier) -> Determinism:
        """See `SourceReader`."""
        return self.reader.determinism(frontier)

    def num_bytes(self, frontier: Frontier) -> int | None:
        """See `SourceReader`."""
        return self.reader.num_bytes(frontier)

    def time_ms(self, frontier: Frontier) -> int | None:
        """See `SourceReader`."""
        return self.reader.time_ms(frontier)

    def verify(self, frontier: Frontier) -> None:
        """See `SourceReader`."""
        self.reader.verify(frontier)

    def close(self) -> None:
        """See `SourceReader`."""
        self.reader.close()

    def read(self, frontier: Frontier, beside: Sequence[str] = ()) -> DataFrame:
        """Return the rows that can be rows of main; see `SourceReader`. For a log with an error table see `events`."""
        if self.table.errors is None or self.table.source_kind.is_log:
            return self.reader.read(frontier, beside)
        rows = marking.decoded(self.reader.marked(frontier, beside, is_numbered=False)).drop(marking.ORIGIN)
        if fallible := failing.fallible(rows, self.table.source.select or ()):
            rows = rows.where(failing.is_computable(fallible))
        return evaluation.passing(rejected.keyed(self.reader.project(rows, beside), self.table.key), self.table)

    def changes(self, since: Frontier, until: Frontier) -> SourceChanges | None:
        """Return the reader's changes; a declared watermark removes every obstacle to a feed; see `SourceReader`."""
        found = self.reader.changes(since, until)
        if self.table.source_kind.lists_upserts:
            return found  # its reader looks for the watermark itself
        if found is None or found.is_another or self.table.source.watermark is None:
            return found
        return SourceChanges(found.at_most, None)  # the definition's watermark identifies the changed rows

    def feed(self, since: Frontier, until: Frontier) -> DataFrame:
        """See `SourceReader`."""
        return self.reader.feed(since, until)

    def from_start(self, frontier: Frontier) -> Frontier:
        """See `SourceReader`."""
        found: Frontier = self.reader.from_start(frontier)
        return found

    def bounded(self, since: Frontier | None, until: Frontier) -> Frontier:
        """See `SourceReader`."""
        found: Frontier = self.reader.bounded(since, until)
        return found

    def check_continues(self, since: Frontier, until: Frontier) -> None:
        """See `SourceReader`."""
        self.reader.check_continues(since, until)

    def events(self, since: Frontier | None, until: Frontier, cut: Cut | None = None) -> DataFrame:
        """Return a log's events; with an error table also those that cannot be rows, marked. See `SourceReader`."""
        return self.reader.events(since, until, cut, keeps_bad=self.table.errors is not None)

    def check_begun(self, since: Frontier, until: Frontier, snapshot_end: int) -> None:
        """See `SourceReader`."""
        self.reader.check_begun(since, until, snapshot_end)

    def upserts(self, since: Frontier, until: Frontier, main: DataFrame) -> DataFrame:
        """See `SourceReader`."""
        return self.reader.upserts(since, until, main)

    def num_rows(self, frontier: Frontier) -> int:
        """See `SourceReader`."""
        return self.reader.num_rows(frontier)

    def is_unique(self, key: Sequence[str]) -> bool:
        """See `SourceReader`."""
        return self.reader.is_unique(key)

    def file_ids(self, frontier: Frontier) -> Mapping[str, str] | None:
        """See `SourceReader`."""
        return self.reader.file_ids(frontier)

    def of_files(self, frontier: Frontier, paths: Sequence[str] | None = None) -> DataFrame:
        """See `SourceReader`."""
        return self.reader.of_files(frontier, paths)

    def lines_of(
        self, frontier: Frontier, path: str, condition: Column, names: Sequence[str], at_most: int
    ) -> FoundLines:
        """See `SourceReader`."""
        return self.reader.lines_of(frontier, path, condition, names, at_most)

    def rejected(self, frontier: Frontier) -> rejected.RejectedRecords | None:
        """Return the records that cannot be rows of main, as `rejected.bad` does.

        returns : None if the table has no error table, the source's columns are unknown, or it is a log
        """
        if self.table.errors is None or self.table.source_kind.is_log or not self.knows_columns(frontier):
            return None
        marked = self.reader.marked(frontier, is_numbered=True)
        decoded, failed = marking.decoded(marked), None
        if fallible := failing.fallible(decoded, self.table.source.select or ()):
            failed = rejected.not_computable(decoded, fallible)
            decoded = decoded.where(failing.is_computable(fallible))
        rows = self.reader.project(decoded, (), marking.ORIGIN)
        return rejected.rejected_records(marked, rows, self.table, failed)


def open_source(
    spark: SparkSession,
    table: RefreshableTable,
    warehouse: str,
    roots: Sequence[str] = (),
    connections: Lookup = of_environment,
    main: str | None = None,
) -> TableSource:
    """Return a table's source.

    roots       : directories outside the warehouse that a source may lie under
    connections : finds the credentials of a source that is reached through a connection
    main        : see `TableSource`
    raises      : UnsafeLocationError, ConnectionUnknownError
    """
    kind, conn_id = table.source_kind, table.source.connection_id
    credentials = (connections(conn_id),) if kind.needs_credentials and conn_id is not None else ()
    if table.errors is not None:
        failing.prepare(spark)
    found = TableSource(kind.reader()(spark, table.source, warehouse, roots, *credentials), table, main)
    found.check_apart()
    return found
