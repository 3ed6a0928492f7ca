"""The page of a table over time: a chart for each measure, and the same figures as a table beside it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from airflow_mv_provider.api import words
from airflow_mv_provider.api.plots import WIDTH, Plot, Stack, stacked
from airflow_mv_provider.core.definition.freshness import MeasuredFrom
from airflow_mv_provider.core.freshness.lateness import is_late
from airflow_mv_provider.core.phase import Phase
from airflow_mv_provider.metadata.history.over_time import WAITING, OverTime
from airflow_mv_provider.metadata.history.slots import Recorded, Slot, TimeRange
from airflow_mv_provider.report_text.figures import number, size
from airflow_mv_provider.report_text.freshness_text import measure_text

DEFAULT_RANGE = TimeRange.WEEK
RANGES = ((TimeRange.DAY, "24 hours"), (TimeRange.WEEK, "7 days"), (TimeRange.MONTH, "30 days"), (TimeRange.ALL, "All"))
_DAY_MS = 86_400_000
_SPENT = (Phase.REFRESHING, Phase.MERGING, Phase.CLEANUP, WAITING)
_ROWS = ("rows_inserted", "rows_updated", "rows_deleted")
_ENDINGS = (
    *(("published", "published"), ("idle", "with nothing to do")),
    *(("stopped", "refused, cancelled or abandoned"), ("failed", "failed")),
)
_NOTHING = Recorded(0)


def range_of(text: str) -> TimeRange:
    """Return the range that an address asks for; any other text means the default."""
    return TimeRange(text) if text in set(TimeRange) else DEFAULT_RANGE


@dataclass(frozen=True, slots=True)
class Line:
    """The figures of one slot.

    leads : address of the refreshes that ended in it, within the table's own; empty if none did
    """

    when: str
    leads: str
    cells: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Figure:
    """A chart, and its figures: a line for each slot that has one, the newest first.

    name : for ids within the page
    """

    name: str
    plot: Plot
    columns: tuple[str, ...]
    lines: tuple[Line, ...]


@dataclass(frozen=True, slots=True)
class TimeCharts:
    """The data of the page.

    since   : begin of the first slot, in words; empty if there is none
    each    : the length of a slot, in words
    endings : how many refreshes ended in the range, by how they ended, in words
    changed : main's rows changed in the range, as `parts.rows_changed` takes them
    lag_ms  : how old main is now; None if that is not known
    measure : from when that counts, in words
    """

    table: str
    now_ms: int
    asked: TimeRange
    since: str
    each: str
    endings: tuple[tuple[int, str], ...]
    changed: dict[str, int]
    lag_ms: int | None
    target_s: int | None
    measure: str
    is_late: bool
    figures: tuple[Figure, ...]

    @property
    def is_empty(self) -> bool:
        """True if nothing is known of the range."""
        return not any(figure.lines for figure in self.figures)


@dataclass(frozen=True, slots=True)
class _Measure:
    """One measure of a slot.

    parts  : of its column in the chart, each a CSS class with a value; None for a slot without a figure
    down   : the classes of parts that are losses
    is_level : it holds from one slot to the next, so a line shows it
    cells  : of its line in the table
    target : the value that it should not exceed
    """

    name: str
    title: str
    legend: tuple[tuple[str, str], ...]
    columns: tuple[str, ...]
    parts: Callable[[Slot], Sequence[tuple[str, float]] | None]
    cells: Callable[[Slot], tuple[str, ...]]
    text_of: Callable[[float], str]
    down: tuple[str, ...] = ()
    has_marks: bool = True
    is_level: bool = False
    target: float | None = None


def time_charts(found: OverTime) -> TimeCharts:
    """Return the page of a table over time."""
    known = [slot.recorded for slot in found.slots if slot.recorded is not None]
    counts = [(sum(getattr(each, name) for each in known), word) for name, word in _ENDINGS]
    since = _moment(found.slots[0].start_ms, found.slot_ms) if found.slots else ""
    fresh_ms = found.slots[-1].fresh_ms if found.slots else None
    measures = (_rows(), _changed(), _duration(), _written(), _lag(found.target_s, found.measured_from))
    return TimeCharts(
        table=found.table,
        now_ms=found.now_ms,
        asked=found.asked,
        since=since,
        each=words.short(found.slot_ms / 1000),
        endings=tuple((count, word) for count, word in counts if count),
        changed={name: sum(getattr(each, name) for each in known) for name in _ROWS},
        lag_ms=None if fresh_ms is None else max(0, found.now_ms - fresh_ms),
        target_s=found.target_s,
        measure=measure_text(found.measured_from),
        is_late=is_late(fresh_ms, found.now_ms, found.target_s),
        figures=tuple(_figure(measure, found, since) for measure in measures),
    )


def _rows() -> _Measure:
    return _Measure(
        name="rows",
        title="Rows in total",
        legend=(("rows", "after the last published refresh of everything"),),
        columns=("Rows",),
        parts=lambda slot: None if _of(slot).num_rows is None else (("rows", _of(slot).num_rows or 0),),
        cells=lambda slot: (number(_of(slot).num_rows or 0),),
        text_of=_count,
        is_level=True,
    )


def _changed() -> _Measure:
    kinds = tuple(name.removeprefix("rows_") for name in _ROWS)
    return _Measure(
        name="changed",
        title="Rows changed",
        legend=tuple((kind, kind) for kind in kinds),
        columns=tuple(kind.capitalize() for kind in kinds),
        parts=lambda slot: (
            tuple((kind, getattr(slot.recorded, name)) for kind, name in zip(kinds, _ROWS, strict=True))
            if slot.recorded
            else None
        ),
        cells=lambda slot: tuple(number(getattr(slot.recorded, name)) for name in _ROWS),
        text_of=_count,
        down=("deleted",),
    )


def _duration() -> _Measure:
    def seconds(slot: Slot) -> tuple[tuple[str, float], ...] | None:
        each = _of(slot)
        if not each.published:
            return None
        return tuple((kind.lower(), each.phase_seconds.get(kind, 0.0) / each.published) for kind in _SPENT)

    def cells(slot: Slot) -> tuple[str, ...]:
        values = [value for _, value in seconds(slot) or ()]
        values_shown = (*values, sum(values), (_of(slot).longest_ms or 0) / 1000)
        return (*(words.short(value) for value in values_shown), number(_of(slot).published))

    return _Measure(
        name="duration",
        title="Duration, on average",
        legend=tuple((kind.lower(), kind.capitalize()) for kind in _SPENT),
        columns=(*(kind.capitalize() for kind in _SPENT), "Average", "Longest", "Published"),
        parts=seconds,
        cells=cells,
        text_of=words.short,
    )


def _written() -> _Measure:
    return _Measure(
        name="bytes",
        title="Bytes written",
        legend=(("main", "to the table"), ("staging", "to staging")),
        columns=("To the table", "To staging"),
        parts=lambda slot: (
            (("main", slot.recorded.bytes_main), ("staging", slot.recorded.bytes_staging)) if slot.recorded else None
        ),
        cells=lambda slot: (size(_of(slot).bytes_main), size(_of(slot).bytes_staging)),
        text_of=lambda value: size(round(value)),
    )


def _lag(target_s: int | None, measured_from: MeasuredFrom) -> _Measure:
    def kind(slot: Slot) -> str:
        return "lag" if target_s is None or (slot.lag_ms or 0) <= target_s * 1000 else "late"

    def cells(slot: Slot) -> tuple[str, ...]:
        lag = words.short((slot.lag_ms or 0) / 1000)
        return (lag,) if target_s is None else (lag, "yes" if kind(slot) == "late" else "no")

    late = (("late", "over the target"), ("target", f"target {words.short(target_s)}")) if target_s else ()
    return _Measure(
        name="lag",
        title="Lag, at most",
        legend=(("lag", measure_text(measured_from)), *late),
        columns=("Lag", "Over the target") if target_s else ("Lag",),
        parts=lambda slot: None if slot.lag_ms is None else ((kind(slot), slot.lag_ms / 1000),),
        cells=cells,
        text_of=words.short,
        has_marks=False,
        is_level=True,
        target=target_s,
    )


def _figure(measure: _Measure, found: OverTime, since: str) -> Figure:
    stacks: list[Stack | None] = []
    lines = []
    for slot in found.slots:
        when, parts = _moment(slot.start_ms, found.slot_ms), measure.parts(slot)
        mark = _mark(slot.recorded) if measure.has_marks else ""
        leads = _leads(slot, found.slot_ms)
        if parts is not None:
            up = [part for part in parts if part[0] not in measure.down]
            stacks.append(Stack(when, up, [part for part in parts if part[0] in measure.down], mark, leads))
            lines.append(Line(when, leads, measure.cells(slot)))
        else:  # a gap; under it, that refreshes have ended
            stacks.append(Stack(f"{when}: nothing recorded", mark=mark, leads=leads) if mark else None)
    about = f"by {words.short(found.slot_ms / 1000)} since {since} UTC, oldest first"
    width = WIDTH / max(len(stacks), 1)
    plot = stacked(
        *(measure.title, about, stacks, measure.legend, measure.text_of),
        slot=width,
        target=measure.target,
        ends=(since, "now"),
        is_level=measure.is_level,
    )
    return Figure(measure.name, plot, measure.columns, tuple(reversed(lines)))


def _leads(slot: Slot, slot_ms: int) -> str:
    """Return the address of the refresh that ended in a slot; of a list, if there was more than one."""
    found = _of(slot)
    if found.num_ended == 1 and found.refresh_id is not None:
        return f"refreshes/{found.refresh_id}"
    bounds = (slot.start_ms, slot.start_ms + slot_ms)
    since, until = (f"{datetime.fromtimestamp(ms / 1000, UTC):%Y-%m-%dT%H:%MZ}" for ms in bounds)
    return f"refreshes?from={since}&until={until}" if found.num_ended else ""


def _of(slot: Slot) -> Recorded:
    return slot.recorded or _NOTHING


def _mark(recorded: Recorded | None) -> str:
    """Return the colour of the worst ending in a slot; empty if no refresh ended in it."""
    if recorded is None:
        return ""
    return "tone-bad" if recorded.failed else "tone-warn" if recorded.stopped else "tone-good"


def _count(value: float) -> str:
    return number(round(value))


def _moment(ms: int, slot_ms: int) -> str:
    """Return the begin of a slot in UTC, to the minute; to the day if slots are at least as long."""
    text = datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%d %H:%M")
    return text[:10] if slot_ms >= _DAY_MS else text
