"""Delete the files that ended refreshes have left: workspaces, digests that are not main's, copies no longer needed.

Files of a refresh without a row in this database are deleted once they are a day old and main's log proves that no
process can need them (`core.leftover`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from airflow_mv_provider.core.leftover import Leftover, why_left
from airflow_mv_provider.core.location import Workspace
from airflow_mv_provider.core.state import TableRecord
from airflow_mv_provider.runner.context import Context
from airflow_mv_provider.runner.steps.source_files import needed_copies
from airflow_mv_provider.spark import storage
from airflow_mv_provider.spark.delta import Main


def sweep(context: Context, table: TableRecord) -> tuple[str, ...]:
    """Delete the files of this table's ended refreshes; return sentences on what was deleted, and what was not and why.

    Files of a refresh without a row in this database are deleted if they are a day old and main's log proves that no
    process needs them. Files of a running refresh are kept.
    """
    context.store.end_stale_previews(table.id)
    done, unknown = list[str](), list[Leftover]()
    for leftover in storage.leftovers(context.spark, table.warehouse, table.uuid):
        refresh = context.store.refresh(leftover.refresh_id)
        if refresh is None:
            unknown.append(leftover)
        elif refresh.is_ended and _remove(context, table, leftover):
            done.append(f"removed the files of refresh {leftover.refresh_id}.")
    return (*done, *_sweep_unknown(context, table, unknown))


def _sweep_unknown(context: Context, table: TableRecord, unknown: Sequence[Leftover]) -> Iterator[str]:
    now_ms = context.store.now_ms()
    kept = context.store.state(table.id).published_digests
    layers = _needed_layers(context, table)
    needed = needed_copies(context.spark, table.name, kept) if any(each.copies for each in unknown) else frozenset()
    old = [each for each in unknown if not each.is_in_grace(now_ms) and not _is_in_use(each, layers, needed)]
    if not old:
        return
    main = Main(context.spark, table.main, table.uuid)
    commits = main.log(0) if main.properties() is not None else []
    epoch = context.store.state(table.id).epoch
    for leftover in old:
        of_whom = f"refresh {leftover.refresh_id}, which is not in this database"
        if (why := why_left(leftover, commits, epoch=epoch)) is not None:
            yield f"kept the files of {of_whom}: {why}."
        elif _remove(context, table, leftover):
            yield f"removed the files of {of_whom}."


def _remove(context: Context, table: TableRecord, leftover: Leftover) -> bool:
    """Delete the files of an ended refresh except what is kept with main's digests; False if it has no other files."""
    workspace = Workspace(table.warehouse, table.uuid, leftover.refresh_id)
    # Read after the refresh has ended: from then on what it made can cease to be needed, but never become needed.
    kept = context.store.state(table.id).published_digests
    is_garbage = leftover.has_digests and leftover.refresh_id not in _needed_layers(context, table)
    needed = needed_copies(context.spark, table.name, kept) if leftover.copies else frozenset()
    copies = () if needed is None else tuple(name for name in leftover.copies if name not in needed)
    if leftover.has_workspace:
        storage.remove(context.spark, workspace)
    if is_garbage:
        storage.remove_digests(context.spark, workspace)
    for name in copies:
        storage.remove_copy(context.spark, workspace, name)
    return leftover.has_workspace or is_garbage or bool(copies)


def _is_in_use(leftover: Leftover, layers: frozenset[str], needed: frozenset[str] | None) -> bool:
    """True if a refresh has left nothing but what is kept with main's digests."""
    has_other_digests = leftover.has_digests and leftover.refresh_id not in layers
    has_other_copies = needed is not None and not needed.issuperset(leftover.copies)
    return not leftover.has_workspace and not has_other_digests and not has_other_copies


def _needed_layers(context: Context, table: TableRecord) -> frozenset[str]:
    """Return the refreshes of which main's digests consist, or those that a refresh under way has sealed."""
    state = context.store.state(table.id)
    running = context.store.refresh(state.refresh_id) if state.refresh_id else None
    sealed = running.seal.below if running and running.seal else ()
    published = state.published_digests.layers if state.published_digests else ()
    return frozenset(layer.refresh_id for layer in (*published, *sealed))
