"""The interface of every source's reader.

probe   → the frontier, which identifies the source's present state; cheap, reads no rows
read    → the rows at a frontier, after the definition's projection; lazy
close   → called when nothing more is read
verify  → called after the rows were read: raises unless the source was at that frontier all the time
changes → what the source shows of its changes between two frontiers: a `Changeset`
changed → the rows of it

A kind implements these and `determinism`, and overrides the others if it can do more. What only some kinds have are
classes of their own: a log of events, files with identities, a state that several sources share, a query's inputs.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from pyspark.sql import Column, DataFrame, SparkSession

from airflow_mv_provider.core.changeset import Changeset, Whole
from airflow_mv_provider.core.definition.source import Source
from airflow_mv_provider.core.explanation import Following
from airflow_mv_provider.core.frontier import Frontier
from airflow_mv_provider.core.strategy import Determinism
from airflow_mv_provider.sources.place import confined
from airflow_mv_provider.sources.shared import SharedState
from airflow_mv_provider.spark import marking

SourceT = TypeVar("SourceT", bound=Source)
FrontierT = TypeVar("FrontierT", bound=Frontier)
Copied = Callable[[DataFrame], DataFrame]
"""Writes rows in the workspace and returns them, as read from there."""


@dataclass(frozen=True, slots=True)
class FoundLines:
    """Lines of a file, each with its row as of JSON.

    Attributes:
        obstacle: Why they cannot be known for certain; then there are none.
    """

    lines: tuple[tuple[int, dict[str, Any]], ...] = ()
    obstacle: str | None = None


class SourceReader(ABC, Generic[SourceT, FrontierT]):
    """One source of one table. It lives as long as one refresh.

    Attributes:
        warehouse, roots: The directories that a source's paths may lie under.

    Raises:
        UnsafeLocationError
    """

    note = ""
    """What the last `probe` or `changed` found that a person should see in the report, such as hidden files."""
    must_follow = False
    """Changes were requested: `changed` returns them, even if reading everything costs less."""
    key: Sequence[str] = ()
    """The table's key, which `TableSource` sets: the events of a log are folded by it."""

    def __init__(self, spark: SparkSession, source: SourceT, warehouse: str, roots: Sequence[str]) -> None:
        self._spark = spark
        self._source = source
        self._roots = (warehouse, roots)
        self.locations = tuple(confined(path, warehouse, roots) for path in source.paths)
        """The absolute locations that it reads; those that a catalog's names lead to are among them once probed."""

    @abstractmethod
    def probe(self) -> FrontierT:
        """Return the source's present frontier.

        Raises:
            SourceNotFoundError
            UnsafeLocationError
        """

    @abstractmethod
    def read(self, frontier: FrontierT, extra: Sequence[str] = ()) -> DataFrame:
        """Return the rows at `frontier`, projected; lazy.

        Args:
            extra: Columns that rows are ordered by, which need not be in the projection; see
                `projection.projected`.

        Raises:
            KeyColumnError: If one of these does not exist.
            DefinitionError: If Spark cannot analyse the projection or query.
            SourceFunctionError
        """

    @abstractmethod
    def determinism(self, frontier: FrontierT) -> Determinism:
        """Return whether reading it again at `frontier` gives the same rows; reads none.

        Raises:
            DefinitionError: If Spark cannot analyse the projection or query.
        """

    @abstractmethod
    def verify(self, frontier: FrontierT) -> None:
        """Check that the rows that were read are those at `frontier`.

        Raises:
            SourceChangedError: If they may not be.
        """

    def close(self) -> None:
        """Release what reading holds outside of Spark, such as a connection; the next read opens it again."""
        return

    def num_bytes(self, frontier: FrontierT) -> int | None:
        """Return about how many bytes there are to read; None if that is unknown, or the source is gone."""
        return None

    def time_ms(self, frontier: FrontierT) -> int | None:
        """Return when the source came to `frontier`, in milliseconds since 1970; called right after `probe`.

        Returns:
            None if its states have no time of their own: it is as it is whenever it is looked at.
        """
        return None

    def knows_columns(self, frontier: FrontierT) -> bool:
        """True if the source's columns are known; False if there is nothing yet that shows them."""
        return True

    def changes(self, since: Frontier, until: FrontierT) -> Changeset:
        """Return what its log or listing shows of the changes between two frontiers, without reading a row.

        Args:
            since: Perhaps another kind's frontier: the definition may have changed.
        """
        return Whole()

    def changed(self, since: FrontierT, until: FrontierT, main: DataFrame) -> DataFrame:
        """Return the rows of the changeset between two frontiers, in any order; lazy.

        Args:
            main: Main's rows as of `since`.

        Returns:
            (columns after the projection), and `_mv_sign int` if they are signed.

        Raises:
            SchemaMismatchError
            SourceChangedError: If the changes cannot be listed after all.
            EngineError: Also while the rows are read, because a feed can be vacuumed away.
        """
        return self.read(until)

    def num_rows(self, frontier: FrontierT) -> int:
        """Return the number of rows in the state that `read` and `changed` read."""
        return self.read(frontier).count()

    def is_unique(self, key: Sequence[str]) -> bool:
        """Return whether the source itself guarantees that no two of its rows have the same key."""
        return False

    def marked(self, frontier: FrontierT, extra: Sequence[str] = (), *, is_numbered: bool) -> DataFrame:
        """Return the rows for `project`, including those that cannot be decoded; see `marking`.

        By default they are projected already, so that an error of the projection is an error of the refresh.

        Args:
            is_numbered: Add each record's position in its file.
        """
        return self.read(frontier, extra).select("*", marking.origin())

    def project(self, rows: DataFrame, extra: Sequence[str] = (), *more: str) -> DataFrame:
        """Return rows of `marked` after the definition's projection.

        Args:
            more: Additional columns that are kept unchanged.
        """
        return rows


class SharingReader(SourceReader[SourceT, FrontierT]):
    """A reader that can read in a state that other sources share; of a kind with `shared`."""

    @abstractmethod
    def share(self, state: SharedState[Any]) -> None:
        """Read in this state from the next `probe` on."""


class ViewReader(SourceReader[SourceT, FrontierT]):
    """A reader that computes its rows from inputs."""

    @abstractmethod
    def following(self, frontier: FrontierT) -> Following:
        """Return how it follows changes of its inputs, which have the columns that they have at `frontier`."""


class FileReader(SourceReader[SourceT, FrontierT]):
    """A reader that knows which file each row lies in; of a kind that `identifies_files`.

    `of_files` and `lines_of` are called if the projection computes each row from one row.
    """

    @abstractmethod
    def check_not_empty(self, frontier: FrontierT) -> None:
        """Refuse a source without files or with an empty file: an incomplete upload would look like deleted rows.

        Raises:
            SourceNotFoundError
            SourceFileError
        """

    @abstractmethod
    def file_ids(self, frontier: FrontierT) -> Mapping[str, str]:
        """Return the identities of the files that have the rows at `frontier`, by path.

        A file with the same identity has the same rows, whatever files are beside it.
        """

    @abstractmethod
    def of_files(self, frontier: FrontierT, paths: Sequence[str] | None = None) -> DataFrame:
        """Return the rows of some of the files at `frontier`, or of all, with the file of each; lazy.

        Args:
            paths: As in `file_ids`, at least one.

        Returns:
            (columns after the projection, _mv_file string).

        Raises:
            As `read`.
            SchemaMismatchError: If these files have other columns than all files together.
        """

    @abstractmethod
    def lines_of(
        self, frontier: FrontierT, path: str, condition: Column, names: Sequence[str], at_most: int
    ) -> FoundLines:
        """Return the lines of one of the files at `frontier` whose row fulfils a condition, the first ones.

        Args:
            condition: Over the columns after the projection.
            names: The columns that are returned of each row.
        """


class LogReader(SourceReader[SourceT, FrontierT]):
    """A reader of a log of events: all rows are main's at the last publish, brought forward by the events since.

    `read` returns the rows that the log gives from its start; of a frontier that continues only their columns.
    """

    keeps_bad = False
    """Events that cannot be rows are marked, and do not raise; set for a table with an error table."""

    @abstractmethod
    def from_start(self, frontier: FrontierT) -> FrontierT:
        """Return the frontier that is read from the source's start, of one that continues from the last publish."""

    @abstractmethod
    def bounded(self, since: Frontier | None, until: FrontierT) -> FrontierT:
        """Return the frontier up to which one refresh reads, if the definition bounds that; later ones take the rest.

        Args:
            since: None if `until` is read from the log's start.
        """

    @abstractmethod
    def check_continues(self, since: Frontier, until: FrontierT) -> None:
        """Check that everything between two frontiers can be read, before anything is.

        Raises:
            SourceReplacedError
            SourceRegressedError
            StreamGoneError
        """

    @abstractmethod
    def events(self, since: Frontier | None, until: FrontierT, copied: Copied | None = None) -> DataFrame:
        """Return the last event of each key between two frontiers, each a row with marks, as the next methods take it.

        Args:
            since: None for all events since `until` begins.
            copied: Copies what is read, which may be twice; without it the events are returned lazily, for their
                columns.

        Raises:
            As `check_continues`.
            EventError and what it stands for, also while the events are read.
            StreamRestartedError
        """

    @abstractmethod
    def all_rows(self, events: DataFrame, main: DataFrame | None, key: Sequence[str]) -> DataFrame:
        """Return all rows that there are after the events; lazy.

        Args:
            main: The rows before them; None if the events are all there is.

        Returns:
            (columns after the projection).

        Raises:
            While it runs: EventError, EventIncompleteError.
        """

    @abstractmethod
    def signed(self, events: DataFrame, main: DataFrame, key: Sequence[str]) -> DataFrame:
        """Return the rows that the events take away (-1) and bring (+1); lazy.

        Args:
            events: As copied: they are read several times.
            main: Main's rows before them, with its columns.

        Returns:
            (columns of main, _mv_sign int).

        Raises:
            As `all_rows`.

        Cost:
            Two scans of main: of its keys, and of the rows that are taken away.
        """

    @abstractmethod
    def rejected(self, events: DataFrame, key: Sequence[str], former: DataFrame | None) -> DataFrame:
        """Return the records that cannot be rows, and those rejected before whose keys have no later event; lazy.

        Args:
            former: Those rejected before; None if there are none.

        Returns:
            (source_file, source_position, record, rule, reason, key), key as JSON or NULL.
        """
