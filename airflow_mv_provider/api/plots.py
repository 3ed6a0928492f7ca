"""Coordinates of the bars in the page's charts. The templates render them as SVG, so all text is escaped there.

All charts have one width; a browser scales them to the available space.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from airflow_mv_provider.api import words
from airflow_mv_provider.api.airflow_database import TaskTry
from airflow_mv_provider.api.attempts import LOST, WORKING, Work, waited_s
from airflow_mv_provider.core.outcome import Outcome, RefreshReport
from airflow_mv_provider.core.phase import Phase
from airflow_mv_provider.report_text.figures import number, size

WIDTH, AXIS = 320, 66  # of what is drawn; of the axis's texts, at its left
_HEIGHT, _TOP, _MARKS = 96, 14, 8  # heights: bars; the label above them; the outcomes' marks below
_APART = 10  # the least height between two texts of the axis
_LANE = 22
_MIN_SLOT, _MAX_SLOT = 3.0, 16.0


@dataclass(frozen=True, slots=True)
class Bar:
    """One rectangle; `kind` is its CSS class."""

    x: float
    y: float
    width: float
    height: float
    kind: str
    title: str = ""


@dataclass(frozen=True, slots=True)
class Tick:
    """A value of the axis at the left: a line across the chart, and its text before it."""

    y: float
    text: str


@dataclass(frozen=True, slots=True)
class Stroke:
    """A piece of a line through the points `points`, an SVG list; `kind` is its CSS class."""

    points: str
    kind: str


@dataclass(frozen=True, slots=True)
class Hit:
    """The whole height of one column, which leads to its refreshes.

    leads : address within the table's own
    """

    x: float
    width: float
    leads: str
    title: str


@dataclass(frozen=True, slots=True)
class Plot:
    """A chart of one measure, oldest at the left: bars, or a line for what is a level.

    about  : of which refreshes, in words
    ticks  : bars above the line of zero are gains, bars below it losses
    target : y of a line that no bar should cross; None for no line
    ends   : what stands under the left end and the right one; empty for nothing
    hits   : columns that lead somewhere
    """

    title: str
    about: str
    legend: tuple[tuple[str, str], ...]
    most: str
    bars: tuple[Bar, ...]
    marks: tuple[Bar, ...]
    ticks: tuple[Tick, ...]
    strokes: tuple[Stroke, ...] = ()
    target: float | None = None
    ends: tuple[str, ...] = ()
    hits: tuple[Hit, ...] = ()
    axis: int = AXIS
    width: int = WIDTH
    height: int = _TOP + _HEIGHT + _MARKS


@dataclass(frozen=True, slots=True)
class Lane:
    """The phases of one attempt of a refresh, along the time since the refresh began.

    task : Airflow's task and try that worked, if it was one and the user may see it
    """

    label: str
    title: str
    task: TaskTry | None
    y: float
    bars: tuple[Bar, ...]


@dataclass(frozen=True, slots=True)
class Timeline:
    """A refresh from its begin to its end, or to now; one lane for each attempt."""

    lanes: tuple[Lane, ...]
    length: str
    legend: tuple[tuple[str, str], ...]
    height: float
    width: int = WIDTH * 2
    bar_height: int = _LANE - 8


@dataclass(frozen=True, slots=True)
class Stack:
    """One column of a bar chart: its parts, each a CSS class with a value, above the zero line and below it.

    said  : when and of what, in words
    mark  : CSS class of the mark under the chart; empty for none
    leads : address of its refreshes within the table's own; empty for none
    """

    said: str
    up: Sequence[tuple[str, float]] = ()
    down: Sequence[tuple[str, float]] = ()
    mark: str = ""
    leads: str = ""


_Parts = Callable[[RefreshReport], Sequence[tuple[str, float]]]


def history_plots(reports: Sequence[RefreshReport]) -> tuple[Plot, ...]:
    """Return charts of rows, duration and bytes of the refreshes that have ended.

    reports : newest first
    """
    ended = [r for r in reversed(reports) if r.outcome is not Outcome.RUNNING]
    if not ended:
        return ()
    return (
        _plot(
            "Rows changed",
            ended,
            (("inserted", "inserted"), ("updated", "updated"), ("deleted", "deleted")),
            lambda r: (("inserted", r.rows_inserted), ("updated", r.rows_updated)),
            lambda r: (("deleted", r.rows_deleted),),
            lambda value: number(round(value)),
        ),
        _plot(
            "Duration",
            ended,
            (*((phase.lower(), words.phase_word(phase)) for phase in WORKING), ("waiting", "Waiting")),
            lambda r: (
                *((phase.lower(), r.phase_seconds.get(phase, 0.0)) for phase in WORKING),
                ("waiting", waited_s(r)),
            ),
            lambda r: (),
            words.short,
        ),
        _plot(
            "Bytes written",
            ended,
            (("main", "to the table"), ("staging", "to staging")),
            lambda r: (("main", r.bytes_main), ("staging", r.bytes_staging)),
            lambda r: (),
            lambda value: size(round(value)),
        ),
    )


def timeline(report: RefreshReport, work: Sequence[Work], now_ms: int) -> Timeline | None:
    """Return a lane for each attempt of a refresh, along the time; None for a refresh without attempts."""
    began, ended = words.ms_of(report.started_at), words.ms_of(report.finished_at)
    if began is None or not work:
        return None
    until = ended or max(now_ms, began)
    whole = max(1, until - began, *(each.start_ms + sum(ms for _, ms in each.parts) for each in work))
    scale = WIDTH * 2 / whole
    lanes = []
    for row, each in enumerate(work):
        bars, at = [], each.start_ms * scale
        for phase, ms in each.parts:
            width = max(ms * scale, 1.5)
            bars.append(Bar(at, row * _LANE + 4, width, _LANE - 8, _kind(phase), _took(phase, ms)))
            at += width
        label = each.task.text if each.task else f"Attempt {row + 1}: {each.attempt.phase.lower()}"
        title = f"Attempt {row + 1}, {words.process_text(each.attempt.process)}"
        lanes.append(Lane(label, title, each.task, row * _LANE + _LANE / 2, tuple(bars)))
    spent = [part for each in work for part in each.parts]
    legend = tuple(
        (_kind(phase), _took(phase, sum(ms for p, ms in spent if p is phase)))
        for phase in (*WORKING, LOST, None)
        if any(p is phase for p, _ in spent)
    )
    return Timeline(tuple(lanes), words.short(whole / 1000), legend, len(lanes) * _LANE)


def _kind(phase: Phase | str | None) -> str:
    return "waiting" if phase is None else phase.lower()


def _took(phase: Phase | str | None, ms: float) -> str:
    name = "Waiting" if phase is None else "Killed, work lost" if phase == LOST else phase.capitalize()
    return f"{name} {words.short(ms / 1000)}"


def _plot(
    title: str,
    reports: Sequence[RefreshReport],
    legend: tuple[tuple[str, str], ...],
    up: _Parts,
    down: _Parts,
    text_of: Callable[[float], str],
) -> Plot:
    stacks = [
        Stack(
            f"{(report.started_at or '')[:16].replace('T', ' ')} {words.outcome_word(report.outcome)}",
            *(up(report), down(report)),
            f"tone-{words.TONES[report.outcome]}",
            f"refreshes/{report.refresh_id}",
        )
        for report in reports
    ]
    slot = min(max(WIDTH / len(reports), _MIN_SLOT), _MAX_SLOT)
    return stacked(title, "of the last refreshes, oldest first", stacks, legend, text_of, slot=slot)


def stacked(
    title: str,
    about: str,
    stacks: Sequence[Stack | None],
    legend: tuple[tuple[str, str], ...],
    text_of: Callable[[float], str],
    *,
    slot: float,
    target: float | None = None,
    ends: tuple[str, ...] = (),
    is_level: bool = False,
) -> Plot:
    """Return a bar chart of columns that each take the width `slot`, the last one at the right; None leaves a gap.

    target   : the value at which a line is drawn
    is_level : each column is one value that holds until the next: a line instead of bars
    """
    shown = [stack for stack in stacks if stack is not None]
    highest = max(target or 0.0, *(sum(value for _, value in stack.up) for stack in shown), 0.0)
    lowest = max((sum(value for _, value in stack.down) for stack in shown), default=0.0)
    scale = _HEIGHT / ((highest + lowest) or 1)
    zero = _TOP + highest * scale if highest + lowest else _TOP + _HEIGHT
    bars, marks, hits = [], [], []
    points: list[tuple[float, float, str]] = []
    for place, stack in enumerate(stacks):
        if stack is None:
            continue
        x, width = WIDTH - (len(stacks) - place) * slot, slot * 0.75
        parts = ", ".join(f"{text_of(value)} {name}" for name, value in (*stack.up, *stack.down))
        title_of = f"{stack.said}: {parts}" if parts else stack.said
        if stack.leads:
            hits.append(Hit(x, slot, stack.leads, title_of))
        if stack.mark:
            marks.append(Bar(x, _TOP + _HEIGHT + 3, width, _MARKS - 4, stack.mark, title_of))
        at = zero
        for kind, value in stack.up:
            if is_level:
                points.append((x + slot / 2, zero - value * scale, kind))
                bars.append(Bar(x, _TOP, slot, _HEIGHT, "level", title_of))
            elif value:
                height = max(value * scale, 1.0)
                at -= height
                bars.append(Bar(x, at, width, height, kind, title_of))
        for kind, value in stack.down:
            if value:
                bars.append(Bar(x, zero, width, max(value * scale, 1.0), kind, title_of))
    most = max((sum(value for _, value in stack.up) for stack in shown), default=0.0)
    most_text = text_of(most) if not lowest else f"+{text_of(most)} / −{text_of(lowest)}"
    ends_of_axis = (
        Tick(zero - highest * scale, text_of(highest)),
        Tick(zero + lowest * scale, f"−{text_of(lowest)}"),
    )
    return Plot(
        *(title, about, legend, most_text, tuple(bars), tuple(marks)),
        ticks=(Tick(zero, "0"), *(end for end in ends_of_axis if abs(end.y - zero) >= _APART)),
        strokes=_strokes(points),
        target=None if target is None else zero - target * scale,
        ends=ends,
        hits=tuple(hits),
    )


def _strokes(points: Sequence[tuple[float, float, str]]) -> tuple[Stroke, ...]:
    """Return the line through some points, in pieces of one kind; each piece begins where the one before it ends."""
    found: list[Stroke] = []
    for place, (x, y, kind) in enumerate(points):
        point = f"{x:.1f},{y:.1f}"
        if found and found[-1].kind == kind:
            found[-1] = Stroke(f"{found[-1].points} {point}", kind)
        else:
            before = f"{points[place - 1][0]:.1f},{points[place - 1][1]:.1f} " if place else ""
            found.append(Stroke(before + point, kind))
    return tuple(found)
