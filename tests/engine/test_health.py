"""What keeps a refresh from beginning leaves a trace, until one begins."""

from __future__ import annotations

import pytest

from airflow_mv_provider.core.health.health import HealthStatus
from airflow_mv_provider.exceptions import ArgumentError, RefreshPausedError, SourceNotFoundError

pytestmark = [pytest.mark.slow, pytest.mark.in_process]


def health(lake):
    [line] = lake.store.overview().lines
    return line.health


def test_source_that_is_not_there_stalls_its_table_until_a_refresh_begins(lake):
    lake.apply()
    for _ in range(2):
        with pytest.raises(SourceNotFoundError):
            lake.refresh()
    stalled, met = health(lake), lake.store.obstacle(lake.store.table("orders").id)
    lake.write("SELECT 1L AS id")
    lake.refresh()

    assert (stalled.status, stalled.problem.code, met.num_tries) == (HealthStatus.STALLED, "MV-SOURCE-MISSING", 2)
    assert health(lake).status is HealthStatus.RUNNING
    changes = lake.store.health_changes(lake.store.table("orders").id)
    assert [each.status.value for each in changes] == ["running", "stalled"]


def test_request_that_does_not_fit_says_nothing_of_the_table(lake):
    lake.write("SELECT 1L AS id")
    lake.apply()
    lake.refresh()

    with pytest.raises(ArgumentError):
        lake.refresh(reload=True)
    lake.store.pause(lake.store.table("orders").id, "ann")
    with pytest.raises(RefreshPausedError):
        lake.refresh()

    assert lake.store.obstacle(lake.store.table("orders").id) is None
    assert health(lake).status is HealthStatus.PAUSED
