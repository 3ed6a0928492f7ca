"""Hold a refresh for a person's decision before its first commit to main, or let it publish what was approved."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from airflow_mv_provider.core.approval.check import objections
from airflow_mv_provider.core.approval.hold import Hold, Step, keeps_rows, next_step, overridden, why_held
from airflow_mv_provider.core.guard import Refusal
from airflow_mv_provider.core.moment import utc_text
from airflow_mv_provider.exceptions import HoldExpiredError, RefreshCancelledError, RefreshHeldError
from airflow_mv_provider.runner.crash_points import Write, durable
from airflow_mv_provider.runner.steps.work import Work

log = logging.getLogger(__name__)


def may_come_to_wait(work: Work) -> bool:
    """True if its definition or its caller may make the refresh wait for a decision; needs no seal."""
    return _is_asked_for(work) or any(check.severity == "hold" for check in work.definition.checks)


def may_be_held(work: Work) -> bool:
    """True if the sealed refresh may need a decision, so that its changes must be counted exactly."""
    return _is_asked_for(work) or bool(objections(work.seal.checks))


def _is_asked_for(work: Work) -> bool:
    return work.definition.approval != "never" or work.refresh.is_hold_requested


def leaves_out_deletes(work: Work, *, has_kept: bool) -> bool:
    """True if a person has approved the recorded corrections without their deletes.

    has_kept : main holds a commit of this refresh that was published so
    """
    refresh = work.current()
    return keeps_rows(work.store.last_hold(refresh.id), refresh.merge_round, has_kept=has_kept)


def approved_guards(
    work: Work,
    refusals: Sequence[Refusal],
    *,
    has_changes: bool,
    changes_columns: bool,
    keep_sample: Callable[[], bool],
) -> tuple[str, ...]:
    """Return the guards that the approval of the recorded corrections overrides; hold the refresh if it needs one.

    refusals        : of all guards that refuse the corrections
    has_changes     : they change a row or a column of main
    changes_columns : they change main's columns
    keep_sample     : keeps some of the rows that they change, for the person who decides
    raises          : RefreshHeldError, the lease being given up then; RefreshCancelledError, if it was rejected;
                      HoldExpiredError, if it was not decided in time
    """
    last = work.store.last_hold(work.own.refresh_id)
    if last is None and not may_be_held(work):
        return ()
    merge_round, name = work.current().merge_round, work.table.name
    why = why_held(
        work.definition.approval,
        is_requested=work.refresh.is_hold_requested,
        has_changes=has_changes,
        changes_columns=changes_columns,
        refusals=refusals,
        last=last,
        checks=objections(work.seal.checks),
    )
    match next_step(last, merge_round, why):
        case Step.PUBLISH:
            return overridden(last, merge_round)
        case Step.STOP:
            raise RefreshCancelledError(name, last.refusal if last else "the refresh was rejected.")
        case Step.EXPIRE:
            raise HoldExpiredError(name, f"the refresh was not decided in time: {last.reason if last else why}")
        case Step.HOLD:
            keep_sample()
            hold = _begun(work, merge_round, why or (last.reason if last else ""), refusals)
            return hold.guards


def _begun(work: Work, merge_round: int, reason: str, refusals: Sequence[Refusal]) -> Hold:
    """Hold the refresh; return the hold only if somebody has just approved it.

    raises : RefreshHeldError
    """
    guards, hold_ms = [refusal.guard for refusal in refusals], work.definition.hold_for * 1000
    with durable(Write.HOLD):
        hold = work.store.holds.begin(work.own, merge_round, reason, guards, hold_ms=hold_ms)
    if hold.decision is None:
        work.lease.stop()  # a heartbeat in between only shortens the lease: who takes over holds the refresh again
        until = utc_text(hold.until_ms)
        log.info("%s refresh %s: awaiting approval until %s: %s", work.table.name, hold.refresh_id, until, reason)
        problem = f"its changes await approval until {until}: {reason}"
        raise RefreshHeldError(work.table.name, problem, hold=hold.id, phase="MERGING")
    if hold.is_refused:
        raise RefreshCancelledError(work.table.name, hold.refusal)
    return hold
