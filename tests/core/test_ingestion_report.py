"""What a run of an ingestion reports: which tables are in its state, and its exit code."""

from __future__ import annotations

import pytest

from airflow_mv_provider.core.ingestion.report import IngestedTable, IngestionReport, exit_code, ingested
from airflow_mv_provider.core.outcome import ErrorReport, Outcome, RefreshReport

AGAIN = ErrorReport("MV-SNAPSHOT-LOST", "t: lost.", "Again.", True)
PERSON = ErrorReport("MV-GUARD", "t: refused.", "Look.", False)


def of(*tables: IngestedTable, error: ErrorReport | None = None) -> IngestionReport:
    return IngestionReport("shop", "r", "somewhere", tables, error=error)


@pytest.mark.parametrize(
    ("outcome", "is_of_state", "is_in_state"),
    [
        (Outcome.PUBLISHED, True, True),
        (Outcome.NOTHING_TO_DO, True, True),
        (Outcome.PUBLISHED, False, False),
        (Outcome.REFUSED, True, False),
        (Outcome.RUNNING, True, False),
    ],
)
def test_table_is_in_the_state_only_if_its_refresh_read_it_and_ended_well(outcome, is_of_state, is_in_state):
    found = ingested("out", RefreshReport("t", "id", outcome), is_of_state=is_of_state)

    assert found.is_in_state is is_in_state
    assert of(found).left_behind == (() if is_in_state else (found,))


def test_exit_code_is_that_of_the_worst_table():
    good = IngestedTable("a", "a", outcome=Outcome.NOTHING_TO_DO, is_in_state=True)
    late, bad = IngestedTable("b", "b", error=AGAIN), IngestedTable("c", "c", error=PERSON)
    unexplained = IngestedTable("d", "d", outcome=Outcome.PUBLISHED)

    codes = [exit_code(of(*each)) for each in [(good,), (good, late), (good, unexplained), (late, bad)]]

    assert codes == [0, 75, 75, 1]


def test_failed_release_is_not_success():
    good = IngestedTable("a", "a", outcome=Outcome.NOTHING_TO_DO, is_in_state=True)

    assert [exit_code(of(good, error=each)) for each in (AGAIN, PERSON)] == [75, 1]
