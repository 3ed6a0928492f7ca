"""What a table's refreshes have recorded over time, by slots: one query, in which the database adds up."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import (
    CTE,
    BigInteger,
    ColumnElement,
    Connection,
    Float,
    and_,
    case,
    cast,
    func,
    literal,
    null,
    or_,
    select,
    true,
)
from sqlalchemy.orm import aliased

from airflow_mv_provider.core.definition.freshness import MeasuredFrom
from airflow_mv_provider.core.outcome import GOOD, Outcome
from airflow_mv_provider.core.phase import Phase
from airflow_mv_provider.exceptions import TableNotFoundError
from airflow_mv_provider.metadata.history.slots import (
    NUM_SLOTS,
    STEPS_MS,
    Recorded,
    Slot,
    TimeRange,
    slot_length,
    slots_of,
)
from airflow_mv_provider.metadata.models import RefreshableTableRow as Table
from airflow_mv_provider.metadata.models import RefreshRow as Refresh
from airflow_mv_provider.metadata.rows import checked_source_ms

WAITING = "WAITING"  # beside the phases: the time in which none was worked on
_PHASES = tuple(phase.value for phase in (Phase.REFRESHING, Phase.MERGING, Phase.CLEANUP))
_ENDINGS = {
    "published": (Outcome.PUBLISHED,),
    "idle": (Outcome.NOTHING_TO_DO,),
    "stopped": (Outcome.REFUSED, Outcome.CANCELLED, Outcome.ABANDONED),
    "failed": (Outcome.FAILED,),
}
_TOTALS = (*_ENDINGS, "rows_inserted", "rows_updated", "rows_deleted", "bytes_main", "bytes_staging")
_GREATEST = ("longest_ms", "num_rows", "lag_ms", "fresh_ms", "has_good")


@dataclass(frozen=True, slots=True)
class OverTime:
    """A table's history in slots of time, oldest first.

    target_s : its freshness target, as the definition has it now; None without one
    measured_from : from which time its age is counted, as the definition has it now
    """

    table: str
    now_ms: int
    asked: TimeRange
    slot_ms: int
    target_s: int | None
    measured_from: MeasuredFrom
    slots: tuple[Slot, ...]

    @property
    def facts(self) -> OverTime:
        """What was recorded, without what grows with the time: now, and the lag up to now."""
        last = tuple(replace(slot, lag_ms=None) for slot in self.slots[-1:])
        return replace(self, now_ms=0, slots=(*self.slots[:-1], *last))


def over_time(db: Connection, name: str, now: ColumnElement[int], asked: TimeRange) -> OverTime:
    """Return what a table's refreshes have recorded in a range of time.

    raises : TableNotFoundError
    cost   : one query; it reads the refreshes of the range, and back to the second good one of everything before it
    """
    span = _span(name, now, asked)
    ended = _ended(span)
    seconds = [func.sum(ended.c[phase]).label(phase) for phase in (*_PHASES, WAITING)]
    by_slot = (
        select(
            ended.c.number,
            *(func.sum(ended.c[each]).label(each) for each in _TOTALS),
            *(func.max(ended.c[each]).label(each) for each in (*_GREATEST, "refresh_id")),
            *seconds,
        )
        .group_by(ended.c.number)
        .subquery("by_slot")
    )
    query = select(span, *by_slot.c).select_from(span.outerjoin(by_slot, true())).order_by(by_slot.c.number)
    rows = db.execute(query).all()
    if not rows:
        raise TableNotFoundError.of(name)
    about = rows[0]
    recorded = [_recorded(row) for row in rows if row.number is not None]
    slots = slots_of(recorded, about.first_slot, about.slot_ms, about.now_ms)
    measured_from = MeasuredFrom(about.measured_from or MeasuredFrom.CHECK)
    return OverTime(about.name, about.now_ms, asked, about.slot_ms, about.target_s, measured_from, slots)


def _span(name: str, now: ColumnElement[int], asked: TimeRange) -> CTE:
    """Return one row: the table, and which slots are asked for.

    back_ms : a refresh that began before this time does not matter. The age of main at the first slot's begin is known
              from the last good refresh before, and from the one before that if the last one ended in the slot.
    """
    first = select(func.min(Refresh.started_ms)).where(Refresh.table_id == Table.id).correlate(Table).scalar_subquery()
    about = (
        select(
            Table.id.label("table_id"),
            Table.name,
            Table.definition[("freshness", "target")].as_integer().label("target_s"),
            Table.definition[("freshness", "measured_from")].as_string().label("measured_from"),
            now.label("now_ms"),
            (first if asked is TimeRange.ALL else null()).label("first_ms"),
        )
        .where(Table.name == name)
        .cte("about")
    )
    length_ms = asked.length_ms
    began_ms: ColumnElement[Any]
    slot_ms: ColumnElement[Any]
    if length_ms is None:
        began_ms = func.coalesce(about.c.first_ms, about.c.now_ms)
        steps = [(step, literal(step, BigInteger)) for step in STEPS_MS]
        is_enough = [(about.c.now_ms - began_ms <= NUM_SLOTS * step, of_sql) for step, of_sql in steps]
        slot_ms = case(*is_enough, else_=steps[-1][1])  # `slot_length` in SQL
    else:
        began_ms, slot_ms = about.c.now_ms - length_ms, literal(slot_length(length_ms), BigInteger)
    named = select(about, slot_ms.label("slot_ms"), began_ms.label("began_ms")).cte("named")
    first_slot = named.c.began_ms // named.c.slot_ms
    before = aliased(Refresh)
    is_good = (before.outcome.in_(sorted(GOOD)), before.is_whole.is_(True))
    second = (
        select(before.started_ms)
        .where(before.table_id == named.c.table_id, before.started_ms < first_slot * named.c.slot_ms, *is_good)
        .order_by(before.started_ms.desc())
        .offset(1)
        .limit(1)
        .correlate(named)
        .scalar_subquery()
    )
    return select(named, first_slot.label("first_slot"), func.coalesce(second, 0).label("back_ms")).cte("span")


def _ended(span: CTE) -> CTE:
    """Return a row for each refresh that ended: its slot, and what it adds to it."""
    started, finished = Refresh.started_ms, Refresh.finished_ms
    is_early = finished < span.c.first_slot * span.c.slot_ms
    is_published = Refresh.outcome == Outcome.PUBLISHED
    is_good = and_(Refresh.outcome.in_(sorted(GOOD)), Refresh.is_whole.is_(True))
    is_total = and_(is_published, Refresh.is_whole.is_(True))
    known = {phase: func.coalesce(Refresh.phase_seconds[phase].as_float(), 0.0) for phase in _PHASES}
    seconds = {phase: case((is_published, found), else_=0.0) for phase, found in known.items()}
    endings = {name: case((Refresh.outcome.in_(outcomes), 1), else_=0) for name, outcomes in _ENDINGS.items()}
    facts = (
        select(
            case((is_early, span.c.first_slot - 1), else_=finished // span.c.slot_ms).label("number"),
            Refresh.number.label("place"),
            Refresh.id.label("refresh_id"),
            started,
            finished,
            *(column.label(name) for name, column in endings.items()),
            *(Refresh.rows_inserted, Refresh.rows_updated, Refresh.rows_deleted, Refresh.rows_unchanged),
            *(Refresh.bytes_main, Refresh.bytes_staging, Refresh.has_committed, Refresh.is_of_source),
            _as_of_ms(span).label("as_of_ms"),
            *(column.label(phase) for phase, column in seconds.items()),
            case((is_good, 1), else_=0).label("is_good"),
            case((is_total, 1), else_=0).label("is_total"),
        )
        .join(span, and_(Refresh.table_id == span.c.table_id, started >= span.c.back_ms))
        .where(finished.is_not(None), Refresh.is_read_only.is_(False))
        .where(Refresh.outcome.in_([each for found in _ENDINGS.values() for each in found]))
        .cte("facts")
    )
    return _measured(facts)


def _as_of_ms(span: CTE) -> ColumnElement[int | None]:
    """Return the time from which main's age counts after a good refresh of everything, as `SourceCheck.as_of_ms`."""
    is_by_source = and_(span.c.measured_from == MeasuredFrom.SOURCE, Refresh.source_ms < checked_source_ms())
    return case((~Refresh.is_of_source, null()), (is_by_source, Refresh.source_ms), else_=checked_source_ms())


def _measured(facts: CTE) -> CTE:
    """Return what each of these refreshes adds to its slot, given the ones of its kind before and after it."""
    found = facts.c
    placed = select(
        *found,
        func.lag(found.as_of_ms).over(partition_by=found.is_good, order_by=found.place).label("before_ms"),
        func.lead(found.number).over(partition_by=found.is_good, order_by=found.place).label("next_good"),
        func.lead(found.number).over(partition_by=found.is_total, order_by=found.place).label("next_total"),
    )
    one = placed.subquery("placed").c
    is_last_good = and_(one.is_good == 1, or_(one.next_good.is_(None), one.next_good != one.number))
    is_last_total = and_(one.is_total == 1, or_(one.next_total.is_(None), one.next_total != one.number))
    # A progressive refresh that was stopped has changed partitions all the same.
    has_changed = or_(one.published == 1, one.has_committed.is_(True))
    took_ms = one.finished_ms - one.started_ms
    waited = cast(took_ms, Float) / 1000.0 - sum((one[phase] for phase in _PHASES), literal(0.0, Float))
    rows = ("rows_inserted", "rows_updated", "rows_deleted")
    num_rows = one.rows_inserted + one.rows_updated + one.rows_unchanged
    return select(
        *(one.number, *(one[name] for name in _ENDINGS), one.bytes_main, one.bytes_staging),
        *(case((has_changed, one[name]), else_=0).label(name) for name in rows),
        *(one[phase] for phase in _PHASES),
        case((and_(one.published == 1, waited > 0), waited), else_=0.0).label(WAITING),
        case((one.published == 1, took_ms)).label("longest_ms"),
        case((is_last_total, num_rows)).label("num_rows"),
        case((one.is_good == 1, one.finished_ms - one.before_ms)).label("lag_ms"),
        case((is_last_good, one.as_of_ms)).label("fresh_ms"),
        one.is_good.label("has_good"),
        one.refresh_id,
    ).cte("ended")


def _recorded(row: Any) -> Recorded:
    whole: dict[str, Any] = {name: int(getattr(row, name)) for name in _TOTALS}  # PostgreSQL adds up in decimals
    seconds = {phase: float(getattr(row, phase)) for phase in (*_PHASES, WAITING)}
    known = {name: getattr(row, name) for name in (*_GREATEST[:-1], "refresh_id")}
    return Recorded(int(row.number), **whole, phase_seconds=seconds, **known, has_good=bool(row.has_good))
