"""What has kept refreshes of tables from beginning: a source that cannot be reached, a definition that does not fit it.

Such a refresh has no row in the history, because nothing of it began. Tries that meet the same error are one row.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, delete, insert, select, update

from airflow_mv_provider.core.health.health import Obstacle
from airflow_mv_provider.core.health.health_changes import Ended
from airflow_mv_provider.core.outcome import ErrorReport, Outcome
from airflow_mv_provider.metadata.database import StorePart, transaction
from airflow_mv_provider.metadata.models import RefreshRow as Refresh
from airflow_mv_provider.metadata.models import TableObstacleRow as Met
from airflow_mv_provider.metadata.rows import stored_error
from airflow_mv_provider.metadata.stored_once import lock_state

_NUM_KEPT = 100


class Obstacles(StorePart):
    """Writes of them."""

    def met(self, table_id: int, error: ErrorReport) -> None:
        """Record that a refresh could not begin; the oldest records are forgotten."""
        mine = Met.table_id == table_id
        with transaction(self.engine) as db:
            lock_state(db, table_id)
            newest = db.execute(select(Met.__table__).where(mine).order_by(Met.number.desc()).limit(1)).one_or_none()
            is_same = newest is not None and newest.ended_ms is None and newest.error["code"] == error.code
            values: dict[str, Any] = {"last_ms": self._now(), "error": asdict(error)}
            if newest is not None and is_same:
                again = values | {"num_tries": newest.num_tries + 1}
                db.execute(update(Met).where(mine, Met.number == newest.number).values(**again))
                return
            passed(db, table_id, self._now())
            number = newest.number + 1 if newest is not None else 1
            db.execute(
                insert(Met).values(table_id=table_id, number=number, since_ms=self._now(), num_tries=1, **values)
            )
            db.execute(delete(Met).where(mine, Met.number <= number - _NUM_KEPT))


def passed(db: Connection, table_id: int, now: ColumnElement[int]) -> None:
    """Record that a refresh has begun, or found nothing to do, so that nothing keeps them from it any more."""
    db.execute(update(Met).where(Met.table_id == table_id, Met.ended_ms.is_(None)).values(ended_ms=now))


def obstacles(db: Connection, table_id: int, limit: int) -> tuple[Obstacle, ...]:
    """Return what has kept refreshes of a table from beginning, the newest first."""
    query = select(Met.__table__).where(Met.table_id == table_id).order_by(Met.number.desc()).limit(limit)
    return tuple(_obstacle(row) for row in db.execute(query))


def ended(db: Connection, table_id: int, limit: int) -> tuple[Ended, ...]:
    """Return a table's newest refreshes that have ended, without those that only compared, the newest first."""
    is_look = Refresh.outcome.in_((Outcome.RUNNING, Outcome.DIFFERENCES))
    query = select(Refresh.finished_ms, Refresh.outcome, Refresh.error).where(
        Refresh.table_id == table_id, Refresh.is_read_only.is_(False), ~is_look
    )
    rows = db.execute(query.order_by(Refresh.number.desc()).limit(limit))
    return tuple(Ended(row.finished_ms or 0, Outcome(row.outcome), stored_error(row.error)) for row in rows)


def _obstacle(row: Row[Any]) -> Obstacle:
    return Obstacle(ErrorReport(**row.error), row.since_ms, row.last_ms, row.num_tries, row.ended_ms)
