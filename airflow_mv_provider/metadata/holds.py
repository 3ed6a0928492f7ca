"""Holds of refreshes for a person's decision: the owner begins one, a person decides, the owner's next epoch reads it.

Both writes lock the table's state row first. So a decision is never lost: it comes before the owner's last look at the
hold, which then goes on, or after the row was left without an owner, which frees it for the next process.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import ColumnElement, Connection, exists, insert, select, update

from airflow_mv_provider.core import claim
from airflow_mv_provider.core.approval.hold import Decision, Hold, Objection, objection
from airflow_mv_provider.core.phase import Phase
from airflow_mv_provider.core.state import Ownership
from airflow_mv_provider.metadata.claimed import claimed
from airflow_mv_provider.metadata.database import StorePart, transaction
from airflow_mv_provider.metadata.models import RefreshChunkRow as Chunk
from airflow_mv_provider.metadata.models import RefreshHoldRow as Row
from airflow_mv_provider.metadata.models import RefreshProgressRow as Progress
from airflow_mv_provider.metadata.models import RefreshStateRow as State
from airflow_mv_provider.metadata.rows import is_owned, lease
from airflow_mv_provider.metadata.stored_once import lock_state


def is_held(now: ColumnElement[int]) -> ColumnElement[bool]:
    """Return the condition that a state row's refresh waits for a decision, and that no process works on it."""
    waits = (Row.refresh_id == State.refresh_id, Row.decision.is_(None), Row.until_ms > now)
    return State.owner_process.is_(None) & (State.phase == Phase.MERGING) & exists().where(*waits)


def last_hold(db: Connection, refresh_id: str, now: ColumnElement[int]) -> Hold | None:
    """Return the newest hold of a refresh; None if it was never held."""
    query = select(Row.__table__, (Row.until_ms <= now).label("is_over")).where(Row.refresh_id == refresh_id)
    row = db.execute(query.order_by(Row.merge_round.desc()).limit(1)).one_or_none()
    return None if row is None else _hold(row)


class Holds(StorePart):
    """The writes about holds; each is one transaction."""

    def begin(self, own: Ownership, merge_round: int, reason: str, guards: Sequence[str], *, hold_ms: int) -> Hold:
        """Leave a refresh without a process until it is decided; go on with its round's hold if that has begun before.

        returns : the hold; if it is decided already, the caller still owns the refresh
        raises  : LeaseLostError
        """
        with claimed(self.engine, own, claim.hold(own, Phase.MERGING), self._now()) as db:
            found = last_hold(db, own.refresh_id, self._now())
            if found is None or found.merge_round != merge_round:
                now = db.scalars(select(self._now())).one()
                row = {"since_ms": now, "until_ms": now + hold_ms, "reason": reason, "guards": list(guards)}
                db.execute(insert(Row).values(refresh_id=own.refresh_id, merge_round=merge_round, **row))
                found = Hold(own.refresh_id, merge_round, reason, tuple(guards), now, now + hold_ms)
            if found.decision is None:
                left = {"owner_process": None, "lease_expires_ms": found.until_ms, "lease_ms": hold_ms}
                db.execute(update(State).where(*is_owned(own)).values(**left))
        return found

    def decide(
        self, table_id: int, decision: Decision, user: str | None, note: str | None, hold_id: str | None = None
    ) -> Hold | Objection:
        """Record a person's decision about the refresh of a table that is held, and free it for the next process.

        A refused refresh is also to be cancelled, so that the next process ends it without comparing anything.

        hold_id : the hold that was shown; None for whichever is there
        returns : the hold as decided; an objection if nothing was written
        """
        with transaction(self.engine) as db:
            lock_state(db, table_id)
            refresh_id = db.scalar(select(State.refresh_id).where(State.table_id == table_id))
            found = None if refresh_id is None else last_hold(db, refresh_id, self._now())
            overwrites = found is not None and _deletes_by_overwriting(db, found.refresh_id)
            problem = objection(found, hold_id, decision, deletes_by_overwriting=overwrites)
            if problem is not None or found is None:
                return problem or Objection.NOTHING_HELD
            is_this = (Row.refresh_id == found.refresh_id, Row.merge_round == found.merge_round)
            decided = {"decision": decision, "decided_ms": self._now(), "decided_by": user, "note": note}
            db.execute(update(Row).where(*is_this).values(**decided))
            is_left = (State.table_id == table_id, State.owner_process.is_(None))
            db.execute(update(State).where(*is_left).values(**lease(self._now(), 0)))
            if not decision.is_approval:
                cancelled = {"cancel_requested_ms": self._now(), "cancel_requested_by": user}
                db.execute(update(State).where(State.table_id == table_id).values(**cancelled))
            decided_hold = last_hold(db, found.refresh_id, self._now())
        assert decided_hold is not None
        return decided_hold


def _deletes_by_overwriting(db: Connection, refresh_id: str) -> bool:
    is_mine = (Chunk.refresh_id == refresh_id, Chunk.path.is_(None), Chunk.num_rows > 0)
    deletes = (Progress.refresh_id == refresh_id, Progress.rows_deleted > 0)
    return bool(db.scalar(select(exists().where(*is_mine) & exists().where(*deletes))))


def _hold(row: Any) -> Hold:
    return Hold(
        refresh_id=row.refresh_id,
        merge_round=row.merge_round,
        reason=row.reason,
        guards=tuple(row.guards),
        since_ms=row.since_ms,
        until_ms=row.until_ms,
        is_over=bool(row.is_over),
        decision=None if row.decision is None else Decision(row.decision),
        decided_ms=row.decided_ms,
        decided_by=row.decided_by,
        note=row.note,
    )
