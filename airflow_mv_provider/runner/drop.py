"""Drop a table: delete its registration, history and workspaces, and main only on request.

    bar      one compare-and-set in NORMAL: no refresh can begin any more, only a drop can follow        drop
    unname   main's name in Spark's catalog, if it has one and it still leads to main                 unregister_name
    remove   the workspaces and kept files; its history, its error table and main, if they are ours      drop_files
    forget   every database row of the table                                                             forget

A drop that is interrupted leaves the table barred, and a second `amv drop` continues it. Files are deleted before the
rows that hold their location: in the reverse order, files left by a crash could not be assigned to a table.
"""

from __future__ import annotations

from dataclasses import dataclass

from airflow_mv_provider.core.location import MainPlace, TableRef, absolute_source, check_apart
from airflow_mv_provider.core.phase import Phase
from airflow_mv_provider.core.rejections import in_progress
from airflow_mv_provider.core.state import Caller, TableRecord
from airflow_mv_provider.exceptions import MainNotOursError, MainUnsupportedError, RefreshInProgressError
from airflow_mv_provider.runner.context import Context
from airflow_mv_provider.runner.crash_points import Write, durable
from airflow_mv_provider.runner.identity import identity_at
from airflow_mv_provider.runner.recovery import Recoverer
from airflow_mv_provider.runner.steps.naming import unregister
from airflow_mv_provider.spark import storage
from airflow_mv_provider.spark.catalog import names
from airflow_mv_provider.spark.delta import UUID_PROPERTY, Main, detail


@dataclass(frozen=True, slots=True)
class Dropped:
    """The result of a drop; `is_main_deleted` is True if main's files were deleted too.

    unnamed : main's name in Spark's catalog, if it was dropped
    """

    table: str
    location: str
    is_main_deleted: bool
    unnamed: str | None = None


def drop(context: Context, name: str, caller: Caller, *, delete_main: bool) -> Dropped:
    """Drop a table without a running refresh; abandon the unfinished refresh of a dead owner first.

    raises : RefreshInProgressError, if a live owner is at work; MainNotOursError or UnsafeLocationError, before
             anything is changed, if main may not be deleted
    """
    table = context.store.table(name)
    if delete_main:
        _check_sources(context, table)
        for ref in (table.main.history, table.main.errors, table.main):
            _is_ours(context, table, ref)
    if (named := table.definition.catalog_name) is not None:
        names.check_persistent(context.spark, named)
    _bar(context, table, caller)
    unnamed = named if named is not None and _is_unnamed(context, table, named) else None
    with durable(Write.DROP_FILES):
        storage.remove_table_workspaces(context.spark, table.warehouse, table.uuid)
        is_main_deleted = delete_main and _delete(context, table)
    with durable(Write.FORGET):
        if not context.store.registry.forget(table.id):
            raise RefreshInProgressError(name, "another process changed it just now.", hint="Run `amv drop` again.")
    return Dropped(table.name, table.location, is_main_deleted, unnamed)


def _delete(context: Context, table: TableRecord) -> bool:
    """Delete main and what lies beside it; return False if main was not there.

    Each is judged by its own identity, just before: a drop that was killed, or a person, may have removed the others.
    """
    place, spark = _check_sources(context, table), context.spark
    if _is_ours(context, table, table.main.history):
        storage.remove_history(spark, place)
    if _is_ours(context, table, table.main.errors):
        storage.remove_errors(spark, place)
    if not _is_ours(context, table, table.main):
        return False
    storage.remove_main(spark, place)
    return True


def _is_unnamed(context: Context, table: TableRecord, name: str) -> bool:
    """Drop main's name in Spark's catalog; return False if main, or where the name leads, is another table."""
    try:
        if identity_at(context, table.main) not in (None, table.uuid):
            return False
    except MainUnsupportedError:
        return False  # whatever is there, its name is not this table's
    return unregister(Main(context.spark, table.main, table.uuid), table, name)


def _bar(context: Context, table: TableRecord, caller: Caller) -> None:
    while True:
        state = context.store.state(table.id)
        if state.is_owner_dead:
            Recoverer(context).abandon(table.name, caller)
        elif state.phase is not Phase.NORMAL:
            raise in_progress(table, state)
        else:
            with durable(Write.DROP):
                if context.store.registry.begin_drop(state):
                    return


def _check_sources(context: Context, table: TableRecord) -> MainPlace:
    """Return main's place, which follows from its name, if nothing at it is the source of any registered table.

    raises : UnsafeLocationError
    """
    place = MainPlace(table.warehouse, table.name, table.location)
    for other in context.store.tables():
        for path in other.definition.source.paths:
            # Sources outside the current source roots are checked too: they are still that table's source.
            _check_apart(place, absolute_source(path, other.warehouse))
        for source in other.definition.source.names:
            found = names.entry(context.spark, source)
            if found is not None and found.location is not None:
                _check_apart(place, absolute_source(found.location, other.warehouse))
    return place


def _check_apart(place: MainPlace, source: str) -> None:
    for location in (place.location, place.errors, place.history):
        check_apart(location, source)


def _is_ours(context: Context, table: TableRecord, ref: TableRef) -> bool:
    """True if a Delta table with this table's identity is at `ref`; False if nothing is there.

    raises : MainNotOursError, if anything else is there
    """
    found = detail(context.spark, ref)
    if found is None and not storage.has_files(context.spark, ref.location):
        return False
    carried = None if found is None else found.properties.get(UUID_PROPERTY)
    if carried != table.uuid:
        raise MainNotOursError(
            table.name,
            f"{ref} has {f'the identity {carried}' if carried else 'no identity'}, expected {table.uuid}.",
            hint="Nothing was deleted. Check it and remove it by hand, or drop the table without --delete-main.",
        )
    return True
