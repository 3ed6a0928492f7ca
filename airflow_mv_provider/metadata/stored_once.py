"""Large values that many refreshes share are stored once per table, under their fingerprint.

    frontier     of a binding; a listing of 50,000 files is 5 MB. Two bindings are kept: that of the last publish, from
                 which changes are determined, and the newest, at which a running refresh reads
    definition   that refreshes in the history began with

Writers hold the lock of the table's state row, so no value is removed that another transaction is about to reference.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from sqlalchemy import Connection, Table, and_, delete, exists, func, insert, select
from sqlalchemy.sql.expression import ColumnElement

from airflow_mv_provider.core.definition.table import RefreshableTable
from airflow_mv_provider.core.frontier import Frontier, fingerprint
from airflow_mv_provider.metadata.models import RefreshDefinitionRow as Definition
from airflow_mv_provider.metadata.models import RefreshRow as Refresh
from airflow_mv_provider.metadata.models import RefreshStateRow as State
from airflow_mv_provider.metadata.models import SourceBindingRow as Binding
from airflow_mv_provider.metadata.models import SourceFrontierRow as Source


def lock_state(db: Connection, table_id: int) -> None:
    """Lock a table's state row until the transaction ends; shared values are referenced and removed under this lock."""
    db.execute(select(State.table_id).where(State.table_id == table_id).with_for_update())


def bind(db: Connection, table_id: int, upper: int, frontier: Frontier, now: ColumnElement[int]) -> None:
    """Bind `upper` to `frontier`, unless it is bound already."""
    key = {"table_id": table_id, "upper": upper}
    if db.execute(select(Binding.upper).filter_by(**key)).one_or_none() is None:
        found = fingerprint(frontier)
        if not _is_stored(db, Source.__table__, table_id, found):
            db.execute(insert(Source).values(table_id=table_id, fingerprint=found, frontier=frontier.to_json()))
        db.execute(insert(Binding).values(**key, fingerprint=found, bound_ms=now))
    forget_bindings(db, table_id)


def define(db: Connection, table_id: int, definition: RefreshableTable) -> str:
    """Store a definition, unless it is stored already; return its fingerprint."""
    found = definition.fingerprint
    if not _is_stored(db, Definition.__table__, table_id, found):
        db.execute(insert(Definition).values(table_id=table_id, fingerprint=found, definition=definition.to_json()))
    return found


def began_with() -> ColumnElement[bool]:
    """Return the condition that joins a refresh with its definition."""
    return and_(Definition.table_id == Refresh.table_id, Definition.fingerprint == Refresh.definition_fingerprint)


def frontier_of_binding() -> ColumnElement[bool]:
    """Return the condition that joins a binding with its frontier."""
    return and_(Source.table_id == Binding.table_id, Source.fingerprint == Binding.fingerprint)


def forget_bindings(db: Connection, table_id: int) -> None:
    """Remove all bindings except that of the last publish and the newest, and the frontiers without a binding."""
    of_table = Binding.table_id == table_id
    published = select(State.published_upper).where(State.table_id == table_id).scalar_subquery()
    newest = select(func.max(Binding.upper)).where(of_table).scalar_subquery()
    db.execute(delete(Binding).where(of_table, Binding.upper != published, Binding.upper != newest))
    is_named = exists().where(of_table, Binding.fingerprint == Source.fingerprint)
    db.execute(delete(Source).where(Source.table_id == table_id, ~is_named))


def forget_definitions(db: Connection, table_id: int, fingerprints: Collection[str]) -> None:
    """Remove those of the given definitions that no refresh in the history began with."""
    of_these = (Definition.table_id == table_id, Definition.fingerprint.in_(fingerprints))
    is_named = exists().where(Refresh.table_id == table_id, Refresh.definition_fingerprint == Definition.fingerprint)
    db.execute(delete(Definition).where(*of_these, ~is_named))


def _is_stored(db: Connection, table: Any, table_id: int, found: str) -> bool:
    columns: Table = table
    query = select(columns.c.fingerprint).where(columns.c.table_id == table_id, columns.c.fingerprint == found)
    return db.execute(query).one_or_none() is not None
