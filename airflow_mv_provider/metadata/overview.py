"""All tables at once, for lists of thousands: a few figures per table, in one query however many there are.

Definitions, seals and partitions are large and are not read here, except for how old the table may become;
`Reader.status` and `Reader.history` return them for one table.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    Integer,
    Row,
    ScalarSelect,
    Select,
    and_,
    case,
    cast,
    func,
    null,
    select,
    true,
)
from sqlalchemy.orm import aliased

from airflow_mv_provider.core.definition.freshness import MeasuredFrom
from airflow_mv_provider.core.freshness.lateness import SourceCheck, is_late
from airflow_mv_provider.core.health.health import Facts, Health, Obstacle, health_of
from airflow_mv_provider.core.health.health_changes import Ended
from airflow_mv_provider.core.outcome import UNWANTED, ErrorReport, Outcome
from airflow_mv_provider.core.phase import Phase
from airflow_mv_provider.metadata.holds import is_held
from airflow_mv_provider.metadata.models import RefreshableTableRow as Table
from airflow_mv_provider.metadata.models import RefreshProgressRow as Progress
from airflow_mv_provider.metadata.models import RefreshRow as Refresh
from airflow_mv_provider.metadata.models import RefreshStateRow as State
from airflow_mv_provider.metadata.models import TableObstacleRow as Met
from airflow_mv_provider.metadata.rows import checked_source_ms, is_owner_live, stored_error


@dataclass(frozen=True, slots=True)
class Compared:
    """How many partitions of a running refresh are compared."""

    completed: int
    total: int

    @property
    def is_done(self) -> bool:
        """True if all are compared, so that they are being published."""
        return self.completed == self.total


@dataclass(frozen=True, slots=True)
class LastRefresh:
    """How a table's last refresh ended."""

    refresh_id: str
    outcome: Outcome
    started_ms: int
    finished_ms: int | None
    rows_inserted: int
    rows_updated: int
    rows_deleted: int
    error_code: str | None
    error: ErrorReport | None = None


@dataclass(frozen=True, slots=True)
class TableLine:
    """The state of one table.

    is_held  : its refresh waits for a person's decision
    last_check : when the last good refresh of everything checked the source, and what time the state has that it found;
               None before the first one, and after a rollback or a load
    newest_end : how the newest refresh ended, except for those that a person cancelled
    compared : progress of the running refresh, once it is sealed
    measured_from : the one of the two times from which its age is counted
    is_late  : that is longer ago than the table's freshness target, if it has one
    obstacle : what keeps refreshes from beginning; None if the newest one began
    num_rows : of main, as the last published refresh of everything left it; None before the first one
    num_bytes : of main's data files at its last publish; None before the first one, or if they are not known
    """

    table: str
    phase: Phase
    refresh_id: str | None
    is_lease_live: bool
    is_held: bool
    is_cancel_requested: bool
    is_paused: bool
    is_dropping: bool
    last_check: SourceCheck | None
    last: LastRefresh | None
    compared: Compared | None
    num_rows: int | None = None
    num_bytes: int | None = None
    is_late: bool = False
    obstacle: Obstacle | None = None
    is_published: bool = False
    newest_end: Ended | None = None
    measured_from: MeasuredFrom = MeasuredFrom.CHECK

    @property
    def fresh_ms(self) -> int | None:
        """The time from which the table's age is counted."""
        return None if self.last_check is None else self.last_check.as_of_ms(self.measured_from)

    @property
    def is_under_way(self) -> bool:
        """True if a refresh has begun and not ended, whether or not its owner is alive."""
        return self.phase is not Phase.NORMAL

    @property
    def is_left(self) -> bool:
        """True if a refresh has not ended and its owner's lease has expired: another process has to take it over."""
        return self.is_under_way and not self.is_lease_live and not self.is_held

    @property
    def is_last_bad(self) -> bool:
        """True if the last refresh that ended has failed, or was refused or abandoned."""
        return self.last is not None and self.last.outcome in UNWANTED

    @property
    def health(self) -> Health:
        """Whether the table follows its source."""
        newest_end = self.newest_end
        facts = Facts(
            is_paused=self.is_paused,
            is_dropping=self.is_dropping,
            is_under_way=self.is_under_way,
            is_left=self.is_left,
            is_held=self.is_held,
            is_published=self.is_published,
            outcome=newest_end.outcome if newest_end else None,
            ended_ms=newest_end.ended_ms if newest_end else None,
            error=newest_end.error if newest_end else None,
            obstacle=self.obstacle,
        )
        return health_of(facts)


@dataclass(frozen=True, slots=True)
class Overview:
    """All tables by name, and the database's time at which they were read."""

    now_ms: int
    lines: tuple[TableLine, ...]


# Aliases list all columns of `refresh` again, so they are made once, not for each query.
_newest_end, _good, _last_published, _newest = (aliased(Refresh) for _ in range(4))
_cleaning = aliased(Refresh)  # main has this refresh already


def overview(db: Connection, now: ColumnElement[int], name: str | None = None) -> Overview:
    """Return a line for every table, or for the one of this name; one query; see `overview_query`."""
    rows = db.execute(overview_query(now, name)).all()
    return Overview(rows[0].now_ms if rows else 0, tuple(map(line_of, rows)))


def overview_query(now: ColumnElement[int], name: str | None = None) -> Select[*tuple[Any, ...]]:
    """Return the query for all tables, or for the one of this name; `line_of` reads its rows.

    cost : six index lookups in `refresh` per table; and a scan of an index with an entry for each partition of running
           refreshes
    """
    is_cleaning = and_(_cleaning.id == State.refresh_id, State.phase == Phase.CLEANUP, _cleaning.is_whole.is_(True))

    def of_check(fact: Callable[[Any], Any]) -> ColumnElement[int | None]:
        now_here, ended = (case((each.is_of_source, fact(each)), else_=null()) for each in (_cleaning, _good))
        return case((_cleaning.id.is_not(None), now_here), else_=ended)

    completed = func.sum(cast(Progress.is_completed, Integer)).label("completed")
    under_way = select(Progress.refresh_id, completed, func.count().label("total")).group_by(Progress.refresh_id)
    progress = under_way.subquery("progress")
    return (
        select(
            Table.name,
            State.phase,
            State.refresh_id,
            is_owner_live(now).label("is_lease_live"),
            is_held(now).label("is_held"),
            State.cancel_requested_ms,
            State.paused_ms,
            State.dropping_ms,
            of_check(checked_source_ms).label("checked_ms"),
            of_check(lambda refresh: refresh.source_ms).label("source_ms"),
            Refresh.id.label("last_id"),
            Refresh.outcome,
            Refresh.started_ms,
            Refresh.finished_ms,
            Refresh.rows_inserted,
            Refresh.rows_updated,
            Refresh.rows_deleted,
            Refresh.error,
            _newest_end.outcome.label("newest_end_outcome"),
            _newest_end.finished_ms.label("newest_end_ms"),
            _newest_end.error.label("newest_end_error"),
            progress.c.completed,
            progress.c.total,
            _num_rows().label("num_rows"),
            State.main_bytes,
            Table.definition[("freshness", "target")].as_integer().label("target_s"),
            Table.definition[("freshness", "measured_from")].as_string().label("measured_from"),
            now.label("now_ms"),
            State.published_version,
            Met.error.label("met"),
            Met.since_ms.label("met_since_ms"),
            Met.last_ms.label("met_last_ms"),
            Met.num_tries,
        )
        .join(State, State.table_id == Table.id)
        .outerjoin(Refresh, and_(Refresh.table_id == Table.id, Refresh.id == _newest_but(*_NO_RESULT)))
        .outerjoin(
            _newest_end,
            and_(_newest_end.table_id == Table.id, _newest_end.id == _newest_but(*_NO_RESULT, Outcome.CANCELLED)),
        )
        .outerjoin(Met, and_(Met.table_id == Table.id, Met.ended_ms.is_(None)))
        .outerjoin(_good, and_(_good.table_id == Table.id, _good.number == _last_good()))
        .outerjoin(_cleaning, is_cleaning)
        .outerjoin(progress, progress.c.refresh_id == State.refresh_id)
        .order_by(Table.name)
        .where(true() if name is None else Table.name == name)
    )


def line_of(row: Row[*tuple[Any, ...]]) -> TableLine:
    """Return the line in a row of `overview_query`."""
    last_check = None if row.checked_ms is None else SourceCheck(row.checked_ms, row.source_ms)
    measured_from = MeasuredFrom(row.measured_from or MeasuredFrom.CHECK)  # older definitions do not say
    return TableLine(
        table=row.name,
        phase=Phase(row.phase),
        refresh_id=row.refresh_id,
        is_lease_live=bool(row.is_lease_live),
        is_held=bool(row.is_held),
        is_cancel_requested=row.cancel_requested_ms is not None,
        is_paused=row.paused_ms is not None,
        is_dropping=row.dropping_ms is not None,
        last_check=last_check,
        last=None
        if row.last_id is None
        else LastRefresh(
            row.last_id,
            Outcome(row.outcome),
            row.started_ms,
            row.finished_ms,
            row.rows_inserted,
            row.rows_updated,
            row.rows_deleted,
            row.error["code"] if row.error else None,
            stored_error(row.error),
        ),
        compared=None if row.total is None else Compared(int(row.completed), row.total),
        num_rows=row.num_rows,
        num_bytes=row.main_bytes,
        is_late=is_late(None if last_check is None else last_check.as_of_ms(measured_from), row.now_ms, row.target_s),
        measured_from=measured_from,
        obstacle=None
        if row.met is None
        else Obstacle(ErrorReport(**row.met), row.met_since_ms, row.met_last_ms, row.num_tries),
        is_published=row.published_version is not None,
        newest_end=None
        if row.newest_end_outcome is None
        else Ended(
            row.newest_end_ms,
            Outcome(row.newest_end_outcome),
            stored_error(row.newest_end_error),
        ),
    )


_NO_RESULT = (Outcome.RUNNING, Outcome.DIFFERENCES)  # not ended, or only compared, which hides no failure


def _newest_but(*outcomes: Outcome) -> ScalarSelect[str]:
    """Return the id of a table's newest refresh that is not read-only and has another outcome; an index lookup."""
    wanted = (_newest.table_id == Table.id, _newest.is_read_only.is_(False), ~_newest.outcome.in_(outcomes))
    newest = select(_newest.id).where(*wanted).order_by(_newest.number.desc()).limit(1)
    return newest.correlate(Table).scalar_subquery()


def _num_rows() -> ScalarSelect[int]:
    """Return how many rows main had after a table's newest published refresh of everything; one index lookup."""
    last = _last_published
    is_last = (last.table_id == Table.id, last.outcome == Outcome.PUBLISHED, last.is_whole.is_(True))
    rows = select(last.rows_inserted + last.rows_updated + last.rows_unchanged).where(*is_last)
    return rows.order_by(last.number.desc()).limit(1).correlate(Table).scalar_subquery()


def _last_good() -> ColumnElement[int]:
    """Return the number of a table's newest good refresh of everything; 0 if there is none; two index lookups."""
    is_whole = (Refresh.table_id == Table.id, Refresh.is_whole.is_(True))
    number = select(func.max(Refresh.number))
    published, idle = (
        func.coalesce(number.where(*is_whole, Refresh.outcome == outcome).correlate(Table).scalar_subquery(), 0)
        for outcome in (Outcome.PUBLISHED, Outcome.NOTHING_TO_DO)
    )
    return case((published > idle, published), else_=idle)
