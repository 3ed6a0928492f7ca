"""The source of one table: its reader, and what of the table's definition applies to every kind of source.

Every table reads its source through `TableSource`. If the table has an error table, `read` leaves out the rows that
cannot be rows of main, and `rejected` returns them.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from airflow_mv_provider.core.changeset import Changeset, SignedRows, Whole
from airflow_mv_provider.core.definition.table import RefreshableTable
from airflow_mv_provider.core.frontier import Frontier
from airflow_mv_provider.core.location import check_apart
from airflow_mv_provider.sources.credentials import Lookup, of_environment
from airflow_mv_provider.sources.reader import FileReader, LogReader, SourceReader
from airflow_mv_provider.spark import marking, rejected
from airflow_mv_provider.spark.compare import feed
from airflow_mv_provider.spark.layout import Layout
from airflow_mv_provider.spark.quality import evaluation, failing


@dataclass(frozen=True, slots=True)
class TableSource:
    """One table's source: its reader, and the definition that selects the table's rows.

    Attributes:
        main: The location that it must not lie in or around; None for a rollback, whose source is main itself.
    """

    reader: SourceReader[Any, Any]
    table: RefreshableTable
    main: str | None = None

    def __post_init__(self) -> None:
        self.reader.key = self.table.key
        if isinstance(self.reader, LogReader):
            self.reader.keeps_bad = self.table.errors is not None

    def probe(self, overrides: Collection[str] = ()) -> Frontier:
        """Return the reader's frontier; see `SourceReader`.

        Args:
            overrides: Names of the guards that a person has overridden.

        Raises:
            Also SourceNotFoundError if there is no file and SourceFileError if a file is empty, unless `allow_empty`
                is set.
            UnsafeLocationError: If a name of the catalog leads to main.
        """
        frontier: Frontier = self.reader.probe()
        if self.table.source.names:
            self.check_apart()
        if self.files and not (self.table.guards.allow_empty or "allow_empty" in overrides):
            self.files.check_not_empty(frontier)
        return frontier

    def check_apart(self) -> None:
        """Check that main and what is known of the source's locations do not overlap.

        Raises:
            UnsafeLocationError
        """
        for location in self.reader.locations:
            if self.main is not None:
                check_apart(self.main, location)

    def close(self) -> None:
        """Release what reading holds; see `SourceReader`."""
        self.reader.close()

    @property
    def log(self) -> LogReader[Any, Any]:
        """The reader of a source whose kind `is_log`."""
        assert isinstance(self.reader, LogReader)
        return self.reader

    @property
    def files(self) -> FileReader[Any, Any] | None:
        """The reader, if it knows which file each row lies in."""
        return self.reader if isinstance(self.reader, FileReader) else None

    def read(self, frontier: Frontier, extra: Sequence[str] = ()) -> DataFrame:
        """Return the rows that can be rows of main; see `SourceReader`. Those of a log are its reader's."""
        if self.table.errors is None or self.table.source_kind.is_log:
            return self.reader.read(frontier, extra)
        rows = marking.decoded(self.reader.marked(frontier, extra, is_numbered=False)).drop(marking.ORIGIN)
        if fallible := failing.fallible(rows, self.table.source.select or ()):
            rows = rows.where(failing.is_computable(fallible))
        return evaluation.passing(rejected.keyed(self.reader.project(rows, extra), self.table.key), self.table)

    def changes(self, since: Frontier, until: Frontier) -> Changeset:
        """Return what shows the changes between two frontiers; a watermark shows them where the reader cannot.

        See `SourceReader`.
        """
        found: Changeset = self.reader.changes(since, until)
        is_another = isinstance(found, Whole) and found.is_another
        if self.watermark is None or is_another or found == Whole():
            return found
        return SignedRows(found.at_most, is_counted=True)

    def changed(self, since: Frontier, until: Frontier, main: DataFrame, layout: Layout) -> DataFrame:
        """Return the rows of the changeset between two frontiers; see `SourceReader`.

        Args:
            main: Main's rows as of `since`.
        """
        if self.watermark is not None:
            return feed.late(self.read(until), main, layout, self.watermark)
        return self.reader.changed(since, until, main)

    @property
    def watermark(self) -> str | None:
        """The column that shows which rows changed; None also if the reader looks for it itself."""
        return None if self.table.source_kind.lists_upserts else self.table.source.watermark

    def rejected(self, frontier: Frontier) -> rejected.RejectedRecords | None:
        """Return the records that cannot be rows of main, as `rejected.rejected_records` does.

        Returns:
            None if the table has no error table, the source's columns are unknown, or it is a log.
        """
        if self.table.errors is None or self.table.source_kind.is_log or not self.reader.knows_columns(frontier):
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

    Args:
        roots: Directories outside the warehouse that a source may lie under.
        connections: Finds the credentials of a source that is reached through a connection.
        main: See `TableSource`.

    Raises:
        UnsafeLocationError
        ConnectionUnknownError
    """
    kind, conn_id = table.source_kind, table.source.connection_id
    credentials = (connections(conn_id),) if kind.needs_credentials and conn_id is not None else ()
    if table.errors is not None:
        failing.prepare(spark)
    found = TableSource(kind.reader()(spark, table.source, warehouse, roots, *credentials), table, main)
    found.check_apart()
    return found
