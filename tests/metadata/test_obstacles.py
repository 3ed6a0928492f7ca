"""What keeps refreshes from beginning leaves a trace: one row for tries that meet the same, until a refresh begins."""

from __future__ import annotations

import pytest

from airflow_mv_provider.core.guard import Counts
from airflow_mv_provider.core.health.health import HealthStatus
from airflow_mv_provider.core.outcome import ErrorReport, Outcome
from airflow_mv_provider.core.phase import Phase
from airflow_mv_provider.report_text.status_text import status_text, statuses_text
from tests.metadata.rows import a_caller, a_refresh, acquired, walk

AWAY = ErrorReport("MV-SOURCE-UNAVAILABLE", "source: no answer.", "Start it.", True)
DENIED = ErrorReport("MV-SOURCE-DENIED", "source: refused.", "Grant it.", False)


def health(store):
    [line] = store.overview().lines
    return line.health


def test_same_error_is_counted_and_another_one_begins_anew(store, table, clock):
    store.obstacles.met(table.id, AWAY)
    clock.pass_ms(1000)
    store.obstacles.met(table.id, AWAY)

    met = store.obstacle(table.id)
    assert (met.error, met.num_tries, met.last_ms - met.since_ms >= 1000) == (AWAY, 2, True)
    assert (health(store).status, health(store).problem) == (HealthStatus.STALLED, AWAY)

    store.obstacles.met(table.id, DENIED)
    assert (store.obstacle(table.id).error, store.obstacle(table.id).num_tries) == (DENIED, 1)
    assert [each.problem.code for each in store.health_changes(table.id)] == [DENIED.code, AWAY.code]


@pytest.mark.parametrize("begins", ["acquired", "nothing to do"])
def test_refresh_that_begins_ends_it(store, table, begins):
    store.obstacles.met(table.id, AWAY)

    if begins == "acquired":
        acquired(store, table)
    else:
        store.record(a_refresh(table, batch=None), a_caller(), Outcome.NOTHING_TO_DO)

    assert store.obstacle(table.id) is None
    assert health(store).status is (HealthStatus.STARTING if begins == "acquired" else HealthStatus.CREATED)


def test_refresh_that_publishes_ends_what_others_met_meanwhile(store, table):
    own = acquired(store, table)
    store.obstacles.met(table.id, AWAY)
    walk(store, own, Phase.NORMAL)

    assert store.obstacle(table.id) is None
    assert health(store).status is HealthStatus.RUNNING


@pytest.mark.parametrize("outcome", [Outcome.FAILED, Outcome.ABANDONED, Outcome.DIFFERENCES])
def test_what_only_compares_says_nothing_of_the_health(store, table, outcome):
    walk(store, acquired(store, table), Phase.NORMAL)
    looking = a_refresh(table, batch=None)
    store.record(looking, a_caller(), Outcome.RUNNING, is_read_only=True)
    store.end_preview(looking.id, outcome, "read-only", Counts(), ())

    assert health(store).status is HealthStatus.RUNNING
    assert [each.status for each in store.health_changes(table.id)] == [HealthStatus.RUNNING]


def test_status_says_it(store, table):
    store.obstacles.met(table.id, AWAY)
    store.obstacles.met(table.id, AWAY)

    status = store.status(table)

    assert "NORMAL, stalled" in statuses_text([status])
    assert "no refresh could begin, 2 tries since" in status_text(status)
    assert "[MV-SOURCE-UNAVAILABLE] source: no answer. Start it." in status_text(status)


def test_it_goes_with_its_table(store, table):
    store.obstacles.met(table.id, AWAY)
    store.registry.begin_drop(store.state(table.id))

    assert store.registry.forget(table.id)


def test_only_the_newest_are_kept(store, table):
    for n in range(103):
        store.obstacles.met(table.id, AWAY if n % 2 else DENIED)

    assert len(store.health_changes(table.id, 1000)) == 100
