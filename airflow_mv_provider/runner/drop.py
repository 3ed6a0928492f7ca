"""Drop a table: forget its registration and history, remove its workspaces, and main only if that is asked for.

    bar      one compare-and-set in NORMAL: nothing begins any more, and nothing but a drop follows    drop
    remove   the table's workspaces and digests; main and its errors, once they are proven to be ours  drop_files
    forget   every row of the table                                                                    forget

A drop that dies on the way leaves the table barred, and `amv drop` again goes on with it. Files go before the rows that
say where they are: the other way round nobody would know whose they were.
"""

from __future__ import annotations

from dataclasses import dataclass

from airflow_mv_provider.core.location import MainPlace, absolute_source, check_apart
from airflow_mv_provider.core.phase import Phase
from airflow_mv_provider.core.state import Caller, TableRecord
from airflow_mv_provider.core.turned_away import in_progress
from airflow_mv_provider.exceptions import MainNotOursError, RefreshInProgressError
from airflow_mv_provider.runner.context import Context
from airflow_mv_provider.runner.crash_points import Write, durable
from airflow_mv_provider.runner.recovery import Recoverer
from airflow_mv_provider.spark import storage
from airflow_mv_provider.spark.delta import UUID_PROPERTY, detail


@dataclass(frozen=True, slots=True)
class Dropped:
    """What a drop has left: `is_main_deleted` says whether main's files are gone too."""

    table: str
    location: str
    is_main_deleted: bool


def drop(context: Context, name: str, caller: Caller, *, delete_main: bool) -> Dropped:
    """Drop a table that nobody refreshes; an unfinished refresh of a dead owner is given up first.

    raises : RefreshInProgressError, when a live owner works; MainNotOursError or UnsafeLocationError, before anything
             is changed, when main may not be deleted
    """
    table = context.store.table(name)
    if delete_main and (place := _provably_ours(context, table)) is not None:
        _is_ours(context, table, place.errors)
    _bar(context, table, caller)
    with durable(Write.DROP_FILES):
        storage.remove_table_workspaces(context.spark, table.warehouse, table.uuid)
        # Asked again: what lies there now is what is deleted.
        place = _provably_ours(context, table) if delete_main else None
        if place is not None:
            storage.remove_main(context.spark, place)
            if _is_ours(context, table, place.errors):
                storage.remove_errors(context.spark, place)
    with durable(Write.FORGET):
        if not context.store.forget(table.id):
            raise RefreshInProgressError(name, "somebody wrote to it just now.", hint="Run `amv drop` again.")
    return Dropped(name, table.location, place is not None)


def _bar(context: Context, table: TableRecord, caller: Caller) -> None:
    while True:
        state = context.store.state(table.id)
        if state.is_owner_dead:
            Recoverer(context).abandon(table.name, caller)
        elif state.phase is not Phase.NORMAL:
            raise in_progress(table, state)
        else:
            with durable(Write.DROP):
                if context.store.begin_drop(state):
                    return


def _provably_ours(context: Context, table: TableRecord) -> MainPlace | None:
    """Return main's place if it may be deleted, None if nothing is there.

    It has to lie where its name says, be a Delta table that carries this table's identity, and be nobody's source.
    """
    place = MainPlace(table.warehouse, table.name, table.location)
    for other in context.store.tables():
        for path in other.definition.source.paths:
            # Also of a table whose source no root holds any more: it is its source all the same.
            check_apart(place.location, absolute_source(path, other.warehouse))
    if not _is_ours(context, table, place.location):
        return None
    return place


def _is_ours(context: Context, table: TableRecord, location: str) -> bool:
    """True if a Delta table of this table's lies there; False if nothing does.

    raises : MainNotOursError, when something else lies there
    """
    found = detail(context.spark, location)
    if found is None and not storage.has_files(context.spark, location):
        return False
    carried = None if found is None else found.properties.get(UUID_PROPERTY)
    if carried != table.uuid:
        raise MainNotOursError(
            table.name,
            f"{location} carries the identity {carried or 'of nobody'}, expected {table.uuid}.",
            hint="Nothing was deleted. Look at it, and remove it by hand, or drop the table without --delete-main.",
        )
    return True
