"""The status of one table: its phase, its owner, the progress of its running refresh, and who waits for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import ColumnElement, Connection, select

from airflow_mv_provider.core.definition.freshness import MeasuredFrom
from airflow_mv_provider.core.definition.table import RefreshableTable, changed_fields
from airflow_mv_provider.core.freshness.lateness import forecast, is_late
from airflow_mv_provider.core.health.health import Obstacle
from airflow_mv_provider.core.outcome import HoldReport, Outcome, RefreshReport
from airflow_mv_provider.core.phase import Phase
from airflow_mv_provider.core.queue import Waiter
from airflow_mv_provider.core.state import RefreshState, TableRecord
from airflow_mv_provider.metadata.history.coverage import durations_ms, last_check
from airflow_mv_provider.metadata.history.obstacles import obstacles
from airflow_mv_provider.metadata.history.reports import reports
from airflow_mv_provider.metadata.models import RefreshDefinitionRow, RefreshProgressRow, RefreshRow
from airflow_mv_provider.metadata.queue import WaiterStatus, statuses
from airflow_mv_provider.metadata.rows import maybe_iso
from airflow_mv_provider.metadata.stored_once import began_with


@dataclass(frozen=True, slots=True)
class PartitionStatus:
    """The progress of one partition in a running refresh."""

    partition: str
    is_completed: bool
    sealed_rows: int
    rows_inserted: int
    rows_updated: int
    rows_deleted: int


@dataclass(frozen=True, slots=True)
class TableStatus:
    """The status of one table. The owner's fields and the partitions are set only while a refresh is running.

    is_by_part         : partitions are published one after the other, and those that are count as completed; otherwise
                         those that are compared
    is_held            : the refresh waits for a person's decision, which `hold` describes
    rows_kept          : rows that main has and the source had no longer at the last publish, as a person has decided
    fresh_as_of        : main is at least as new as the source was then; None before the first refresh of everything
    source_as_of       : when the source came to the state that main has; None too if its states have no such time
    measured_from      : the one of the two from which the table's age is counted
    freshness_target   : seconds after which the table is late; None if it has no target
    late_at            : when it is late if nothing happens; None too if it has no target, or was never refreshed
    usual_ms           : how long its refreshes of everything usually take; None if it has no target, or none published
    hold               : the running refresh's newest one; also after its decision
    owner_key          : the caller to whom the refresh belongs; between two of its processes `owner` is None
    obstacle           : what keeps refreshes from beginning; None if the newest one began
    pending_definition : the fields in which the registered definition differs from the running refresh's
    """

    table: str
    phase: Phase
    epoch: int
    main_version: int | None
    is_main_trusted: bool
    refresh_id: str | None
    owner: str | None
    owned_since: str | None
    is_lease_live: bool
    is_cancel_requested: bool
    partitions_completed: int
    partitions_total: int
    partitions: tuple[PartitionStatus, ...]
    last: RefreshReport | None
    paused_since: str | None = None
    paused_by: str | None = None
    is_dropping: bool = False
    pending_definition: tuple[str, ...] = ()
    queue: tuple[WaiterStatus, ...] = ()
    owner_key: str | None = None
    is_by_part: bool = False
    is_held: bool = False
    hold: HoldReport | None = None
    rows_kept: int = 0
    fresh_as_of: str | None = None
    source_as_of: str | None = None
    measured_from: MeasuredFrom = MeasuredFrom.CHECK
    freshness_target: int | None = None
    is_late: bool = False
    obstacle: Obstacle | None = None
    late_at: str | None = None
    usual_ms: int | None = None

    @property
    def done(self) -> str:
        """What has happened to a partition that is completed."""
        return "published" if self.is_by_part else "compared"

    @property
    def kept_for(self) -> str | None:
        """The caller whose next process continues the refresh, while no process works on it."""
        return None if self.owner else self.owner_key


def status(
    db: Connection, table: TableRecord, state: RefreshState, waiting: Sequence[Waiter], now: ColumnElement[int]
) -> TableStatus:
    """Return a table's status, with per-partition progress while a refresh is running."""
    parts = _progress(db, state.refresh_id) if state.refresh_id else ()
    running = _began_with(db, state.refresh_id) if state.refresh_id else None
    running_report = reports(db, RefreshRow.id == state.refresh_id, 1) if state.refresh_id else ()
    met = obstacles(db, table.id, 1)
    check, now_ms = last_check(db, table.id), db.scalars(select(now)).one()
    wanted = table.definition.freshness
    target = wanted.target if wanted else None
    measured_from = wanted.measured_from if wanted else MeasuredFrom.CHECK
    as_of_ms = None if check is None else check.as_of_ms(measured_from)
    to_come = None if target is None else forecast(as_of_ms, now_ms, target, None, durations_ms(db, table.id))
    ended = reports(db, (RefreshRow.table_id == table.id) & (RefreshRow.outcome != Outcome.RUNNING), 1)
    return TableStatus(
        table=table.name,
        phase=state.phase,
        epoch=state.epoch,
        main_version=state.published_version,
        is_main_trusted=state.is_main_trusted,
        refresh_id=state.refresh_id,
        owner=state.owner_process,
        owned_since=maybe_iso(state.owned_since_ms),
        is_lease_live=state.is_lease_live,
        is_cancel_requested=state.is_cancel_requested,
        partitions_completed=sum(p.is_completed for p in parts),
        partitions_total=len(parts),
        partitions=parts,
        last=ended[0] if ended else None,
        paused_since=maybe_iso(state.paused_since_ms),
        paused_by=state.paused_by,
        is_dropping=state.is_dropping,
        pending_definition=changed_fields(running, table.definition) if running else (),
        owner_key=state.owner_key,
        is_by_part=running is not None and running.publish == "progressive",
        is_held=state.is_held,
        hold=running_report[0].hold if running_report else None,
        rows_kept=state.num_kept,
        fresh_as_of=maybe_iso(check.checked_ms if check else None),
        source_as_of=maybe_iso(check.source_ms if check else None),
        measured_from=measured_from,
        freshness_target=target,
        is_late=is_late(as_of_ms, now_ms, target),
        late_at=maybe_iso(to_come.late_ms if to_come else None),
        usual_ms=to_come.takes_ms if to_come else None,
        obstacle=met[0] if met and met[0].ended_ms is None else None,
        queue=statuses(waiting, state.holder if state.refresh_id else None),
    )


def _progress(db: Connection, refresh_id: str) -> tuple[PartitionStatus, ...]:
    columns = (getattr(RefreshProgressRow, name) for name in PartitionStatus.__slots__)
    query = select(*columns).where(RefreshProgressRow.refresh_id == refresh_id)
    return tuple(PartitionStatus(*row) for row in db.execute(query.order_by(RefreshProgressRow.partition)))


def _began_with(db: Connection, refresh_id: str) -> RefreshableTable | None:
    query = select(RefreshDefinitionRow.definition).join(RefreshRow, began_with())
    found = db.scalar(query.where(RefreshRow.id == refresh_id))
    return None if found is None else RefreshableTable.model_validate(found)
