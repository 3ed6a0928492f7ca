"""The scopes and times of a table's refreshes, from which its ledger and its freshness are derived."""

from __future__ import annotations

from sqlalchemy import CompoundSelect, Connection, ScalarSelect, Text, cast, func, select, union_all

from airflow_mv_provider.core.freshness.lateness import SourceCheck
from airflow_mv_provider.core.outcome import GOOD, Outcome
from airflow_mv_provider.core.phase import Phase
from airflow_mv_provider.core.scope.ledger import Covering
from airflow_mv_provider.core.scope.scope import from_json
from airflow_mv_provider.metadata.history.newest import newest
from airflow_mv_provider.metadata.models import RefreshRow, RefreshStateRow
from airflow_mv_provider.metadata.rows import checked_source_ms, iso

MAX_COVERINGS = 10_000  # more than a year of hourly intervals


def coverings(db: Connection, table_id: int) -> tuple[Covering, ...]:
    """Return the refreshes of a table that determine its ledger, newest first; read-only ones are left out.

    For each scope these are the newest refresh and the newest successful one: older ones have no effect. Refreshes of
    everything, or of everything stale, count as one scope here: each of them covers the whole table.

    cost : grows with the refreshes of parts; of the refreshes of everything, two are read
    """
    query = (
        select(RefreshRow.id, RefreshRow.scope, RefreshRow.outcome, RefreshRow.started_ms)
        .where(RefreshRow.id.in_(of_ledger(table_id)))
        .order_by(RefreshRow.number.desc())
        .limit(MAX_COVERINGS)
    )
    return tuple(
        Covering(row.id, from_json(row.scope), Outcome(row.outcome), iso(row.started_ms)) for row in db.execute(query)
    )


def of_ledger(table_id: int | ScalarSelect[int]) -> CompoundSelect[tuple[str]]:
    """Return the query for the ids of the refreshes that `coverings` describes; some of them twice."""
    is_no_preview = (~RefreshRow.is_read_only, RefreshRow.outcome != Outcome.DIFFERENCES)
    whole = (newest(table_id, outcomes, *is_no_preview, kinds=(True,)).subquery() for outcomes in (Outcome, GOOD))
    is_done = RefreshRow.outcome.in_(GOOD)
    of_scope = (cast(RefreshRow.scope, Text), is_done)
    rank = func.row_number().over(partition_by=of_scope, order_by=RefreshRow.number.desc()).label("rank")
    is_part = (RefreshRow.table_id == table_id, RefreshRow.outcome.in_(list(Outcome)), RefreshRow.is_whole.is_(False))
    ranked = select(RefreshRow.id, rank).where(*is_part, *is_no_preview).subquery()
    return union_all(*(select(each.c.id) for each in whole), select(ranked.c.id).where(ranked.c.rank == 1))


def last_check(db: Connection, table_id: int) -> SourceCheck | None:
    """Return the newest successful refresh of everything: it read the source as it was then, or later.

    returns : None also if that was a rollback or a load: what main has then is not known to be of the source
    """
    facts = (checked_source_ms().label("checked_source_ms"), RefreshRow.source_ms, RefreshRow.is_of_source)
    published = (
        select(*facts)
        .join(RefreshStateRow, RefreshStateRow.refresh_id == RefreshRow.id)
        .where(RefreshStateRow.table_id == table_id, RefreshStateRow.phase == Phase.CLEANUP, RefreshRow.is_whole)
    )
    found = db.execute(published).one_or_none()  # main has a refresh that cleans up already
    if found is None:
        last = newest(table_id, GOOD, kinds=(True,)).scalar_subquery()
        found = db.execute(select(*facts).where(RefreshRow.id == last)).one_or_none()
    return SourceCheck(found.checked_source_ms, found.source_ms) if found is not None and found.is_of_source else None


def durations_ms(db: Connection, table_id: int, limit: int = 10) -> tuple[int, ...]:
    """Return how long a table's newest refreshes of everything took that published, newest first."""
    last = newest(table_id, (Outcome.PUBLISHED,), kinds=(True,), limit=limit)
    took = select(RefreshRow.finished_ms - RefreshRow.started_ms).where(RefreshRow.id.in_(last))
    return tuple(each for each in db.scalars(took) if each is not None)
