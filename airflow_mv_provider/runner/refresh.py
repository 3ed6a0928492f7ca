"""The refresh protocol: how a table is brought up to date, exactly once, whatever dies on the way.

    phase       step       what it does                                                  durable write
    NORMAL      mint       bind our next version to the source's token: one batch, one pin
                acquire    one compare-and-set takes the table's row under a new epoch   acquire
    REFRESHING  fence      an empty commit in main's log: older epochs fail from now on  create_main, fence
                stage      read the source once, under this epoch's own path             staging
                seal       keys checked, counted, digested; the row moves to MERGING     seal
    MERGING     compare    chunk by chunk: corrections written once, then recorded       changes, progress
                judge      guards look at the exact counts; main is still as it was
                publish    one MERGE, believed when main's log shows it as it was aimed  publish, published
                errors     where the table asks for them: prepared with the fence,       create_errors, collected,
                           collected while staging, overwritten after main's commit and  errors
                           before PUBLISHED, so whoever takes over brings both or none
    CLEANUP     clean      this refresh's workspace, its progress; the row to NORMAL     staging_delete, normal

Invariants that hold between any two of these writes:
  1. One owner at a time may write main: the newest epoch. A lease says who may try, the fence who can.
  2. main changes in one commit or not at all; before it, abandoning a refresh costs nothing.
  3. Nothing is merged that was not sealed, and nothing is deleted that is not in the recorded corrections.
  4. Files are removed only after the write that makes them garbage.

That is the way `corrections` takes. Two others differ in what they read and write, not in the order of durable writes:
    incremental  stage reads the changes that the source lists, and writes them as corrections, with the digests that
                 main will have; compare records them. Whoever finds main moved compares as above: the seal is the same
    replace      compare records that all of main goes and the seal comes; publish is one overwrite instead of a MERGE.
                 What others wrote meanwhile shows in main's log, and the next round merges what is still missing

Who works begins with a hand-over: the same refresh, a new epoch, then the fence. So a retried task, its twin and its
zombie never share an epoch. The database may be older than main, having been put back: a refresh that later ones have
followed in main's log is concluded from that log alone, and needs no file and no source. The steps are in `attempt`,
what happens when one fails or its owner dies in `recovery`, the order of writes and where tests kill in `crash_points`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace

from pyspark.sql import SparkSession

from airflow_mv_provider.core.definition.table import RefreshableTable
from airflow_mv_provider.core.outcome import Outcome, RefreshReport
from airflow_mv_provider.core.phase import Phase
from airflow_mv_provider.core.scope.request import AS_USUAL, Request
from airflow_mv_provider.core.scope.scope import check_scope
from airflow_mv_provider.core.state import Admission, Caller, TableRecord, admit
from airflow_mv_provider.core.strategy import RefreshPlan
from airflow_mv_provider.core.turned_away import in_progress
from airflow_mv_provider.exceptions import LeaseLostError, RefreshFinishedError
from airflow_mv_provider.metadata.store import Store
from airflow_mv_provider.runner import admission
from airflow_mv_provider.runner.admission import AcquiredRefresh
from airflow_mv_provider.runner.assessment import assess
from airflow_mv_provider.runner.context import Context
from airflow_mv_provider.runner.drop import Dropped, drop
from airflow_mv_provider.runner.preview import preview
from airflow_mv_provider.runner.recovery import Recoverer
from airflow_mv_provider.runner.registration import register
from airflow_mv_provider.runner.relocation import Relocated, relocate
from airflow_mv_provider.runner.settings import Settings
from airflow_mv_provider.runner.watching import Progress, Watcher
from airflow_mv_provider.spark.delta import Main

log = logging.getLogger(__name__)


class Refresher:
    """Refreshes tables for one process: what callers may ask for. How it is done lies in the modules that it calls.

    session : gives the Spark session when the first step needs one; called at most once. The settings' without it
    watch   : called with every step before it is done
    """

    def __init__(
        self,
        store: Store,
        settings: Settings,
        session: Callable[[], SparkSession] | None = None,
        watch: Watcher = lambda progress: None,
    ) -> None:
        self._context = Context(store, settings, session, watch)
        self._recoverer = Recoverer(self._context)
        self.store = store
        self.settings = settings
        self.watch = watch

    @property
    def spark(self) -> SparkSession:
        """The session that it works with, started at the first use."""
        return self._context.spark

    def apply(self, definition: RefreshableTable) -> TableRecord:
        """Register a definition; needs no Spark.

        raises : UnsafeLocationError, TableConflictError, DefinitionError
        """
        return register(self.store, self.settings, definition)

    def refresh(self, name: str, caller: Caller, request: Request = AS_USUAL) -> RefreshReport:
        """Bring a table up to date, all phases in this process.

        raises : RefreshInProgressError and every other MvError; what is durable then is a valid state
        """
        if request.read_only:
            return preview(self._context, self.store.table(name), caller, request)
        begun = self.begin(name, caller, request)
        if isinstance(begun, RefreshReport):
            return self._with_recovered(begun)
        self._recoverer.work(begun.table, begun.own, caller)
        return replace(self.store.report(begun.own.refresh_id), recovered=begun.recovered)

    def plan(self, name: str, request: Request = AS_USUAL) -> RefreshPlan:
        """Say what a refresh would do now, and which ways it could take; writes nothing and reads no row.

        raises : SourceNotFoundError, MainUnsupportedError, StrategyError, DefinitionError
        """
        table = self.store.table(name)
        state = self.store.state(table.id)
        check_scope(request.scope, table.definition, state.partition_type)
        exists = Main(self.spark, table.location, table.uuid).properties() is not None
        seen = assess(self._context, table, state, request, exists=exists)
        scope = None if seen.scope.is_everything else seen.scope.describe()
        who = state.owner_process if state.is_lease_live else None
        choice = seen.choice
        return RefreshPlan(name, choice.strategy, choice.reason, seen.frontier.describe(), scope, who, choice.estimates)

    def begin(self, name: str, caller: Caller, request: Request = AS_USUAL) -> AcquiredRefresh | RefreshReport:
        """Take the table for a refresh, ending what a dead owner left; a report instead when there is nothing to do.

        returns : what nothing was to be done for has a history row of its own, also when others were ended on the way
        raises  : RefreshInProgressError, when a live owner is at work or others come first: where the table's policy is
                  to queue, the caller has a ticket then and is expected to look again; RefreshPausedError;
                  DefinitionError, FrozenPartitionError
        """
        return admission.begin(self._context, name, caller, request)

    def resume(self, refresh_id: str, caller: Caller, *, until: Phase) -> RefreshReport:
        """Go on with a refresh in another process of its caller, up to phase `until`, then keep it for the next one.

        A refresh that is there already, or further, is left as it is: a cleared task has nothing to do again.

        raises : RefreshFinishedError, when it has ended; RefreshInProgressError, when somebody else took it over
        """
        refresh = self.store.refresh(refresh_id)
        if refresh is None or refresh.is_ended:
            raise RefreshFinishedError(f"refresh {refresh_id}", "it has ended.")
        table = self._context.table_of(refresh)
        state = self.store.state(table.id)
        if state.refresh_id != refresh_id or admit(state, caller.key) is Admission.WAIT:
            raise in_progress(table, state)
        own = self._recoverer.hand_over(table, state, caller)
        if own is None:
            raise LeaseLostError(f"refresh {refresh_id}", "another process took it over.")
        if not _is_reached(until, state.phase):
            self._recoverer.work(table, own, caller, until)
        if until is not Phase.NORMAL:
            self.store.park(own, until_ms=self.settings.handover_ms)
        return self.store.report(refresh_id)

    def interrupt(self) -> None:
        """Stop for good, asked from another thread than the one that works: what Spark runs is interrupted.

        The work raises a TransientError; what is durable then is a valid state, as after every other failure.
        """
        self._context.interrupt()

    def is_interrupted_within(self, seconds: float) -> bool:
        """Wait so long, or until this process is asked to stop; True if it is."""
        return self._context.is_interrupted_within(seconds)

    def park(self, begun: AcquiredRefresh) -> None:
        """Keep a table that was begun for the next process of its caller."""
        self.store.park(begun.own, until_ms=self.settings.handover_ms)

    def bury(self, name: str, caller: Caller, note: str) -> None:
        """Believe a person that the owner of a table is dead: `caller` may end its refresh at once, as its own.

        raises : RefreshInProgressError, when another has taken it over just now
        """
        table = self.store.table(name)
        state = self.store.state(table.id)
        if state.phase is not Phase.NORMAL and not self.store.bury(state, caller, note):
            raise in_progress(table, self.store.state(table.id))

    def recover(
        self, caller: Caller, tell: Callable[[str], None] = log.info, name: str | None = None
    ) -> tuple[RefreshReport, ...]:
        """End every refresh whose owner is dead, and remove what was left behind. As `Recoverer.recover`."""
        return self._recoverer.recover(caller, tell, name)

    def abandon(self, name: str, caller: Caller) -> RefreshReport | None:
        """Give up the unfinished refresh of a table whose owner is dead. As `Recoverer.abandon`."""
        return self._recoverer.abandon(name, caller)

    def drop(self, name: str, caller: Caller, *, delete_main: bool = False) -> Dropped:
        """Forget a table and remove its workspaces; main stays unless `delete_main`. Raises what `drop.drop` does."""
        return drop(self._context, name, caller, delete_main=delete_main)

    def relocate(self, name: str, caller: Caller, *, is_old_gone: bool = False) -> Relocated:
        """Register a table under the settings' warehouse, where it was moved to. Raises what `relocate` does."""
        return relocate(self._context, name, caller, is_old_gone=is_old_gone)

    def _with_recovered(self, report: RefreshReport) -> RefreshReport:
        """Report what was recovered, where nothing else was left to do."""
        last = self.store.report(report.recovered[-1]) if report.recovered else report
        return replace(last, recovered=report.recovered) if last.outcome is Outcome.PUBLISHED else report


def _is_reached(until: Phase, phase: Phase) -> bool:
    """True if a refresh in `phase` has come as far as `until`; NORMAL is the end of it."""
    order = tuple(Phase)
    return until is not Phase.NORMAL and order.index(phase) >= order.index(until)


__all__ = ["AcquiredRefresh", "Progress", "Refresher"]
