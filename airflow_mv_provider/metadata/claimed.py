"""A transaction of an owner: it holds the table's state row, or nothing is written."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from sqlalchemy import ColumnElement, Connection, Engine, select, update

from airflow_mv_provider.core.claim import Claim
from airflow_mv_provider.core.state import Ownership
from airflow_mv_provider.exceptions import LeaseLostError
from airflow_mv_provider.metadata.database import transaction
from airflow_mv_provider.metadata.models import RefreshAttemptRow as Attempt
from airflow_mv_provider.metadata.models import RefreshRow as Refresh
from airflow_mv_provider.metadata.models import RefreshStateRow as State
from airflow_mv_provider.metadata.rows import becomes, is_owned, is_unchanged_from


@contextmanager
def claimed(engine: Engine, own: Ownership, held: Claim, now: ColumnElement[int]) -> Iterator[Connection]:
    """Open a transaction that requires `held`, locks the row, and applies the claim's change at its end."""
    expected = is_unchanged_from(held, own.table_id, now)
    with transaction(engine) as db:
        # The row is locked first and changed last: writes in between still match the unchanged row.
        if db.execute(update(State).where(*expected).values(epoch=State.epoch)).rowcount != 1:
            raise LeaseLostError(f"refresh {own.refresh_id}", "this process no longer owns the table.", epoch=own.epoch)
        yield db
        if after := becomes(held):
            db.execute(update(State).where(*is_owned(own)).values(**after))


def end_phase(db: Connection, own: Ownership, seconds: Mapping[str, float], **values: Any) -> None:
    """Write `values` into a refresh's row, and add the seconds spent to those of the refresh and of its epoch."""
    is_this = Refresh.id == own.refresh_id
    is_mine = (Attempt.refresh_id == own.refresh_id, Attempt.epoch == own.epoch)
    spent = _longer(db.scalars(select(Refresh.phase_seconds).where(is_this)).one(), seconds)
    by_me = _longer(db.scalars(select(Attempt.phase_seconds).where(*is_mine)).one(), seconds)
    db.execute(update(Attempt).where(*is_mine).values(phase_seconds=by_me))
    db.execute(update(Refresh).where(is_this).values(phase_seconds=spent, **values))


def _longer(spent: Mapping[str, float], more: Mapping[str, float]) -> dict[str, float]:
    return dict(spent) | {phase: round(spent.get(phase, 0.0) + seconds, 3) for phase, seconds in more.items()}
