"""Delete what ended refreshes have left: files that are no longer needed, and versions of rows that ended long ago.

Files of a refresh without a row in this database are deleted once they are a day old and main's log proves that no
process can need them (`core.leftover`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from airflow_mv_provider.core.fence import CommitNote
from airflow_mv_provider.core.leftover import Leftover, why_left
from airflow_mv_provider.core.location import Workspace
from airflow_mv_provider.core.phase import Phase
from airflow_mv_provider.core.state import TableRecord
from airflow_mv_provider.exceptions import InterruptedRefreshError, MetadataUnavailableError, MvError
from airflow_mv_provider.runner.context import Context
from airflow_mv_provider.runner.crash_points import Write, durable
from airflow_mv_provider.spark import history, storage
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
    return (*done, *_sweep_unknown(context, table, unknown), *_shed(context, table))


def _shed(context: Context, table: TableRecord) -> Iterator[str]:
    """Remove versions from the table's history that ended longer ago than its definition keeps them.

    Not while a refresh is under way, which may write it. A refresh that begins meanwhile fails one of the two commits:
    this one is then made by the next recovery.
    """
    state, now_ms = context.store.state(table.id), context.store.now_ms()
    found = Main(context.spark, table.main.history, table.uuid)
    wanted = table.definition.history
    before_ms = None if wanted is None else wanted.before_ms(now_ms)
    if wanted is None or before_ms is None or state.phase is not Phase.NORMAL:
        return
    note = CommitNote(table.uuid, state.refresh_id or "", state.epoch, "shed", 0)
    try:
        if not found.is_ours:
            return  # it is gone, or another table: the next refresh says so
        version = found.log()[0].version
        with durable(Write.SHED):
            history.shed(found, wanted, before_ms, note)
    except (MetadataUnavailableError, InterruptedRefreshError):
        raise
    except MvError as error:
        yield f"left old versions in its history: {error.problem}"
        return
    commits = [c for c in found.log(version) if c.version > version and c.note and c.note.step == "shed"]
    for commit in commits:
        yield f"removed {int(commit.metrics.get('numDeletedRows', 0)):,} old versions from its history."


def _sweep_unknown(context: Context, table: TableRecord, unknown: Sequence[Leftover]) -> Iterator[str]:
    now_ms, needed = context.store.now_ms(), _needed(context, table)
    old = [each for each in unknown if not each.is_in_grace(now_ms) and not _is_in_use(each, needed)]
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
    """Delete the files of an ended refresh except what is kept for the next one; False if it has no other files."""
    workspace = Workspace(table.warehouse, table.uuid, leftover.refresh_id)
    # Read after the refresh has ended: from then on what it made can cease to be needed, but never become needed.
    is_garbage = leftover.has_kept and leftover.refresh_id not in _needed(context, table)
    if leftover.has_workspace:
        storage.remove(context.spark, workspace)
    if is_garbage:
        storage.remove_kept(context.spark, workspace)
    return leftover.has_workspace or is_garbage


def _is_in_use(leftover: Leftover, needed: frozenset[str]) -> bool:
    """True if a refresh has left nothing but what is kept for the next one."""
    return not leftover.has_workspace and (not leftover.has_kept or leftover.refresh_id in needed)


def _needed(context: Context, table: TableRecord) -> frozenset[str]:
    """Return the refreshes that have kept what is known of main's rows, or what a refresh under way has sealed."""
    state = context.store.state(table.id)
    running = context.store.refresh(state.refresh_id) if state.refresh_id else None
    sealed = running.seal.kept if running and running.seal else ()
    published = state.published_totals.kept if state.published_totals else ()
    return frozenset(each.refresh_id for each in (*published, *sealed))
