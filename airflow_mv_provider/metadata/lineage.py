"""What all registered tables read, beside their state: the data of their lineage, in one query."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Connection

from airflow_mv_provider.core.definition.kinds import kinds
from airflow_mv_provider.core.lineage.graph import Origin, TableInputs
from airflow_mv_provider.core.location import absolute_source
from airflow_mv_provider.exceptions import UnsafeLocationError
from airflow_mv_provider.metadata.models import RefreshableTableRow as Table
from airflow_mv_provider.metadata.overview import TableLine, line_of, overview_query


@dataclass(frozen=True, slots=True)
class RegisteredTables:
    """All tables by name, what each reads, and the database's time at which they were read."""

    now_ms: int
    lines: tuple[TableLine, ...]
    inputs: tuple[TableInputs, ...]


def registered_tables(db: Connection, now: ColumnElement[int]) -> RegisteredTables:
    """Return every table with its state and what its definition reads; one query.

    cost : that of `overview`, and the source of each definition
    """
    parts = (Table.definition[name].label(name) for name in ("source", "checks", "catalog_name"))
    rows = db.execute(overview_query(now).add_columns(Table.warehouse, Table.location, *parts)).all()
    return RegisteredTables(
        now_ms=rows[0].now_ms if rows else 0,
        lines=tuple(map(line_of, rows)),
        inputs=tuple(
            TableInputs(
                *(row.name, row.location, origins_of(row.source, row.warehouse), referenced_by(row.checks)),
                catalog_name=row.catalog_name,
                ingestion=ingestion_of(row.source),
            )
            for row in rows
        ),
    )


def origins_of(source: Mapping[str, Any], warehouse: str) -> tuple[Origin, ...]:
    """Return what the source of a stored definition reads; nothing for a kind that is not installed here."""
    kind = next((kind for kind in kinds() if kind.name == source["type"]), None)
    if kind is None:
        return ()
    found = kind.model.model_validate(source)
    if not found.paths and not found.names:
        return (Origin(f"{kind.name} {found.reads}"),)
    of_paths = (Origin(path, _location(path, warehouse)) for path in found.paths)
    return (*of_paths, *(Origin(name, name) for name in found.names))


def ingestion_of(source: Mapping[str, Any]) -> str | None:
    """Return the name of the ingestion whose output the source of a stored definition is; None if it is of none."""
    mark = source.get("ingestion")
    return None if mark is None else str(mark["name"])


def referenced_by(checks: Iterable[Mapping[str, Any]] | None) -> tuple[str, ...]:
    """Return the names of the tables that the checks of a stored definition look at."""
    found = (check.get("references") for check in checks or ())
    return tuple(dict.fromkeys(each["table"] for each in found if each))


def _location(path: str, warehouse: str) -> str | None:
    try:
        return absolute_source(path, warehouse)
    except UnsafeLocationError:
        return None  # a definition that each refresh refuses
