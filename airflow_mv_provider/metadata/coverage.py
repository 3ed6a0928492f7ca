"""What a table's refreshes have covered, and when: what its ledger and its freshness are derived from."""

from __future__ import annotations

from sqlalchemy import Connection, Text, cast, func, select

from airflow_mv_provider.core.ledger import DONE, Covering
from airflow_mv_provider.core.outcome import Outcome
from airflow_mv_provider.core.scope import from_json
from airflow_mv_provider.metadata.models import RefreshRow
from airflow_mv_provider.metadata.rows import iso

_MAX_COVERINGS = 10_000  # an hour's interval for more than a year


def coverings(db: Connection, table_id: int) -> tuple[Covering, ...]:
    """Return the refreshes of a table that its ledger follows from, newest first; read-only ones say nothing.

    Of each scope the newest, and the newest that succeeded: what is older than both decides nothing.
    """
    is_done = RefreshRow.outcome.in_(DONE)
    of_scope = (cast(RefreshRow.scope, Text), is_done)
    rank = func.row_number().over(partition_by=of_scope, order_by=RefreshRow.number.desc()).label("rank")
    ranked = (
        select(RefreshRow.id, RefreshRow.number, RefreshRow.scope, RefreshRow.outcome, RefreshRow.started_ms, rank)
        .where(RefreshRow.table_id == table_id, ~RefreshRow.is_read_only, RefreshRow.outcome != Outcome.DIFFERENCES)
        .subquery()
    )
    query = select(ranked).where(ranked.c.rank == 1).order_by(ranked.c.number.desc())
    return tuple(
        Covering(row.id, from_json(row.scope), Outcome(row.outcome), iso(row.started_ms))
        for row in db.execute(query.limit(_MAX_COVERINGS))
    )


def last_look_ms(db: Connection, table_id: int) -> int | None:
    """Return when the newest successful refresh of everything began: what it read is not older than that."""
    is_good = (RefreshRow.outcome.in_(DONE), RefreshRow.is_whole)
    query = (
        select(RefreshRow.started_ms)
        .where(RefreshRow.table_id == table_id, *is_good)
        .order_by(RefreshRow.number.desc())
    )
    return db.scalar(query.limit(1))
