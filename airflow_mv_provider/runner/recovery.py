"""What becomes of a refresh that did not end by itself. The only owner of recovery.

    an attempt failed      settle     abandon it, or keep it for whoever comes next
    its owner died         take_over  REFRESHING: reset · MERGING: resume, or abandon after a cancel · CLEANUP: finish
    a person gives it up   take_over  as after a cancel
    files were left        sweep      remove the workspaces of refreshes that have ended

Giving up is safe only when nothing of the refresh can reach main any more. So before a refresh that may have tried to
publish is abandoned, a new epoch fences main and looks at its log: if the publish is there, it runs forward instead.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass

from pyspark.sql import SparkSession

from airflow_mv_provider.core.fence import last_epoch
from airflow_mv_provider.core.location import Workspace
from airflow_mv_provider.core.outcome import ErrorReport, Outcome, RefreshReport, error_report, outcome_of
from airflow_mv_provider.core.phase import Ending, Recovery, on_failure, on_takeover
from airflow_mv_provider.core.state import Caller, Ownership, RefreshState, TableRecord, next_epoch
from airflow_mv_provider.exceptions import (
    LeaseLostError,
    MainRefusedError,
    MainUnsupportedError,
    MetadataUnavailableError,
    MvError,
    RefreshCancelledError,
    SealBrokenError,
)
from airflow_mv_provider.metadata.store import Store
from airflow_mv_provider.runner.attempt import Attempt
from airflow_mv_provider.runner.cleaning import as_far_as_possible
from airflow_mv_provider.runner.crash_points import Write, durable
from airflow_mv_provider.spark import storage
from airflow_mv_provider.spark.delta import Main

log = logging.getLogger(__name__)

_BROKEN_AGAIN = (
    "It was the same in the last refresh, so another one will not help: look for what gives other rows each time it "
    "is read (a random number, the time, a row number without an order) in the source, its query, function or "
    "`select`, or for a program that removes files under _mv."
)

OpenAttempt = Callable[[TableRecord, Ownership], AbstractContextManager[Attempt]]


@dataclass(frozen=True, slots=True)
class Recoverer:
    """Ends refreshes that did not end by themselves.

    open_attempt : opens an attempt with its lease; the runner's, so that every attempt is built in one place
    handover_ms  : how long a table is kept for a caller that retries
    """

    store: Store
    spark: SparkSession
    lease_ms: int
    handover_ms: int
    open_attempt: OpenAttempt

    def hand_over(self, table: TableRecord, state: RefreshState, caller: Caller) -> Ownership | None:
        """Take an unfinished refresh under an epoch later than the database and main's log know.

        returns : None when somebody else was faster
        """
        main = Main(self.spark, table.location, table.uuid)
        try:
            log_epoch = last_epoch(main.log()) if main.properties() is not None else 0
        except MainUnsupportedError:
            log_epoch = 0  # nobody can write to it either; what has to end can end
        epoch = next_epoch(state.epoch, log_epoch)
        with durable(Write.HAND_OVER):
            return self.store.hand_over(state, caller, epoch=epoch, lease_ms=self.lease_ms)

    def take_over(
        self, table: TableRecord, state: RefreshState, caller: Caller, *, is_given_up: bool = False
    ) -> RefreshReport | None:
        """End the refresh that a dead owner left behind; main and the table's state are right afterwards.

        is_given_up : a person wants it abandoned, not resumed; what main has is brought to its end all the same
        returns     : its report; None when somebody else was faster
        raises      : whatever its remaining steps raise, after `settle`
        """
        own = self.hand_over(table, state, caller)
        if own is None:
            return None
        log.warning("%s: taking over refresh %s in %s", table.name, own.refresh_id, state.phase)
        match on_takeover(state.phase, is_cancel_requested=state.is_cancel_requested or is_given_up):
            case Recovery.RESET:
                why = _given_up(table, caller) if is_given_up else _reset(table)
                self._abandon(table, own, Outcome.ABANDONED, why)
            case Recovery.ABANDON if is_given_up:
                self._give_up(table, own, Outcome.ABANDONED, _given_up(table, caller), caller=caller)
            case Recovery.ABANDON:
                self._give_up(table, own, Outcome.CANCELLED, _cancelled(table), caller=caller)
            case Recovery.RESUME | Recovery.FINISH:
                with self.open_attempt(table, own) as attempt:
                    try:
                        attempt.run()
                    except MvError as failure:
                        error = self.explained(table, failure)
                        self.settle(attempt, error, caller)
                        raise error from failure.__cause__
            case Recovery.NOTHING:
                raise AssertionError("a table in NORMAL has nothing to take over")
        return self.store.report(own.refresh_id)

    def settle(self, attempt: Attempt, error: MvError, caller: Caller) -> None:
        """Decide what becomes of the refresh whose attempt raised `error`, and do it; raises nothing itself."""
        attempt.work.lease.stop()
        if isinstance(error, LeaseLostError | MetadataUnavailableError):
            return  # not ours any more, or nobody to tell: whoever comes next reads the row as it is
        own, table = attempt.work.own, attempt.work.table
        try:
            state = self.store.state(table.id)
            if (state.refresh_id, state.epoch) != (own.refresh_id, own.epoch):
                return  # overtaken since it failed: what is unfinished now is another's to settle
            ending = on_failure(
                state.phase,
                error.code,
                is_transient=error.is_transient,
                has_committed=attempt.must_run_forward,
                will_retry=caller.will_retry,
                merging_attempts=self.store.merging_attempts(own.refresh_id),
            )
            if ending is Ending.KEEP:
                self.store.park(own, until_ms=self.handover_ms if caller.will_retry else 0)
            elif not attempt.has_tried_publish:
                self._abandon(table, own, outcome_of(error), error_report(error))
            elif (fresh := self.hand_over(table, state, caller)) is not None:
                # What was committed and cannot be brought to its end, or has not come to it, is given up all the same.
                is_final = attempt.must_run_forward or isinstance(error, MainRefusedError)
                self._give_up(table, fresh, outcome_of(error), error_report(error), is_final=is_final)
        except MvError as another:
            log.warning("%s: could not settle refresh %s now: %s", table.name, own.refresh_id, another)

    def explained(self, table: TableRecord, error: MvError) -> MvError:
        """Return what a refresh failed with, with another hint where the one before it failed in the same way."""
        with suppress(MetadataUnavailableError):
            if isinstance(error, SealBrokenError) and self.store.last_error_code(table.id) == error.code:
                return error.advising(_BROKEN_AGAIN)
        return error

    def sweep(self, table: TableRecord) -> tuple[str, ...]:
        """Remove the workspaces of this table's refreshes that have ended; return their refresh ids.

        A workspace whose refresh this database does not know, or whose refresh is under way, is left alone.
        """
        self.store.end_stale_previews(table.id)
        ended = []
        workspaces, digests = storage.refreshes_with_files(self.spark, table.warehouse, table.uuid)
        for refresh_id in sorted(workspaces | digests):
            workspace = Workspace(table.warehouse, table.uuid, refresh_id)
            refresh = self.store.refresh(refresh_id)
            if refresh is None or not refresh.is_ended:
                continue
            # Asked after the refresh has ended: from then on it can only lose them, never get them.
            kept = self.store.state(table.id).published_digests
            is_garbage = refresh_id in digests and not (kept and kept.refresh_id == refresh_id)
            if refresh_id in workspaces:
                storage.remove(self.spark, workspace)
            if is_garbage:
                storage.remove_digests(self.spark, workspace)
            if refresh_id in workspaces or is_garbage:
                ended.append(refresh_id)
        return tuple(ended)

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
        """Abandon a refresh in MERGING under a fresh epoch, unless main's log shows that it was published.

        is_final : abandon it even then, as a progressive one always is; main's log makes the next refresh compare
                   everything
        caller   : who settles it if it cannot be brought to its end; None where that is being done
        """
        with self.open_attempt(table, own) as attempt:
            try:
                is_published = attempt.fence_and_look() and not is_final and not attempt.work.is_progressive
                if is_published:
                    attempt.run()
            except MvError as problem:
                if caller is not None:  # else a refresh whose main is gone would be given up again and again
                    self.settle(attempt, problem, caller)
                if caller is not None or attempt.has_tried_publish:
                    raise
                is_published = False  # no commit can reach main: it is gone, or refuses even the fence
        if not is_published:
            self._abandon(table, own, outcome, error)

    def _abandon(self, table: TableRecord, own: Ownership, outcome: Outcome, error: ErrorReport) -> None:
        """Back to NORMAL first; only then are the files garbage."""
        with durable(Write.NORMAL):
            self.store.abandon(own, outcome, error, {})
        with durable(Write.STAGING_DELETE), as_far_as_possible(table.name):
            workspace = Workspace(table.warehouse, table.uuid, own.refresh_id)
            storage.remove(self.spark, workspace)
            storage.remove_digests(self.spark, workspace)


def _reset(table: TableRecord) -> ErrorReport:
    problem = f"{table.name}: its process ended before the source was sealed."
    return ErrorReport("MV-ABANDONED", problem, "Refresh again.", True)


def _given_up(table: TableRecord, caller: Caller) -> ErrorReport:
    problem = f"{table.name}: its process ended, and {caller.user or 'somebody'} gave it up."
    return ErrorReport("MV-ABANDONED", problem, "Refresh again.", True)


def _cancelled(table: TableRecord) -> ErrorReport:
    error = RefreshCancelledError(table.name, "it was cancelled on request.")
    return error_report(error)
