"""What a task with a driver does, by what the metadata database says."""

from __future__ import annotations

import dataclasses

import pytest

from airflow_mv_provider.core.outcome import ErrorReport, Outcome, RefreshReport
from airflow_mv_provider.core.phase import Phase
from airflow_mv_provider.core.queue import Waiter
from airflow_mv_provider.core.submission import Step, is_answer, is_explained_by, next_step
from tests.conftest import a_state

FREE = a_state(is_main_trusted=True)
OWNED = dataclasses.replace(FREE, phase=Phase.MERGING, refresh_id="r", owner_key="me", is_lease_live=True)
WAITER = Waiter(1, "other", "host:2", "dag", None, 0)


def report(refresh_id="r", outcome=Outcome.PUBLISHED, finished_at: str | None = "t"):
    return RefreshReport("orders", refresh_id, outcome, finished_at=finished_at)


@pytest.mark.parametrize(
    ("state", "queue", "expected"),
    [
        (FREE, (), Step.SUBMIT),
        (OWNED, (), Step.WATCH),
        (dataclasses.replace(OWNED, is_lease_live=False), (), Step.SUBMIT),  # its driver died: another goes on
        (dataclasses.replace(OWNED, owner_key="other"), (), Step.WAIT),
        (dataclasses.replace(OWNED, owner_key="other", is_lease_live=False), (), Step.SUBMIT),  # to take it over
        (FREE, (WAITER,), Step.WAIT),
        (dataclasses.replace(FREE, paused_since_ms=1), (), Step.PAUSED),
        (dataclasses.replace(OWNED, paused_since_ms=1), (), Step.WATCH),  # a pause is for what begins
    ],
)
def test_the_owner_and_its_lease_decide(state, queue, expected):
    assert next_step(state, queue, "me", None, None) is expected
    assert next_step(state, queue, "me", report("old"), "old") is expected, "of an earlier submission"


@pytest.mark.parametrize(
    ("mine", "submitted_after", "expected"),
    [
        (report(), "", Step.DONE),
        (report(), "before", Step.DONE),
        (report(outcome=Outcome.NOTHING_TO_DO), "", Step.DONE),
        (report(), "r", Step.SUBMIT),  # it was there before the submission
        (report(), None, Step.SUBMIT),  # no try submitted: a person has cleared the task
        (report(outcome=Outcome.FAILED), "", Step.SUBMIT),
        (report(outcome=Outcome.RUNNING, finished_at=None), "", Step.SUBMIT),
        (None, "", Step.SUBMIT),
    ],
)
def test_what_an_earlier_try_of_the_task_has_done_is_not_done_again(mine, submitted_after, expected):
    assert next_step(FREE, (), "me", mine, submitted_after) is expected


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        (None, None, False),
        (None, report(), True),
        (report("old"), report("r"), True),
        (report("old"), report("old"), False),
        (report(finished_at=None), report(), True),
        (report(finished_at=None), report(finished_at=None), True),
    ],
)
def test_a_report_is_an_answer_if_the_driver_has_written_it(before, after, expected):
    assert is_answer(before, after) is expected


FAILED = dataclasses.replace(report("r", Outcome.FAILED), error=ErrorReport("MV-ENGINE", "orders: it failed.", "Look."))


@pytest.mark.parametrize(
    ("newest", "failure", "expected"),
    [
        (report(), None, True),
        (report(), "[MV-SOURCE-MISSING] source: it is gone.", False),
        (FAILED, "[MV-ENGINE] orders: it failed. Look.", True),
        (FAILED, "[MV-SOURCE-MISSING] source: it is gone.", False),
        (report("r", Outcome.RUNNING, None), "the task was killed", True),
    ],
)
def test_a_failed_try_is_not_told_as_an_earlier_tries_refresh(newest, failure, expected):
    assert is_explained_by(newest, failure) is expected
