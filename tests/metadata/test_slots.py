"""Which slots of time a range has, and how old main was in each."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_mv_provider.metadata.history.slots import (
    NUM_SLOTS,
    STEPS_MS,
    Recorded,
    TimeRange,
    slot_length,
    slots_of,
)

YEAR_MS = 365 * 86_400_000
LENGTH_MS = 1000  # of the slots in these tests


def good(number: int, *, began: int, lag: int | None = None) -> Recorded:
    return Recorded(number, published=1, lag_ms=lag, fresh_ms=began, has_good=True)


def lags(*recorded: Recorded, first: int = 5, now_ms: int = 8_400) -> list[int | None]:
    return [slot.lag_ms for slot in slots_of(recorded, first, LENGTH_MS, now_ms)]


@given(st.integers(0, 59 * YEAR_MS))
def test_slots_are_as_short_as_sixty_of_them_allow(span_ms):
    found = slot_length(span_ms)

    assert span_ms <= NUM_SLOTS * found
    assert all(span_ms > NUM_SLOTS * shorter for shorter in STEPS_MS if shorter < found)


@pytest.mark.parametrize("asked", [each for each in TimeRange if each.length_ms])
def test_a_range_has_about_fifty_slots(asked):
    assert 48 <= asked.length_ms / slot_length(asked.length_ms) <= NUM_SLOTS


def test_every_slot_up_to_now_is_there_and_what_nobody_recorded_is_none():
    found = slots_of([Recorded(6, failed=1)], 5, LENGTH_MS, 8_400)

    assert [slot.start_ms for slot in found] == [5_000, 6_000, 7_000, 8_000]
    assert [slot.recorded and slot.recorded.failed for slot in found] == [None, 1, None, None]
    assert [slot.lag_ms for slot in found] == [None] * 4


def test_lag_grows_to_the_end_of_each_slot_and_to_now_in_the_last_one():
    assert lags(good(5, began=5_200)) == [800, 1_800, 2_800, 3_200]


def test_lag_of_a_slot_is_the_one_right_before_a_good_refresh_if_that_was_greater():
    assert lags(good(5, began=5_200), good(7, began=7_100, lag=2_000)) == [800, 1_800, 2_000, 1_300]


def test_a_good_refresh_before_the_range_tells_how_old_main_is_at_its_begin():
    assert lags(good(4, began=3_000)) == [3_000, 4_000, 5_000, 5_400]


def test_after_rows_that_are_not_the_sources_the_lag_is_unknown():
    rolled_back = Recorded(6, published=1, lag_ms=1_300, fresh_ms=None, has_good=True)

    assert lags(good(5, began=5_200), rolled_back) == [800, 1_300, None, None]


def test_a_refresh_that_was_not_good_leaves_main_as_old_as_it_is():
    assert lags(good(5, began=5_200), Recorded(6, failed=3)) == [800, 1_800, 2_800, 3_200]


def test_a_clock_that_was_set_back_gives_no_negative_lag_and_may_leave_no_slot():
    assert lags(good(8, began=9_000, lag=-7)) == [None, None, None, 0]
    assert lags(good(5, began=5_200), now_ms=4_000) == []
