"""A refresh as recorded: what it began with, its seal, and the version of its source to which it is bound."""

from __future__ import annotations

from dataclasses import replace

from sqlalchemy import Connection, select, true
from sqlalchemy.sql.expression import ColumnElement

from airflow_mv_provider.core.approval.check import CheckResult
from airflow_mv_provider.core.cost import Estimate
from airflow_mv_provider.core.definition.kinds import frontier_from_json
from airflow_mv_provider.core.definition.schema import Column
from airflow_mv_provider.core.definition.table import RefreshableTable
from airflow_mv_provider.core.frontier import BatchDescription, Binding, NoFrontier
from airflow_mv_provider.core.guard import NullCount
from airflow_mv_provider.core.outcome import Outcome
from airflow_mv_provider.core.progress.partition import WHOLE_TABLE
from airflow_mv_provider.core.progress.published import Kept, kept_from_json
from airflow_mv_provider.core.progress.seal import Rejected, Seal, SealedPartition
from airflow_mv_provider.core.scope.scope import from_json as scope_from_json
from airflow_mv_provider.core.state import RefreshRecord
from airflow_mv_provider.core.strategy import Choice
from airflow_mv_provider.metadata.models import (
    RefreshDefinitionRow,
    RefreshProgressRow,
    RefreshRow,
    SourceBindingRow,
    SourceFrontierRow,
)
from airflow_mv_provider.metadata.stored_once import began_with, frontier_of_binding


def binding(db: Connection, table_id: int, upper: int | None = None) -> Binding | None:
    """Return the binding of `upper`, by default the greatest, to a frontier of a table's source; None if none is."""
    query = (
        select(SourceBindingRow.upper, SourceFrontierRow.frontier)
        .join(SourceFrontierRow, frontier_of_binding())
        .where(SourceBindingRow.table_id == table_id)
        .where(true() if upper is None else SourceBindingRow.upper == upper)
        .order_by(SourceBindingRow.upper.desc())
        .limit(1)
    )
    found = db.execute(query).one_or_none()
    return None if found is None else Binding(found.upper, frontier_from_json(found.frontier))


def refresh(db: Connection, refresh_id: str) -> RefreshRecord | None:
    """Return a refresh as recorded, with its seal; None if there is no such refresh."""
    is_bound = (SourceBindingRow.table_id == RefreshRow.table_id) & (SourceBindingRow.upper == RefreshRow.upper)
    query = (
        select(RefreshRow.__table__, RefreshDefinitionRow.definition, SourceFrontierRow.frontier)
        .join(RefreshDefinitionRow, began_with())
        .outerjoin(SourceBindingRow, is_bound)
        .outerjoin(SourceFrontierRow, frontier_of_binding())
        .where(RefreshRow.id == refresh_id)
    )
    row = db.execute(query).one_or_none()
    parts = db.execute(
        select(
            RefreshProgressRow.partition,
            RefreshProgressRow.sealed_rows,
            RefreshProgressRow.sealed_digest,
            RefreshProgressRow.sealed_mixed,
        ).where(RefreshProgressRow.refresh_id == refresh_id, _is_sealed())
    ).all()
    if row is None:
        return None
    record = RefreshRecord(
        id=row.id,
        table_id=row.table_id,
        definition=RefreshableTable.model_validate(row.definition),
        overrides=tuple(row.overrides),
        scope=scope_from_json(row.scope),
        batch=None if row.upper is None else BatchDescription(row.lower, row.upper),
        frontier=NoFrontier() if row.frontier is None else frontier_from_json(row.frontier),
        choice=Choice(row.strategy, row.reason, tuple(Estimate(**each) for each in row.estimates), row.wanted_strategy),
        merge_round=row.merge_round,
        has_committed=row.has_committed,
        is_hold_requested=row.is_hold_requested,
        is_forced=row.is_forced,
        is_reload=row.is_reload,
        is_of_source=row.is_of_source,
        note=row.note,
        checked_ms=row.checked_ms,
        source_ms=row.source_ms,
        is_ended=row.outcome != Outcome.RUNNING,
        outdated_kept=tuple(row.outdated_kept or ()),
        num_kept=row.num_kept,
    )
    if row.seal is None:
        return record
    sealed = tuple(SealedPartition(p.partition, p.sealed_rows, p.sealed_digest, p.sealed_mixed) for p in parts)
    names = ("rows", "num_bytes", "strategy", "changes", "base", "num_shards")
    stored = {name: row.seal[name] for name in names}
    nulls = tuple(NullCount(**each) for each in row.null_counts or ())
    stored["fingerprints"] = kept_from_json(row.seal["fingerprints"])
    stored["files"] = None if row.seal["files"] is None else Kept(**row.seal["files"])
    columns = tuple(Column(**column) for column in row.seal["columns"])
    rejected = Rejected(**row.seal["rejected"])
    checks = tuple(CheckResult(**each) for each in row.checks or ())
    seal = Seal(**stored, partitions=sealed, columns=columns, rejected=rejected, checks=checks, nulls=nulls)
    return replace(record, seal=seal)


def as_now(db: Connection, refresh: RefreshRecord) -> RefreshRecord:
    """Return a refresh with the current values of the fields that change as it runs."""
    columns = (RefreshRow.merge_round, RefreshRow.has_committed, RefreshRow.outdated_kept, RefreshRow.num_kept)
    row = db.execute(select(*columns).where(RefreshRow.id == refresh.id)).one()
    return replace(
        refresh,
        merge_round=row.merge_round,
        has_committed=row.has_committed,
        outdated_kept=tuple(row.outdated_kept or ()),
        num_kept=row.num_kept,
    )


def _is_sealed() -> ColumnElement[bool]:
    """Return the condition that leaves out partitions that only main has: the seal does not contain them."""
    return (RefreshProgressRow.sealed_rows > 0) | (RefreshProgressRow.partition == WHOLE_TABLE)
