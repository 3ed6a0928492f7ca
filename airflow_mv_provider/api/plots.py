"""Coordinates of the bars in the page's charts. The templates render them as SVG, so all text is escaped there.

All charts have one width; a browser scales them to the available space.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from airflow_mv_provider.api import words
from airflow_mv_provider.api.airflow_database import TaskTry
from airflow_mv_provider.core.outcome import AttemptReport, Outcome, RefreshReport
from airflow_mv_provider.core.phase import Phase
from airflow_mv_provider.report_text.figures import number, size, total_seconds

WIDTH = 320
_HEIGHT, _TOP, _MARKS = 96, 14, 8  # heights: bars; the label above them; the outcomes' marks below
_LANE = 22
_MIN_SLOT, _MAX_SLOT = 3.0, 16.0
_WORKING = (Phase.REFRESHING, Phase.MERGING, Phase.CLEANUP)
_MIN_WAIT_MS = 100


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
class Plot:
    """A bar chart of one measure, oldest at the left.

    about  : of which refreshes, in words
    zero   : y of the zero line; bars above it are gains, bars below it losses
    target : y of a line that no bar should cross; None for no line
    ends   : what stands under the left end and the right one; empty for nothing
    """

    title: str
    about: str
    legend: tuple[tuple[str, str], ...]
    most: str
    zero: float
    bars: tuple[Bar, ...]
    marks: tuple[Bar, ...]
    target: float | None = None
    ends: tuple[str, ...] = ()
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

    said : when and of what, in words
    mark : CSS class of the mark under the chart; empty for none
    """

    said: str
    up: Sequence[tuple[str, float]] = ()
    down: Sequence[tuple[str, float]] = ()
    mark: str = ""


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
            (*((phase.lower(), words.phase_word(phase)) for phase in _WORKING), ("waiting", "waiting")),
            lambda r: (
                *((phase.lower(), r.phase_seconds.get(phase, 0.0)) for phase in _WORKING),
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


def waited_s(report: RefreshReport) -> float:
    """Return for how many seconds of a refresh that has ended no phase was worked on."""
    return max((total_seconds(report) or 0.0) - sum(report.phase_seconds.values()), 0.0)


def timeline(
    report: RefreshReport, now_ms: int, *, is_waiting: bool = False, tries: Sequence[TaskTry] = ()
) -> Timeline | None:
    """Return the phases of each attempt of a refresh over time; None for a refresh without attempts.

    Between its phases and the next attempt's begin nobody worked, because a task and its Spark had to start; or a
    process worked that was killed, until Airflow noticed its end. Spark starts before an attempt begins, so an attempt
    begins with its work.

    is_waiting : no process works on the refresh now
    tries      : of the tasks of the runs that worked on it, as far as the user may see them
    """
    began, ended = words.ms_of(report.started_at), words.ms_of(report.finished_at)
    if began is None or not report.attempts:
        return None
    until = ended or max(now_ms, began)
    starts = [(words.ms_of(a.started_at) or began) - began for a in report.attempts]
    ends = [*starts[1:], until - began]
    lengths = [end - start for start, end in zip(starts, ends, strict=True)]
    tasks = [task_of(attempt, tries) for attempt in report.attempts]
    spent = [
        _spent(attempt, ms, report, _killed_ms(task, began + start), is_waiting=is_waiting)
        for attempt, ms, task, start in zip(report.attempts, lengths, tasks, starts, strict=True)
    ]
    whole = max(
        1, until - began, *(start + sum(ms for _, ms in parts) for start, parts in zip(starts, spent, strict=True))
    )
    scale = WIDTH * 2 / whole
    lanes = []
    for row, (attempt, start, parts, task) in enumerate(zip(report.attempts, starts, spent, tasks, strict=True)):
        bars, at = [], start * scale
        for phase, ms in parts:
            width = max(ms * scale, 1.5)
            bars.append(Bar(at, row * _LANE + 4, width, _LANE - 8, _kind(phase), _took(phase, ms)))
            at += width
        label = task.text if task else f"Attempt {row + 1}: {attempt.phase.lower()}"
        title = f"epoch {attempt.epoch}, {words.process_text(attempt.process)}"
        lanes.append(Lane(label, title, task, row * _LANE + _LANE / 2, tuple(bars)))
    legend = tuple(
        (_kind(phase), _took(phase, sum(ms for parts in spent for p, ms in parts if p is phase)))
        for phase in (*_WORKING, _LOST, None)
        if any(p is phase for parts in spent for p, _ in parts)
    )
    return Timeline(tuple(lanes), words.short(whole / 1000), legend, len(lanes) * _LANE)


def task_of(attempt: AttemptReport, tries: Sequence[TaskTry]) -> TaskTry | None:
    """Return the task and try whose process made an attempt; None for another caller, or a process of its own.

    tries : in the order in which they started
    """
    run, began = words.run_of(attempt.owner_key), words.ms_of(attempt.started_at)
    pid = attempt.process.rpartition(":")[2]
    found = [
        each
        for each in tries
        if (each.dag_id, each.run_id) == run
        and words.is_of(attempt.owner_key, each.task_id, each.map_index)
        and str(each.pid) == pid
        and each.started_ms is not None
        and began is not None
        and each.started_ms <= began + _CLOCKS_MS
    ]
    return found[-1] if found else None


def _killed_ms(task: TaskTry | None, start_ms: int) -> float | None:
    """Return for how long a process worked that did not come to its own end; None if it did, or nobody knows."""
    if task is None or task.ended_ms is None or task.state not in ("failed", "up_for_retry"):
        return None
    return task.ended_ms - start_ms


_LOST = "lost"  # the work of a killed process
_CLOCKS_MS = 5_000  # Airflow's clock and the metadata database's may differ by so much
_Spent = Sequence[tuple[Phase | str | None, float]]  # milliseconds; None is waiting


def _spent(
    attempt: AttemptReport, length: float, report: RefreshReport, killed: float | None, *, is_waiting: bool
) -> _Spent:
    """Return one epoch's phases, what was lost and its wait, in the order of time.

    length : milliseconds until the next attempt began, or the refresh ended, or until now
    killed : milliseconds after which its process was killed
    """
    known = [(phase, attempt.phase_seconds[phase] * 1000) for phase in _WORKING if phase in attempt.phase_seconds]
    rest = length - sum(ms for _, ms in known)
    if rest < _MIN_WAIT_MS:
        return known
    if attempt is not report.attempts[-1] or is_waiting:
        lost = min(max((killed or 0) - (length - rest), 0), rest)
        return [*known, *(((_LOST, lost),) if lost else ()), *(((None, rest - lost),) if lost < rest else ())]
    if report.outcome is Outcome.RUNNING:
        return [*known, (report.phase, rest)]
    return [(None, rest), *known]  # its last phase's end was the refresh's: it prepared before


def _kind(phase: Phase | str | None) -> str:
    return "waiting" if phase is None else phase.lower()


def _took(phase: Phase | str | None, ms: float) -> str:
    name = "Waiting" if phase is None else "Killed, work lost" if phase == _LOST else phase.capitalize()
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
) -> Plot:
    """Return a bar chart of columns that each take the width `slot`, the last one at the right; None leaves a gap.

    target : the value at which a line is drawn
    """
    shown = [stack for stack in stacks if stack is not None]
    highest = max(target or 0.0, *(sum(value for _, value in stack.up) for stack in shown), 0.0)
    lowest = max((sum(value for _, value in stack.down) for stack in shown), default=0.0)
    scale = _HEIGHT / ((highest + lowest) or 1)
    zero = _TOP + highest * scale if highest + lowest else _TOP + _HEIGHT
    bars, marks = [], []
    for place, stack in enumerate(stacks):
        if stack is None:
            continue
        x, width = WIDTH - (len(stacks) - place) * slot, slot * 0.75
        parts = ", ".join(f"{text_of(value)} {name}" for name, value in (*stack.up, *stack.down))
        title_of = f"{stack.said}: {parts}" if parts else stack.said
        if stack.mark:
            marks.append(Bar(x, _TOP + _HEIGHT + 3, width, _MARKS - 4, stack.mark, title_of))
        at = zero
        for kind, value in stack.up:
            if value:
                height = max(value * scale, 1.0)
                at -= height
                bars.append(Bar(x, at, width, height, kind, title_of))
        for kind, value in stack.down:
            if value:
                bars.append(Bar(x, zero, width, max(value * scale, 1.0), kind, title_of))
    most = max((sum(value for _, value in stack.up) for stack in shown), default=0.0)
    most_text = text_of(most) if not lowest else f"+{text_of(most)} / −{text_of(lowest)}"
    line = None if target is None else zero - target * scale
    return Plot(title, about, legend, most_text, zero, tuple(bars), tuple(marks), line, ends)
