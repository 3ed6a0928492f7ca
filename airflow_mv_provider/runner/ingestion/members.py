"""The tables of an ingestion, and the state of its source that they share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from airflow_mv_provider.core.definition.problems import nearest
from airflow_mv_provider.core.definition.source import Ingested
from airflow_mv_provider.core.state import TableRecord
from airflow_mv_provider.exceptions import DefinitionError, TableNotFoundError
from airflow_mv_provider.metadata.store import Store
from airflow_mv_provider.runner.context import Context
from airflow_mv_provider.sources.shared import SharedState

_APPLY = "Apply the file that defines the ingestion with all of its tables; drop those that belong to it no longer."


def mark_of(table: TableRecord) -> Ingested:
    """Return the mark of a table of an ingestion."""
    found = table.definition.source.ingested
    assert found is not None, "only tables of an ingestion are members of one"
    return found


def members_of(store: Store, ingestion: str) -> tuple[TableRecord, ...]:
    """Return the registered tables whose sources are outputs of an ingestion, by name.

    raises : TableNotFoundError, if there is none; DefinitionError, if they do not belong to one source
    """
    marked = [table for table in store.tables() if table.definition.source.ingested is not None]
    found = tuple(table for table in marked if mark_of(table).name == ingestion)
    if not found:
        known = nearest(ingestion, {mark_of(table).name for table in marked})
        hint = "Register its tables with `amv apply FILE.yaml`: their sources are of `type: output`."
        raise TableNotFoundError(
            ingestion[:60], f"no registered table is an output of this ingestion{known}.", hint=hint
        )
    for what, values in (
        ("kind of source", {table.definition.source_kind.name for table in found}),
        ("connection", {table.definition.source.connection_id for table in found}),
        ("consumer group", {mark_of(table).group for table in found}),
    ):
        if len(values) > 1:
            shown = ", ".join(sorted(str(value or "none") for value in values))
            problem = f"the tables do not have the same {what}: {shown}."
            raise DefinitionError(f"ingestion {ingestion!r}", problem, hint=_APPLY)
    return found


def shared_state(context: Context, tables: Sequence[TableRecord]) -> SharedState[Any]:
    """Return what the sources of an ingestion's tables share; nothing is asked or held yet.

    raises : ConnectionUnknownError, DefinitionError, UnsafeLocationError
    """
    kind, conn_id = tables[0].definition.source_kind, tables[0].definition.source.connection_id
    assert kind.shared is not None and conn_id is not None, "definitions of other kinds have no mark"
    sources = {table.name: table.definition.source for table in tables}
    found: SharedState[Any] = kind.shared()(sources, context.connections(conn_id))
    return found
