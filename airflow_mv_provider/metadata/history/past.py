"""What the newest refreshes of a whole table did: guards compare the next one with it."""

from __future__ import annotations

from sqlalchemy import Connection, select

from airflow_mv_provider.core.guard import Counts, NullCount, PastRefresh
from airflow_mv_provider.core.outcome import Outcome
from airflow_mv_provider.core.scope.scope import from_json as scope_from_json
from airflow_mv_provider.metadata.history.newest import newest
from airflow_mv_provider.metadata.models import RefreshRow as Refresh

_LIMIT = 40  # a refresh may publish and change no row, so more are read than are compared


def past(db: Connection, table_id: int) -> tuple[PastRefresh, ...]:
    """Return what refreshes of all of a table's own source did that changed a row, newest first.

    An overwrite has not counted its updates, and a first load changes nothing: of both only rows and NULLs are known.
    """
    changes = Refresh.rows_inserted + Refresh.rows_updated + Refresh.rows_deleted
    known = newest(table_id, (Outcome.PUBLISHED,), Refresh.is_of_source.is_(True), kinds=(True,), limit=_LIMIT)
    query = (
        select(
            *(Refresh.strategy, Refresh.scope, Refresh.null_counts, Refresh.partitions_changed),
            *(Refresh.rows_inserted, Refresh.rows_updated, Refresh.rows_deleted, Refresh.rows_unchanged),
        )
        .where(Refresh.id.in_(known), changes > 0)
        .order_by(Refresh.number.desc())
    )
    found = []
    for row in db.execute(query):
        if not scope_from_json(row.scope).is_everything:
            continue  # it left out what was not stale
        main = row.rows_unchanged + row.rows_updated + row.rows_deleted
        num_rows = row.rows_unchanged + row.rows_updated + row.rows_inserted
        is_counted = row.strategy != "replace" and main > 0
        counts = Counts(num_rows, main, row.rows_inserted, row.rows_updated, row.rows_deleted)
        nulls = tuple(NullCount(**each) for each in row.null_counts or ())
        num_partitions = row.partitions_changed if is_counted else None
        found.append(PastRefresh(num_rows, counts if is_counted else None, num_partitions, nulls))
    return tuple(found)
