"""The errors for a refresh that cannot begin now: another one is running, others come first, or the table is paused."""

from __future__ import annotations

from collections.abc import Sequence

from airflow_mv_provider.core.moment import utc_text
from airflow_mv_provider.core.queue import Waiter
from airflow_mv_provider.core.state import RefreshState, TableRecord
from airflow_mv_provider.exceptions import RefreshHeldError, RefreshInProgressError, RefreshPausedError


def in_progress(table: TableRecord, state: RefreshState, problem: str = "") -> RefreshInProgressError:
    """Return the error that names the owner at work, its start time and its epoch, or the decision that is awaited."""
    kind = RefreshHeldError if state.is_held else RefreshInProgressError
    return kind(
        table.name,
        problem or f"{_who_works(state)}.",
        owner=state.owner_process,
        since_ms=state.owned_since_ms,
        epoch=state.epoch,
        phase=str(state.phase),
    )


def rejection(
    table: TableRecord, state: RefreshState, before: Sequence[Waiter], *, has_ticket: bool
) -> RefreshInProgressError:
    """Return the error for a caller that is not admitted yet.

    before     : the callers that are admitted before it
    has_ticket : it has a place in the queue (`position` in the error's facts), and is expected to look again
    """
    if state.refresh_id is None and not before:
        problem = "other callers acquired it first, again and again"
    elif state.refresh_id is None:
        problem = f"{before[0].process} is first in its queue, since {utc_text(before[0].since_ms)}"
    else:
        problem = _who_works(state)
    if not has_ticket:
        return in_progress(table, state, f"{problem}.")
    error = in_progress(table, state, f"{problem}; number {len(before) + 1} in the queue.")
    error.facts["position"] = len(before) + 1
    return error


def paused(table: TableRecord, state: RefreshState) -> RefreshPausedError:
    """Return the error for a table that is paused or being dropped."""
    if state.is_dropping:
        return RefreshPausedError(table.name, "the table is being dropped.", hint="Finish that with `amv drop`.")
    since = "" if state.paused_since_ms is None else f" since {utc_text(state.paused_since_ms)}"
    by = f" by {state.paused_by}" if state.paused_by else ""
    return RefreshPausedError(table.name, f"the table has been paused{by}{since}.")


def _who_works(state: RefreshState) -> str:
    since = "" if state.owned_since_ms is None else f" since {utc_text(state.owned_since_ms)}"
    where = f"{since} ({state.phase})"
    if state.is_held:
        return f"its refresh, begun{since}, awaits approval" if since else "its refresh awaits approval"
    return (
        f"{state.owner_process} is refreshing it{where}"
        if state.owner_process
        else f"it waits for {state.holder}{where}"
    )
