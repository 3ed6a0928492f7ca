"""Runs of ingestions: the state in which each has read all its tables, and what became of them.

A run is bound before any table is read. Its row decides nothing: each table goes on from its own binding, and a row is
only read by people.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from sqlalchemy import Connection, Row, delete, func, insert, select, update

from airflow_mv_provider.core.ingestion.report import IngestedTable, IngestionReport
from airflow_mv_provider.core.outcome import ErrorReport, Outcome
from airflow_mv_provider.core.state import Caller
from airflow_mv_provider.metadata.database import StorePart, transaction
from airflow_mv_provider.metadata.models import IngestionRunRow as Run
from airflow_mv_provider.metadata.rows import iso, maybe_iso, stored_error

_NUM_KEPT = 100
_UNFINISHED_MS = 7 * 24 * 3600 * 1000  # how long a run may take before it counts as dead


class Ingestions(StorePart):
    """Writes of runs."""

    def bind(self, ingestion: str, state: str, caller: Caller) -> str:
        """Record a run and its state before any table is read; return its id. The oldest runs are forgotten.

        A caller that comes again, because it waits or its last process died, goes on with the row of its last try.
        """
        who = {"owner_key": caller.key, "trigger": caller.trigger, "user_name": caller.user}
        unfinished = select(Run.id).where(
            Run.ingestion == ingestion, Run.owner_key == caller.key, Run.finished_ms.is_(None)
        )
        newest = select(func.coalesce(func.max(Run.number), 0)).where(Run.ingestion == ingestion)
        with transaction(self.engine) as db:
            if (former := db.scalar(unfinished.order_by(Run.number.desc()).limit(1))) is not None:
                again = {"state": state, "tables": [], "started_ms": self._now()}
                db.execute(update(Run).where(Run.id == former).values(**again))
                return str(former)
            run_id = uuid.uuid4().hex
            number = db.execute(newest).scalar_one() + 1  # of two at once both may have it: it only orders them
            row = {"id": run_id, "ingestion": ingestion, "number": number, "state": state, "tables": []}
            db.execute(insert(Run).values(**row, **who, started_ms=self._now()))
            is_over = Run.finished_ms.is_not(None) | (Run.started_ms < self._now() - _UNFINISHED_MS)
            db.execute(delete(Run).where(Run.ingestion == ingestion, Run.number <= number - _NUM_KEPT, is_over))
        return run_id

    def record(self, run_id: str, tables: Sequence[IngestedTable]) -> None:
        """Record what has become of the tables so far."""
        self._set(run_id, tables=[asdict(each) for each in tables])

    def end(self, run_id: str, released: dict[str, Any] | None, error: ErrorReport | None) -> None:
        """Record that a run has ended, and what was published upstream."""
        self._set(run_id, released=released, error=asdict(error) if error else None, finished_ms=self._now())

    def _set(self, run_id: str, **values: Any) -> None:
        with transaction(self.engine) as db:
            db.execute(update(Run).where(Run.id == run_id).values(**values))


def runs(db: Connection, ingestion: str, limit: int, *, is_finished: bool = False) -> tuple[IngestionReport, ...]:
    """Return the newest runs of an ingestion, the newest first.

    is_finished : only those that have ended
    """
    query = select(Run.__table__).where(Run.ingestion == ingestion).order_by(Run.number.desc()).limit(limit)
    if is_finished:
        query = query.where(Run.finished_ms.is_not(None))
    return tuple(_report(row) for row in db.execute(query))


def run(db: Connection, run_id: str) -> IngestionReport | None:
    """Return one run; None if there is none of this id."""
    found = db.execute(select(Run.__table__).where(Run.id == run_id)).one_or_none()
    return None if found is None else _report(found)


def _report(row: Row[Any]) -> IngestionReport:
    return IngestionReport(
        ingestion=row.ingestion,
        run_id=row.id,
        state=row.state,
        tables=tuple(_table(each) for each in row.tables),
        released=row.released,
        error=stored_error(row.error),
        trigger=row.trigger,
        user=row.user_name,
        started_at=iso(row.started_ms),
        finished_at=maybe_iso(row.finished_ms),
    )


def _table(stored: dict[str, Any]) -> IngestedTable:
    error, outcome = stored["error"], stored["outcome"]
    values = {"error": stored_error(error), "outcome": outcome and Outcome(outcome)}
    return IngestedTable(**(stored | values))
