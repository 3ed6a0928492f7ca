"""The definition of a refresh that rolls main back: its source is main itself, at one of its versions."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from airflow_mv_provider.core.definition.table import RefreshableTable
from airflow_mv_provider.core.state import TableRecord


def definition_of_rollback(table: TableRecord) -> RefreshableTable:
    """Return the definition of a refresh that rolls main back: main's own rows, one for each key, are its source."""
    simple: dict[str, Any] = {"publish": "atomic", "on_conflict": "fail", "order_by": [], "approval": "never"}
    simple["checks"] = []  # the person who rolls back has decided about these rows
    guards = table.definition.guards.model_copy(update={"max_null_fraction": {}})  # and its columns may be no more
    simple["guards"] = guards.model_dump(mode="json")
    simple |= {"source": _source(table), "frozen_before": None}
    return RefreshableTable.model_validate(table.definition.to_json() | simple)


def definition_of_itself(table: TableRecord) -> RefreshableTable:
    """Return the definition of a comparison whose source is main itself: as of a rollback, without an error table."""
    return definition_of_rollback(table).model_copy(update={"errors": None})


def is_rollback(definition: RefreshableTable, table: TableRecord) -> bool:
    """True if a refresh with this definition rolls main back.

    No table can be registered with such a source; only the definition that a rollback's own refresh began with has it.
    """
    source = definition.source.model_dump(mode="json", exclude_defaults=True, by_alias=True)
    return source | {"type": definition.source_kind.name} == _source(table)


def with_sensitive(definition: RefreshableTable, table: TableRecord, columns: Collection[str]) -> RefreshableTable:
    """Return a definition that hides also those of main's columns that are sensitive by now."""
    names = (name for name in table.definition.sensitive if name in columns)
    return definition.model_copy(update={"sensitive": tuple(dict.fromkeys([*definition.sensitive, *names]))})


def _source(table: TableRecord) -> dict[str, str]:
    return {"type": "delta", "path": table.location}
