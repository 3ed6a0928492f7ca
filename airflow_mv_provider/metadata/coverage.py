"""What a table's refreshes have covered, and when: what its ledger and its freshness are derived from."""

from __future__ import annotations

from sqlalchemy import Connection, select

from airflow_mv_provider.core.ledger import Covering
from airflow_mv_provider.core.outcome import Outcome
from airflow_mv_provider.core.scope import from_json
from airflow_mv_provider.metadata.models import RefreshRow
from airflow_mv_provider.metadata.rows import iso

_MAX_REFRESHES = 10_000  # an hour's refresh for more than a year


def coverings(db: Connection, table_id: int) -> tuple[Covering, ...]:
    """Return the newest refreshes of a table with their scopes, newest first, without those that only read."""
    query = (
        select(RefreshRow.id, RefreshRow.scope, RefreshRow.outcome, RefreshRow.started_ms)
        .where(RefreshRow.table_id == table_id, ~RefreshRow.is_read_only, RefreshRow.outcome != Outcome.DIFFERENCES)
        .order_by(RefreshRow.started_ms.desc(), RefreshRow.id)
        .limit(_MAX_REFRESHES)
    )
    return tuple(
        Covering(row.id, from_json(row.scope), Outcome(row.outcome), iso(row.started_ms)) for row in db.execute(query)
    )


def last_look_ms(db: Connection, table_id: int) -> int | None:
    """Return when the newest successful refresh of everything began: what it read is not older than that.

    A refresh of all that was stale is one of everything; its scope names what was fresh already.
    """
    succeeded = RefreshRow.outcome.in_((Outcome.PUBLISHED, Outcome.NOTHING_TO_DO))
    query = (
        select(RefreshRow.scope, RefreshRow.started_ms)
        .where(RefreshRow.table_id == table_id, succeeded)
        .order_by(RefreshRow.started_ms.desc())
        .limit(_MAX_REFRESHES)
    )
    # Not in SQL: a scope that is None is JSON's null there, and each database compares it in its own way.
    scopes = ((from_json(row.scope), row.started_ms) for row in db.execute(query))
    return next((started for scope, started in scopes if scope.is_everything or scope.without), None)
