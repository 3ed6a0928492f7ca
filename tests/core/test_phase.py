"""The steps between phases, and how a refresh that did not end by itself ends."""

from __future__ import annotations

import itertools

import pytest

from airflow_mv_provider.core.phase import NEXT, Ending, Phase, Recovery, is_cancellable, on_failure, on_takeover

NORMAL, REFRESHING, MERGING, CLEANUP = Phase
USELESS_TO_RESUME = [
    *("MV-SOURCE-CHANGED", "MV-SEAL-BROKEN", "MV-MAIN-MOVED", "MV-MAIN-REFUSED", "MV-OVERTAKEN"),
    "MV-KEY-MOVED",
]


def ending(phase, code="MV-ENGINE", **facts):
    usual = {"is_transient": True, "has_committed": False, "will_retry": False, "merging_attempts": 1}
    return on_failure(phase, code, **(usual | facts))


def test_steps_are_those_of_the_picture():
    assert {
        NORMAL: {REFRESHING},
        REFRESHING: {MERGING, NORMAL},
        MERGING: {CLEANUP, NORMAL},
        CLEANUP: {NORMAL},
    } == NEXT


@pytest.mark.parametrize(
    ("phase", "is_cancel_requested", "expected"),
    [
        (NORMAL, False, Recovery.NOTHING),
        (NORMAL, True, Recovery.NOTHING),
        (REFRESHING, False, Recovery.RESET),
        (REFRESHING, True, Recovery.RESET),
        (MERGING, False, Recovery.RESUME),
        (MERGING, True, Recovery.ABANDON),
        (CLEANUP, False, Recovery.FINISH),
        (CLEANUP, True, Recovery.FINISH),
    ],
)
def test_takeover_decides_by_phase_and_a_cancel_comes_too_late_in_cleanup(phase, is_cancel_requested, expected):
    assert on_takeover(phase, is_cancel_requested=is_cancel_requested) is expected


FACTS = [
    {"is_transient": is_transient, "will_retry": will_retry, "merging_attempts": attempts}
    for is_transient, will_retry, attempts in itertools.product([False, True], [False, True], [0, 1, 4, 5, 99])
]


@pytest.mark.parametrize("facts", FACTS, ids=str)
@pytest.mark.parametrize("code", ["MV-ENGINE", "MV-CANCELLED", "MV-GUARD", *USELESS_TO_RESUME])
def test_what_main_has_is_never_abandoned(code, facts):
    assert ending(CLEANUP, code, **facts) is Ending.KEEP


@pytest.mark.parametrize("facts", FACTS, ids=str)
@pytest.mark.parametrize("code", ["MV-ENGINE", "MV-CANCELLED", "MV-GUARD", *USELESS_TO_RESUME])
def test_after_a_commit_it_runs_forward_as_long_as_that_can_succeed(code, facts):
    is_hopeless = code in USELESS_TO_RESUME or facts["merging_attempts"] >= 5

    expected = Ending.ABANDON if is_hopeless else Ending.KEEP

    assert ending(MERGING, code, has_committed=True, **facts) is expected


@pytest.mark.parametrize("phase", [REFRESHING, MERGING])
@pytest.mark.parametrize("will_retry", [False, True])
def test_permanent_failure_abandons_whoever_retries(phase, will_retry):
    assert ending(phase, "MV-GUARD", is_transient=False, will_retry=will_retry) is Ending.ABANDON


@pytest.mark.parametrize("phase", [REFRESHING, MERGING])
@pytest.mark.parametrize("code", USELESS_TO_RESUME)
def test_what_would_fail_the_same_way_again_is_abandoned(phase, code):
    assert ending(phase, code, will_retry=True) is Ending.ABANDON


@pytest.mark.parametrize(("will_retry", "expected"), [(True, Ending.KEEP), (False, Ending.ABANDON)])
def test_before_the_seal_only_a_retry_keeps_the_refresh(will_retry, expected):
    assert ending(REFRESHING, will_retry=will_retry) is expected


@pytest.mark.parametrize(("attempts", "expected"), [(1, Ending.KEEP), (4, Ending.KEEP), (5, Ending.ABANDON)])
def test_merging_is_resumed_but_not_for_ever(attempts, expected):
    assert ending(MERGING, merging_attempts=attempts) is expected


@pytest.mark.parametrize("is_progressive", [False, True])
@pytest.mark.parametrize(("has_committed", "has_tried"), [(False, False), (True, False), (False, True), (True, True)])
def test_what_may_be_in_main_is_not_cancelled(is_progressive, has_committed, has_tried):
    facts = {"is_progressive": is_progressive, "has_committed": has_committed, "has_tried": has_tried}

    assert not is_cancellable(CLEANUP, **facts)
    assert is_cancellable(MERGING, **facts) is (is_progressive or not (has_committed or has_tried))
