"""Delete the files that ended refreshes have left: their workspaces, and digests that are not main's.

Files of a refresh without a row in this database are deleted once they are a day old and main's log proves that no
process can need them (`core.leftover`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from airflow_mv_provider.core.leftover import Leftover, why_left
from airflow_mv_provider.core.location import Workspace
from airflow_mv_provider.core.progress.digests import PublishedDigests
from airflow_mv_provider.core.state import TableRecord
from airflow_mv_provider.runner.context import Context
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
    in_use = {each.refresh_id for each in unknown if kept and _holds(each, kept) and not each.has_workspace}
    old = [each for each in unknown if each.refresh_id not in in_use and not each.is_in_grace(now_ms)]
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
    """Delete the files of an ended refresh except main's digests; return False if it has no other files."""
    workspace = Workspace(table.warehouse, table.uuid, leftover.refresh_id)
    # Read after the refresh has ended: from then on its digests can cease to be main's, but never become main's.
    kept = context.store.state(table.id).published_digests
    is_garbage = leftover.has_digests and not (kept and _holds(leftover, kept))
    if leftover.has_workspace:
        storage.remove(context.spark, workspace)
    if is_garbage:
        storage.remove_digests(context.spark, workspace)
    return leftover.has_workspace or is_garbage


def _holds(leftover: Leftover, kept: PublishedDigests) -> bool:
    return leftover.has_digests and leftover.refresh_id == kept.refresh_id
