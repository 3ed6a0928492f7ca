"""From when a table's age counts, when it is late, and what is to come."""

from __future__ import annotations

import pytest

from airflow_mv_provider.core.definition.freshness import MeasuredFrom
from airflow_mv_provider.core.freshness.lateness import Forecast, SourceCheck, forecast, is_late

CHECK, SOURCE = MeasuredFrom.CHECK, MeasuredFrom.SOURCE


@pytest.mark.parametrize(
    ("as_of_ms", "now_ms", "target_s", "late"),
    [
        (None, 10**12, None, False),
        (0, 10**12, None, False),
        (None, 10**12, 60, True),
        (1_000, 61_000, 60, False),
        (1_000, 61_001, 60, True),
        (61_000, 1_000, 60, False),  # the clock was set back
    ],
)
def test_late_is_what_is_older_than_the_target_or_was_never_refreshed(as_of_ms, now_ms, target_s, late):
    assert is_late(as_of_ms, now_ms, target_s) is late


@pytest.mark.parametrize(
    ("look", "by_check", "by_source"),
    [
        (SourceCheck(5_000, 2_000), 5_000, 2_000),
        (SourceCheck(5_000, None), 5_000, 5_000),  # a database is as it is when it is looked at
        (SourceCheck(5_000, 9_000), 5_000, 5_000),  # a file whose clock is ahead makes nothing fresher than it is
    ],
)
def test_age_counts_from_the_look_or_from_the_state_that_it_found(look, by_check, by_source):
    assert (look.as_of_ms(CHECK), look.as_of_ms(SOURCE)) == (by_check, by_source)


def test_a_table_is_late_one_target_after_its_age_begins_and_usually_takes_the_median():
    found = forecast(1_000, 2_000, 60, 90_000, (10_000, 1_000, 3_000))

    assert found == Forecast(2_000, 61_000, 90_000, 3_000)
    assert not found.is_late


def test_what_was_never_refreshed_is_late_and_nobody_knows_since_when():
    found = forecast(None, 2_000, 60, None, ())

    assert (found.late_ms, found.is_late, found.takes_ms) == (None, True, None)
