"""Which partitions a run's interval stands for."""

from __future__ import annotations

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest

from airflow_mv_provider.core.scope.interval import window
from airflow_mv_provider.exceptions import DefinitionError

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
    with pytest.raises(DefinitionError, match="eu-west"):
        window("day", UTC, partition_key="eu-west")
