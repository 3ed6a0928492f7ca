"""Who waits for a table, in which order, and what is answered to whoever wants a refresh.

    concurrency   while somebody else refreshes the table
    reject        the caller is told who, and leaves
    queue         the caller gets a ticket; the least number that is still renewed is admitted when the table is free
    join          the report of the refresh under way is the caller's too, where `may_join` says so; else a ticket

Nobody overtakes a ticket, whatever the policy: a caller without one comes after all who have one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from airflow_mv_provider.core.definition.table import RefreshableTable
from airflow_mv_provider.core.frontier import Frontier
from airflow_mv_provider.core.phase import Phase
from airflow_mv_provider.core.scope.request import Request
from airflow_mv_provider.core.state import Admission, RefreshRecord, RefreshState, admit


@dataclass(frozen=True, slots=True)
class Waiter:
    """One who waits.

    key   : whose ticket it is; see `state.Caller`
    joins : the refresh whose report is this caller's answer too, if it publishes
    """

    number: int
    key: str
    process: str
    trigger: str
    user: str | None
    since_ms: int
    joins: str | None = None


def turn(state: RefreshState, caller_key: str, queue: Sequence[Waiter]) -> Admission:
    """Decide what a caller who wants a refresh may do in a table that may be paused, and that others may wait for.

    queue : the table's live tickets, least number first
    """
    admission = admit(state, caller_key)
    if admission is Admission.ADOPT:
        return admission  # a refresh under way goes on
    if state.paused_since_ms is not None or state.is_dropping:
        return Admission.PAUSED
    if admission is Admission.START and ahead_of(queue, caller_key):
        return Admission.WAIT
    return admission


def ahead_of(queue: Sequence[Waiter], caller_key: str) -> tuple[Waiter, ...]:
    """Return who is admitted before a caller; everybody who has a ticket, if it has none."""
    keys = [waiter.key for waiter in queue]
    return tuple(queue[: keys.index(caller_key)] if caller_key in keys else queue)


def joinable(state: RefreshState, running: RefreshRecord, wanted: RefreshableTable, request: Request) -> bool:
    """True if the refresh under way does what a caller asks for, provided that the source still is what it reads.

    Only while REFRESHING: from the seal on main is being compared, and what others write into it now might be after
    the look that would have found it. Before the seal every change that precedes the caller is still to be seen.
    """
    return (
        wanted.concurrency == "join"
        and state.phase is Phase.REFRESHING
        and state.is_lease_live
        and not state.is_cancel_requested
        and running.definition == wanted
        and set(running.overrides) == set(request.overrides)
        and running.scope == request.scope
        and not (request.force or request.is_stale_only)
    )


def may_join(running: RefreshRecord, source_now: Frontier, nondeterminism_reason: str | None) -> bool:
    """True if a joinable refresh reads what the caller's own would read.

    doubt : why its rows may be others though the source is where it was; None if they are not

    A refresh pins its source as it begins, so the caller always comes after the pin. The pin is as good as one of its
    own only if the source, asked after the caller came, is still just there.
    """
    return running.frontier == source_now and nondeterminism_reason is None
