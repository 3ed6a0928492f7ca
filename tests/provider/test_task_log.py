"""What a task's log says at its end."""

from __future__ import annotations

from dataclasses import replace

import pytest

from airflow_mv_provider.core.outcome import Outcome, RefreshReport
from airflow_mv_provider.core.phase import Phase

pytestmark = pytest.mark.slow  # it imports Airflow

DONE = RefreshReport(
    "orders",
    "r1",
    Outcome.PUBLISHED,
    epoch=4,
    reason="the source changed: Delta version 88",
    rows_inserted=1200,
    rows_deleted=3,
    rows_unchanged=50_000,
    bytes_main=2_500_000,
    started_at="2026-11-24T03:00:00+00:00",
    finished_at="2026-11-24T03:00:12+00:00",
)


@pytest.mark.parametrize(
    ("report", "said"),
    [
        (
            DONE,
            "orders: published: 1,200 rows inserted, 0 updated, 3 deleted, 50,000 unchanged; 2.5 MB written. "
            "It took 12.0 s. Why: the source changed: Delta version 88. Refresh r1.",
        ),
        (
            RefreshReport("orders", "r1", Outcome.NOTHING_TO_DO, reason="the source and the table are unchanged"),
            "orders: nothing to do. Why: the source and the table are unchanged. Refresh r1.",
        ),
        (
            RefreshReport("orders", "r1", phase=Phase.MERGING, epoch=2),
            "orders: the source is read and compared; the next task publishes. Refresh r1.",
        ),
        (
            replace(DONE, outcome=Outcome.RUNNING, phase=Phase.CLEANUP, finished_at=None, reason=None, bytes_main=0),
            "orders: published (the next task removes working files): 1,200 rows inserted, 0 updated, 3 deleted, "
            "50,000 unchanged. Refresh r1.",
        ),
    ],
    ids=["published", "nothing", "merging", "cleanup"],
)
def test_a_summary_is_in_words(report, said):
    from airflow_mv_provider.operators.task import summary

    assert summary(report) == said
