"""Bring main back to one of its versions, by a refresh whose source is main itself at that version.

So it is fenced, compared, published in one commit and recovered like any other refresh. The table is paused before
anything is sealed: otherwise the next refresh would bring back at once what was taken back. That next one, after a
`resume`, compares everything, because main was last published from another source.
"""

from __future__ import annotations

from contextlib import closing
from typing import Any

from airflow_mv_provider.core.approval.target import version_of
from airflow_mv_provider.core.definition.table import RefreshableTable
from airflow_mv_provider.core.frontier import Frontier
from airflow_mv_provider.core.guard import NAMES as GUARDS
from airflow_mv_provider.core.outcome import Outcome, RefreshReport
from airflow_mv_provider.core.scope.request import Request
from airflow_mv_provider.core.state import Caller, TableRecord
from airflow_mv_provider.exceptions import DefinitionError, MvError
from airflow_mv_provider.runner.admission import Substitute, begin
from airflow_mv_provider.runner.context import Context, source_of_rollback
from airflow_mv_provider.runner.recovery import Recoverer
from airflow_mv_provider.spark.errors import translated

_HISTORY = 10_000


def roll_back(context: Context, name: str, to: str, caller: Caller, note: str) -> RefreshReport:
    """Bring main back to a version, and pause the table.

    to     : as `core.approval.target.version_of` reads it
    note   : why, for the history
    cost   : as of a refresh that compares everything; both sides are main
    raises : DefinitionError, if there is no such version; SchemaMismatchError, if its columns cannot become main's;
             RefreshInProgressError, and every other error of a refresh
    """
    store = context.store
    table = store.table(name)
    version = version_of(name, to, store.history(table.id, _HISTORY))
    definition = _definition(table)
    substitute = Substitute(definition, _frontier(context, table, definition, version))
    reason = f"rolled back to version {version}: {note}"
    request = Request(force=True, strategy="corrections", overrides=GUARDS, note=reason[:1000])
    begun = begin(context, name, caller, request, substitute)
    if isinstance(begun, RefreshReport):
        return begun
    is_paused_here = store.pause(table.id, caller.user)
    try:
        Recoverer(context).work(begun.table, begun.own, caller)
    except MvError:
        if is_paused_here and store.report(begun.own.refresh_id).outcome not in (Outcome.PUBLISHED, Outcome.RUNNING):
            store.resume(table.id)  # main is as it was
        raise
    return store.report(begun.own.refresh_id)


def _definition(table: TableRecord) -> RefreshableTable:
    """Return the definition of the refresh: main's own rows, one for each key, are its source."""
    simple: dict[str, Any] = {"publish": "atomic", "on_conflict": "fail", "order_by": [], "approval": "never"}
    simple |= {"source": source_of_rollback(table), **dict.fromkeys(("errors", "frozen_before"))}
    return RefreshableTable.model_validate(table.definition.to_json() | simple)


def _frontier(context: Context, table: TableRecord, definition: RefreshableTable, version: int) -> Frontier:
    """Return main's state at `version`, as the source of a refresh."""
    with translated(table.name), closing(context.source_of(table, definition)) as source:
        newest = source.probe()
    facts = newest.to_json()
    if version > facts["version"]:
        raise DefinitionError(table.name, f"main has no version {version}; its newest is {facts['version']}.")
    return type(newest).from_json(facts | {"version": version})
