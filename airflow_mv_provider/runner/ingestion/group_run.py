"""Refresh all tables of an ingestion in one state of its source.

    hold ─ BIND ─▶ each table: acquire · fence · stage · seal ─▶ each table: compare · publish ─▶ RELEASE ─ RELEASED

Each table goes on from its own binding and is refreshed by its own refresh, as by `amv refresh`; only what its source
reports as its present state is the state that all share. So the protocol of a refresh is unchanged, and so is what
happens to a refresh whose process dies.

What a dead owner, or an earlier try of the same caller, has left of a table is ended before the state is fixed. A table
that another refresh brings to a later state while this run stages the others is left behind: it never goes back. So is
one that another process of the same caller, its retry or the try before, has begun to refresh in a state of its own.

No table is published before all are sealed. One whose refresh fails, is held, or is another caller's is left behind
and reported; the others go on. A sealed table waits for the others under a lease that is renewed, so that a run that
is killed keeps it no longer than any other refresh.

A retry of the same caller begins again in a state of its own: all tables that it reports as in its state are in one
that was fixed in this try.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from types import TracebackType

from airflow_mv_provider.core.ingestion.report import IngestedTable, IngestionReport, ingested
from airflow_mv_provider.core.ingestion.turn import ends_former
from airflow_mv_provider.core.outcome import ErrorReport, RefreshReport, error_report
from airflow_mv_provider.core.phase import Phase
from airflow_mv_provider.core.scope.request import AS_USUAL
from airflow_mv_provider.core.state import Caller, Ownership, TableRecord
from airflow_mv_provider.exceptions import (
    ArgumentError,
    InterruptedRefreshError,
    LeaseLostError,
    MetadataUnavailableError,
    MvError,
    RefreshInProgressError,
)
from airflow_mv_provider.metadata.store import Store
from airflow_mv_provider.runner.admission import begin
from airflow_mv_provider.runner.context import Context
from airflow_mv_provider.runner.crash_points import Write, durable
from airflow_mv_provider.runner.ingestion.members import mark_of, members_of, shared_state
from airflow_mv_provider.runner.ingestion.release import release
from airflow_mv_provider.runner.lease import Lease
from airflow_mv_provider.runner.recovery import Recoverer

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Sealed:
    """A table that waits to be published, and the lease that keeps it."""

    table: TableRecord
    own: Ownership
    lease: Lease


class GroupRun:
    """One run; used in a `with` block, at whose end nothing of it is held any more."""

    def __init__(self, context: Context, ingestion: str, caller: Caller, names: Collection[str] | None = None) -> None:
        self._context = context
        self._ingestion = ingestion
        # A refresh that fails is not kept for a retry, which would begin it again in another state.
        self._caller = replace(caller, will_retry=False)
        members = members_of(context.store, ingestion)
        self._tables = tuple(table for table in members if names is None or table.name in names)
        if not self._tables:
            raise ArgumentError(ingestion[:60], "none of its registered tables is among those of this run.")
        self._shared = shared_state(context, self._tables)
        self._fixed_ms = 0  # the database's time right before the shared state was fixed
        self._sealed: dict[str, Sealed] = {}
        self._found: dict[str, IngestedTable] = {}
        self._published: dict[str, int] = {}  # how far each table was published when the state was fixed
        self.run_id = ""

    def __enter__(self) -> GroupRun:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for each in self._sealed.values():
            each.lease.stop()
            if kind is None or issubclass(kind, Exception):
                with suppress(MvError):  # a lease that is not given up expires
                    self._context.store.park(each.own, until_ms=0)

    def stage(self) -> None:
        """Fix one state of the source, and stage all tables in it.

        raises : SourceUnavailableError, SourceDeniedError: no table can be read; MetadataUnavailableError,
                 InterruptedRefreshError
        """
        for table in self._tables:
            self._each(table, self._end_former)
        with closing(self._shared):
            try:
                self._fixed_ms = self._context.store.now_ms()
                self._shared.hold()
            except MvError as error:
                for table in self._tables:
                    self._context.store.obstacles.met(table.id, error_report(error))
                raise
            with durable(Write.BIND):
                self.run_id = self._context.store.ingestions.bind(
                    self._ingestion, self._shared.describe(), self._caller
                )
            log.info("ingestion %s: %s", self._ingestion, self._shared.describe())
            for table in self._tables:
                if table.name not in self._found:
                    self._each(table, self._stage)
        self._record()

    def publish(self) -> None:
        """Publish all tables that are sealed; raises MetadataUnavailableError, InterruptedRefreshError."""
        for each in tuple(self._sealed.values()):
            self._each(each.table, self._publish)
        self._record()

    def park(self) -> dict[str, str]:
        """Keep each sealed table for the caller's next process; return the ids of their refreshes, by table."""
        parked = {}
        for name, each in tuple(self._sealed.items()):
            self._each(each.table, self._park)
            if name not in self._sealed and not self._found[name].error:
                parked[name] = each.own.refresh_id
        self._record()
        return parked

    def _park(self, table: TableRecord) -> None:
        sealed = self._sealed.pop(table.name)
        sealed.lease.stop()
        self._context.store.park(sealed.own, until_ms=self._context.settings.handover_ms)

    @property
    def tables(self) -> tuple[IngestedTable, ...]:
        """What has become of each table so far."""
        return tuple(self._found[table.name] for table in self._tables if table.name in self._found)

    def _each(self, table: TableRecord, work: Callable[[TableRecord], None]) -> None:
        """Do something with one table; if it fails, leave the table behind."""
        try:
            work(table)
        except (MetadataUnavailableError, InterruptedRefreshError):
            raise
        except MvError as error:
            if self._context.is_interrupted:
                raise
            log.warning("%s is left behind: %s", table.name, error)
            before = self._found.get(table.name)
            refresh_id = before.refresh_id if before else None
            report = _report(self._context.store, refresh_id)
            self._found[table.name] = self._left_behind(table, report, error_report(error))

    def _end_former(self, table: TableRecord) -> None:
        """End what a dead owner or the caller's last try has left: it is of another state."""
        state = self._context.freed(self._context.store.state(table.id))
        if ends_former(state, self._caller.key):
            Recoverer(self._context).take_over(table, state, self._caller)
        self._published[table.name] = self._context.store.state(table.id).published_upper

    def _stage(self, table: TableRecord) -> None:
        context, caller = self._context, self._caller
        if (error := self._shared.errors.get(table.name)) is not None:
            context.store.obstacles.met(table.id, error_report(error))
            raise error
        fixed_at = self._published[table.name]
        with context.sharing(table, self._shared, fixed_ms=self._fixed_ms, fixed_at=fixed_at):
            try:
                acquired = begin(context, table.name, caller, AS_USUAL)
            except RefreshInProgressError:
                context.store.queue.leave(caller.key)  # it is left behind, and does not wait
                raise
            if isinstance(acquired, RefreshReport):
                is_of_state = acquired.upper is None or self._is_of_state(table, acquired.refresh_id)
                self._found[table.name] = self._ended(table, acquired, is_of_state=is_of_state)
                return
            refresh_id = acquired.own.refresh_id
            is_in_state = self._is_of_state(table, refresh_id)
            self._found[table.name] = IngestedTable(
                table.name, mark_of(table).output, refresh_id, is_in_state=is_in_state
            )
            Recoverer(context).work(acquired.table, acquired.own, caller, Phase.MERGING)
        lease = context.kept(acquired.own)
        lease.__enter__()
        self._sealed[table.name] = Sealed(acquired.table, acquired.own, lease)

    def _publish(self, table: TableRecord) -> None:
        context, sealed = self._context, self._sealed.pop(table.name)
        sealed.lease.stop()
        state, recoverer = context.store.state(table.id), Recoverer(context)
        is_mine = (state.refresh_id, state.epoch) == (sealed.own.refresh_id, sealed.own.epoch)
        own = recoverer.hand_over(table, state, self._caller) if is_mine else None
        if own is None:
            raise LeaseLostError(table.name, "another process took its refresh over.")
        recoverer.work(table, own, self._caller)
        report = context.store.report(own.refresh_id)
        is_of_state = self._is_of_state(table, own.refresh_id)
        self._found[table.name] = self._ended(table, report, is_of_state=is_of_state)

    def _is_of_state(self, table: TableRecord, refresh_id: str | None) -> bool:
        refresh = self._context.store.refresh(refresh_id) if refresh_id else None
        return refresh is not None and self._shared.holds(table.name, refresh.frontier)

    def _ended(self, table: TableRecord, report: RefreshReport, *, is_of_state: bool) -> IngestedTable:
        return ingested(mark_of(table).output, report, is_of_state=is_of_state)

    def _left_behind(self, table: TableRecord, report: RefreshReport | None, error: ErrorReport) -> IngestedTable:
        output = mark_of(table).output
        if report is None:
            return IngestedTable(table.name, output, error=error)
        return ingested(output, report, is_of_state=False, error=error)

    def _record(self) -> None:
        self._context.store.ingestions.record(self.run_id, self.tables)


@dataclass(frozen=True, slots=True)
class StagedRun:
    """A run whose tables are sealed and kept for the caller's next processes.

    refreshes : of the sealed tables, by name
    tables    : what became of the others
    """

    run_id: str
    refreshes: dict[str, str]
    tables: tuple[IngestedTable, ...]


def stage(context: Context, ingestion: str, caller: Caller, names: Collection[str] | None = None) -> StagedRun:
    """Stage tables of an ingestion in one state of its source, for other processes of the caller to publish.

    names  : of the tables; None for all
    raises : as `ingest`
    """
    with GroupRun(context, ingestion, caller, names) as run:
        run.stage()
        refreshes = run.park()
        return StagedRun(run.run_id, refreshes, tuple(each for each in run.tables if each.table not in refreshes))


def ingest(context: Context, ingestion: str, caller: Caller) -> IngestionReport:
    """Refresh all tables of an ingestion in one state of its source, all in this process.

    returns : what became of each table; one that failed is an entry there, no error
    raises  : TableNotFoundError, ArgumentError, ConnectionUnknownError; SourceUnavailableError, SourceDeniedError, if
              no table can be read; MetadataUnavailableError, InterruptedRefreshError
    """
    with GroupRun(context, ingestion, caller) as run:
        run.stage()
        run.publish()
    return finish(context, ingestion, run.run_id)


def finish(
    context: Context, ingestion: str, run_id: str, refreshes: Mapping[str, str] | None = None
) -> IngestionReport:
    """Publish upstream how far all tables are, and end a run; a failure is in its report.

    refreshes : those of a staged run, by table, whose outcomes are to be recorded
    """
    store = context.store
    run = store.ingestion_run(run_id)
    tables = run.tables if run is not None else ()
    if refreshes:
        tables = tuple(_ended(store, each) if each.table in refreshes else each for each in tables)
        store.ingestions.record(run_id, tables)
    released, problem = None, None
    try:
        released = release(context, ingestion)
    except (MetadataUnavailableError, InterruptedRefreshError):
        raise
    except MvError as error:
        log.warning("ingestion %s: its tables are published, but not how far they are: %s", ingestion, error)
        problem = error_report(error)
    with durable(Write.RELEASED):
        store.ingestions.end(run_id, released, problem)
    # Its row is forgotten if it took a week.
    return store.ingestion_run(run_id) or IngestionReport(ingestion, run_id, "", tables, released, problem)


def _ended(store: Store, table: IngestedTable) -> IngestedTable:
    """Return what became of a staged table; it stays as it is if its table was dropped, or its history is forgotten."""
    report = _report(store, table.refresh_id)
    return table if report is None else ingested(table.output, report, is_of_state=table.is_in_state)


def _report(store: Store, refresh_id: str | None) -> RefreshReport | None:
    """Return a refresh's report; None if there is no such refresh: none began, or its table was dropped."""
    return None if refresh_id is None or store.refresh(refresh_id) is None else store.report(refresh_id)
