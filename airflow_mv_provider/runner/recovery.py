"""What becomes of a refresh that did not end by itself. The only owner of recovery.

    an attempt failed      settle     abandon it, or keep it for whoever comes next
    its owner died         take_over  REFRESHING: reset · MERGING: resume, or abandon after a cancel · CLEANUP: finish
    a person gives it up   take_over  as after a cancel
    files were left        sweep      remove those of refreshes that have ended, and what main's log proves garbage

Giving up is safe only when nothing of the refresh can reach main any more. So before a refresh that may have tried to
publish is abandoned, a new epoch fences main and looks at its log: if the publish is there, it runs forward instead.

The database may have been put back to an older state, in which a refresh is unfinished that has ended long ago. Main's
log tells: a refresh that others have followed is concluded from the log alone, whatever files or source there are.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass

from pyspark.sql import SparkSession

from airflow_mv_provider.core.fence import last_epoch
from airflow_mv_provider.core.leftover import Leftover, why_left
from airflow_mv_provider.core.location import Workspace
from airflow_mv_provider.core.outcome import ErrorReport, Outcome, RefreshReport, error_report, outcome_of
from airflow_mv_provider.core.phase import Ending, Recovery, on_failure, on_takeover
from airflow_mv_provider.core.progress import PublishedDigests
from airflow_mv_provider.core.state import Caller, Ownership, RefreshState, TableRecord, next_epoch
from airflow_mv_provider.exceptions import (
    LeaseLostError,
    MainRefusedError,
    MainUnsupportedError,
    MetadataUnavailableError,
    MvError,
    OvertakenError,
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
        raises      : whatever its remaining steps raise, after `settle`, unless it has ended all the same
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
                        outcome = self.store.report(own.refresh_id).outcome
                        is_over = isinstance(error, OvertakenError) and outcome is not Outcome.RUNNING
                        if not is_over and outcome is not Outcome.PUBLISHED:
                            raise error from failure.__cause__
                        log.warning("%s: refresh %s is %s: %s", table.name, own.refresh_id, outcome, error)
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
            elif not attempt.has_tried_publish or not attempt.is_main_known:
                is_main_known = attempt.is_main_known
                self._abandon(table, own, outcome_of(error), error_report(error), is_main_known=is_main_known)
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
        """Remove the files of this table's refreshes that have ended; say what was removed, and what was not and why.

        Files of a refresh that this database does not know go when main's log proves that nobody needs them. Those of a
        refresh under way are left alone.
        """
        self.store.end_stale_previews(table.id)
        said, unknown = list[str](), list[Leftover]()
        for leftover in storage.leftovers(self.spark, table.warehouse, table.uuid):
            refresh = self.store.refresh(leftover.refresh_id)
            if refresh is None:
                unknown.append(leftover)
            elif refresh.is_ended and self._remove(table, leftover):
                said.append(f"removed what refresh {leftover.refresh_id} had left.")
        return (*said, *self._sweep_unknown(table, unknown))

    def _sweep_unknown(self, table: TableRecord, unknown: Sequence[Leftover]) -> Iterator[str]:
        now_ms = self.store.now_ms()
        kept = self.store.state(table.id).published_digests
        in_use = {each.refresh_id for each in unknown if kept and _holds(each, kept) and not each.has_workspace}
        old = [each for each in unknown if each.refresh_id not in in_use and not each.is_in_grace(now_ms)]
        if not old:
            return
        main = Main(self.spark, table.location, table.uuid)
        commits = main.log(0) if main.properties() is not None else []
        epoch = self.store.state(table.id).epoch
        for leftover in old:
            of_whom = f"refresh {leftover.refresh_id}, which this database does not know"
            if (why := why_left(leftover, commits, epoch=epoch)) is not None:
                yield f"left what is of {of_whom}: {why}."
            elif self._remove(table, leftover):
                yield f"removed what was of {of_whom}."

    def _remove(self, table: TableRecord, leftover: Leftover) -> bool:
        """Remove what an ended refresh has left, but for main's digests; False if there was nothing else."""
        workspace = Workspace(table.warehouse, table.uuid, leftover.refresh_id)
        # Asked after the refresh has ended: from then on it can only lose them, never get them.
        kept = self.store.state(table.id).published_digests
        is_garbage = leftover.has_digests and not (kept and _holds(leftover, kept))
        if leftover.has_workspace:
            storage.remove(self.spark, workspace)
        if is_garbage:
            storage.remove_digests(self.spark, workspace)
        return leftover.has_workspace or is_garbage

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
                is_ended = is_published and attempt.bring_to_end()
            except MvError as problem:
                if caller is not None:  # else a refresh whose main is gone would be given up again and again
                    self.settle(attempt, problem, caller)
                if caller is not None or attempt.has_tried_publish:
                    raise
                is_published = is_ended = False  # no commit can reach main: it is gone, or refuses even the fence
        if not is_ended:
            is_main_known = attempt.is_main_known and not is_published
            self._abandon(table, own, outcome, error, is_main_known=is_main_known)

    def _abandon(
        self, table: TableRecord, own: Ownership, outcome: Outcome, error: ErrorReport, *, is_main_known: bool = True
    ) -> None:
        """Back to NORMAL first; only then are the files garbage."""
        with durable(Write.NORMAL):
            self.store.abandon(own, outcome, error, {}, is_main_known=is_main_known)
        with durable(Write.STAGING_DELETE), as_far_as_possible(table.name):
            workspace = Workspace(table.warehouse, table.uuid, own.refresh_id)
            storage.remove(self.spark, workspace)
            storage.remove_digests(self.spark, workspace)


def _holds(leftover: Leftover, kept: PublishedDigests) -> bool:
    return leftover.has_digests and leftover.refresh_id == kept.refresh_id


def _reset(table: TableRecord) -> ErrorReport:
    problem = f"{table.name}: its process ended before the source was sealed."
    return ErrorReport("MV-ABANDONED", problem, "Refresh again.", True)


def _given_up(table: TableRecord, caller: Caller) -> ErrorReport:
    problem = f"{table.name}: its process ended, and {caller.user or 'somebody'} gave it up."
    return ErrorReport("MV-ABANDONED", problem, "Refresh again.", True)


def _cancelled(table: TableRecord) -> ErrorReport:
    error = RefreshCancelledError(table.name, "it was cancelled on request.")
    return error_report(error)
