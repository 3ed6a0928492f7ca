"""How often a refresh reads the logs of main and its source: each DESCRIBE HISTORY is a Spark job of its own."""

from __future__ import annotations

from collections import Counter

import pytest

from airflow_mv_provider.core.outcome import Outcome
from airflow_mv_provider.spark import delta

pytestmark = pytest.mark.slow


@pytest.fixture
def reads(lake, monkeypatch):
    """The reads of each log, by the path of its table in the warehouse; none reads a whole log."""
    counted, read = Counter(), delta.history

    def history(spark, table, limit=None):
        rows = read(spark, table, limit)
        counted[table.location.removeprefix(f"{lake.root}/")] += 1
        assert limit is not None
        return rows

    monkeypatch.setattr(delta, "history", history)
    return counted


def test_each_step_reads_each_log_once(lake, reads):
    lake.write("SELECT id, id % 3 AS p, concat('v', id) AS v FROM range(60)")
    lake.apply()
    lake.refresh()
    reads.clear()
    assert lake.refresh().outcome is Outcome.NOTHING_TO_DO
    assert reads == {"raw/orders": 1, "orders": 1}
    lake.sql("UPDATE {t} SET v = 'new' WHERE id = 7", path="raw/orders")
    reads.clear()

    assert lake.refresh().outcome is Outcome.PUBLISHED

    # Of main: to assess, after it was acquired, before the commit and after it.
    assert reads == {"raw/orders": 1, "orders": 4}
