"""What people read of a refresh."""

from __future__ import annotations

import pytest

from airflow_mv_provider.core.outcome import (
    MAX_PARTITIONS_IN_HISTORY,
    AttemptReport,
    Outcome,
    PartitionReport,
    RefreshReport,
)
from airflow_mv_provider.core.phase import Phase
from airflow_mv_provider.report_text.refresh_text import recovered_text, refresh_text

FIRST = AttemptReport(1, Phase.REFRESHING, "a:1", "2026-01-01T10:00:00.000+00:00", 1, {"REFRESHING": 2.04})
SECOND = AttemptReport(2, Phase.MERGING, "b:2", "2026-01-01T10:05:00.000+00:00", 2, {"MERGING": 1.0, "CLEANUP": 0.5})


def text_of(**facts) -> str:
    return refresh_text(RefreshReport(table="orders", refresh_id="r" * 32, outcome=Outcome.PUBLISHED, **facts))


def test_attempts_are_told_where_there_was_more_than_one():
    told = text_of(attempts=(FIRST, SECOND))

    assert "attempt   1 from REFRESHING at 2026-01-01 10:00:00 by a:1: 1 batch compared, REFRESHING 2.0 s" in told
    assert "by b:2: 2 batches compared, MERGING 1.0 s, CLEANUP 0.5 s" in told
    assert "attempt" not in text_of(attempts=(FIRST,))


def test_rejected_records_are_told_with_their_place():
    assert "rejected  1,200 of the source's records, kept in orders__errors" in text_of(rows_rejected=1200)
    assert "rejected" not in text_of()


def test_partitions_that_the_history_does_not_keep_are_not_said_to_be_all():
    changed, same = (PartitionReport(f'["{n}"]', n, 0, 0, 5) for n in (1, 0))

    some = text_of(partitions=(changed,) * 40 + (same,) * 60)
    cut = text_of(partitions=(changed,) * 40 + (same,) * (MAX_PARTITIONS_IN_HISTORY - 40))

    assert "and 20 more; --json has them all" in some
    assert "  60 more partitions are unchanged" in some
    assert "and at least 20 more; --json has 40" in cut
    assert "  at least 960 more partitions are unchanged" in cut


@pytest.mark.parametrize(
    ("outcome", "ended", "said"),
    [
        (Outcome.PUBLISHED, "2026-01-01T10:00:00.000+00:00", "was ended: published."),
        (Outcome.RUNNING, None, "could not be ended; the next refresh or `amv recover` tries again."),
    ],
)
def test_what_was_left_behind_and_has_not_ended_is_not_called_running(outcome, ended, said):
    report = RefreshReport(table="orders", refresh_id="r", outcome=outcome, finished_at=ended)

    assert recovered_text(report) == f"orders: refresh r of a dead owner {said}"


def test_phases_and_the_time_outside_of_them_add_up_to_the_duration():
    times = {"started_at": "2026-01-01T10:00:00.000+00:00", "finished_at": "2026-01-01T10:00:12.500+00:00"}
    spent = {"REFRESHING": 3.4, "MERGING": 5.6, "CLEANUP": 0.0}

    one = text_of(**times, phase_seconds=spent, attempts=(FIRST,))
    two = text_of(**times, phase_seconds=spent, attempts=(FIRST, SECOND))
    exact = text_of(**times, phase_seconds=spent | {"MERGING": 9.1})

    assert "phases    preparation 3.5 s · REFRESHING 3.4 s · MERGING 5.6 s · CLEANUP 0.0 s" in one
    assert "phases    preparation and waiting 3.5 s · REFRESHING 3.4 s" in two
    assert "phases    REFRESHING 3.4 s · MERGING 9.1 s · CLEANUP 0.0 s" in exact


def test_a_read_only_refresh_without_a_difference_tells_of_none():
    equal, other = (
        RefreshReport(
            table="orders", refresh_id="r", outcome=Outcome.DIFFERENCES, rows_deleted=number, rows_unchanged=9
        )
        for number in (0, 1)
    )

    assert refresh_text(equal).startswith("orders: no difference found, nothing written\n")
    assert refresh_text(other).startswith("orders: differences found, nothing written\n")
