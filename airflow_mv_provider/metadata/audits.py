"""The newest audit of each table, for its page."""

from __future__ import annotations

from sqlalchemy import Connection, Engine, delete, insert, select, update

from airflow_mv_provider.core.approval.audit import Audit, Write, sides_of, stored
from airflow_mv_provider.metadata.database import transaction
from airflow_mv_provider.metadata.models import RefreshableTableRow as Table
from airflow_mv_provider.metadata.models import TableAuditRow as Row
from airflow_mv_provider.metadata.rows import iso
from airflow_mv_provider.metadata.stored_once import lock_state


def last_audit(db: Connection, table_id: int) -> Audit | None:
    """Return a table's newest audit, without partitions and rows; None if there was none."""
    query = select(Row.__table__, Table.name).join(Table, Table.id == Row.table_id).where(Row.table_id == table_id)
    row = db.execute(query).one_or_none()
    if row is None:
        return None
    return Audit(
        id=row.audit_id,
        table=row.name,
        at=iso(row.at_ms),
        user=row.user_name,
        main_version=row.found["main_version"],
        scope=row.found["scope"],
        writes=tuple(Write(**each) for each in row.found["writes"]),
        sides=sides_of(row.found["sides"]),
        repaired_by=row.repaired_by,
    )


class Audits:
    """Writes of audits; none of them changes what a refresh reads."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine

    def keep(self, table_id: int, audit: Audit, at_ms: int) -> None:
        """Keep an audit instead of the table's former one."""
        row = {"audit_id": audit.id, "at_ms": at_ms, "user_name": audit.user, "found": stored(audit)}
        with transaction(self.engine) as db:
            lock_state(db, table_id)  # of two at once, the later one is kept
            db.execute(delete(Row).where(Row.table_id == table_id))
            db.execute(insert(Row).values(table_id=table_id, **row))

    def repaired(self, table_id: int, audit_id: str, refresh_id: str) -> None:
        """Record which refresh has repaired what an audit found, unless there is a newer audit."""
        is_this = (Row.table_id == table_id, Row.audit_id == audit_id)
        with transaction(self.engine) as db:
            db.execute(update(Row).where(*is_this).values(repaired_by=refresh_id))
