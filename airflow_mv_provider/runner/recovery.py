"""Recovery: end refreshes that did not end by themselves. No other module does this.

    an attempt failed      _resolve_failure  abandon the refresh, or keep it for the next attempt
    its owner died         take_over  REFRESHING: reset · MERGING: resume, or abandon after a cancel · CLEANUP: finish
    a person abandons it   take_over  as after a cancel
    files were left        sweep      delete those of ended refreshes, and those that main's log proves to be garbage

A refresh may be abandoned only when none of its commits can reach main any more. Before abandoning a refresh that may
have tried to publish, a new epoch fences main and reads its log. If the log holds the publish, the refresh runs forward
instead.

The database may have been restored to an older state, in which a refresh that ended long ago is still unfinished.
Main's log shows this: a refresh that later ones have followed is concluded from the log alone, without its files or
source.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass

from airflow_mv_provider.core.approval.hold import Hold
from airflow_mv_provider.core.fence import last_epoch
from airflow_mv_provider.core.location import Workspace
from airflow_mv_provider.core.outcome import ErrorReport, Outcome, RefreshReport, error_report, outcome_of
from airflow_mv_provider.core.phase import Ending, Phase, Recovery, on_failure, on_takeover
from airflow_mv_provider.core.rejections import in_progress
from airflow_mv_provider.core.state import Admission, Caller, Ownership, RefreshState, TableRecord, admit, next_epoch
from airflow_mv_provider.exceptions import (
    LeaseLostError,
    MainRefusedError,
    MainUnsupportedError,
    MetadataUnavailableError,
    MvError,
    OvertakenError,
    RefreshCancelledError,
    RefreshHeldError,
    SealBrokenError,
)
from airflow_mv_provider.report_text.refresh_text import recovered_text
from airflow_mv_provider.runner.attempt import Attempt, logging_failed_deletions
from airflow_mv_provider.runner.context import Context
from airflow_mv_provider.runner.crash_points import Write, durable
from airflow_mv_provider.runner.steps.work import Work
from airflow_mv_provider.runner.sweeping import sweep
from airflow_mv_provider.spark import storage
from airflow_mv_provider.spark.delta import Main
from airflow_mv_provider.spark.errors import translated
from airflow_mv_provider.spark.session import small_plan_confs

log = logging.getLogger(__name__)

_BROKEN_AGAIN = (
    "The last refresh failed in the same way, so another one will not help. Find what returns other rows at each read "
    "(a random number, the time, a row number without an order) in the source, its query, function or `select`, or a "
    "program that removes files under _mv."
)


@dataclass(frozen=True, slots=True)
class Recoverer:
    """Runs refreshes, and ends those that did not end by themselves; every attempt is opened here."""

    context: Context

    def work(self, table: TableRecord, own: Ownership, caller: Caller, until: Phase = Phase.NORMAL) -> None:
        """Continue the caller's own refresh up to phase `until`.

        raises : every error of its steps, after the failure was resolved
        """
        with self._attempt(table, own) as attempt, self._resolving(attempt, caller):
            attempt.run(until)

    def recover(self, caller: Caller, notify: Callable[[str], None], name: str | None) -> tuple[RefreshReport, ...]:
        """End every refresh whose owner is dead, and delete the files that ended refreshes have left.

        notify   : called with a sentence for each thing that was done, or left unchanged and why
        name   : the one table to recover; None for all
        raises : the first error of a table, after all other tables were recovered; MetadataUnavailableError at once,
                 and any error at once if this process was interrupted
        """
        store, ended, problems = self.context.store, list[RefreshReport](), list[MvError]()
        for table in store.tables() if name is None else (store.table(name),):
            state = store.state(table.id)
            try:
                with translated(table.name):
                    report = self._ended(table, state, caller, notify)
                    if report is not None:
                        ended.append(report)
                        notify(recovered_text(report))
                    for done in sweep(self.context, table):
                        notify(f"{table.name}: {done}")
                    # After the sweep, which needs the history to recognise the refresh of each file.
                    if num_old := store.forget_history(table.id, older_than_ms=self.context.settings.history_ms):
                        notify(f"{table.name}: removed {num_old} old refreshes from the history.")
            except MetadataUnavailableError:
                raise
            except MvError as error:
                if self.context.is_interrupted:
                    raise
                notify(f"{table.name}: not recovered. {error}")
                problems.append(error)
        if problems:
            raise problems[0]
        return tuple(ended)

    def abandon(self, name: str, caller: Caller) -> RefreshReport | None:
        """Abandon the unfinished refresh of a table whose owner is dead; complete it instead if main already has it.

        returns : its report; None if no refresh is unfinished
        raises  : RefreshInProgressError, if its owner is alive; any other error that left the refresh unfinished
        """
        store = self.context.store
        table = store.table(name)
        while (state := store.state(table.id)).phase is not Phase.NORMAL:
            if not _may_end(state, caller):
                raise in_progress(table, state)
            try:
                report = self.take_over(table, state, caller, is_given_up=True)
            except MvError:
                report = store.report(state.refresh_id or "")
                if report.outcome is Outcome.RUNNING:
                    raise  # the failure could not be resolved either
            if report is not None:
                return report
        return None

    def hand_over(self, table: TableRecord, state: RefreshState, caller: Caller) -> Ownership | None:
        """Take over an unfinished refresh under an epoch later than those in the database and in main's log.

        returns : None if another process was faster
        """
        main = Main(self.context.spark, table.main, table.uuid)
        try:
            log_epoch = last_epoch(main.log()) if main.properties() is not None else 0
        except MainUnsupportedError:
            log_epoch = 0  # no process can write to such a main either, so the refresh can still be ended
        epoch = next_epoch(state.epoch, log_epoch)
        with durable(Write.HAND_OVER):
            return self.context.store.hand_over(state, caller, epoch=epoch, lease_ms=self.context.settings.lease_ms)

    def end_if_cancelled(self, table: TableRecord, state: RefreshState, caller: Caller) -> None:
        """End the caller's own refresh, without waiting for Spark, if it is to be cancelled and is not compared yet.

        raises : RefreshCancelledError
        """
        if state.is_cancel_requested and not self.context.store.may_have_published(state):
            with durable(Write.HAND_OVER):
                is_ended = self.context.store.end_cancelled(table, state, caller)
            if is_ended:
                raise RefreshCancelledError(table.name, "the refresh was cancelled on request.")

    def take_over(
        self, table: TableRecord, state: RefreshState, caller: Caller, *, is_given_up: bool = False
    ) -> RefreshReport | None:
        """End the refresh of a dead owner; main and the table's state row are consistent afterwards.

        is_given_up : a person wants it abandoned, not resumed; a refresh that main already has is still completed
        returns     : its report; None if another process was faster
        raises      : every error of its remaining steps, after the failure was resolved, unless the refresh was
                      published or concluded as overtaken
        """
        own = self.hand_over(table, state, caller)
        if own is None:
            return None
        log.warning("%s: taking over refresh %s, on which no process works any more", table.name, own.refresh_id)
        match on_takeover(state.phase, is_cancel_requested=state.is_cancel_requested or is_given_up):
            case Recovery.RESET:
                why = _given_up(table, caller) if is_given_up else _reset(table)
                self._abandon(table, own, Outcome.ABANDONED, why)
            case Recovery.ABANDON if is_given_up:
                self._give_up(table, own, Outcome.ABANDONED, _given_up(table, caller), caller=caller)
            case Recovery.ABANDON:
                last = self.context.store.last_hold(own.refresh_id)
                self._give_up(table, own, Outcome.CANCELLED, _cancelled(table, last), caller=caller)
            case Recovery.RESUME | Recovery.FINISH:
                with self._attempt(table, own) as attempt:
                    try:
                        with self._resolving(attempt, caller):
                            attempt.run()
                    except MvError as error:
                        outcome = self.context.store.report(own.refresh_id).outcome
                        is_over = isinstance(error, OvertakenError) and outcome is not Outcome.RUNNING
                        if not is_over and outcome is not Outcome.PUBLISHED:
                            raise
                        log.warning("%s: refresh %s is %s: %s", table.name, own.refresh_id, outcome, error)
            case Recovery.NOTHING:
                raise AssertionError("a table in NORMAL has nothing to take over")
        return self.context.store.report(own.refresh_id)

    @contextmanager
    def _resolving(self, attempt: Attempt, caller: Caller) -> Iterator[None]:
        """Resolve a failure of the block, and raise it with what explains it."""
        try:
            yield
        except MvError as failure:
            error = self._explained(attempt.work.table, attempt.work.own, failure)
            self._resolve_failure(attempt, error, caller)
            raise error from failure.__cause__

    def _resolve_failure(self, attempt: Attempt, error: MvError, caller: Caller) -> None:
        """Abandon or keep the refresh whose attempt raised `error`; log an MvError of its own instead of raising it."""
        attempt.work.lease.stop()
        if isinstance(error, LeaseLostError | MetadataUnavailableError | RefreshHeldError):
            # The table has another owner, or waits for a person, or the row cannot be written: it stays as it is.
            return
        own, table = attempt.work.own, attempt.work.table
        try:
            state = self.context.store.state(table.id)
            if (state.refresh_id, state.epoch) != (own.refresh_id, own.epoch):
                return  # another epoch took over after the failure, and resolves what is unfinished now
            ending = on_failure(
                state.phase,
                error.code,
                is_transient=error.is_transient,
                has_committed=attempt.must_run_forward,
                will_retry=caller.will_retry,
                merging_attempts=self.context.store.merging_attempts(own.refresh_id),
            )
            if ending is Ending.KEEP:
                self.context.store.park(own, until_ms=self.context.settings.handover_ms if caller.will_retry else 0)
            elif not attempt.has_tried_publish or not attempt.is_main_known:
                is_main_known = attempt.is_main_known
                ended = (outcome_of(error), error_report(error), attempt.spent())
                self._abandon(table, own, *ended, is_main_known=is_main_known)
            elif (fresh := self.hand_over(table, state, caller)) is not None:
                # Abandoned even if main has a commit: another round was still needed, or main refuses further writes.
                is_final = attempt.must_run_forward or isinstance(error, MainRefusedError)
                self._give_up(table, fresh, outcome_of(error), error_report(error), is_final=is_final)
        except MvError as another:
            log.warning(
                "%s: the failure of refresh %s could not be resolved now: %s", table.name, own.refresh_id, another
            )

    def _explained(self, table: TableRecord, own: Ownership, error: MvError) -> MvError:
        """Return `error`, or one with more detail: who rejected the refresh, or that it failed like the last one."""
        with suppress(MetadataUnavailableError):
            if isinstance(error, RefreshCancelledError):
                last = self.context.store.last_hold(own.refresh_id)
                if last is not None and last.is_refused:
                    return RefreshCancelledError(table.name, last.refusal)
            if isinstance(error, SealBrokenError) and self.context.store.last_error_code(table.id) == error.code:
                return error.advising(_BROKEN_AGAIN)
        return error

    @contextmanager
    def _attempt(self, table: TableRecord, own: Ownership) -> Iterator[Attempt]:
        context = self.context
        refresh = context.store.refresh(own.refresh_id)
        assert refresh is not None
        with context.held(own, context.store.renew) as lease:
            work = Work(
                *(context.store, context.spark, table, refresh, own),
                lambda: context.source_of(table, refresh.definition),
                lease,
                context.settings,
            )
            with (
                small_plan_confs(context.spark, is_small=work.is_small),
                closing(Attempt(work, context.watch)) as attempt,
            ):
                yield attempt

    def _ended(
        self, table: TableRecord, state: RefreshState, caller: Caller, notify: Callable[[str], None]
    ) -> RefreshReport | None:
        """End a dead owner's refresh and return its report, also if that failed; None if there was none to end."""
        if state.phase is Phase.NORMAL:
            return None
        if not _may_end(state, caller):
            if state.is_held:
                notify(f"{table.name}: its refresh awaits approval; see `amv diff {table.name}`.")
                return None
            notify(f"{table.name}: {_who_may_work(table, state)}")
            return None
        try:
            return self.take_over(table, state, caller)
        except MetadataUnavailableError:
            raise
        except MvError as error:
            if self.context.is_interrupted:
                raise
            log.warning("%s: %s", table.name, error)
            return self.context.store.report(state.refresh_id or "")

    def _give_up(
        self,
        table: TableRecord,
        own: Ownership,
        outcome: Outcome,
        error: ErrorReport,
        *,
        is_final: bool = False,
        caller: Caller | None = None,
    ) -> None:
        """Abandon a refresh in MERGING under a new epoch, unless main's log shows that it was published.

        is_final : abandon it even then, as is always done with a progressive refresh; main's log makes the next
                   refresh compare everything
        caller   : the caller under which a failure to end it is resolved; None inside such a resolution
        """
        with self._attempt(table, own) as attempt:
            try:
                is_published = attempt.fence_and_check_log() and not is_final and not attempt.work.is_progressive
                is_ended = is_published and attempt.bring_to_end()
            except MvError as problem:
                if caller is not None:  # else a refresh whose main is gone never ends: each try fails at the fence
                    self._resolve_failure(attempt, problem, caller)
                if caller is not None or attempt.has_tried_publish:
                    raise
                is_published = is_ended = False  # no commit can reach main: it is missing, or refuses even the fence
        if not is_ended:
            is_main_known = attempt.is_main_known and not is_published
            self._abandon(table, own, outcome, error, attempt.spent(), is_main_known=is_main_known)

    def _abandon(
        self,
        table: TableRecord,
        own: Ownership,
        outcome: Outcome,
        error: ErrorReport,
        seconds: Mapping[str, float] | None = None,
        *,
        is_main_known: bool = True,
    ) -> None:
        """Return the row to NORMAL, then delete the files: they are garbage only after that write."""
        with durable(Write.NORMAL):
            self.context.store.abandon(own, outcome, error, seconds or {}, is_main_known=is_main_known)
        with durable(Write.STAGING_DELETE), logging_failed_deletions(table.name):
            workspace = Workspace(table.warehouse, table.uuid, own.refresh_id)
            storage.remove(self.context.spark, workspace)
            storage.remove_kept(self.context.spark, workspace)


def _who_may_work(table: TableRecord, state: RefreshState) -> str:
    if not state.is_kept:
        return f"{state.holder} may be at work in {state.phase}: its lease has not expired."
    return (
        f"its refresh is kept in {state.phase} for {state.holder}. If that will not come, because its run has ended: "
        f"`amv recover {table.name} --owner-is-dead --note TEXT`."
    )


def _may_end(state: RefreshState, caller: Caller) -> bool:
    """True if a caller may end the unfinished refresh: its lease has expired, or it belongs to the caller."""
    return admit(state, caller.key) in (Admission.TAKE_OVER, Admission.ADOPT)


def _reset(table: TableRecord) -> ErrorReport:
    problem = f"{table.name}: its process died before staging was complete."
    return ErrorReport("MV-ABANDONED", problem, "Refresh again.", True)


def _given_up(table: TableRecord, caller: Caller) -> ErrorReport:
    problem = f"{table.name}: its process died, and {caller.user or 'an unnamed user'} abandoned it."
    return ErrorReport("MV-ABANDONED", problem, "Refresh again.", True)


def _cancelled(table: TableRecord, last: Hold | None) -> ErrorReport:
    problem = last.refusal if last is not None and last.is_refused else "the refresh was cancelled on request."
    error = RefreshCancelledError(table.name, problem)
    return error_report(error)
