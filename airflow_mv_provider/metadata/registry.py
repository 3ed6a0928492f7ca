"""The registered tables: register, redefine, move and drop them."""

from __future__ import annotations

import uuid
from collections.abc import Collection
from typing import Any

from sqlalchemy import Connection, Row, delete, exc, func, insert, or_, select, update

from airflow_mv_provider.core.definition.table import RefreshableTable
from airflow_mv_provider.core.location import moved_path
from airflow_mv_provider.core.phase import Phase
from airflow_mv_provider.core.state import RefreshState, TableRecord
from airflow_mv_provider.exceptions import TableConflictError, TableNotFoundError
from airflow_mv_provider.metadata.database import StorePart, transaction
from airflow_mv_provider.metadata.models import (
    PartitionTotalsRow,
    RefreshAttemptRow,
    RefreshChunkRow,
    RefreshDefinitionRow,
    RefreshHoldRow,
    RefreshProgressRow,
    RefreshRow,
    RefreshSampleRow,
    RefreshTicketRow,
    RowAnswerRow,
    SourceBindingRow,
    SourceFrontierRow,
    TableAuditRow,
    TableObstacleRow,
)
from airflow_mv_provider.metadata.models import RefreshableTableRow as Table
from airflow_mv_provider.metadata.models import RefreshStateRow as State
from airflow_mv_provider.metadata.rows import NEVER_REFRESHED, is_around, is_owner_live


class Registry(StorePart):
    """Changes of what is registered; each method is one transaction."""

    def register(self, definition: RefreshableTable, *, warehouse: str, location: str) -> TableRecord:
        """Register a table, or replace its definition; a running refresh keeps the definition it began with.

        raises : TableConflictError, when another table has this location, one around it or inside it; when this table
                 has another location or is being dropped
        """
        values = {"definition": definition.to_json(), "content_hash": definition.content_hash}
        try:
            with transaction(self.engine) as db:
                known = select(Table.id, Table.location, State.dropping_ms).join(State, State.table_id == Table.id)
                found = db.execute(known.where(Table.name == definition.name)).one_or_none()
                around = db.scalar(select(Table.name).where(is_around(location)))
                if around is not None:
                    raise TableConflictError(definition.name, f"{location} and the location of {around} overlap.")
                if found is None:
                    new = {"name": definition.name, "uuid": str(uuid.uuid4()), "warehouse": warehouse}
                    times = {"created_ms": self._now(), "updated_ms": self._now()}
                    row = db.execute(insert(Table).values(**new, location=location, **values, **times))
                    assert row.inserted_primary_key is not None
                    db.execute(insert(State).values(table_id=row.inserted_primary_key[0], **NEVER_REFRESHED))
                elif found.dropping_ms is not None:
                    problem = "the table is being dropped."
                    raise TableConflictError(definition.name, problem, hint="Finish that with `amv drop`, then apply.")
                elif found.location != location:
                    problem = f"the table is registered at {found.location}, not {location}."
                    hint = f"If it was moved there, run `amv relocate {definition.name} --warehouse {warehouse}`."
                    raise TableConflictError(definition.name, problem, hint=hint)
                else:
                    db.execute(update(Table).where(Table.id == found.id).values(**values, updated_ms=self._now()))
        except exc.IntegrityError as error:
            with transaction(self.engine) as db:
                is_registered = any(each.name == definition.name for each in tables(db))
            if is_registered:
                # Another process registered it between the read and the insert; now it can be updated.
                return self.register(definition, warehouse=warehouse, location=location)
            raise TableConflictError(definition.name, f"{location} holds another refreshable table.") from error
        with transaction(self.engine) as db:
            return table(db, definition.name)

    def adopt_uuid(self, table: TableRecord, found: str) -> None:
        """Adopt the uuid that main carries: the table's history in main's log continues under it.

        raises : TableConflictError, when another registered table has that uuid (a copied directory)
        """
        try:
            with transaction(self.engine) as db:
                db.execute(update(Table).where(Table.id == table.id, Table.uuid == table.uuid).values(uuid=found))
        except exc.IntegrityError as error:
            raise TableConflictError(
                table.name,
                f"the table has the identity {found} of another registered table.",
                hint="If the directory is a copy, give it its own identity: remove its table property mv.table_uuid, "
                "then set `adopt: true`.",
            ) from error

    def relocate(self, seen: RefreshState, new: TableRecord) -> bool:
        """Register a table that no process works on at another place; False when the row is not as it was read.

        Its epoch grows, so a caller that has read the old place and not acquired the table yet has to read again, and a
        dead owner of an unfinished refresh that is only stopped does not own it any more. What the refresh has recorded
        of its files is moved as well.

        raises : TableConflictError, when another table is at this place, or around or inside it
        """
        as_seen = (State.table_id == new.id, State.phase == seen.phase, State.epoch == seen.epoch)
        is_free = or_(State.phase == Phase.NORMAL, ~is_owner_live(self._now()))
        place = {"warehouse": new.warehouse, "location": new.location, "updated_ms": self._now()}
        try:
            with transaction(self.engine) as db:
                moved = update(State).where(*as_seen, is_free, State.dropping_ms.is_(None))
                if db.execute(moved.values(epoch=State.epoch + 1)).rowcount != 1:
                    return False
                around = select(Table.name).where(is_around(new.location), Table.id != new.id)
                if (other := db.scalar(around)) is not None:
                    raise TableConflictError(new.name, f"{new.location} and the location of {other} overlap.")
                if seen.refresh_id is not None:
                    old = db.execute(select(Table.warehouse).where(Table.id == new.id)).scalar_one()
                    _move_files(db, seen.refresh_id, old, new.warehouse)
                db.execute(update(Table).where(Table.id == new.id).values(**place))
        except exc.IntegrityError as error:
            raise TableConflictError(new.name, f"{new.location} holds another refreshable table.") from error
        return True

    def begin_drop(self, seen: RefreshState) -> bool:
        """Bar new refreshes of a table at rest; only `forget` can follow. False when the row is not as it was read."""
        is_at_rest = (State.table_id == seen.table_id, State.phase == Phase.NORMAL, State.epoch == seen.epoch)
        since = func.coalesce(State.dropping_ms, self._now())
        with transaction(self.engine) as db:
            barred = db.execute(update(State).where(*is_at_rest).values(dropping_ms=since))
        return barred.rowcount == 1

    def forget(self, table_id: int) -> bool:
        """Remove every row of a table that is being dropped; if it is not, remove nothing and return False."""
        refreshes = select(RefreshRow.id).where(RefreshRow.table_id == table_id)
        is_barred = (State.table_id == table_id, State.phase == Phase.NORMAL, State.dropping_ms.is_not(None))
        try:
            with transaction(self.engine) as db:
                if db.execute(delete(State).where(*is_barred)).rowcount != 1:
                    return False
                for part in (RefreshProgressRow, RefreshChunkRow, RefreshHoldRow, RefreshSampleRow, RefreshAttemptRow):
                    db.execute(delete(part).where(part.refresh_id.in_(refreshes)))
                owned = (
                    PartitionTotalsRow,
                    RefreshTicketRow,
                    TableAuditRow,
                    TableObstacleRow,
                    RowAnswerRow,
                    SourceBindingRow,
                )
                for own in (*owned, SourceFrontierRow, RefreshRow, RefreshDefinitionRow):
                    db.execute(delete(own).where(own.table_id == table_id))
                db.execute(delete(Table).where(Table.id == table_id))
        except exc.IntegrityError:
            return False  # a read-only refresh or a waiter has written a row concurrently
        return True


def tables(db: Connection) -> tuple[TableRecord, ...]:
    """Return every registered table, by name."""
    return tuple(_record(row) for row in db.execute(select(Table.__table__).order_by(Table.name)))


def tables_with_types(db: Connection, names: Collection[str]) -> dict[str, tuple[TableRecord, str | None]]:
    """Return the registered tables among `names`, each with the type of its first partition column; one query."""
    typed = select(Table.__table__, State.partition_type).join(State, State.table_id == Table.id)
    rows = db.execute(typed.where(Table.name.in_(names)).order_by(Table.name))
    return {row.name: (_record(row), row.partition_type) for row in rows}


def table(db: Connection, name: str) -> TableRecord:
    """Return the table registered under `name`.

    raises : TableNotFoundError
    """
    found = db.execute(select(Table.__table__).where(Table.name == name)).one_or_none()
    if found is None:
        raise TableNotFoundError.of(name)
    return _record(found)


def _record(row: Row[Any]) -> TableRecord:
    definition = RefreshableTable.model_validate(row.definition)
    return TableRecord(row.id, row.name, row.uuid, row.warehouse, row.location, definition)


def _move_files(db: Connection, refresh_id: str, old: str, new: str) -> None:
    """Move the recorded paths of a refresh's files from one warehouse to another."""

    def moved(path: str | None) -> str | None:
        return path and moved_path(path, old, new)

    seal = db.scalar(select(RefreshRow.seal).where(RefreshRow.id == refresh_id))
    if seal is not None:
        paths = {name: moved(seal[name]) for name in ("rows", "changes")}
        rejected = seal["rejected"] | {"path": moved(seal["rejected"]["path"])}
        is_this = RefreshRow.id == refresh_id
        db.execute(update(RefreshRow).where(is_this).values(seal=seal | paths | {"rejected": rejected}))
    chunks = db.execute(select(RefreshChunkRow.number, RefreshChunkRow.path).filter_by(refresh_id=refresh_id)).all()
    for number, path in chunks:
        is_chunk = (RefreshChunkRow.refresh_id == refresh_id, RefreshChunkRow.number == number)
        db.execute(update(RefreshChunkRow).where(*is_chunk).values(path=moved(path)))
