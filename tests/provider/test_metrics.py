"""What Airflow's own metrics get of a refresh."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from airflow_mv_provider.core.approval.check import CheckResult
from airflow_mv_provider.core.outcome import Outcome, RefreshReport
from airflow_mv_provider.exceptions import GuardRefusedError

REPORT = RefreshReport(
    table="orders",
    refresh_id="a" * 32,
    outcome=Outcome.PUBLISHED,
    trigger="dag",
    rows_inserted=3,
    rows_deleted=2,
    bytes_main=500,
    started_at="2026-01-01T00:00:00.000+00:00",
    finished_at="2026-01-01T00:00:02.500+00:00",
    phase_seconds={"REFRESHING": 1.5, "MERGING": 0.5},
)


class Backend:
    """Where Airflow sends metrics: keeps them instead."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, Any, dict[str, str]]] = []

    def incr(self, stat: str, count: int = 1, rate: float = 1, *, tags: dict[str, str] | None = None) -> None:
        self.sent.append((stat, count, tags or {}))

    def gauge(self, stat: str, value: float, *, tags: dict[str, str] | None = None) -> None:
        self.sent.append((stat, value, tags or {}))

    def timing(self, stat: str, dt: Any, *, tags: dict[str, str] | None = None) -> None:
        self.sent.append((stat, dt.total_seconds(), tags or {}))


@pytest.fixture
def backend(monkeypatch: pytest.MonkeyPatch) -> Iterator[Backend]:
    from airflow.sdk.observability import stats

    found = Backend()
    stats.initialize(factory=lambda: found, export_legacy_names=False)  # type: ignore[arg-type,return-value]
    yield found
    from airflow.sdk.observability.metrics.stats_utils import get_stats_factory

    stats.initialize(factory=get_stats_factory(), export_legacy_names=True)


def test_ended_refresh_is_counted(backend):
    from airflow_mv_provider.operators.metrics import count_ended

    count_ended(REPORT)

    orders = {"table": "orders"}
    assert backend.sent == [
        ("mv.refresh.ended", 1, orders | {"outcome": "published", "trigger": "dag"}),
        ("mv.refresh.duration", 2.5, orders | {"outcome": "published"}),
        ("mv.refresh.phase", 1.5, orders | {"phase": "REFRESHING"}),
        ("mv.refresh.phase", 0.5, orders | {"phase": "MERGING"}),
        ("mv.refresh.rows", 3, orders | {"change": "inserted"}),
        ("mv.refresh.rows", 2, orders | {"change": "deleted"}),
        ("mv.table.lag", 2.5, orders | {"measured_from": "check"}),
        ("mv.table.lag", 2.5, orders | {"measured_from": "source"}),
        ("mv.refresh.bytes", 500, orders | {"place": "main"}),
    ]


@pytest.mark.parametrize(
    ("changes", "lags"),
    [
        ({"source_at": "2025-12-31T23:59:50.000+00:00"}, [("check", 2.5), ("source", 12.5)]),
        (
            {"checked_at": "2025-12-31T23:59:56.000+00:00"},
            [("check", 6.5), ("source", 6.5)],
        ),  # of a run of an ingestion
        ({"source_at": "2026-01-01T00:00:01.000+00:00"}, [("check", 2.5), ("source", 2.5)]),  # a clock that is ahead
        ({"outcome": Outcome.NOTHING_TO_DO}, [("check", 2.5), ("source", 2.5)]),
        ({"outcome": Outcome.FAILED}, []),
        ({"is_whole": False}, []),
        ({"is_of_source": False}, []),
    ],
)
def test_the_age_of_a_table_is_measured_at_each_publish_and_skip_of_everything(backend, changes, lags):
    from airflow_mv_provider.operators.metrics import count_ended

    count_ended(replace(REPORT, **changes))

    sent = [(tags["measured_from"], value) for name, value, tags in backend.sent if name == "mv.table.lag"]
    assert sent == lags


def test_checks_are_counted_by_what_they_found(backend):
    from airflow_mv_provider.operators.metrics import count_ended
    from airflow_mv_provider.operators.task import asset_facts

    passed = CheckResult("one", "unique", "a is unique", "fail", "all rows", 5)
    broken = replace(passed, name="two", severity="warn", num_failed=3)
    report = replace(REPORT, checks=(passed, broken, replace(passed, skipped="it needs all rows")))

    count_ended(report)

    tags = [tags for stat, _, tags in backend.sent if stat == "mv.refresh.check"]
    assert [(each["severity"], each["result"]) for each in tags] == [
        ("fail", "passed"),
        ("warn", "failed"),
        ("fail", "skipped"),
    ]
    assert {name: asset_facts(report)[name] for name in ("checks", "checks_failed")} == {
        "checks": 3,
        "checks_failed": {"two": 3},
    }


def test_refresh_under_way_is_not_counted(backend):
    from airflow_mv_provider.operators.metrics import count_ended

    count_ended(replace(REPORT, finished_at=None))

    assert backend.sent == []


def test_error_is_counted_by_its_code(backend):
    from airflow_mv_provider.operators.metrics import count_error

    count_error(GuardRefusedError("orders", "too many", guard="max_deleted_fraction"))

    assert backend.sent == [("mv.refresh.error", 1, {"code": "MV-GUARD"})]
