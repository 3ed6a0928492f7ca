"""Which version a version, a refresh or a time means."""

from __future__ import annotations

import pytest

from airflow_mv_provider.core.approval.target import version_of
from airflow_mv_provider.core.outcome import Outcome, RefreshReport
from airflow_mv_provider.exceptions import ArgumentError


def published(refresh_id, version, at, outcome=Outcome.PUBLISHED):
    return RefreshReport("orders", refresh_id, outcome, main_version=version, finished_at=f"2026-01-{at}+00:00")


HISTORY = (
    published("abcdef11", 9, "03T10:00:00"),
    published("abcdef22", None, "02T12:00:00", Outcome.FAILED),
    published("abcdee33", 5, "02T10:00:00"),
    published("12345678", 2, "01T10:00:00"),
)


@pytest.mark.parametrize(
    ("to", "version"),
    [
        ("7", 7),
        ("abcdef11", 9),
        ("abcdee", 5),
        ("2026-01-02T10:00:00", 5),
        ("2026-01-02T09:59:59", 2),
        ("2026-01-02T10:30:00+01:00", 2),
        (" 2026-01-09 ", 9),
    ],
)
def test_what_is_meant(to, version):
    assert version_of("orders", to, HISTORY) == version


@pytest.mark.parametrize("to", ["abcdef22", "fedcba", "2026-01-01T09:00", "abc", "", "-1", "yesterday", "²", "1e3"])
def test_what_is_not(to):
    with pytest.raises(ArgumentError):
        version_of("orders", to, HISTORY)


def test_an_id_that_is_all_digits_is_a_refresh_if_it_is_longer_than_a_version():
    history = (published("1234567890", 4, "03T10:00:00"),)

    assert version_of("orders", "1234567890", history) == 4
