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
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace

from pyspark.sql import SparkSession

from airflow_mv_provider.core.location import check_apart, is_table_uuid
from airflow_mv_provider.core.one_host import check_log_store, log_store_confs
from airflow_mv_provider.core.outcome import Outcome, RefreshReport
from airflow_mv_provider.core.phase import Phase
from airflow_mv_provider.core.request import AS_USUAL, Request
from airflow_mv_provider.core.scope import check_scope
from airflow_mv_provider.core.state import (
    Admission,
    Caller,
    Ownership,
    RefreshRecord,
    RefreshState,
    Renewal,
    TableRecord,
    admit,
)
from airflow_mv_provider.core.strategy import RefreshPlan
from airflow_mv_provider.core.table import RefreshableTable
from airflow_mv_provider.exceptions import (
    LeaseLostError,
    MainNotOursError,
    MetadataUnavailableError,
    MvError,
    RefreshFinishedError,
)
from airflow_mv_provider.metadata.store import Store
from airflow_mv_provider.report_text import recovered_text
from airflow_mv_provider.runner import admission
from airflow_mv_provider.runner.admission import Begun, in_progress
from airflow_mv_provider.runner.attempt import Attempt
from airflow_mv_provider.runner.choice import look
from airflow_mv_provider.runner.crash_points import Write, durable
from airflow_mv_provider.runner.drop import Dropped, drop
from airflow_mv_provider.runner.lease import Lease
from airflow_mv_provider.runner.preview import preview
from airflow_mv_provider.runner.progress import Progress, Watcher
from airflow_mv_provider.runner.recovery import Recoverer
from airflow_mv_provider.runner.registration import register
from airflow_mv_provider.runner.relocation import Relocated, check_not_moved, relocate
from airflow_mv_provider.runner.settings import Settings
from airflow_mv_provider.runner.work import Work
from airflow_mv_provider.sources.reader import TableSource, open_source
from airflow_mv_provider.spark.delta import UUID_PROPERTY, Main
from airflow_mv_provider.spark.errors import translated
from airflow_mv_provider.spark.session import interrupt, isolated, open_session, suited, tagged

log = logging.getLogger(__name__)


class Refresher:
    """Refreshes tables for one process.

    session : gives the Spark session when the first step needs one; called at most once. The settings' without it
    watch   : told of every step before it is done
    """

    def __init__(
        self,
        store: Store,
        settings: Settings,
        session: Callable[[], SparkSession] | None = None,
        watch: Watcher = lambda progress: None,
    ) -> None:
        self.store = store
        self.settings = settings
        self.watch = watch
        self._start = session or (lambda: open_session(settings.spark_remote, answer_s=settings.answer_ms / 1000))
        self._session: SparkSession | None = None
        self._interrupted = threading.Event()

    # -- what callers ask for ------------------------------------------------------------------------------------

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
            return preview(self, self.store.table(name), caller, request)
        begun = self.begin(name, caller, request)
        if isinstance(begun, RefreshReport):
            return self._with_recovered(begun)
        self._work(begun.table, begun.own, caller, Phase.NORMAL)
        return replace(self.store.report(begun.own.refresh_id), recovered=begun.recovered)

    def plan(self, name: str, request: Request = AS_USUAL) -> RefreshPlan:
        """Say what a refresh would do now, and which ways it could take; writes nothing and reads no row.

        raises : SourceNotFoundError, MainUnsupportedError, StrategyError, DefinitionError
        """
        table = self.store.table(name)
        state = self.store.state(table.id)
        check_scope(request.scope, table.definition, state.partition_type)
        exists = Main(self.spark, table.location, table.uuid).properties() is not None
        seen = look(self, table, state, request, exists=exists)
        scope = None if seen.scope.is_everything else seen.scope.describe()
        who = state.owner_process if state.is_lease_live else None
        choice = seen.choice
        return RefreshPlan(name, choice.strategy, choice.reason, seen.frontier.describe(), scope, who, choice.estimates)

    def begin(self, name: str, caller: Caller, request: Request = AS_USUAL) -> Begun | RefreshReport:
        """Take the table for a refresh, ending what a dead owner left; a report instead when there is nothing to do.

        returns : what nothing was to be done for has a history row of its own, also when others were ended on the way
        raises  : RefreshInProgressError, when a live owner is at work or others come first: where the table's policy is
                  to queue, the caller has a ticket then and is expected to look again; RefreshPausedError;
                  DefinitionError, FrozenPartitionError
        """
        return admission.begin(self, name, caller, request)

    def resume(self, refresh_id: str, caller: Caller, *, until: Phase) -> RefreshReport:
        """Go on with a refresh in another process of its caller, up to phase `until`, then keep it for the next one.

        A refresh that is there already, or further, is left as it is: a cleared task has nothing to do again.

        raises : RefreshFinishedError, when it has ended; RefreshInProgressError, when somebody else took it over
        """
        refresh = self.store.refresh(refresh_id)
        if refresh is None or refresh.is_ended:
            raise RefreshFinishedError(f"refresh {refresh_id}", "it has ended.")
        table = self.table_of(refresh)
        state = self.store.state(table.id)
        if state.refresh_id != refresh_id or admit(state, caller.key) is Admission.WAIT:
            raise in_progress(table, state)
        own = self.recoverer.hand_over(table, state, caller)
        if own is None:
            raise LeaseLostError(f"refresh {refresh_id}", "another process took it over.")
        if not _is_reached(until, state.phase):
            self._work(table, own, caller, until)
        if until is not Phase.NORMAL:
            self.store.park(own, until_ms=self.settings.handover_ms)
        return self.store.report(refresh_id)

    def interrupt(self) -> None:
        """Stop for good, asked from another thread than the one that works: what Spark runs is interrupted.

        The work raises a TransientError; what is durable then is a valid state, as after every other failure.
        """
        self._interrupted.set()
        if self._session is not None:
            self._session.interruptAll()

    def is_interrupted_within(self, seconds: float) -> bool:
        """Wait so long, or until this process is asked to stop; True if it is."""
        return self._interrupted.wait(seconds)

    def park(self, begun: Begun) -> None:
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
        """End every refresh whose owner is dead, and remove what refreshes that have ended left behind.

        tell   : told what was done, and what was left as it is and why
        name   : of the one table to look after; None for all
        raises : what kept a table from being looked after; all others have been
        """
        ended, problems = list[RefreshReport](), list[MvError]()
        for table in self.store.tables() if name is None else (self.store.table(name),):
            state = self.store.state(table.id)
            try:
                with translated(table.name):
                    report = self._ended(table, state, caller, tell)
                    if report is not None:
                        ended.append(report)
                        tell(recovered_text(report))
                    for done in self.recoverer.sweep(table):
                        tell(f"{table.name}: {done}")
                    # After the sweep: it knows files by the refreshes that the history holds.
                    if num_old := self.store.forget_history(table.id, older_than_ms=self.settings.history_ms):
                        tell(f"{table.name}: forgot {num_old} refreshes that ended long ago.")
            except MetadataUnavailableError:
                raise
            except MvError as error:
                if self._interrupted.is_set():
                    raise
                tell(f"{table.name}: not looked after. {error}")
                problems.append(error)
        if problems:
            raise problems[0]
        return tuple(ended)

    def abandon(self, name: str, caller: Caller) -> RefreshReport | None:
        """Give up the unfinished refresh of a table whose owner is dead; what main has is brought to its end.

        returns : its report; None when none is unfinished
        raises  : RefreshInProgressError, when its owner is alive
        """
        table = self.store.table(name)
        while (state := self.store.state(table.id)).phase is not Phase.NORMAL:
            if not _may_end(state, caller):
                raise in_progress(table, state)
            try:
                report = self.recoverer.take_over(table, state, caller, is_given_up=True)
            except MvError:
                report = self.store.report(state.refresh_id or "")
                if report.outcome is Outcome.RUNNING:
                    raise  # it could not be settled either
            if report is not None:
                return report
        return None

    def drop(self, name: str, caller: Caller, *, delete_main: bool = False) -> Dropped:
        """Forget a table and remove its workspaces; main stays unless `delete_main`. Raises what `drop.drop` does."""
        return drop(self, name, caller, delete_main=delete_main)

    def relocate(self, name: str, caller: Caller, *, is_old_gone: bool = False) -> Relocated:
        """Register a table under the settings' warehouse, where it was moved to. Raises what `relocate` does."""
        return relocate(self, name, caller, is_old_gone=is_old_gone)

    # -- what they are made of -----------------------------------------------------------------------------------

    @property
    def spark(self) -> SparkSession:
        """A session of this refresher's own, with its own confs."""
        if self._session is None:
            self._session = isolated(self._start())
        return self._session

    @property
    def recoverer(self) -> Recoverer:
        """Ends what refreshes of this table left behind."""
        return Recoverer(self.store, self.spark, self.settings.lease_ms, self.settings.handover_ms, self._attempt)

    def source_of(self, table: TableRecord, definition: RefreshableTable) -> TableSource:
        """Return the reader of a table's source, which must lie apart from main."""
        source = open_source(self.spark, definition, table.warehouse, self.settings.source_roots)
        for location in source.locations:
            check_apart(table.location, location)
        return source

    def table_of(self, refresh: RefreshRecord) -> TableRecord:
        """Return the table that a refresh belongs to."""
        return next(table for table in self.store.tables() if table.id == refresh.table_id)

    def identified(self, table: TableRecord) -> tuple[TableRecord, bool]:
        """Return the table under the identity that main carries, and whether main is there.

        raises : MainNotOursError, MainUnsupportedError, TableConflictError
        """
        confs = {name: self.spark.conf.get(name, None) for name in log_store_confs(table.location)}
        check_log_store(table.location, confs, is_single_driver=self.settings.is_s3_single_driver)
        main = Main(self.spark, table.location, table.uuid)
        found = main.properties()
        if found is None:
            check_not_moved(self, table)
            return table, False
        carried = found.get(UUID_PROPERTY)
        if carried is None and not table.definition.adopt and not main.is_claimed:
            raise MainNotOursError(table.name, f"{table.location} holds a Delta table that is not ours.")
        if carried is None:
            with durable(Write.ADOPT):
                main.adopt()
        elif not is_table_uuid(carried):
            raise MainNotOursError(
                table.name, f"its property {UUID_PROPERTY} is no identity of ours.", hint="Unset it."
            )
        elif carried != table.uuid:
            self.store.adopt_uuid(table, carried)
            table = replace(table, uuid=carried)
        return table, True

    @contextmanager
    def held(self, own: Ownership, renew: Callable[..., Renewal]) -> Iterator[Lease]:
        """Keep a lease alive meanwhile; what Spark runs is interrupted when it is lost, or its work is to stop."""
        tag = f"mv-{own.refresh_id}-{own.epoch}"  # whoever is overtaken must not interrupt who has overtaken it
        with (
            tagged(self.spark, tag),
            Lease(renew, own, self.settings.lease_ms, lambda: interrupt(self.spark, tag), self._interrupted) as lease,
        ):
            yield lease

    @contextmanager
    def _attempt(self, table: TableRecord, own: Ownership) -> Iterator[Attempt]:
        refresh = self.store.refresh(own.refresh_id)
        assert refresh is not None
        with self.held(own, self.store.renew) as lease:
            work = Work(
                self.store, self.spark, table, refresh, own, lambda: self.source_of(table, refresh.definition), lease
            )
            with suited(self.spark, is_small=work.is_small()), closing(Attempt(work, self.watch)) as attempt:
                yield attempt

    def _ended(
        self, table: TableRecord, state: RefreshState, caller: Caller, tell: Callable[[str], None]
    ) -> RefreshReport | None:
        """End a dead owner's refresh; its report even if that failed, None if there was none."""
        if state.phase is Phase.NORMAL:
            return None
        if not _may_end(state, caller):
            tell(f"{table.name}: {state.owner_process} may be at work in {state.phase}: its lease has not run out.")
            return None
        try:
            return self.recoverer.take_over(table, state, caller)
        except MetadataUnavailableError:
            raise
        except MvError as error:
            if self._interrupted.is_set():
                raise
            log.warning("%s: %s", table.name, error)
            return self.store.report(state.refresh_id or "")

    def _with_recovered(self, report: RefreshReport) -> RefreshReport:
        """Report what was recovered, where nothing else was left to do."""
        last = self.store.report(report.recovered[-1]) if report.recovered else report
        return replace(last, recovered=report.recovered) if last.outcome is Outcome.PUBLISHED else report

    def _work(self, table: TableRecord, own: Ownership, caller: Caller, until: Phase) -> None:
        with self._attempt(table, own) as attempt:
            try:
                attempt.run(until)
            except MvError as failure:
                error = self.recoverer.explained(table, failure)
                self.recoverer.settle(attempt, error, caller)
                raise error from failure.__cause__


def _may_end(state: RefreshState, caller: Caller) -> bool:
    """True if a caller may end the refresh under way: nobody holds it, or it was made the caller's own."""
    return admit(state, caller.key) in (Admission.TAKE_OVER, Admission.ADOPT)


def _is_reached(until: Phase, phase: Phase) -> bool:
    """True if a refresh in `phase` has come as far as `until`; NORMAL is the end of it."""
    order = tuple(Phase)
    return until is not Phase.NORMAL and order.index(phase) >= order.index(until)


__all__ = ["Begun", "Progress", "Refresher"]
