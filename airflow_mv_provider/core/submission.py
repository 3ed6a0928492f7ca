"""What a task that has a driver to refresh its table does next, from what the metadata database says.

The database is what both ends know: the driver takes the table under the task's own key and renews its lease there, so
a task that comes back after its worker died sees whether its driver still works, on every cluster and in every mode.

    the table's owner             the lease     then
    this task's driver            live          watch it
    this task's driver            expired       submit again; the new one goes on where that was
    somebody else                 live          wait, in the queue if the table has one
    nobody, or somebody dead                    submit; unless an earlier try's driver has done it
    a pause                                     say so
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

from airflow_mv_provider.core.outcome import Outcome, RefreshReport
from airflow_mv_provider.core.phase import Phase
from airflow_mv_provider.core.queue import Waiter, turn
from airflow_mv_provider.core.state import Admission, RefreshState

ENDED_WELL = frozenset({Outcome.PUBLISHED, Outcome.NOTHING_TO_DO, Outcome.DIFFERENCES})


class Step(StrEnum):
    """What the task does."""

    SUBMIT = "submit"
    WATCH = "watch"
    WAIT = "wait"
    DONE = "done"
    PAUSED = "paused"


def next_step(
    state: RefreshState, queue: Sequence[Waiter], key: str, mine: RefreshReport | None, submitted_after: str | None
) -> Step:
    """Decide what a task does.

    queue           : the table's live tickets, least number first
    key             : the task's own, under which its driver works
    mine            : the newest refresh under this key
    submitted_after : what `mine` was when an earlier try submitted, "" for none; None if no try did
    """
    if state.phase is not Phase.NORMAL and state.is_lease_live and state.owner_key == key:
        return Step.WATCH
    is_new = submitted_after is not None and mine is not None and mine.refresh_id != submitted_after
    if is_new and mine is not None and mine.finished_at is not None and mine.outcome in ENDED_WELL:
        return Step.DONE
    match turn(state, key, queue):
        case Admission.WAIT:
            return Step.WAIT
        case Admission.PAUSED:
            return Step.PAUSED
        case _:
            return Step.SUBMIT


def is_answer(before: RefreshReport | None, after: RefreshReport | None) -> bool:
    """True if a driver that has ended left a refresh that says how: one that it began, or went on with.

    before, after : the newest refresh under the task's key, as it was when the driver was submitted and as it is now
    """
    if after is None:
        return False
    was_ended = before is not None and before.refresh_id == after.refresh_id and before.finished_at is not None
    return not was_ended


def is_told_by(report: RefreshReport, failure: str | None) -> bool:
    """True if what a task ended with may be about a refresh, the newest under its key, and not about an earlier try's.

    failure : what the task failed with; None where it did not, or nobody knows
    """
    if failure is None or report.finished_at is None:
        return True
    return report.error is not None and report.error.message in failure
