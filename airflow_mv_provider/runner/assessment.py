"""Assess what a refresh would do: nothing, or which strategy it would use.

Reads the logs of main and the source and the metadata database; reads no row and writes nothing. A refresh and
`amv plan` use the same assessment.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from airflow_mv_provider.core.changeset import Changeset, SignedRows, Units
from airflow_mv_provider.core.fence import Commit
from airflow_mv_provider.core.frontier import BatchDescription, Frontier, desired_upper, fingerprint, mint
from airflow_mv_provider.core.outcome import RefreshReport
from airflow_mv_provider.core.scope.request import Request
from airflow_mv_provider.core.scope.scope import Scope, stale_scope
from airflow_mv_provider.core.state import RefreshState, TableRecord, is_main_as_published
from airflow_mv_provider.core.strategy import (
    Choice,
    Situation,
    choose,
    compare_reason,
    cost_samples,
    has_failed,
)
from airflow_mv_provider.exceptions import DefinitionError
from airflow_mv_provider.runner.context import Context
from airflow_mv_provider.runner.pinning import is_rolled_back, pinned
from airflow_mv_provider.sources.table_source import TableSource
from airflow_mv_provider.spark.delta import Main

_PAST = 20


@dataclass(frozen=True, slots=True)
class Assessment:
    """The state that was found, and the decision. `batch` is None if there is nothing to do.

    commits   : main's log, at least since the last publish
    source_ms : when the source came to the frontier; None if its states have no time, or the frontier was given
    units     : what of a query may have changed; None if that is not known, or there is no query
    """

    frontier: Frontier
    commits: Sequence[Commit]
    scope: Scope
    batch: BatchDescription | None
    choice: Choice
    source_ms: int | None = None
    units: Units | None = None


def assess(
    context: Context,
    table: TableRecord,
    state: RefreshState,
    request: Request,
    *,
    exists: bool,
    frontier: Frontier | None = None,
) -> Assessment:
    """Assess the source and main as they are now.

    exists   : main exists, so this is not the table's first refresh
    frontier : the source's state to read; None for its present one
    raises : SourceNotFoundError, SourceFileError, StrategyError, DefinitionError
    """
    source = context.source_of(table, table.definition)
    seen = _assess(context, table, state, request, source, exists=exists, frontier=frontier)
    if frontier is None:
        seen = replace(seen, source_ms=source.reader.time_ms(seen.frontier))
    if not source.reader.note:
        return seen
    return replace(seen, choice=replace(seen.choice, reason=f"{seen.choice.reason}; {source.reader.note}"))


def _assess(
    context: Context,
    table: TableRecord,
    state: RefreshState,
    request: Request,
    source: TableSource,
    *,
    exists: bool,
    frontier: Frontier | None,
) -> Assessment:
    main = Main(context.spark, table.main, table.uuid)
    commits = main.log(state.published_version) if exists else []
    frontier = frontier or pinned(context.store, table, state, request, source, commits)
    nondeterminism_reason = source.reader.determinism(frontier).nondeterminism_reason
    definition = table.definition
    if nondeterminism_reason is not None and definition.errors is not None:
        raise DefinitionError(table.name, f"errors needs a deterministic source: {nondeterminism_reason}.")
    is_trusted = is_main_as_published(state, commits)
    scope = request.scope
    if request.is_stale_only and is_trusted and nondeterminism_reason is None and not state.num_kept:
        scope = stale_scope(state.covered, fingerprint(frontier), definition.content_hash)
    must_compare = compare_reason(
        is_first=state.published_version is None,
        is_forced=request.force or request.reload,
        same_definition=definition.keeps_content(state.published_hash),
        is_trusted=is_trusted,
        nondeterminism_reason=nondeterminism_reason,
        is_partial=bool(state.covered),
        num_kept=state.num_kept,
        is_rolled_back=is_rolled_back(table, state),
    )
    reason = must_compare if scope.is_everything else f"requested: {scope.describe()}"
    changes: Changeset | None = None
    newest = context.store.newest_binding(table.id)
    is_published = newest is not None and newest.upper == state.published_upper
    published = newest if is_published else context.store.binding(table.id, state.published_upper)
    if published is not None and published.frontier == frontier and nondeterminism_reason is None:
        changes = SignedRows(0)  # the source is unchanged, so only main can be the reason for a refresh
    elif published is not None and must_compare is None:
        changes = source.changes(published.frontier, frontier)
    upper = desired_upper(newest, frontier, state.published_upper, must_compare=reason is not None)
    batch = mint(upper, state.published_upper)
    if batch is None:
        return Assessment(frontier, commits, scope, None, Choice("skip", "the source and the table are unchanged"))
    if reason is None and changes is not None and changes.at_most == 0:
        return Assessment(frontier, commits, scope, None, Choice("skip", f"no row changed up to {frontier.describe()}"))
    history = context.store.costs(table.id, _PAST)
    situation = Situation(
        scope=scope,
        num_rows=_num_rows(state, history),
        must_compare=must_compare,
        is_known=state.published_totals is not None,
        changes=changes,
        past=cost_samples(history),
        has_failed=has_failed(history),
    )
    wanted = request.strategy or definition.strategy
    if request.force and request.strategy is None and wanted == "incremental":
        wanted = "corrections"  # `force` lets a person refresh a strict table whose changes cannot be read
    what = frontier.describe() if published is None else frontier.since(published.frontier)
    choice = choose(definition, wanted, situation, reason or f"the source changed: {what}")
    units = changes if isinstance(changes, Units) else None
    return Assessment(frontier, commits, scope, batch, choice, units=units)


def _num_rows(state: RefreshState, history: Sequence[RefreshReport]) -> int | None:
    """Return the number of rows that main had after the last publish; None before the first."""
    if state.published_version is None:
        return None
    if state.published_totals is not None:
        return state.published_totals.num_rows
    last = next((r for r in history if r.main_version == state.published_version), None)
    return last.rows_inserted + last.rows_updated + last.rows_unchanged if last else 0
