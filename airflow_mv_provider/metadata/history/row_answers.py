"""Answers to "why is this row as it is", which need Spark: a task gives them, and the page shows them."""

from __future__ import annotations

import uuid
from dataclasses import dataclass

from sqlalchemy import Connection, delete, insert, select

from airflow_mv_provider.metadata.database import StorePart, transaction
from airflow_mv_provider.metadata.models import RowAnswerRow as Row
from airflow_mv_provider.metadata.rows import iso
from airflow_mv_provider.metadata.stored_once import lock_state

KEPT = 10
MAX_CHARACTERS = 64 * 1024


@dataclass(frozen=True, slots=True)
class RowAnswer:
    """What has happened to one row, as text; or the error that prevents an answer.

    asked : the key, and the column if it was about one, as text
    """

    id: str
    at: str
    user: str | None
    asked: str
    answer: str
    is_error: bool


def answers(db: Connection, table_id: int) -> tuple[RowAnswer, ...]:
    """Return the answers about rows of a table that are kept, newest first."""
    rows = db.execute(select(Row.__table__).where(Row.table_id == table_id).order_by(Row.at_ms.desc(), Row.id))
    return tuple(RowAnswer(r.id, iso(r.at_ms), r.user_name, r.asked, r.answer, r.is_error) for r in rows)


def last_answer_id(db: Connection, table_id: int) -> str | None:
    """Return the id of a table's newest answer; None if there is none."""
    return db.scalar(select(Row.id).where(Row.table_id == table_id).order_by(Row.at_ms.desc(), Row.id).limit(1))


class RowAnswers(StorePart):
    """Writes of answers about rows."""

    def keep(self, table_id: int, user: str | None, asked: str, answer: str, *, is_error: bool = False) -> None:
        """Keep an answer, cut off if it is very long; of a table the newest ten are kept."""
        cut = answer if len(answer) <= MAX_CHARACTERS else f"{answer[:MAX_CHARACTERS]}\n... (cut off)"
        row = {"id": uuid.uuid4().hex, "table_id": table_id, "user_name": user, "at_ms": self._now()}
        kept = select(Row.id).where(Row.table_id == table_id).order_by(Row.at_ms.desc(), Row.id).limit(KEPT)
        with transaction(self.engine) as db:
            lock_state(db, table_id)
            db.execute(insert(Row).values(**row, asked=asked[:1000], answer=cut, is_error=is_error))
            newest = list(db.scalars(kept))
            db.execute(delete(Row).where(Row.table_id == table_id, Row.id.not_in(newest)))
