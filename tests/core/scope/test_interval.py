"""Which partitions a run's interval stands for."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_mv_provider.core.scope.interval import GRAINS, window
from airflow_mv_provider.exceptions import ArgumentError

BERLIN = ZoneInfo("Europe/Berlin")


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


@pytest.mark.parametrize(
    ("grain", "start", "end", "expected"),
    [
        ("day", "2026-01-31", "2026-02-01", ("2026-01-31", "2026-02-01")),
        ("day", "2026-01-30", "2026-02-02", ("2026-01-30", "2026-02-02")),
        ("day", "2026-01-31T06:00", "2026-01-31T07:00", ("2026-01-31", "2026-02-01")),
        ("month", "2026-01-31", "2026-02-01", ("2026-01-01", "2026-02-01")),
        ("month", "2026-12-15", "2027-01-02", ("2026-12-01", "2027-02-01")),
        ("year", "2024-12-31", "2025-01-01", ("2024-01-01", "2025-01-01")),
        ("year", "2024-06-01", "2024-07-01", ("2024-01-01", "2025-01-01")),
        ("hour", "2026-01-31T23:00", "2026-02-01T00:00", ("2026-01-31 23:00:00", "2026-02-01 00:00:00")),
    ],
)
def test_an_interval_takes_every_partition_that_it_touches(grain, start, end, expected):
    assert window(grain, UTC, start=at(start), end=at(end)) == expected


def test_a_day_begins_where_the_dag_lives():
    start, end = at("2026-06-30T22:00"), at("2026-07-01T22:00")

    assert window("day", BERLIN, start=start, end=end) == ("2026-07-01", "2026-07-02")
    assert window("day", BERLIN, partition_key="2026-06-30T22:00:00+00:00") == ("2026-07-01", "2026-07-02")


@pytest.mark.parametrize(
    ("start", "end", "expected"),
    [
        # Clocks go back from 03:00 to 02:00 at 01:00 UTC.
        ("2026-10-24T23:00", "2026-10-25T00:00", ("2026-10-25 01:00:00", "2026-10-25 02:00:00")),
        ("2026-10-25T00:00", "2026-10-25T01:00", ("2026-10-25 02:00:00", "2026-10-25 03:00:00")),
        ("2026-10-25T01:00", "2026-10-25T02:00", ("2026-10-25 02:00:00", "2026-10-25 03:00:00")),
        ("2026-10-25T00:50", "2026-10-25T01:10", ("2026-10-25 02:00:00", "2026-10-25 03:00:00")),
        # Clocks go forward from 02:00 to 03:00 at 01:00 UTC.
        ("2026-03-29T00:00", "2026-03-29T01:00", ("2026-03-29 01:00:00", "2026-03-29 03:00:00")),
        ("2026-03-29T01:00", "2026-03-29T02:00", ("2026-03-29 03:00:00", "2026-03-29 04:00:00")),
    ],
)
def test_hours_in_which_clocks_are_set_back_or_forward(start, end, expected):
    assert window("hour", BERLIN, start=at(start), end=at(end)) == expected


ZONES = [
    *("UTC", "Europe/Berlin", "America/New_York", "America/St_Johns", "America/Santiago", "Australia/Lord_Howe"),
    *("Asia/Kolkata", "Asia/Kathmandu", "Asia/Beirut", "Pacific/Apia", "Africa/Casablanca"),
]


@given(
    grain=st.sampled_from(GRAINS),
    zone=st.sampled_from(ZONES).map(ZoneInfo),
    start=st.datetimes(datetime(2015, 1, 1), datetime(2030, 1, 1), timezones=st.just(UTC)),
    lengths=st.lists(st.integers(1, 3 * 24 * 60).map(lambda m: timedelta(minutes=m)), min_size=2, max_size=2),
    share=st.floats(0, 1, exclude_max=True),
)
def test_an_interval_covers_its_times_and_neighbours_leave_no_gap(grain, zone, start, lengths, share):
    middle, end = start + lengths[0], start + sum(lengths, timedelta())

    first, second = (window(grain, zone, start=a, end=b) for a, b in ((start, middle), (middle, end)))

    assert first and second
    inside = start + lengths[0] * share
    assert first[0] <= inside.astimezone(zone).strftime("%Y-%m-%d %H:%M:%S") < first[1]
    assert second[0] <= first[1]


@pytest.mark.parametrize(("start", "end"), [(None, None), ("2026-01-31", "2026-01-31"), ("2026-01-31", None)])
def test_a_run_without_an_interval_stands_for_none(start, end):
    assert window("day", UTC, start=at(start) if start else None, end=at(end) if end else None) is None


def test_a_partition_key_comes_before_the_interval_and_is_one_grain():
    start, end = at("2026-01-01"), at("2026-01-02")

    found = window("month", UTC, start=start, end=end, partition_key="2026-11-10T00:00:00")

    assert found == ("2026-11-01", "2026-12-01")


def test_values_are_written_as_the_column_has_them():
    assert window("month", UTC, start=at("2026-01-31"), end=at("2026-02-01"), text="%Y%m") == ("202601", "202602")


def test_a_key_that_is_no_time_is_refused():
    with pytest.raises(ArgumentError, match="eu-west"):
        window("day", UTC, partition_key="eu-west")
