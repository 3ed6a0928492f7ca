"""The refresh protocol: bring a table up to date exactly once, even if a process dies at any point.

Main is the Delta table that users read. The right column names the durable writes of each step.

    phase       step       what it does                                                  durable write
    NORMAL      mint       bind the source's current frontier to our next version: one batch, pinned for all retries
                acquire    take the table's state row: one compare-and-set, a new epoch  acquire
    REFRESHING  fence      add an empty commit to main's log; older epochs then fail.    create_main, fence
                           None is needed right after the last publish, which is one;
                           register a new main's name in Spark's catalog, if it has one  register_name, record_name
                stage      read the source at the bound frontier, compare it with main,  staging
                           and write the corrections once, at a path per epoch
                seal       check keys; record the totals of the rows, the corrections,   seal
                           their counts, and the results of the definition's checks;
                           row moves to MERGING
    MERGING     compare    only if another writer has changed main meanwhile: compare    changes, progress
                           the sealed rows once more, by chunk
                judge      check the guards against the exact counts, and what the
                           seal has of checks; main is unchanged
                hold       if a person has to decide: leave the refresh without a process  hold, decide, keep
                           until then; an approved one goes on with the recorded
                           corrections, or with all of them but the deletes (keep); a
                           rejected one is cancelled
                publish    one MERGE, or an overwrite of a small main; main's log        publish, published
                           decides whether it was committed
                errors     if the table has an error table: create it with the fence,    create_errors, collected,
                           collect records while staging, overwrite it after main's      errors
                           commit and before `published`. A takeover completes both
                           tables or neither
                history    if the table keeps a history: create it with the fence;       create_history,
                           bring it to main's version after main's commit and before     fence_history, history
                           `published`; fenced first where an earlier process may
                           still write it
    CLEANUP     clean      delete this refresh's workspace and progress; row to NORMAL   staging_delete, normal

Invariants that hold between any two of these writes:
  1. Only the newest epoch can write main. The lease decides which owner may try, the fence which owner can. Every
     commit of an epoch is a fence: if main's newest one is the last publish, of the epoch right before ours, nobody
     else is left who could write. A refresh that has nothing to publish adds its fence at its end, so that each leaves
     a trace in main's log.
  2. Main's rows change in one commit or not at all; until that commit, abandoning a refresh leaves them unchanged.
     (With `publish: progressive` this holds for each part, and each part is a set of whole partitions.)
  3. Only sealed rows are merged, and only rows in the recorded corrections are deleted.
  4. Files are deleted only after the write that makes them garbage.

If another writer has changed main since the compared version, the corrections are discarded, and a new round compares.

The table describes the strategy `corrections`. Others read and write differently, in the same order of writes:
    incremental  stage reads the source's changes since the last publish and writes them as corrections. The totals of
                 the last publish and of the corrections are the source's: the seal is the same
    replace      the seal records that all rows of the source replace main's; publish is an overwrite instead of a
                 MERGE. Main's log shows what others wrote meanwhile, and the next round merges what still differs

A process that continues an existing refresh first takes a new epoch (hand_over), then fences main. A retried task, its
duplicate and its zombie therefore never share an epoch. A process whose caller's refresh has ended without publishing
begins another one with the same options. What is kept for a caller of which the runner knows that no process of it will
come is taken over at once. A refresh that is to be cancelled, on which no process works and of which not all is
compared, is ended in the database alone: under its new epoch no older process can record the last chunk, and none
publishes before that. The metadata database may be older than main if it was restored from a backup. If main's log then
shows later refreshes after an unfinished one, that one is concluded from the log alone, without its files or its
source. `attempt` runs the steps; `recovery` decides what happens when a step fails or an owner dies; `crash_points`
lists the durable writes in order, with the points at which tests kill the process.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence

from pyspark.sql import SparkSession

from airflow_mv_provider.core.approval.audit import Audit, check_repairable, repair_request
from airflow_mv_provider.core.approval.difference import Difference
from airflow_mv_provider.core.approval.hold import Decision, Objection
from airflow_mv_provider.core.approval.row_history import RowHistory, RowVersions
from airflow_mv_provider.core.definition.table import RefreshableTable
from airflow_mv_provider.core.explanation import Explanation
from airflow_mv_provider.core.ingestion.report import IngestionReport
from airflow_mv_provider.core.outcome import UNWANTED, Outcome, RefreshReport
from airflow_mv_provider.core.phase import Phase
from airflow_mv_provider.core.refresh_plan import RefreshPlan
from airflow_mv_provider.core.rejections import in_progress
from airflow_mv_provider.core.scope.request import AS_USUAL, Request, of_refresh
from airflow_mv_provider.core.scope.scope import check_scope
from airflow_mv_provider.core.state import Admission, Caller, Ownership, RefreshRecord, RefreshState, TableRecord, admit
from airflow_mv_provider.exceptions import (
    LeaseLostError,
    MvError,
    NotHeldError,
    RefreshFinishedError,
    SourceChangedError,
)
from airflow_mv_provider.metadata.store import Store
from airflow_mv_provider.runner import admission
from airflow_mv_provider.runner.admission import AcquiredRefresh
from airflow_mv_provider.runner.assessment import Assessment, assess
from airflow_mv_provider.runner.context import Context
from airflow_mv_provider.runner.crash_points import Write, durable
from airflow_mv_provider.runner.drop import Dropped, drop
from airflow_mv_provider.runner.explaining import explain
from airflow_mv_provider.runner.ingestion.group_run import StagedRun, finish, ingest, stage
from airflow_mv_provider.runner.pinning import check_can_start_over, read_with_retry
from airflow_mv_provider.runner.preview import preview
from airflow_mv_provider.runner.recovery import Recoverer
from airflow_mv_provider.runner.registration import register
from airflow_mv_provider.runner.relocation import Relocated, relocate, relocate_all
from airflow_mv_provider.runner.review.audit import audit
from airflow_mv_provider.runner.review.inspection import difference, past_difference
from airflow_mv_provider.runner.review.rollback import roll_back
from airflow_mv_provider.runner.review.row_history import LAST, row_history, row_versions
from airflow_mv_provider.runner.settings import Settings
from airflow_mv_provider.runner.steps.naming import check_name
from airflow_mv_provider.runner.transfer.exporting import Exported, export
from airflow_mv_provider.runner.transfer.loading import load
from airflow_mv_provider.runner.watching import Progress, Watcher
from airflow_mv_provider.spark.delta import NAME_PROPERTY, Main

log = logging.getLogger(__name__)


class Refresher:
    """The operations on tables that one process can call. The modules that it calls implement them.

    Attributes:
        session: Returns the Spark session; called at most once, at the first use. By default opened from `settings`.
        watch: Called before every step.
        is_gone: Returns whether no process of the caller with this key will come any more; what is kept for it is
            then taken over at once.
    """

    def __init__(
        self,
        store: Store,
        settings: Settings,
        session: Callable[[], SparkSession] | None = None,
        watch: Watcher = lambda progress: None,
        is_gone: Callable[[str], bool] = lambda owner_key: False,
    ) -> None:
        self._context = Context(store, settings, session, watch, is_gone)
        self._recoverer = Recoverer(self._context)
        self.store = store
        self.settings = settings
        self.watch = watch

    @property
    def spark(self) -> SparkSession:
        """This process's Spark session, started at the first use."""
        return self._context.spark

    def apply(self, definition: RefreshableTable) -> TableRecord:
        """Register a definition; needs no Spark.

        Raises:
            UnsafeLocationError
            TableConflictError
            DefinitionError
        """
        return register(self.store, self.settings, definition)

    def refresh(self, name: str, caller: Caller, request: Request = AS_USUAL) -> RefreshReport:
        """Bring a table up to date, all phases in this process.

        Raises:
            RefreshInProgressError and every other MvError.
            The durable state is valid after each of them.
        """
        if request.read_only:
            return preview(self._context, self.store.table(name), caller, request)
        return admission.run(self._context, name, caller, request)

    def plan(self, name: str, request: Request = AS_USUAL) -> RefreshPlan:
        """Return what a refresh would do now and the strategies that it could use; write nothing, read no row.

        Raises:
            SourceNotFoundError
            MainUnsupportedError
            StrategyError
            DefinitionError
        """
        table = self.store.table(name)

        def look(state: RefreshState) -> tuple[RefreshState, Assessment]:
            check_scope(request.scope, table.definition, state.partition_type)
            main = Main(self.spark, table.main, table.uuid)
            properties = main.properties()
            check_name(main, table, (properties or {}).get(NAME_PROPERTY))
            return state, assess(self._context, table, state, request, exists=properties is not None)

        state, seen = read_with_retry(self.store, table, look)
        scope = None if seen.scope.is_everything else seen.scope.describe()
        who = state.holder if state.is_lease_live else None
        choice, source = seen.choice, seen.frontier.describe()
        return RefreshPlan(name, choice.strategy, choice.reason, source, scope, who, choice.estimates, seen.units)

    def explain(self, definition: RefreshableTable) -> Explanation:
        """Return whether refreshes of a table over a query can be incremental. See `explaining.explain`."""
        return explain(self._context, definition)

    def begin(self, name: str, caller: Caller, request: Request = AS_USUAL) -> AcquiredRefresh | RefreshReport:
        """Acquire the table for a refresh, after ending a dead owner's refresh; return a report if nothing is to do.

        Returns:
            A report of NOTHING_TO_DO has its own history row, even if dead owners' refreshes were ended first; a
            report of a joined refresh is that refresh's.

        Raises:
            RefreshInProgressError: If a live owner is at work or other tickets are first (if the table's policy is
                to queue, the caller then has a ticket and is expected to call again).
            RefreshPausedError
            DefinitionError
            FrozenPartitionError
        """
        return admission.begin(self._context, name, caller, request)

    def resume(self, refresh_id: str, caller: Caller, *, until: Phase, is_repeatable: bool = True) -> RefreshReport:
        """Continue a refresh in another process of its caller, up to phase `until`, then park it for the next process.

        A refresh that has already reached `until` is left unchanged: a cleared task has nothing to repeat. One that
        has ended without publishing is repeated, as is one whose source has changed since an earlier process pinned it.

        Args:
            is_repeatable: False if only this refresh is wanted, which is of one state of several sources.

        Returns:
            The report of the refresh or of the one in its place, which may have nothing to do.

        Raises:
            RefreshFinishedError: If it has published or was cancelled.
            RefreshInProgressError: If another caller took it over.
            LeaseLostError: If another process took it over at the same time.
            As `begin`.
        """
        refresh = self.store.refresh(refresh_id)
        if is_repeatable and refresh is not None and self._has_failed(refresh):
            return self._repeat(refresh, caller, until)
        if refresh is None or refresh.is_ended:
            raise RefreshFinishedError(f"refresh {refresh_id}", "the refresh has ended.")
        table = self._context.table_of(refresh)
        state = self.store.state(table.id)
        if state.refresh_id != refresh_id or admit(state, caller.key) is Admission.WAIT:
            raise in_progress(table, state)
        self._recoverer.end_if_cancelled(table, state, caller)
        own = self._recoverer.hand_over(table, state, caller)
        if own is None:
            raise LeaseLostError(f"refresh {refresh_id}", "another process took it over.")
        if not _is_reached(until, state.phase):
            try:
                self._recoverer.work(table, own, caller, until)
            except SourceChangedError as error:
                now = self.store.refresh(refresh_id)
                if not is_repeatable or now is None or not self._has_failed(now):
                    raise
                log.warning("%s Reading it as it is now.", error)
                return self._repeat(now, caller, until)
        return self._handed_on(own, until)

    def decide(
        self, name: str, decision: Decision, caller: Caller, note: str | None = None, hold_id: str | None = None
    ) -> RefreshReport:
        """Record a person's decision about the refresh of a table that is held, then publish or end that refresh.

        If this process dies after the decision, the next refresh or `recover` does the rest.

        Args:
            hold_id: The hold that was shown; None for whichever is there.

        Raises:
            NotHeldError
            RefreshHeldError: If main has changed and other corrections need a decision.
            Every other error of its remaining steps.
        """
        table = self.store.table(name)
        if decision is Decision.WITHOUT_DELETES:
            check_can_start_over(table, "a decision to leave out deletes")
        with durable(Write.DECIDE):
            decided = self.store.holds.decide(table.id, decision, caller.user, note, hold_id)
        if isinstance(decided, Objection):
            raise NotHeldError(name, f"{decided}.")
        state = self.store.state(table.id)
        if state.refresh_id == decided.refresh_id and admit(state, caller.key) is Admission.TAKE_OVER:
            self._recoverer.take_over(table, state, caller)
        return self.store.report(decided.refresh_id)

    def roll_back(self, name: str, to: str, caller: Caller, note: str) -> RefreshReport:
        """Bring main back to one of its versions, and pause the table. See `rollback.roll_back`."""
        return roll_back(self._context, name, to, caller, note)

    def audit(self, name: str, caller: Caller, request: Request = AS_USUAL, *, is_repair: bool = False) -> Audit:
        """Compare main with what was published and with the source as it was then. See `audit.audit`.

        Args:
            is_repair: Refuse at once what `repair` would refuse.

        Raises:
            RefreshPausedError
            DefinitionError
        """
        if is_repair:
            table = self.store.table(name)
            check_repairable(table, self.store.state(table.id), request.scope)
        return audit(self._context, name, caller, request)

    def repair(self, found: Audit, caller: Caller, request: Request = AS_USUAL) -> RefreshReport:
        """Refresh the table that an audit is about, comparing everything, and record it with the audit if it published.

        Args:
            request: The audit's.

        Raises:
            As `refresh` does.
            GuardRefusedError
            RefreshHeldError
        """
        report = self.refresh(found.table, caller, repair_request(found, request))
        if report.outcome is Outcome.PUBLISHED and report.refresh_id is not None:
            self.store.audits.repaired(self.store.table(found.table).id, found.id, report.refresh_id)
        return report

    def row_history(
        self, name: str, key: Sequence[str], column: str | None = None, *, last: int = LAST, since: str | None = None
    ) -> RowHistory:
        """Return what has happened to one row of main, and who did it. See `row_history.row_history`."""
        return row_history(self._context, name, key, column, last=last, since=since)

    def row_versions(self, name: str, key: Sequence[str]) -> RowVersions:
        """Return the versions of one row, as the table's history has them. See `row_history.row_versions`."""
        return row_versions(self._context, name, key)

    def ingest(self, ingestion: str, caller: Caller) -> IngestionReport:
        """Refresh all tables of an ingestion in one state of its source. See `ingestion.group_run.ingest`."""
        return ingest(self._context, ingestion, caller)

    def stage_ingestion(self, ingestion: str, caller: Caller, names: Collection[str] | None = None) -> StagedRun:
        """Stage tables of an ingestion; `resume` publishes each. See `ingestion.group_run.stage`."""
        return stage(self._context, ingestion, caller, names)

    def finish_ingestion(self, ingestion: str, run_id: str, refreshes: Mapping[str, str]) -> IngestionReport:
        """End a run whose tables were published. See `ingestion.group_run.finish`."""
        return finish(self._context, ingestion, run_id, refreshes)

    def load(self, name: str, source: object, caller: Caller, request: Request = AS_USUAL) -> RefreshReport:
        """Bring a table once to the rows of another source. See `transfer.loading.load`."""
        return load(self._context, name, source, caller, request)

    def export(self, name: str, to: str, at: str | None = None) -> Exported:
        """Write the rows of main at a version as files. See `transfer.exporting.export`."""
        return export(self._context, name, to, at)

    def difference(self, name: str, limit: int = 20) -> Difference:
        """Return what the refresh of a table that is held would change. See `inspection.difference`."""
        return difference(self._context, self.store.table(name), limit)

    def past_difference(self, name: str, refresh_id: str, caller: Caller) -> Difference:
        """Return what a former refresh has changed, or would have. See `inspection.past_difference`."""
        return past_difference(self._context, self.store.table(name), refresh_id, caller)

    def interrupt(self) -> None:
        """Stop this process's work for good, from another thread, by interrupting its Spark jobs.

        The working thread raises a TransientError; the durable state is valid, as after every other failure.
        """
        self._context.interrupt()

    def is_interrupted_within(self, seconds: float) -> bool:
        """Wait for `seconds` or until `interrupt` is called; return True if it was called."""
        return self._context.is_interrupted_within(seconds)

    def park(self, acquired: AcquiredRefresh) -> None:
        """Reserve an acquired table for the next process of its caller, for `handover_ms` of the settings."""
        self.store.park(acquired.own, until_ms=self.settings.handover_ms)

    def declare_dead(self, name: str, caller: Caller, note: str) -> None:
        """Record a person's statement that a table's owner is dead; `caller` may then end its refresh at once.

        Raises:
            RefreshInProgressError: If another process has just taken the refresh over.
        """
        table = self.store.table(name)
        state = self.store.state(table.id)
        if state.phase is not Phase.NORMAL and not self.store.declare_dead(state, caller, note):
            raise in_progress(table, self.store.state(table.id))

    def recover(
        self, caller: Caller, notify: Callable[[str], None] = log.info, name: str | None = None
    ) -> tuple[RefreshReport, ...]:
        """End every refresh whose owner is dead, and delete leftover files. See `Recoverer.recover`."""
        return self._recoverer.recover(caller, notify, name)

    def abandon(self, name: str, caller: Caller) -> RefreshReport | None:
        """Abandon the unfinished refresh of a table whose owner is dead. See `Recoverer.abandon`."""
        return self._recoverer.abandon(name, caller)

    def drop(self, name: str, caller: Caller, *, delete_main: bool = False) -> Dropped:
        """Unregister a table and delete its workspaces; keep main unless `delete_main`. Raises as `drop.drop` does."""
        return drop(self._context, name, caller, delete_main=delete_main)

    def relocate(self, name: str, caller: Caller, *, is_old_gone: bool = False) -> Relocated:
        """Register a moved table under the settings' warehouse. Raises as `relocation.relocate` does."""
        return relocate(self._context, name, caller, is_old_gone=is_old_gone)

    def relocate_all(
        self, caller: Caller, *, is_old_gone: bool = False
    ) -> tuple[tuple[Relocated, ...], dict[str, MvError]]:
        """Relocate every table, whatever becomes of the others. See `relocation.relocate_all`."""
        return relocate_all(self._context, caller, is_old_gone=is_old_gone)

    def _has_failed(self, refresh: RefreshRecord) -> bool:
        return refresh.is_ended and self.store.report(refresh.id).outcome in UNWANTED

    def _repeat(self, refresh: RefreshRecord, caller: Caller, until: Phase) -> RefreshReport:
        """Begin a refresh as an ended one was begun, and work on it up to phase `until`."""
        acquired = self.begin(self._context.table_of(refresh).name, caller, of_refresh(refresh))
        if isinstance(acquired, RefreshReport):
            return admission.with_recovered(self.store, acquired)
        self._recoverer.work(acquired.table, acquired.own, caller, until)
        return self._handed_on(acquired.own, until)

    def _handed_on(self, own: Ownership, until: Phase) -> RefreshReport:
        if until is not Phase.NORMAL:
            self.store.park(own, until_ms=self.settings.handover_ms)
        return self.store.report(own.refresh_id)


def _is_reached(until: Phase, phase: Phase) -> bool:
    """True if a refresh in `phase` has already reached `until`; always False for NORMAL, which is the end."""
    order = tuple(Phase)
    return until is not Phase.NORMAL and order.index(phase) >= order.index(until)


__all__ = ["AcquiredRefresh", "Progress", "Refresher"]
