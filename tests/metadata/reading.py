"""A long history, and how much of it a question reads: a figure of the database's own, the same on every machine."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator
from typing import Any

from sqlalchemy import Engine, event, func, insert, select

from airflow_mv_provider.metadata.models import RefreshAttemptRow, RefreshRow
from airflow_mv_provider.metadata.store import Store
from tests.conftest import Clock


def repeat(store: Store, clock: Clock, refresh_id: str, times: int) -> None:
    """Write that what a refresh did was done again, a millisecond later each time, by others."""
    refreshes, attempts = RefreshRow.__table__, RefreshAttemptRow.__table__
    with store.engine.begin() as db:
        refresh = db.execute(select(refreshes).where(refreshes.c.id == refresh_id)).one()._asdict()
        worked = [a._asdict() for a in db.execute(select(attempts).where(attempts.c.refresh_id == refresh_id))]
        now_ms = db.execute(select(clock.now(store.engine.dialect.name))).scalar_one()
        last = db.scalars(select(func.max(refreshes.c.number)).where(refreshes.c.table_id == refresh["table_id"])).one()
        new = [(uuid.uuid4().hex, {"owner_key": uuid.uuid4().hex, "started_ms": now_ms + n}) for n in range(times)]
        ended = (at | {"finished_ms": at["started_ms"]} for _, at in new)
        its_own = ({"id": each, "number": last + n} for n, (each, _) in enumerate(new, 1))
        db.execute(insert(refreshes), [refresh | own | at for own, at in zip(its_own, ended, strict=True)])
        if worked:
            db.execute(insert(attempts), [a | {"refresh_id": each} | at for a in worked for each, at in new])
    clock.pass_ms(times)


def num_read(engine: Engine, question: Callable[[], Any]) -> int:
    """Ask, and return how much was read: SQLite's steps, or the rows that PostgreSQL looked at."""
    return _num_steps(engine, question) if engine.dialect.name == "sqlite" else _num_rows(engine, question)


def _num_steps(engine: Engine, question: Callable[[], Any]) -> int:
    steps = 0

    def step() -> int:
        nonlocal steps
        steps += 1
        return 0

    def watch(connection: Any) -> None:
        connection.connection.dbapi_connection.set_progress_handler(step, 1)

    event.listen(engine, "begin", watch)
    try:
        question()
    finally:
        event.remove(engine, "begin", watch)
        with engine.connect() as connection:
            connection.connection.dbapi_connection.set_progress_handler(None, 1)  # type: ignore[union-attr]
    return steps


def _num_rows(engine: Engine, question: Callable[[], Any]) -> int:
    rows = 0

    def explain(db: Any, cursor: Any, statement: str, parameters: Any, *more: Any) -> None:
        nonlocal rows
        if statement.startswith(("SELECT", "UPDATE", "DELETE")):
            savepoint = db.connection.dbapi_connection.cursor()
            savepoint.execute("SAVEPOINT explained")
            # It reads small tables from end to end though it need not; here they stand for large ones.
            savepoint.execute("SET LOCAL enable_seqscan = off")
            savepoint.execute(f"EXPLAIN (ANALYZE, FORMAT JSON) {statement}", parameters)
            (plan,) = savepoint.fetchone()
            savepoint.execute("ROLLBACK TO SAVEPOINT explained")
            rows += sum(_looked_at(json.loads(plan) if isinstance(plan, str) else plan))

    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as db:
        db.exec_driver_sql("VACUUM ANALYZE")
    event.listen(engine, "before_cursor_execute", explain)
    try:
        question()
    finally:
        event.remove(engine, "before_cursor_execute", explain)
    return rows


def _looked_at(found: Any) -> Iterator[int]:
    """Give the rows of a plan's scans, those that a filter left out included."""
    if isinstance(found, list):
        for each in found:
            yield from _looked_at(each)
    if isinstance(found, dict):
        if "Scan" in found.get("Node Type", ""):
            left_out = found.get("Rows Removed by Filter", 0) + found.get("Rows Removed by Index Recheck", 0)
            yield (found["Actual Rows"] + left_out) * found["Actual Loops"]
        for each in found.values():
            yield from _looked_at(each)
