"""Acquire a table for a refresh, or reject the caller: adopt, take over, start, wait in the queue, join, or paused.

`core.queue.turn` decides from the state that was read. `Store.acquire` checks the same conditions again in its
compare-and-set, so a caller that loses a race reads the state again and no caller is admitted on outdated state.
"""

from __future__ import annotations

import logging
import uuid
from contextlib import suppress
from dataclasses import dataclass, replace

from airflow_mv_provider.core import cost
from airflow_mv_provider.core.approval.hold import Decision, Hold, is_outdated
from airflow_mv_provider.core.definition.table import RefreshableTable
from airflow_mv_provider.core.fence import last_epoch
from airflow_mv_provider.core.frontier import Frontier
from airflow_mv_provider.core.outcome import Outcome, RefreshReport, error_report
from airflow_mv_provider.core.queue import ahead_of, joinable, may_join, turn
from airflow_mv_provider.core.rejections import in_progress, paused, rejection
from airflow_mv_provider.core.scope.request import Request, check_fits
from airflow_mv_provider.core.state import (
    Admission,
    Caller,
    Ownership,
    RefreshRecord,
    RefreshState,
    TableRecord,
    next_epoch,
)
from airflow_mv_provider.exceptions import (
    InterruptedRefreshError,
    LeaseLostError,
    MetadataUnavailableError,
    MvError,
    RefreshCancelledError,
    RefreshInProgressError,
    RefreshPausedError,
)
from airflow_mv_provider.metadata.store import Store
from airflow_mv_provider.runner.assessment import assess
from airflow_mv_provider.runner.context import Context
from airflow_mv_provider.runner.crash_points import Write, durable
from airflow_mv_provider.runner.identity import identified
from airflow_mv_provider.runner.recovery import Recoverer
from airflow_mv_provider.spark.errors import translated
from airflow_mv_provider.spark.session import small_plan_confs

log = logging.getLogger(__name__)

_MAX_RACES = 10


@dataclass(frozen=True, slots=True)
class AcquiredRefresh:
    """A table that this caller owns: the refresh to work on, and the ids of the refreshes ended for dead owners."""

    table: TableRecord
    own: Ownership
    recovered: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Substitute:
    """What one refresh uses instead of the table's definition and its source's present state."""

    definition: RefreshableTable
    frontier: Frontier


def begin(
    context: Context, name: str, caller: Caller, request: Request, substitute: Substitute | None = None
) -> AcquiredRefresh | RefreshReport:
    """Acquire the table for a refresh, after ending a dead owner's refresh; return a report if nothing is to do.

    raises : RefreshInProgressError, with a `position` if the caller has a ticket and is expected to call again;
             RefreshPausedError; DefinitionError, FrozenPartitionError
    """
    table = context.store.table(name)
    check_fits(request, table.definition, context.store.state(table.id).partition_type)
    try:
        with translated(name):
            found = _begin(context, table, caller, request, substitute)
    except RefreshInProgressError:
        raise  # the caller keeps its ticket, if it has one, for its next call
    except MvError as error:
        with suppress(MvError):
            context.store.queue.leave(caller.key)
            if substitute is None and not context.is_interrupted and _keeps_from_beginning(error, request):
                context.store.obstacles.met(table.id, error_report(error))
        raise
    if isinstance(found, RefreshReport):
        context.store.queue.leave(caller.key)  # the caller has its report; `Store.acquire` removes a ticket itself
    return found


def run(
    context: Context, name: str, caller: Caller, request: Request, substitute: Substitute | None = None
) -> RefreshReport:
    """Begin a refresh and work on it to its end; the report lists the refreshes that were ended for dead owners.

    raises : as `begin`, and every other error of a refresh
    """
    acquired = begin(context, name, caller, request, substitute)
    if isinstance(acquired, RefreshReport):
        return with_recovered(context.store, acquired)
    Recoverer(context).work(acquired.table, acquired.own, caller)
    return replace(context.store.report(acquired.own.refresh_id), recovered=acquired.recovered)


def with_recovered(store: Store, report: RefreshReport) -> RefreshReport:
    """Return the last recovered refresh's report if it was published, else `report`; both list all recovered."""
    last = store.report(report.recovered[-1]) if report.recovered else report
    return replace(last, recovered=report.recovered) if last.outcome is Outcome.PUBLISHED else report


def _keeps_from_beginning(error: MvError, request: Request) -> bool:
    """True if an error keeps every refresh of the table from beginning, not only one that is asked for in this way."""
    is_usual = request.scope.is_everything and not request.reload and request.strategy is None
    is_usual = is_usual and not request.is_stale_only
    of_others = (
        *(RefreshPausedError, RefreshCancelledError),
        *(InterruptedRefreshError, MetadataUnavailableError, LeaseLostError),
    )
    return is_usual and not isinstance(error, of_others)


def _begin(
    context: Context, table: TableRecord, caller: Caller, request: Request, substitute: Substitute | None
) -> AcquiredRefresh | RefreshReport:
    store, recoverer, recovered = context.store, Recoverer(context), list[str]()
    for _ in range(_MAX_RACES):
        table = store.table(table.name)  # the race may have been lost to a relocation of the table
        state = context.freed(_seen(context, table, caller, request))
        context.check_can_begin(table, state, caller)
        joined = _joined_report(context, table, caller)
        if joined is not None and joined.outcome is Outcome.PUBLISHED:
            return joined
        if joined is not None and joined.refresh_id == state.refresh_id and state.is_lease_live:
            raise _turned_away(context, table, state, caller, request)  # a pause does not affect a joined refresh
        if state.is_held and state.owner_key == caller.key:
            raise in_progress(table, state)  # no ticket: it would begin another refresh when this one is decided
        match turn(state, caller.key, store.waiters(table.id)):
            case Admission.PAUSED:
                raise paused(table, state)
            case Admission.WAIT:
                raise _turned_away(context, table, state, caller, request)
            case Admission.ADOPT:
                recoverer.end_if_cancelled(table, state, caller)
                own = recoverer.hand_over(table, state, caller)
                if own is not None:
                    return AcquiredRefresh(table, own, tuple(recovered))
            case Admission.TAKE_OVER:
                if (ended := recoverer.take_over(table, state, caller)) is not None:
                    recovered.append(ended.refresh_id or "")
            case Admission.START:
                acquired = _started(context, table, state, caller, request, substitute)
                if acquired is not None:
                    return replace(acquired, recovered=tuple(recovered))
    raise _turned_away(context, table, store.state(table.id), caller, request)


def _seen(context: Context, table: TableRecord, caller: Caller, request: Request) -> RefreshState:
    """Return the table's state, after ending a hold that this caller's refresh supersedes."""
    state = context.store.state(table.id)
    outdated = _outdated_hold(context, table, state, caller, request)
    if outdated is None:
        return state
    with durable(Write.DECIDE):
        context.store.holds.decide(table.id, Decision.SUPERSEDED, caller.user, None, outdated.id)
    return context.store.state(table.id)  # freed, unless somebody has decided or taken it at the same time


def _outdated_hold(
    context: Context, table: TableRecord, state: RefreshState, caller: Caller, request: Request
) -> Hold | None:
    """Return the hold that a new refresh ends, as the table's definition allows; None if it ends none.

    The caller whose own refresh waits does not. A source that cannot be probed is no reason: the caller meets that
    error when its turn comes.
    """
    is_allowed = table.definition.when_held == "supersede" and state.paused_since_ms is None and not state.is_dropping
    if not (state.is_held and is_allowed) or state.owner_key == caller.key or state.refresh_id is None:
        return None
    hold, held = context.store.last_hold(state.refresh_id), context.store.refresh(state.refresh_id)
    if hold is None or held is None:
        return None
    is_same_definition = held.definition.content_hash == table.definition.content_hash
    try:
        source = context.source_of(table, table.definition)
        now = source.probe(request.overrides)
        is_same_source = now == held.frontier and source.reader.determinism(now).nondeterminism_reason is None
    except MvError as error:
        log.info("%s: what awaits approval is not superseded: %s", table.name, error)
        return None
    is_ended = is_outdated(hold, is_same_definition=is_same_definition, is_same_source=is_same_source)
    return hold if is_ended else None


def _started(
    context: Context,
    table: TableRecord,
    state: RefreshState,
    caller: Caller,
    request: Request,
    substitute: Substitute | None,
) -> AcquiredRefresh | RefreshReport | None:
    """Begin a new refresh as `_start_new`; return None also if another caller was faster and an error comes of that.

    As in `pinning.read_with_retry`, what was read with an outdated row may be gone. The caller looks again.
    """
    try:
        return _start_new(context, table, state, caller, request, substitute)
    except MvError as error:
        if context.is_interrupted or context.store.state(table.id).epoch == state.epoch:
            raise
        log.info("%s: looking again, because another process has changed it meanwhile: %s", table.name, error)
        return None


def _start_new(
    context: Context,
    table: TableRecord,
    state: RefreshState,
    caller: Caller,
    request: Request,
    substitute: Substitute | None,
) -> AcquiredRefresh | RefreshReport | None:
    """Mint a batch and acquire the table; return a report if nothing is new, None if another caller was faster."""
    spark = context.spark
    log.info("%s: looking for what has changed in its source and in the table.", table.name)
    with small_plan_confs(spark, is_small=_has_short_logs(table, state)):
        table, exists = identified(context, table)
        frontier = None
        if substitute is not None:
            table, frontier = replace(table, definition=substitute.definition), substitute.frontier
        seen = assess(context, table, state, request, exists=exists, frontier=frontier)
    refresh = RefreshRecord(
        id=uuid.uuid4().hex,
        table_id=table.id,
        definition=table.definition,
        overrides=request.overrides,
        batch=seen.batch,
        frontier=seen.frontier,
        choice=seen.choice,
        scope=seen.scope,
        note=request.note,
        checked_ms=context.fixed_ms(table),
        source_ms=seen.source_ms,
        is_hold_requested=request.hold,
        is_forced=request.force,
        is_reload=request.reload,
        is_of_source=substitute is None,
    )
    log.debug(
        "%s refresh %s: minted %s for %s (published %d): %s",
        *(table.name, refresh.id, seen.batch, seen.frontier.describe(), state.published_upper, seen.choice.reason),
    )
    if seen.batch is None:
        log.info("%s: nothing to do: %s.", table.name, seen.choice.reason)
        context.store.record(refresh, caller, Outcome.NOTHING_TO_DO, main_version=state.published_version)
        return context.store.report(refresh.id)
    log.info("%s refresh %s: %s.", table.name, refresh.id, seen.choice.sentence)
    epoch = next_epoch(state.epoch, last_epoch(seen.commits))
    with durable(Write.ACQUIRE):
        own = context.store.acquire(state, refresh, caller, epoch=epoch, lease_ms=context.settings.lease_ms)
    return None if own is None else AcquiredRefresh(table, own)


def _has_short_logs(table: TableRecord, state: RefreshState) -> bool:
    """True if the logs of main and the source list few files: main has few rows, copied from a table or files.

    A query may compute a few rows from many files.
    """
    published, kind = state.published_totals, table.definition.source_kind
    return published is not None and cost.is_small(published.num_rows) and kind.is_cheap_to_probe


def _turned_away(
    context: Context, table: TableRecord, state: RefreshState, caller: Caller, request: Request
) -> RefreshInProgressError:
    """Return the error for a rejected caller, after giving it a ticket if the table's policy is to queue or join."""
    has_queue = table.definition.concurrency != "reject"
    if has_queue:
        has_ticket = any(waiter.key == caller.key for waiter in context.store.waiters(table.id))
        joins = None if has_ticket else _to_join(context, table, state, request)
        patience_ms = context.settings.lease_ms + caller.away_ms
        context.store.queue.take_ticket(table.id, caller, patience_ms=patience_ms, joins=joins)
    before = ahead_of(context.store.waiters(table.id), caller.key)
    return rejection(table, state, before, has_ticket=has_queue)


def _to_join(context: Context, table: TableRecord, state: RefreshState, request: Request) -> str | None:
    """Return the id of the running refresh if its report answers this new caller's request, else None.

    Called only for a caller without a ticket. Returns None if the source cannot be probed: the caller then waits, and
    meets that error when its turn comes.
    """
    running = context.store.refresh(state.refresh_id) if state.refresh_id else None
    if running is None or not joinable(state, running, table.definition, request):
        return None
    try:
        source = context.source_of(table, table.definition)
        now = source.probe(request.overrides)
        nondeterminism_reason = source.reader.determinism(now).nondeterminism_reason
    except MvError as error:
        log.info("%s: not joined: %s", table.name, error)
        return None
    return running.id if may_join(running, now, nondeterminism_reason) else None


def _joined_report(context: Context, table: TableRecord, caller: Caller) -> RefreshReport | None:
    """Return the report of the refresh that a caller has joined, None if it joined none.

    The report is also this caller's if it is PUBLISHED. If the joined refresh ends otherwise, the caller takes its
    turn at the place in the queue that it has kept.
    """
    joined = context.store.queue.joined(table.id, caller.key)
    return context.store.report(joined) if joined else None
