"""Register a table at the new location of its warehouse, with the same identity and history.

    check  the new location holds a Delta table with this table's identity, and the old location does not
    write  one compare-and-set: the location                                                         relocate
    name   main's name in Spark's catalog, if it has one: lead it to the new location                move_name
    end    abandon an unfinished refresh of a dead owner, by main's log at the new location

The old location is never written to: what is there may be the original of which the new one is a copy.
Main carries the identity, so the identity moves with the files. A copied main is refused: two tables would have the
same identity, and a refresh of one would be mistaken for a refresh of the other.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from airflow_mv_provider.core.phase import Phase
from airflow_mv_provider.core.rejections import in_progress
from airflow_mv_provider.core.state import Caller, TableRecord
from airflow_mv_provider.exceptions import (
    MainNotOursError,
    MetadataUnavailableError,
    MvError,
    RefreshPausedError,
    TableConflictError,
)
from airflow_mv_provider.runner.context import Context
from airflow_mv_provider.runner.crash_points import Write, durable
from airflow_mv_provider.runner.identity import identity_at
from airflow_mv_provider.runner.recovery import Recoverer
from airflow_mv_provider.runner.registration import place_of
from airflow_mv_provider.runner.steps.naming import follow
from airflow_mv_provider.spark.delta import UUID_PROPERTY, Main
from airflow_mv_provider.spark.errors import translated


@dataclass(frozen=True, slots=True)
class Relocated:
    """The old and new location of a table; equal if there was nothing to do."""

    table: str
    before: str
    location: str


def relocate(context: Context, name: str, caller: Caller, *, is_old_gone: bool = False) -> Relocated:
    """Register a table under the settings' warehouse; then abandon an unfinished refresh of a dead owner.

    is_old_gone : a person confirms that nothing is at the old location, which is then not checked
    raises      : RefreshInProgressError, if a live owner is at work; RefreshPausedError, if it is being dropped;
                  MainNotOursError, if the new location does not hold this table; TableConflictError, if the old one
                  still does, or the new one belongs to another table
    """
    table = context.store.table(name)
    warehouse, location = place_of(context.settings, table.definition)
    new = replace(table, warehouse=warehouse, location=location)
    if new.location == table.location:
        follow(Main(context.spark, table.main, table.uuid), table)  # a relocation may have died before that
        return Relocated(name, table.location, table.location)
    _check_moved(context, table, new, is_old_gone=is_old_gone)
    _move(context, table, new)
    follow(Main(context.spark, new.main, new.uuid), new)
    if context.store.state(table.id).is_owner_dead:
        Recoverer(context).abandon(name, caller)
    return Relocated(name, table.location, new.location)


def _move(context: Context, table: TableRecord, new: TableRecord) -> None:
    while True:
        state = context.store.state(table.id)
        if state.phase is not Phase.NORMAL and not state.is_owner_dead:
            raise in_progress(table, state)
        if state.is_dropping:
            raise RefreshPausedError(table.name, "the table is being dropped.", hint="Finish that with `amv drop`.")
        with durable(Write.RELOCATE):
            if context.store.registry.relocate(state, new):
                return


def relocate_all(
    context: Context, caller: Caller, *, is_old_gone: bool = False
) -> tuple[tuple[Relocated, ...], dict[str, MvError]]:
    """Relocate every table as `relocate` does; return those that were, and by its name the error of each other one.

    raises : MetadataUnavailableError at once, and any error at once if this process was interrupted
    """
    moved, problems = list[Relocated](), dict[str, MvError]()
    for table in context.store.tables():
        try:
            with translated(table.name):
                moved.append(relocate(context, table.name, caller, is_old_gone=is_old_gone))
        except MetadataUnavailableError:
            raise
        except MvError as error:
            if context.is_interrupted:
                raise
            problems[table.name] = error
    return tuple(moved), problems


def _check_moved(context: Context, table: TableRecord, new: TableRecord, *, is_old_gone: bool) -> None:
    found = identity_at(context, new.main)
    is_there = None if is_old_gone else identity_at(context, table.main)
    if is_there == table.uuid and found == table.uuid:
        raise TableConflictError(
            table.name,
            f"{table.location} and {new.location} both hold a table with the identity {table.uuid}.",
            hint=f"Remove the old one. If the new one is a copy to keep, give it an identity of its own: `ALTER TABLE "
            f"{new.main.sql} UNSET TBLPROPERTIES ('{UUID_PROPERTY}')`, then apply it under a name of its own "
            "with `adopt: true`.",
        )
    if is_there == table.uuid:
        raise TableConflictError(
            table.name,
            f"the table is still at {table.location}, and there is none at {new.location}.",
            hint="Move the warehouse first.",
        )
    has_main = context.store.state(table.id).published_version is not None
    if found != table.uuid and (found is not None or has_main):
        raise MainNotOursError(
            table.name,
            f"{new.location} holds {_described(found)}, expected the identity {table.uuid}.",
            hint="Give the warehouse to which the table was moved.",
        )


def _described(found: str | None) -> str:
    return "nothing" if found is None else f"a table with the identity {found}" if found else "something else"
