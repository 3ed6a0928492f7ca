"""What the history has about a table's partitions, in one query: a page may ask it of any table."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import ColumnElement, Connection, and_, case, null, select, union_all
from sqlalchemy.orm import aliased

from airflow_mv_provider.core.outcome import Outcome, PartitionReport
from airflow_mv_provider.core.phase import Phase
from airflow_mv_provider.core.scope.ledger import Covering
from airflow_mv_provider.core.scope.partition_line import Published
from airflow_mv_provider.core.scope.scope import from_json
from airflow_mv_provider.exceptions import TableNotFoundError
from airflow_mv_provider.metadata.history.coverage import MAX_COVERINGS, of_ledger
from airflow_mv_provider.metadata.history.newest import newest
from airflow_mv_provider.metadata.models import RefreshableTableRow as Table
from airflow_mv_provider.metadata.models import RefreshRow as Refresh
from airflow_mv_provider.metadata.models import RefreshStateRow as State
from airflow_mv_provider.metadata.rows import iso

NUM_REPORTS = 20  # published refreshes whose partitions are read


@dataclass(frozen=True, slots=True)
class KnownPartitions:
    """The facts from which a table's partitions are listed; see `core.scope.partition_line`.

    kind      : type of the first partition column; None before the first seal
    history   : the refreshes that determine the ledger, newest first
    published : the newest published ones, with the partitions that they report
    """

    table: str
    now_ms: int
    phase: Phase
    is_paused: bool
    is_dropping: bool
    partition_by: tuple[str, ...]
    frozen_before: str | None
    kind: str | None
    history: tuple[Covering, ...]
    published: tuple[Published, ...]


def known_partitions(db: Connection, name: str, now: ColumnElement[int], num_reports: int) -> KnownPartitions:
    """Return what is known of a table's partitions.

    raises : TableNotFoundError
    cost   : one query; it grows with the refreshes of parts, and with the partitions of `num_reports` refreshes
    """
    itself = aliased(Table)  # not Table: SQLAlchemy would take it from the query around it
    table_id = select(itself.id).where(itself.name == name).scalar_subquery()
    reporting = newest(table_id, (Outcome.PUBLISHED,), limit=num_reports).subquery()
    has_report = Refresh.id.in_(select(reporting.c.id))
    of_scopes = of_ledger(table_id).subquery()
    wanted = union_all(select(of_scopes.c.id), select(reporting.c.id))
    query = (
        select(
            *(Table.name, Table.definition["partition_by"].label("partition_by")),
            Table.definition["frozen_before"].as_string().label("frozen_before"),
            *(State.partition_type, State.phase, State.paused_ms, State.dropping_ms, now.label("now_ms")),
            *(Refresh.id, Refresh.scope, Refresh.outcome, Refresh.started_ms),
            case((has_report, Refresh.partitions), else_=null()).label("partitions"),
        )
        .join(State, State.table_id == Table.id)
        .outerjoin(Refresh, and_(Refresh.table_id == Table.id, Refresh.id.in_(wanted)))
        .where(Table.name == name)
        .order_by(Refresh.number.desc())
        .limit(MAX_COVERINGS)
    )
    rows = db.execute(query).all()
    if not rows:
        raise TableNotFoundError.of(name)
    first, refreshes = rows[0], [row for row in rows if row.id is not None]
    return KnownPartitions(
        table=first.name,
        now_ms=first.now_ms,
        phase=Phase(first.phase),
        is_paused=first.paused_ms is not None,
        is_dropping=first.dropping_ms is not None,
        partition_by=tuple(first.partition_by or ()),
        frozen_before=first.frozen_before,
        kind=first.partition_type,
        history=tuple(
            Covering(row.id, from_json(row.scope), Outcome(row.outcome), iso(row.started_ms)) for row in refreshes
        ),
        published=tuple(
            Published(row.id, iso(row.started_ms), tuple(PartitionReport(**each) for each in row.partitions))
            for row in refreshes
            if row.partitions is not None
        ),
    )
