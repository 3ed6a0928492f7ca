"""Retention of a table's history: refreshes that ended long ago are removed, except those that are still needed.

kept, however old    a running one; the last that ended, that published, and that covered everything with success; the
                     one whose fingerprints the next comparison uses, since its files belong to it; one that a waiter
                     joined
"""

from __future__ import annotations

from sqlalchemy import Connection, delete, func, select

from airflow_mv_provider.core.outcome import GOOD, Outcome
from airflow_mv_provider.core.progress.published import Published
from airflow_mv_provider.metadata.history.newest import newest
from airflow_mv_provider.metadata.models import RefreshAttemptRow as Attempt
from airflow_mv_provider.metadata.models import RefreshHoldRow as Hold
from airflow_mv_provider.metadata.models import RefreshRow as Refresh
from airflow_mv_provider.metadata.models import RefreshSampleRow as Sample
from airflow_mv_provider.metadata.models import RefreshStateRow as State
from airflow_mv_provider.metadata.models import RefreshTicketRow as Ticket
from airflow_mv_provider.metadata.models import RowAnswerRow as RowAnswer
from airflow_mv_provider.metadata.stored_once import forget_definitions, lock_state

_AT_ONCE = 1_000  # per transaction, so that others do not wait long for the state row


def forget(db: Connection, table_id: int, before_ms: int) -> int:
    """Remove up to 1,000 refreshes of a table that ended before `before_ms`, and definitions that only these used.

    returns : the number of removed refreshes
    """
    lock_state(db, table_id)
    db.execute(delete(RowAnswer).where(RowAnswer.table_id == table_id, RowAnswer.at_ms < before_ms))
    state = db.execute(select(State.refresh_id, State.published_totals).where(State.table_id == table_id)).one()
    has_ended = (Refresh.table_id == table_id, Refresh.outcome != Outcome.RUNNING)
    published = Published.from_json(state.published_totals) if state.published_totals else None
    kept = [state.refresh_id, *(each.refresh_id for each in (published.kept if published else ()))]
    kept += db.scalars(select(Ticket.joined_refresh).where(Ticket.table_id == table_id))
    kept += db.scalars(select(Refresh.id).where(*has_ended).order_by(Refresh.number.desc()).limit(1))
    kept += db.scalars(newest(table_id, (Outcome.PUBLISHED,)))
    kept += db.scalars(newest(table_id, GOOD, kinds=(True,)))
    is_kept = Refresh.id.in_([refresh_id for refresh_id in kept if refresh_id is not None])
    # A refresh that began later has not ended before; only the start is in an index.
    is_old = (Refresh.started_ms < before_ms, func.coalesce(Refresh.finished_ms, Refresh.started_ms) < before_ms)
    # One list for both deletes: the clock moves between them.
    outdated = list(db.scalars(select(Refresh.id).where(*has_ended, *is_old, ~is_kept).limit(_AT_ONCE)))
    if not outdated:
        return 0
    began_with = set(db.scalars(select(Refresh.definition_fingerprint).where(Refresh.id.in_(outdated)).distinct()))
    for part in (Attempt, Hold, Sample):
        db.execute(delete(part).where(part.refresh_id.in_(outdated)))
    db.execute(delete(Refresh).where(Refresh.id.in_(outdated)))
    forget_definitions(db, table_id, began_with)
    return len(outdated)
