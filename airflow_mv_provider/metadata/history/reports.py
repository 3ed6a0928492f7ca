"""Reports from the history's rows."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, and_, func, select
from sqlalchemy.orm import aliased

from airflow_mv_provider.core.approval.check import CheckResult
from airflow_mv_provider.core.cost import Estimate
from airflow_mv_provider.core.outcome import (
    AttemptReport,
    HoldReport,
    Outcome,
    PartitionReport,
    RefreshReport,
)
from airflow_mv_provider.core.phase import Phase
from airflow_mv_provider.core.scope.scope import from_json as scope_from_json
from airflow_mv_provider.metadata.history.newest import newest
from airflow_mv_provider.metadata.models import RefreshableTableRow, RefreshAttemptRow, RefreshRow
from airflow_mv_provider.metadata.models import RefreshHoldRow as Hold
from airflow_mv_provider.metadata.rows import iso, maybe_iso, stored_error

# Not part of a report; some of them are large.
_NOT_SHOWN = (
    "number",
    "seal",
    "owner_key",
    "definition_fingerprint",
    "source_fingerprint",
    "merge_round",
    "has_committed",
    "is_hold_requested",
    "is_forced",
    "is_reload",
    "partitions_changed",
)
_SHOWN: tuple[Any, ...] = tuple(column for column in RefreshRow.__table__.c if column.name not in _NOT_SHOWN)
_HOLD = tuple(column.label(f"hold_{column.name}") for column in Hold.__table__.c)
_COST = tuple(
    RefreshRow.__table__.c[name]
    for name in (
        *("strategy", "phase_seconds", "main_version"),
        *("rows_inserted", "rows_updated", "rows_deleted", "rows_unchanged"),
    )
)


def in_history(
    table_id: int,
    since_ms: int | None = None,
    *,
    before: str | None = None,
    outcomes: Collection[Outcome] | None = None,
    ended_ms: tuple[int, int] | None = None,
) -> ColumnElement[bool]:
    """Return the condition for a table's refreshes, as `Reader.history` takes them."""
    conditions = [RefreshRow.table_id == table_id]
    if since_ms is not None:
        conditions.append(RefreshRow.started_ms >= since_ms)
    if before is not None:
        other = aliased(RefreshRow)
        number = select(other.number).where(other.table_id == table_id, other.id == before)
        conditions.append(RefreshRow.number < number.scalar_subquery())
    if outcomes is not None:
        conditions.append(RefreshRow.outcome.in_(sorted(outcomes)))
    if ended_ms is not None:
        conditions += [RefreshRow.finished_ms >= ended_ms[0], RefreshRow.finished_ms < ended_ms[1]]
    return and_(*conditions)


def reports(db: Connection, condition: ColumnElement[bool], limit: int) -> tuple[RefreshReport, ...]:
    """Return the reports of the newest refreshes for which `condition` holds, newest first; two queries."""
    query = (
        select(*_SHOWN, RefreshableTableRow.name, *_HOLD)
        .join(RefreshableTableRow, RefreshableTableRow.id == RefreshRow.table_id)
        .outerjoin(Hold, (Hold.refresh_id == RefreshRow.id) & (Hold.merge_round == _last_held_round()))
        .where(condition)
        .order_by(RefreshRow.number.desc())
        .limit(limit)
    )
    rows = db.execute(query).all()
    attempts: dict[str, list[Row[Any]]] = {row.id: [] for row in rows}
    worked = select(RefreshAttemptRow.__table__).where(RefreshAttemptRow.refresh_id.in_(attempts))
    for attempt in db.execute(worked.order_by(RefreshAttemptRow.epoch)):
        attempts[attempt.refresh_id].append(attempt)
    return tuple(_report(row, attempts[row.id]) for row in rows)


def _last_held_round() -> ColumnElement[int]:
    other = aliased(Hold)
    return select(func.max(other.merge_round)).where(other.refresh_id == RefreshRow.id).scalar_subquery()


def costs(db: Connection, table_id: int, limit: int) -> tuple[RefreshReport, ...]:
    """Return the input of cost estimates: a table's newest published or failed refreshes, without partition reports.

    Every refresh reads them. Refreshes with nothing to do, perhaps thousands, have no costs and are left out.
    """
    query = (
        select(*_COST, RefreshRow.id, RefreshRow.outcome, RefreshRow.scope, RefreshRow.error)
        .where(RefreshRow.id.in_(newest(table_id, (Outcome.PUBLISHED, Outcome.FAILED), limit=limit)))
        .order_by(RefreshRow.number.desc())
    )
    return tuple(
        RefreshReport(
            table="",
            refresh_id=row.id,
            outcome=Outcome(row.outcome),
            scope=None if row.scope is None else scope_from_json(row.scope).describe(),
            error=stored_error(row.error),
            **{column.name: getattr(row, column.name) for column in _COST},
        )
        for row in db.execute(query)
    )


def _report(row: Any, attempts: Sequence[Row[Any]]) -> RefreshReport:
    return RefreshReport(
        table=row.name,
        refresh_id=row.id,
        outcome=Outcome(row.outcome),
        phase=Phase(row.phase),
        epoch=row.epoch,
        strategy=row.strategy,
        reason=row.reason,
        estimates=tuple(Estimate(**each) for each in row.estimates),
        trigger=row.trigger,
        user=row.user_name,
        note=row.note,
        overrides=tuple(row.overrides),
        lower=row.lower,
        upper=row.upper,
        source=row.source,
        checked_at=iso(row.started_ms if row.checked_ms is None else row.checked_ms),
        source_at=maybe_iso(row.source_ms),
        is_whole=row.is_whole,
        is_of_source=row.is_of_source,
        scope=None if row.scope is None else scope_from_json(row.scope).describe(),
        frozen=tuple(row.frozen),
        schema_changes=tuple(row.schema_changes),
        checks=tuple(CheckResult(**each) for each in row.checks or ()),
        rows_inserted=row.rows_inserted,
        rows_updated=row.rows_updated,
        rows_deleted=row.rows_deleted,
        rows_unchanged=row.rows_unchanged,
        bytes_main=row.bytes_main,
        rows_rejected=row.rows_rejected,
        rows_kept=row.num_kept or 0,
        bytes_staging=row.bytes_staging,
        main_version=row.main_version,
        started_at=iso(row.started_ms),
        finished_at=maybe_iso(row.finished_ms),
        phase_seconds=row.phase_seconds,
        attempts=tuple(
            AttemptReport(
                epoch=a.epoch,
                phase=Phase(a.phase),
                process=a.owner_process,
                started_at=iso(a.started_ms),
                chunks=a.chunks,
                phase_seconds=a.phase_seconds,
                note=a.note,
                owner_key=a.owner_key,
            )
            for a in attempts
        ),
        partitions=tuple(PartitionReport(**p) for p in row.partitions),
        hold=None if row.hold_refresh_id is None else _hold_report(row),
        error=stored_error(row.error),
    )


def _hold_report(row: Any) -> HoldReport:
    return HoldReport(
        id=f"{row.hold_refresh_id}.{row.hold_merge_round}",
        reason=row.hold_reason,
        since=iso(row.hold_since_ms),
        until=iso(row.hold_until_ms),
        decision=row.hold_decision,
        decided_at=maybe_iso(row.hold_decided_ms),
        decided_by=row.hold_decided_by,
        note=row.hold_note,
    )
