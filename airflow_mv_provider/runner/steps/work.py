"""The inputs of one epoch's steps in one value: the refresh, its table, its source and its lease."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from airflow_mv_provider.core import cost, strategy
from airflow_mv_provider.core.approval.rolled_back import is_rollback
from airflow_mv_provider.core.definition import schema
from airflow_mv_provider.core.definition.evolution import Evolution, evolved
from airflow_mv_provider.core.definition.table import RefreshableTable
from airflow_mv_provider.core.frontier import Frontier
from airflow_mv_provider.core.location import What, Workspace
from airflow_mv_provider.core.progress.partition import WHOLE_TABLE
from airflow_mv_provider.core.progress.published import Kept, Published
from airflow_mv_provider.core.progress.seal import Seal
from airflow_mv_provider.core.progress.totals import Totals, total
from airflow_mv_provider.core.state import Ownership, RefreshRecord, TableRecord
from airflow_mv_provider.exceptions import MvError, StreamReloadError
from airflow_mv_provider.metadata.store import Store
from airflow_mv_provider.runner.lease import Lease
from airflow_mv_provider.runner.pinning import Base, base_of
from airflow_mv_provider.runner.settings import Settings
from airflow_mv_provider.sources.reader import Copied
from airflow_mv_provider.sources.table_source import TableSource
from airflow_mv_provider.spark import conflicts, delta, storage
from airflow_mv_provider.spark.delta import Main
from airflow_mv_provider.spark.errors import FROM_SPARK, translated
from airflow_mv_provider.spark.layout import Layout
from airflow_mv_provider.spark.partitions import in_scope

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Work:
    """One refresh under one epoch.

    spark       : the runner's own session, with its own confs
    refresh     : as it was when the attempt began; `current` returns its present state
    open_source : opens its source, which may have moved or become forbidden since; called when a step reads it
    settings    : those of the process
    """

    store: Store
    spark: SparkSession
    table: TableRecord
    refresh: RefreshRecord
    own: Ownership
    open_source: Callable[[], TableSource]
    lease: Lease
    settings: Settings

    @property
    def definition(self) -> RefreshableTable:
        """The definition that the refresh began with."""
        return self.refresh.definition

    @property
    def is_rollback(self) -> bool:
        """True if main is brought back to one of its versions; the table is paused with the publish then."""
        return is_rollback(self.definition, self.table)

    @property
    def is_progressive(self) -> bool:
        return self.definition.publish == "progressive"

    @property
    def must_not_move(self) -> bool:
        """True if a commit could not delete a row from the partition that it left: the commit is of some partitions."""
        return self.definition.may_move and (self.is_progressive or not self.layout.is_whole)

    @cached_property
    def source(self) -> TableSource:
        """The source, opened by the first step that reads it; a refresh that main has is ended without it.

        raises : UnsafeLocationError, and every other error of opening a source
        """
        with translated(self.table.name):
            return self.open_source()

    def close_source(self) -> None:
        """Release what reading the source holds, if a step has opened it."""
        if "source" in vars(self):
            self.source.close()

    def forget_rows(self) -> None:
        """Release the rows that Spark keeps in memory for this attempt, if there are any."""
        if "_small_source" in vars(self):
            _forget(self._small_source)

    @property
    def is_adopting(self) -> bool:
        """True if main was there before this package: its keys must be good ones."""
        return self.definition.adopt and self.store.state(self.table.id).published_version is None

    @cached_property
    def main(self) -> Main:
        return Main(self.spark, self.table.main, self.table.uuid)

    @property
    def workspace(self) -> Workspace:
        return Workspace(self.table.warehouse, self.table.uuid, self.own.refresh_id)

    def unwritten(self, what: What) -> str:
        """Return where to write something in the workspace: where this attempt has written nothing yet.

        A way to stage that fails leaves half of its files there, and a task of its job may still be writing. All of
        them are removed with the workspace.
        """
        return self._places(self.workspace.at(what, self.own.epoch))

    def keepable(self, name: str) -> Kept:
        """Return where to write something that is kept beyond the refresh if it publishes, as `unwritten` does."""
        return Kept(self.own.refresh_id, self._places(name))

    def place_of(self, kept: Kept) -> str:
        """Return where kept files lie."""
        return replace(self.workspace, refresh_id=kept.refresh_id).kept(kept.name)

    @cached_property
    def _places(self) -> Places:
        return Places()

    @cached_property
    def layout(self) -> Layout:
        """The rows' columns and main's columns as this attempt found them; main must exist."""
        main, seal = self._main_columns(), self.refresh.seal
        columns = self.evolution(main).columns if seal is None else seal.columns
        return Layout(self.definition, columns, self.refresh.scope, main)

    def layout_now(self) -> Layout:
        """Return the layout with main's present columns: a commit of this refresh may have changed them."""
        found = self.layout
        return replace(found, main_columns=self._main_columns()) if found.changes_main else found

    def evolution(self, main: tuple[schema.Column, ...]) -> Evolution:
        """Return how the source's columns are mapped to main's; called only before the seal.

        raises : SchemaMismatchError
        """
        return evolution_of(self.definition, schema.columns_of(self.unread_source.schema.jsonValue()), main)

    def _main_columns(self) -> tuple[schema.Column, ...]:
        with translated(self.table.name):
            found = delta.schema_of(self.spark, self.table.main)
        return schema.columns_of(found.jsonValue())

    @cached_property
    def is_small(self) -> bool:
        """True if the source and main are small, as the attempt begins; False also if that cannot be determined then.

        Main's row count at its last publish stands for its size, which Delta computes in half a second; without it the
        size is asked for. After the seal the sealed row count stands for the source, which may no longer exist.
        """
        published, seal = self.store.state(self.table.id).published_totals, self.refresh.seal
        if not cost.is_small(max((each.num_rows for each in (published, seal) if each is not None), default=0)):
            return False
        try:
            with translated(self.table.name):
                if seal is None:
                    is_source_small = cost.is_small(0, self.source.reader.num_bytes(self.refresh.frontier))
                    if published is not None or not is_source_small:
                        return is_source_small
                main = delta.detail(self.spark, self.table.main)
                return cost.is_small(0, main.num_bytes if main else 0)
        except MvError:
            return False

    def current(self) -> RefreshRecord:
        """Return the refresh as the database has it now; for its seal use `seal`, which never changes."""
        return self.store.as_now(self.refresh)

    @cached_property
    def seal(self) -> Seal:
        """The seal, which MERGING brings into main; valid only after it was written."""
        found = self.refresh if self.refresh.seal is not None else self.store.refresh(self.own.refresh_id)
        assert found is not None
        assert found.seal is not None
        return found.seal

    def source_rows(self, base: int | None = None) -> DataFrame:
        """Return the source's rows at the pinned frontier and in the refresh's scope, one per key; lazy.

        base : main's version; its row wins for every key (`on_conflict: keep`) or where the source has two (`ignore`)
        """
        if base is not None and self.definition.on_conflict in ("ignore", "keep"):
            return self._resolved(in_scope(delta.read(self.spark, self.table.main, base), self.layout))
        return self._small_source if self.is_small and not self.is_copied else self._resolved(None)

    @cached_property
    def is_copied(self) -> bool:
        """True if staging copies the source's rows; False if they are read again at the pinned frontier."""
        return strategy.is_copied(self.definition, self.source.reader.determinism(self.refresh.frontier))

    @cached_property
    def _small_source(self) -> DataFrame:
        """The rows, kept in Spark's memory: a refresh reads them up to three times, each with jobs for Delta's log."""
        return self._resolved(None).persist()

    def _resolved(self, existing: DataFrame | None) -> DataFrame:
        rows = in_scope(self.ordered_source, self.layout)
        return self.layout.shaped(conflicts.resolved(rows, self.layout, existing))

    @cached_property
    def whole_source(self) -> DataFrame:
        """Return all of the source's rows at the pinned frontier; lazy, see `rows_at`.

        cost : of a log with an error table, a copy of its events
        """
        if not self.has_bad_events:
            return rows_at(self.source, self.refresh.frontier, self.main, base=self.base)
        return rows_of(self.source, self.copied_events, self.main, self.base)

    @cached_property
    def copied_events(self) -> DataFrame:
        """The last event of each key of a log with an error table, as read once."""
        with translated(self.table.name):
            return events_at(self.source, self.refresh.frontier, self.base, self._copied)

    def _copied(self, events: DataFrame) -> DataFrame:
        path = self.unwritten("events")
        storage.write(events, path)
        return storage.read(self.spark, self.table.name, path, schema.columns_of(events.schema.jsonValue()))

    @property
    def has_bad_events(self) -> bool:
        """True if the source is a log whose events may be in the error table."""
        return self.definition.errors is not None and self.definition.source_kind.is_log and not self.is_rollback

    @cached_property
    def unread_source(self) -> DataFrame:
        """As `whole_source`, for its columns alone; reads no row."""
        if not self.refresh.frontier.continues and not self.has_bad_events:
            return self.whole_source
        return rows_at(self.source, self.refresh.frontier, self.main, base=self.base, is_read=False)

    @cached_property
    def ordered_source(self) -> DataFrame:
        """Return all of the source's rows, with the columns of `order_by` that they lack; lazy.

        raises : KeyColumnError
        """
        by = self.definition.order_by
        return rows_at(self.source, self.refresh.frontier, self.main, by) if by else self.whole_source

    @property
    def base(self) -> Base | None:
        """What a log is continued from; None for one that is read from its start, and any other source."""
        if not self.refresh.frontier.continues:
            return None
        batch = self.refresh.batch
        assert batch is not None
        return base_of(self.store, self.table, self.store.state(self.table.id), batch.lower)


class Places:
    """Gives each place once: the second time with a number, and so on."""

    def __init__(self) -> None:
        self._given = Counter[str]()

    def __call__(self, place: str) -> str:
        self._given[place] += 1
        return place if self._given[place] == 1 else f"{place}-{self._given[place]}"


def evolution_of(
    definition: RefreshableTable, source: tuple[schema.Column, ...], main: tuple[schema.Column, ...]
) -> Evolution:
    """Return how the source's columns are mapped to main's.

    raises : SchemaMismatchError
    """
    fixed = (*definition.key, *definition.partition_by)
    return evolved(definition.name, source, main, definition.schema_policy, fixed, definition.on_lost_column)


def totals_of_main(work: Work, published: Published | None) -> dict[str, Totals] | None:
    """Return the totals of main's partitions as of the last publish; None if they are not known."""
    if published is None:
        return None
    if not work.definition.partition_by:
        return {WHOLE_TABLE: published.totals}
    found = work.store.partition_totals(work.table.id)
    return found if total(found.values()) == published.totals else None


def _forget(kept: DataFrame) -> None:
    """Release what Spark caches of rows; a failure leaves it to the session's end."""
    try:
        kept.unpersist()
    except FROM_SPARK as error:
        # Connect analyses the plan again, its files may be removed, or Spark died.
        log.debug("The cached rows could not be removed from Spark: %s", error)


def rows_at(
    source: TableSource,
    frontier: Frontier,
    main: Main,
    order_by: Sequence[str] = (),
    *,
    base: Base | None = None,
    is_read: bool = True,
) -> DataFrame:
    """Return the source's rows; or no rows, with main's columns, if main exists and the source knows no columns.

    base    : what a log is continued from, for a frontier that continues
    is_read : False if only the columns of the result are used
    cost    : lazy; of a log that can truncate, a read of its events, unless `is_read` is False
    """
    has_bad = source.table.errors is not None and source.table.source_kind.is_log
    if frontier.continues or has_bad:
        with translated(source.table.name):
            events = events_at(source, frontier, base, lazily if is_read else None)
            return rows_of(source, events, main, base)
    if source.reader.knows_columns(frontier) or main.properties() is None:
        return source.read(frontier, order_by)
    with translated(str(main.ref)):
        rows = delta.no_rows(main.spark, delta.schema_of(main.spark, main.ref))
    return rows.select("*", *(F.lit(None).alias(conflicts.ordering(name)) for name in order_by))


def events_at(source: TableSource, frontier: Frontier, base: Base | None, copied: Copied | None = None) -> DataFrame:
    """Return the last event of each key of a log; see `LogReader.events`.

    raises : StreamReloadError; StreamRestartedError
    """
    if not frontier.continues:
        found = source.log.events(None, frontier, copied)
    elif base is None:
        raise StreamReloadError(source.table.name, "the position of the last publish is not known any more.")
    else:
        found = source.log.events(base.frontier, frontier, copied)
    return found


def rows_of(source: TableSource, events: DataFrame, main: Main, base: Base | None) -> DataFrame:
    """Return all rows that there are after a log's events; lazy."""
    published = None if base is None else delta.read(main.spark, main.ref, base.version)
    return source.log.all_rows(events, published, source.table.key if base is not None else ())


def lazily(events: DataFrame) -> DataFrame:
    """Return events that are read once more by whoever needs them."""
    return events
