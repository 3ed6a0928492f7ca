"""Where the bars stand: a refresh along its time, and the last refreshes beside each other."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from airflow_mv_provider.api import words
from airflow_mv_provider.api.airflow_database import TaskTry
from airflow_mv_provider.api.attempts import work_of
from airflow_mv_provider.api.plots import WIDTH, Stack, Timeline, history_plots, stacked, timeline
from airflow_mv_provider.core.outcome import AttemptReport, Outcome, RefreshReport
from airflow_mv_provider.core.phase import Phase

BEGAN = datetime(2026, 11, 22, 12, 0, tzinfo=UTC)


def after(seconds: float) -> str:
    return (BEGAN + timedelta(seconds=seconds)).isoformat()


def now(seconds: float) -> int:
    return round((BEGAN.timestamp() + seconds) * 1000)


DONE = RefreshReport(
    "orders",
    "r1",
    Outcome.PUBLISHED,
    started_at=after(0),
    finished_at=after(20),
    attempts=(
        AttemptReport(3, Phase.REFRESHING, "w:1", after(0), 2, {"REFRESHING": 10.0, "MERGING": 8.0, "CLEANUP": 2.0}),
    ),
    phase_seconds={"REFRESHING": 10.0, "MERGING": 8.0, "CLEANUP": 2.0},
    rows_inserted=30,
    rows_updated=10,
    rows_deleted=20,
    bytes_main=500,
    bytes_staging=1500,
)


def along(report: RefreshReport, now_ms: int, **more: Any) -> Timeline | None:
    """Return the picture of a refresh along its time; more: see `work_of`."""
    return timeline(report, work_of(report, now_ms, **more), now_ms)


def bars(drawn) -> list[list[tuple[str, float, float]]]:
    return [[(bar.kind, round(bar.x), round(bar.width)) for bar in lane.bars] for lane in drawn.lanes]


def test_a_refresh_is_as_long_as_its_phases():
    drawn = along(DONE, now(900))

    assert bars(drawn) == [[("refreshing", 0, WIDTH), ("merging", WIDTH, 256), ("cleanup", 576, 64)]]
    assert (drawn.length, [word for _, word in drawn.legend]) == (
        "20 s",
        ["Refreshing 10 s", "Merging 8.0 s", "Cleanup 2.0 s"],
    )


BY_TASKS = (
    AttemptReport(1, Phase.REFRESHING, "w:1", after(0)),
    AttemptReport(2, Phase.REFRESHING, "w:2", after(10), 0, {"REFRESHING": 5.0}),
    AttemptReport(3, Phase.MERGING, "w:3", after(20), 2, {"MERGING": 8.0}),
    AttemptReport(4, Phase.CLEANUP, "w:4", after(38), 0, {"CLEANUP": 2.0}),
)


def test_the_wait_for_the_next_task_is_no_phases_work():
    worked = {"REFRESHING": 5.0, "MERGING": 8.0, "CLEANUP": 2.0}
    report = replace(DONE, finished_at=after(40), attempts=BY_TASKS, phase_seconds=worked)

    drawn = along(report, now(900))

    assert bars(drawn) == [
        [("waiting", 0, 160)],
        [("refreshing", 160, 80), ("waiting", 240, 80)],
        [("merging", 320, 128), ("waiting", 448, 160)],
        [("cleanup", 608, 32)],
    ]
    assert [word for _, word in drawn.legend] == ["Refreshing 5.0 s", "Merging 8.0 s", "Cleanup 2.0 s", "Waiting 25 s"]
    assert drawn.lanes[1].title == "Attempt 2, process 2 on w"


def a_try(task: str, number: int, state: str, began: float, ended: float | None, pid: int = 2) -> TaskTry:
    times = (now(began), None if ended is None else now(ended))
    return TaskTry("hourly", "run:1", f"orders.{task}", -1, number, state, pid, *times)


KILLED = (
    AttemptReport(
        1, Phase.REFRESHING, "w:1", after(0), 0, {"REFRESHING": 10.0}, owner_key="airflow:hourly:orders:-1:run:1"
    ),
    AttemptReport(2, Phase.MERGING, "w:2", after(10), 1, {}, owner_key="airflow:hourly:orders:-1:run:1"),
    AttemptReport(3, Phase.MERGING, "w:2", after(30), 2, {"MERGING": 8.0}, owner_key="airflow:hourly:orders:-1:run:1"),
)


def test_lanes_are_named_by_task_and_try_and_killed_work_is_no_waiting():
    report = replace(DONE, finished_at=after(40), attempts=KILLED)
    tries = [
        *(a_try("stage", 1, "success", 0, 10, pid=1), a_try("merge", 1, "failed", 9, 25)),
        *(
            a_try("merge", 2, "success", 29, 40),
            replace(a_try("merge", 1, "failed", 29, 40), task_id="customers.merge"),
        ),
    ]

    drawn = along(report, now(900), tries=tries)

    assert [lane.label for lane in drawn.lanes] == ["stage, try 1", "merge, try 1", "merge, try 2"]
    assert bars(drawn) == [
        [("refreshing", 0, 160)],
        [("lost", 160, 240), ("waiting", 400, 80)],
        [("waiting", 480, 32), ("merging", 512, 128)],
    ]
    assert [word for _, word in drawn.legend][2] == "Killed, work lost 15 s"


def test_an_attempt_of_nobody_in_airflow_has_no_task():
    report = replace(DONE, attempts=(replace(KILLED[0], owner_key="command:7"), replace(KILLED[0], process="w:9")))

    drawn = along(report, now(900), tries=[a_try("stage", 1, "success", 0, 10, pid=1)])

    assert [lane.task for lane in drawn.lanes] == [None, None]


def test_a_refresh_has_one_duration_and_its_parts_add_up():
    report = replace(DONE, finished_at=after(40), attempts=BY_TASKS)

    duration = history_plots([report])[1]

    assert (duration.most, [bar.kind for bar in duration.bars][-1]) == ("40 s", "waiting")


@pytest.mark.parametrize(("is_waiting", "last"), [(False, "refreshing"), (True, "waiting")])
def test_a_refresh_on_which_nobody_works_now_waits(is_waiting, last):
    running = replace(DONE, outcome=Outcome.RUNNING, phase=Phase.REFRESHING, finished_at=None, attempts=BY_TASKS[:1])

    drawn = along(running, now(40), is_waiting=is_waiting)

    assert bars(drawn) == [[(last, 0, 640)]]


def test_what_came_before_the_first_phase_is_drawn_before_it():
    drawn = along(replace(DONE, finished_at=after(25)), now(900))

    assert [bar[0] for bar in bars(drawn)[0]] == ["waiting", "refreshing", "merging", "cleanup"]


def test_a_refresh_under_way_lasts_until_now():
    attempt = AttemptReport(1, Phase.REFRESHING, "w:1", after(0), 0, {"REFRESHING": 10.0})
    running = replace(DONE, outcome=Outcome.RUNNING, phase=Phase.MERGING, finished_at=None, attempts=(attempt,))

    drawn = along(running, now(40))

    assert bars(drawn) == [[("refreshing", 0, 160), ("merging", 160, 480)]]
    assert drawn.length == "40 s"


@pytest.mark.parametrize("report", [replace(DONE, attempts=()), replace(DONE, started_at=None)])
def test_a_refresh_that_nobody_worked_on_has_no_along(report):
    assert along(report, now(0)) is None


def test_clocks_that_disagree_draw_nothing_outside():
    """Phases are measured by workers, times by the database: the sum of the former may be the longer one."""
    drawn = along(replace(DONE, finished_at=after(5)), now(900))

    for lane in drawn.lanes:
        for bar in lane.bars:
            assert bar.x >= 0
            assert bar.x + bar.width <= drawn.width + 0.01


def test_rows_grow_up_and_losses_down_from_one_line():
    rows, duration, size = history_plots([DONE])

    heights = {bar.kind: (round(bar.y), round(bar.height)) for bar in rows.bars}
    assert heights == {"inserted": (30, 48), "updated": (14, 16), "deleted": (78, 32)}
    assert (round(rows.ticks[0].y), rows.most) == (78, "+40 / −20")
    assert {bar.kind for bar in duration.bars} == {"refreshing", "merging", "cleanup"}
    assert (size.most, [bar.kind for bar in size.bars]) == ("2.0 kB", ["main", "staging"])


def test_the_newest_refresh_stands_at_the_right():
    failed = replace(DONE, refresh_id="r2", outcome=Outcome.FAILED, started_at=after(3600), rows_inserted=7)

    rows = history_plots([failed, DONE])[0]

    assert [mark.kind for mark in rows.marks] == ["tone-good", "tone-bad"]
    assert rows.marks[0].x < rows.marks[1].x < WIDTH
    assert "2026-11-22 13:00 failed: 7 inserted" in rows.marks[1].title


def test_refreshes_without_changes_are_drawn_as_marks_alone():
    idle = replace(DONE, outcome=Outcome.NOTHING_TO_DO, rows_inserted=0, rows_updated=0, rows_deleted=0)

    rows = history_plots([idle, idle])[0]

    assert (rows.bars, len(rows.marks)) == ((), 2)


def test_what_is_under_way_is_no_history():
    assert history_plots([replace(DONE, outcome=Outcome.RUNNING)]) == ()


def test_forty_refreshes_fit():
    plots = history_plots([DONE] * 40)

    assert all(0 <= bar.x <= WIDTH - bar.width for drawn in plots for bar in (*drawn.bars, *drawn.marks))


def test_columns_of_time_leave_gaps_and_have_a_line_for_a_target():
    stacks = [Stack("1", (("lag", 6.0),)), None, Stack("3", (("late", 12.0),), mark="tone-good"), Stack("4")]

    drawn = stacked("Lag", "by hour", stacks, (), str, slot=WIDTH / 4, target=24.0)

    assert [(bar.kind, bar.x, bar.height) for bar in drawn.bars] == [("lag", 0, 24), ("late", 160, 48)]
    assert [mark.x for mark in drawn.marks] == [160]
    assert (drawn.target, drawn.ticks[0].y, drawn.most) == (14, 110, "12.0")


@pytest.mark.parametrize("stacks", [(), (None,), (Stack("nothing"),)])
def test_nothing_is_drawn_of_nothing(stacks):
    drawn = stacked("Lag", "by hour", stacks, (), str, slot=10)

    assert (drawn.bars, drawn.marks, drawn.target) == ((), (), None)
    assert [tick.text for tick in drawn.ticks] == ["0"]


# -- words -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        *((-1, "0.0 s"), (0.04, "0.0 s"), (9.94, "9.9 s"), (59.4, "59 s"), (60, "1 min"), (61, "1 min 1 s")),
        *((600, "10 min"), (3600, "1 h"), (5400, "1 h 30 min"), (86_400, "1 d"), (90_000, "1 d 1 h"), (10**7, "115 d")),
    ],
)
def test_lengths_of_time(seconds, said):
    assert words.short(seconds) == said


@pytest.mark.parametrize(
    ("then", "said"),
    [
        *((0, "just now"), (-4, "just now"), (-59, "59 s ago"), (-60, "1 min ago"), (-7300, "2 h ago")),
        *((-(10**6), "11 d ago"), (3, "now"), (90, "in 1 min"), (86_400, "in 1 d")),
    ],
)
def test_times_from_now(then, said):
    assert words.ago(now(then), now(0)) == said


@pytest.mark.parametrize(
    ("process", "text"),
    [("vm:20723", "process 20723 on vm"), ("a:b:7", "process 7 on a:b"), ("vm", "vm"), ("a:b", "a:b")],
)
def test_a_process_is_named_with_its_host(process, text):
    assert words.process_text(process) == text


def test_many_names_end_in_a_count():
    assert words.listed(["a", "b"]) == "a, b"
    assert words.listed(map(str, range(1200)), 2) == "0, 1 and 1,198 more"


def test_every_outcome_has_a_tone():
    assert set(words.TONES) == set(Outcome)


def test_level_is_a_line_whose_pieces_meet_and_whose_axis_has_its_highest_value():
    stacks = [Stack("0:00", [("lag", 5.0)]), Stack("1:00", [("lag", 10.0)]), None, Stack("3:00", [("late", 20.0)])]

    drawn = stacked("Lag", "by hour", stacks, (), str, slot=10, is_level=True)

    first, second = (stroke.points.split() for stroke in drawn.strokes)
    assert [stroke.kind for stroke in drawn.strokes] == ["lag", "late"]
    assert first[-1] == second[0], "the line has no hole where its colour changes"
    assert [point.split(",")[1] for point in (*first, second[-1])] == ["86.0", "62.0", "14.0"]
    assert [(tick.y, tick.text) for tick in drawn.ticks] == [(110, "0"), (14, "20.0")]
    assert [bar.title for bar in drawn.bars] == ["0:00: 5.0 lag", "1:00: 10.0 lag", "3:00: 20.0 late"]


def test_losses_have_their_own_text_at_the_axis_unless_it_would_cover_another():
    gains = Stack("0:00", [("inserted", 90.0)], [("deleted", 30.0)])
    hardly = Stack("0:00", [("inserted", 90.0)], [("deleted", 1.0)])

    assert [tick.text for tick in stacked("Rows", "", [gains], (), str, slot=10).ticks] == ["0", "90.0", "−30.0"]
    assert [tick.text for tick in stacked("Rows", "", [hardly], (), str, slot=10).ticks] == ["0", "90.0"]
