"""Listings and definitions once a table, under their fingerprints

A refresh keeps a description of its source in words. Its listing is stored only as long as a binding references it.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"

_TABLE = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    db = op.get_bind()
    source, definition = _once("source_frontier", "frontier"), _once("refresh_definition", "definition")
    for column in (
        sa.Column("definition_fingerprint", sa.String(16), nullable=False, server_default=""),
        sa.Column("is_whole", sa.Boolean(), nullable=False, server_default=sa.false()),
        sa.Column("source", sa.Text(), nullable=True),
        sa.Column("source_fingerprint", sa.String(16), nullable=True),
    ):
        op.add_column("refresh", column)
    _carry_bindings(db, source)
    _carry_refreshes(db, definition)
    op.drop_column("refresh", "frontier")
    op.drop_column("refresh", "definition")
    op.drop_index("refresh_by_table", "refresh")
    op.create_index("refresh_by_table", "refresh", ["table_id", "started_ms", "outcome", "is_whole"])
    op.create_index("refresh_by_owner", "refresh", ["owner_key", "started_ms"])
    op.create_index("refresh_progress_chunk", "refresh_progress", ["refresh_id", "chunk"])
    op.create_index("refresh_attempt_by_owner", "refresh_attempt", ["owner_key", "started_ms"])


def _once(name: str, content: str) -> sa.Table:
    return op.create_table(
        name,
        sa.Column("table_id", _TABLE, sa.ForeignKey("refreshable_table.id"), nullable=False),
        sa.Column("fingerprint", sa.String(16), nullable=False),
        sa.Column(content, sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("table_id", "fingerprint"),
    )


def _carry_bindings(db: sa.Connection, source: sa.Table) -> None:
    names = ("table_id", "upper", "bound_ms")
    old = sa.table("source_binding", *map(sa.column, names), sa.column("frontier", sa.JSON))
    new = op.create_table(
        "source_binding_by_fingerprint",
        sa.Column("table_id", _TABLE, sa.ForeignKey("refreshable_table.id"), nullable=False),
        sa.Column("upper", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("fingerprint", sa.String(16), nullable=False),
        sa.Column("bound_ms", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("table_id", "upper"),
    )
    stored = set[tuple[int, str]]()
    # One at a time: each may be a listing of megabytes.
    for table_id, upper, bound_ms in db.execute(sa.select(old.c.table_id, old.c.upper, old.c.bound_ms)).all():
        is_this = (old.c.table_id == table_id, old.c.upper == upper)
        frontier = db.scalars(sa.select(old.c.frontier).where(*is_this)).one()
        found = _fingerprint(frontier)
        if (table_id, found) not in stored:
            stored.add((table_id, found))
            db.execute(sa.insert(source).values(table_id=table_id, fingerprint=found, frontier=frontier))
        db.execute(sa.insert(new).values(table_id=table_id, upper=upper, fingerprint=found, bound_ms=bound_ms))
    op.drop_table("source_binding")
    op.rename_table("source_binding_by_fingerprint", "source_binding")


def _carry_refreshes(db: sa.Connection, definition: sa.Table) -> None:
    names = ("id", "table_id", "is_whole", "definition_fingerprint", "source", "source_fingerprint")
    json_columns = (sa.column(name, sa.JSON) for name in ("definition", "frontier", "scope"))
    refresh = sa.table("refresh", *map(sa.column, names), *json_columns)
    stored = set[tuple[int, str]]()
    for refresh_id, table_id in db.execute(sa.select(refresh.c.id, refresh.c.table_id)).all():
        columns = (refresh.c.definition, refresh.c.frontier, refresh.c.scope)
        row = db.execute(sa.select(*columns).where(refresh.c.id == refresh_id)).one()
        found = _fingerprint(row.definition)
        if (table_id, found) not in stored:
            stored.add((table_id, found))
            db.execute(sa.insert(definition).values(table_id=table_id, fingerprint=found, definition=row.definition))
        values: dict[str, Any] = {"definition_fingerprint": found}
        values["is_whole"] = row.scope is None or bool(row.scope["without"])
        if row.frontier is not None:
            values |= {"source": _described(row.frontier), "source_fingerprint": _fingerprint(row.frontier)}
        db.execute(sa.update(refresh).where(refresh.c.id == refresh_id).values(**values))


def _fingerprint(stored: Any) -> str:
    return hashlib.sha256(json.dumps(stored, sort_keys=True).encode()).hexdigest()[:16]


def _described(frontier: dict[str, Any]) -> str:
    match frontier["type"]:
        case "delta":
            return f"Delta version {frontier['version']}"
        case "files":
            files = frontier["files"]
            return f"{len(files)} files, {sum(num_bytes for _, num_bytes, _ in files):,} bytes"
        case "query":
            return ", ".join(f"{name} at {_described(at)}" for name, at in frontier["inputs"])
        case _:
            return "a source without versions"
