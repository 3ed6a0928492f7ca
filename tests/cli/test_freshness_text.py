"""When a table is late, in words."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from airflow_mv_provider.core.freshness.lateness import Forecast
from airflow_mv_provider.report_text.freshness_text import duration_text, forecast_text


def at(text: str) -> int:
    return round(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1000)


NOW = at("2026-03-02T13:00")


@pytest.mark.parametrize(
    ("late", "next_run", "takes_s", "text"),
    [
        (
            "2026-03-02T14:05",
            "2026-03-02T14:10",
            180,
            "late at 14:05 UTC; the next run starts 14:10 and usually takes 3 min",
        ),
        ("2026-03-02T12:05", None, None, "late since 12:05 UTC"),
        ("2026-03-02T12:05", "2026-03-02T13:00", None, "late since 12:05 UTC; the next run is due"),
        ("2026-03-03T00:05", None, 0.2, "late at 2026-03-03 00:05 UTC; a refresh usually takes 0 s"),
        (None, "2026-03-03T00:10", 3_900, None),
    ],
)
def test_it_says_when_it_is_late_and_what_comes_next(late, next_run, takes_s, text):
    found = Forecast(
        NOW,
        None if late is None else at(late),
        None if next_run is None else at(next_run),
        None if takes_s is None else round(takes_s * 1000),
    )

    next_one = "the next run starts 2026-03-03 00:10 and usually takes 1 h 5 min"
    assert forecast_text(found) == (text or f"late: no refresh of everything has succeeded; {next_one}")


@pytest.mark.parametrize(
    ("seconds", "text"), [(-1, "0 s"), (59, "59 s"), (61, "1 min 1 s"), (7_200, "2 h"), (90_061, "1 d 1 h")]
)
def test_durations_have_their_two_largest_units(seconds, text):
    assert duration_text(seconds) == text
