"""The next step of a task that submits a driver to refresh its table, decided from the metadata database.

Task and driver share the database: the driver takes the table under the task's own key and renews its lease there. A
task that restarts after its worker died sees whether its driver still works, on every cluster and in every mode.

    the table's owner             the lease     next step
    this task's driver            live          watch it
    this task's driver            expired       submit again; the new driver resumes the refresh
    another caller                live          wait, in the queue if the table has one
    none, or another caller       expired       submit, unless an earlier try's driver has finished the refresh
    any other, table paused                     report the pause
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

from airflow_mv_provider.core.outcome import ENDED_WELL, RefreshReport
from airflow_mv_provider.core.phase import Phase
from airflow_mv_provider.core.queue import Waiter, turn
from airflow_mv_provider.core.state import Admission, RefreshState


class Step(StrEnum):
    """The next step of the task."""

    SUBMIT = "submit"
    WATCH = "watch"
    WAIT = "wait"
    DONE = "done"
    PAUSED = "paused"


def next_step(
    state: RefreshState, queue: Sequence[Waiter], key: str, mine: RefreshReport | None, submitted_after: str | None
) -> Step:
    """Decide the next step of a task.

    queue           : the table's live tickets, least number first
    key             : the task's own key, under which its driver works
    mine            : the newest refresh under this key
    submitted_after : id of `mine` when an earlier try submitted, "" if there was none; None if no try submitted
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
    """True if a driver that has ended left a refresh of its own: one that it began or resumed.

    before, after : the newest refresh under the task's key, when the driver was submitted and now
    """
    if after is None:
        return False
    was_ended = before is not None and before.refresh_id == after.refresh_id and before.finished_at is not None
    return not was_ended


def is_explained_by(report: RefreshReport, failure: str | None) -> bool:
    """True if `report`, the newest under the task's key, may explain how this try ended; False if an earlier one's.

    failure : the task's failure message; None if it did not fail, or if the message is unknown
    """
    if failure is None or report.finished_at is None:
        return True
    return report.error is not None and report.error.message in failure
