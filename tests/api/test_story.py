"""What a refresh's page tells: a sentence for each stretch of work and wait, and what to clear after a failed task."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from airflow_mv_provider.api.airflow_run import go_on_of
from airflow_mv_provider.api.attempts import work_of
from airflow_mv_provider.api.story import story
from airflow_mv_provider.core.approval.check import CheckResult
from airflow_mv_provider.core.cost import Estimate
from airflow_mv_provider.core.outcome import AttemptReport, ErrorReport, HoldReport, Outcome, RefreshReport
from airflow_mv_provider.core.phase import Phase
from tests.api.test_plots import BY_TASKS, DONE, KILLED, a_try, after, now

KEY = "airflow:hourly:orders:-1:run:1"


def told(report: RefreshReport, seconds: float = 900, **more) -> list[str]:
    """Return the sentences, each after the seconds since the refresh began."""
    found = story(report, work_of(report, now(seconds), **more))
    return [f"{(each.at_ms - now(0)) / 1000:g} {each.text}" for each in found]


def test_a_refresh_in_one_process_is_told_in_the_order_of_time():
    judged = (Estimate("incremental", 14.0, "chosen", 60),)
    report = replace(
        DONE,
        user="ann",
        trigger="manual",
        note="the export was late",
        strategy="incremental",
        reason="1 of 12 files changed",
        estimates=judged,
        main_version=7,
        checks=(CheckResult("positive", "expression", "v > 0", "warn", "the source's rows", 10, 2),),
    )

    assert told(report) == [
        "0 ann started it (manual)",
        "0 The reason given: the export was late",
        "0 It was decided to read only what changed in the source, and merge it, because 1 of 12 files changed; "
        "expected to take 14 s",
        "0 It read what changed in the source",
        "10 It merged the changes into the table",
        "18 It removed its working files",
        "20 0 of 1 checks passed",
        "20 Published as Delta version 7: rows 30 inserted, 10 updated, 20 deleted, 0 unchanged",
    ]


def test_waits_between_tasks_and_killed_work_are_told():
    tries = [a_try("stage", 1, "success", 0, 10, pid=1), a_try("merge", 1, "failed", 9, 25)]

    found = told(replace(DONE, finished_at=after(40), attempts=KILLED), tries=tries)

    assert found[1:-1] == [
        "0 It read the source",
        "10 It was killed, or failed: the work of this time was lost",
        "25 No process worked: the next task, or try, and its Spark had to start",
        "30 It prepared its work",
        "32 It compared the rows with the table's, and merged what differs",
    ]


def test_the_sentence_of_work_names_the_task_and_how_long_it_took():
    report = replace(DONE, finished_at=after(40), attempts=KILLED)

    found = story(report, work_of(report, now(900), tries=[a_try("stage", 1, "success", 0, 10, pid=1)]))

    work = found[1]
    assert (work.kind, work.seconds, work.task.text, work.process) == (
        "refreshing",
        10.0,
        "stage, try 1",
        "process 1 on w",
    )
    assert [each.seconds for each in found if not each.kind] == [None] * 2


def test_the_seconds_of_a_story_are_those_of_the_whole_refresh():
    report = replace(DONE, finished_at=after(40), attempts=BY_TASKS)

    found = story(report, work_of(report, now(900)))

    assert sum(each.seconds or 0 for each in found) == 40


@pytest.mark.parametrize(
    ("decision", "said"),
    [
        ("approved", "It was approved by ann: a region was closed"),
        ("without deletes", "It was approved, without its deletes, by ann: a region was closed"),
        ("rejected", "It was rejected by ann: a region was closed"),
        ("superseded", "It was superseded by ann: a region was closed"),
    ],
)
def test_a_hold_and_its_decision_are_told(decision, said):
    hold = HoldReport(
        "h", "40 % would be deleted.", after(14), after(900), decision, after(30), "ann", "a region was closed"
    )
    attempts = (
        AttemptReport(1, Phase.REFRESHING, "w:1", after(0), 1, {"REFRESHING": 10.0, "MERGING": 4.0}),
        AttemptReport(2, Phase.MERGING, "w:2", after(35), 1, {"MERGING": 5.0}),
    )
    report = replace(DONE, finished_at=after(40), attempts=attempts, hold=hold)

    assert told(report)[1:-1] == [
        "0 It read the source",
        "10 It compared the rows with the table's",
        "14 It waited for a decision, then for the next task and its Spark",
        "14 Waited for approval: 40 % would be deleted",
        f"30 {said}",
        "35 It compared the rows with the table's, and merged what differs",
    ]


@pytest.mark.parametrize(
    ("outcome", "said"),
    [
        (Outcome.REFUSED, "Refused (MV-GUARD); the table is as it was"),
        (Outcome.FAILED, "Failed (MV-GUARD)"),
        (Outcome.CANCELLED, "Cancelled"),
        (Outcome.ABANDONED, "Given up by the process that took it over (MV-GUARD)"),
        (
            Outcome.DIFFERENCES,
            "Nothing was written, it only compared: rows 30 inserted, 10 updated, 20 deleted, 0 unchanged",
        ),
    ],
)
def test_every_ending_has_its_words(outcome, said):
    report = replace(DONE, outcome=outcome, error=ErrorReport("MV-GUARD", "x", "y"))

    assert told(report)[-1] == f"20 {said}"
    assert "merged" not in " ".join(told(report))


def test_a_look_without_work_says_why():
    report = RefreshReport(
        "orders",
        "r1",
        Outcome.NOTHING_TO_DO,
        strategy="skip",
        reason="the source is unchanged",
        started_at=after(0),
        finished_at=after(0),
    )

    assert told(report) == ["0 It was started", "0 There was nothing to do, because the source is unchanged"]


def test_a_refresh_under_way_tells_what_it_does_now():
    running = replace(DONE, outcome=Outcome.RUNNING, phase=Phase.REFRESHING, finished_at=None, attempts=BY_TASKS[:1])

    assert told(running, 40)[-1] == "0 It reads the source"
    assert told(running, 40, is_waiting=True)[-1].startswith("0 No process worked")
    assert story(replace(running, started_at=None), ()) == ()


# -- going on --------------------------------------------------------------------------------------------------------


def test_the_failed_task_is_cleared_and_what_comes_after_it():
    tries = [
        *(a_try("stage", 1, "success", 0, 10), a_try("merge", 1, "failed", 10, 20)),
        *(a_try("merge", 2, "failed", 20, 30), replace(a_try("merge", 1, "failed", 29, 40), task_id="customers.merge")),
    ]

    found = go_on_of(KEY, tries, has_ended=False)

    assert (found.failed.text, found.tasks) == ("merge, try 2", (("orders.merge", -1),))
    assert json.loads(found.body) == {
        "dry_run": False,
        "include_downstream": True,
        "reset_dag_runs": True,
        "dag_run_id": "run:1",
        "task_ids": ["orders.merge"],
        "only_failed": True,
    }


def test_a_refresh_that_has_ended_begins_again_with_all_of_its_tasks():
    tries = [a_try("stage", 1, "success", 0, 10), a_try("merge", 1, "failed", 10, 20)]

    found = go_on_of(KEY, tries, has_ended=True)

    assert (found.is_new, found.tasks) == (True, (("orders.merge", -1), ("orders.stage", -1)))
    assert json.loads(found.body)["only_failed"] is False


def test_a_mapped_task_is_named_with_its_index():
    tries = [replace(a_try("merge", 1, "failed", 10, 20), map_index=3)]

    found = go_on_of("airflow:hourly:orders:3:run:1", tries, has_ended=False)

    assert json.loads(found.body)["task_ids"] == [["orders.merge", 3]]


@pytest.mark.parametrize(
    ("key", "tries", "has_ended"),
    [
        (KEY, [a_try("merge", 1, "failed", 10, 20), a_try("merge", 2, "running", 20, None)], False),
        (KEY, [a_try("merge", 1, "failed", 10, 20), a_try("cleanup", 1, "up_for_retry", 20, None)], False),
        (KEY, [a_try("merge", 1, "success", 10, 20)], False),
        ("command:7", [a_try("merge", 1, "failed", 10, 20)], False),
        ("airflow:hourly::-1:run:1", [a_try("merge", 1, "failed", 10, 20)], True),
        (None, [], False),
    ],
    ids=["it runs again", "another is repeated", "none failed", "no task", "others' tasks too", "nobody"],
)
def test_nothing_is_cleared(key, tries, has_ended):
    assert go_on_of(key, tries, has_ended=has_ended) is None
