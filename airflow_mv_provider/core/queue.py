"""The queue of callers that wait for a table: its order, and the answer to each caller that wants a refresh.

    concurrency   while another caller refreshes the table
    reject        the caller is rejected; the error names the owner
    queue         the caller gets a ticket; the least number that is still renewed is admitted when the table is free
    join          the caller also gets the report of the running refresh, if `may_join` allows it; else a ticket

No caller overtakes a ticket, whatever the policy: a caller without a ticket comes after all that have one.
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
    """A waiting caller and its ticket.

    key   : the caller's key; see `state.Caller`
    joins : the refresh whose report also answers this caller, if it publishes
    """

    number: int
    key: str
    process: str
    trigger: str
    user: str | None
    since_ms: int
    joins: str | None = None


def turn(state: RefreshState, caller_key: str, queue: Sequence[Waiter]) -> Admission:
    """Decide what a caller that wants a refresh may do; the table may be paused, and others may wait for it.

    queue : the table's live tickets, least number first
    """
    admission = admit(state, caller_key)
    if admission is Admission.ADOPT:
        return admission  # a pause does not stop a running refresh
    if state.paused_since_ms is not None or state.is_dropping:
        return Admission.PAUSED
    if admission is Admission.START and ahead_of(queue, caller_key):
        return Admission.WAIT
    return admission


def ahead_of(queue: Sequence[Waiter], caller_key: str) -> tuple[Waiter, ...]:
    """Return the waiters that are admitted before a caller; all of them if it has no ticket."""
    keys = [waiter.key for waiter in queue]
    return tuple(queue[: keys.index(caller_key)] if caller_key in keys else queue)


def joinable(state: RefreshState, running: RefreshRecord, wanted: RefreshableTable, request: Request) -> bool:
    """True if the running refresh does what a caller asks for, provided that the source is still at its frontier.

    Only while REFRESHING: from the seal on main is being compared, and the comparison might miss what other writers
    change in main meanwhile. Before the seal it will find every change that precedes the caller.
    """
    return (
        wanted.concurrency == "join"
        and state.phase is Phase.REFRESHING
        and state.is_lease_live
        and not state.is_cancel_requested
        and running.definition == wanted
        and set(running.overrides) == set(request.overrides)
        and running.scope == request.scope
        and running.is_hold_requested == request.hold
        and not (request.force or request.reload or request.is_stale_only)
    )


def may_join(running: RefreshRecord, source_now: Frontier, nondeterminism_reason: str | None) -> bool:
    """True if a joinable refresh reads what the caller's own refresh would read.

    nondeterminism_reason : why the source may have other rows at an equal frontier; None if it never has

    A refresh pins its source's frontier when it begins, so the caller always comes after that. The pinned frontier is
    as good as one of the caller's own only if the source, checked after the caller came, is still exactly there.
    """
    return running.frontier == source_now and nondeterminism_reason is None
