"""What of a table's history is forgotten: refreshes that ended long ago, but for those that something still asks for.

kept, however old    one under way; the last that ended, that published, and that saw everything; whose digests main's
                     comparison starts from, by which its files are known; whose report somebody waits for
"""

from __future__ import annotations

from sqlalchemy import Connection, delete, func, select

from airflow_mv_provider.core.outcome import Outcome
from airflow_mv_provider.core.scope.ledger import DONE
from airflow_mv_provider.metadata.models import RefreshAttemptRow as Attempt
from airflow_mv_provider.metadata.models import RefreshRow as Refresh
from airflow_mv_provider.metadata.models import RefreshStateRow as State
from airflow_mv_provider.metadata.models import RefreshTicketRow as Ticket
from airflow_mv_provider.metadata.newest import newest
from airflow_mv_provider.metadata.stored_once import forget_definitions, lock_state

_AT_ONCE = 1_000  # so that nobody waits long for the state row


def forget(db: Connection, table_id: int, before_ms: int) -> int:
    """Remove up to a thousand refreshes of a table that ended before, and the definitions that only they began with.

    returns : how many they were
    """
    lock_state(db, table_id)
    state = db.execute(select(State.refresh_id, State.published_digests).where(State.table_id == table_id)).one()
    digests = state.published_digests
    has_ended = (Refresh.table_id == table_id, Refresh.outcome != Outcome.RUNNING)
    kept = [state.refresh_id, digests["refresh_id"] if digests else None]
    kept += db.scalars(select(Ticket.joined_refresh).where(Ticket.table_id == table_id))
    kept += db.scalars(select(Refresh.id).where(*has_ended).order_by(Refresh.number.desc()).limit(1))
    kept += db.scalars(newest(table_id, (Outcome.PUBLISHED,)))
    kept += db.scalars(newest(table_id, DONE, kinds=(True,)))
    is_kept = Refresh.id.in_([refresh_id for refresh_id in kept if refresh_id is not None])
    # What began later has not ended before; that alone is in an index.
    is_old = (Refresh.started_ms < before_ms, func.coalesce(Refresh.finished_ms, Refresh.started_ms) < before_ms)
    # One list for both deletes: the clock goes on between them.
    outdated = list(db.scalars(select(Refresh.id).where(*has_ended, *is_old, ~is_kept).limit(_AT_ONCE)))
    if not outdated:
        return 0
    began_with = set(db.scalars(select(Refresh.definition_fingerprint).where(Refresh.id.in_(outdated)).distinct()))
    db.execute(delete(Attempt).where(Attempt.refresh_id.in_(outdated)))
    db.execute(delete(Refresh).where(Refresh.id.in_(outdated)))
    forget_definitions(db, table_id, began_with)
    return len(outdated)
