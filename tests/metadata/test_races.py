"""Real processes that race for one database: exactly one wins each time, and nobody is turned away by a lock."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from airflow_mv_provider.core.phase import Phase
from airflow_mv_provider.metadata import migrations
from tests.metadata import racer
from tests.metadata.rows import acquired, registered, walk

pytestmark = pytest.mark.slow  # starting an interpreter takes a second

ROUNDS = racer.ROUNDS


@pytest.fixture
def race(monkeypatch: pytest.MonkeyPatch) -> Callable[..., dict[str, Any]]:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2]))
    return racer.race


def test_of_two_processes_exactly_one_acquires_each_time(race, address, store):
    table = registered(store)

    found = race(racer.race_to_acquire, address, "one", "two")

    assert sorted(epoch for won, _ in found.values() for epoch in won) == list(range(1, ROUNDS + 1))
    assert store.state(table.id).epoch == ROUNDS
    assert len(store.history(table.id, limit=2 * ROUNDS)) == ROUNDS


def test_of_two_processes_exactly_one_takes_a_dead_refresh_over(race, address, store):
    table = registered(store)
    own = acquired(store, table, "dead")
    walk(store, own, Phase.MERGING)
    store.park(own, until_ms=0)

    won = race(racer.race_to_take_over, address, "one", "two")

    assert sorted(won["one"] + won["two"]) == list(range(2, ROUNDS + 2))
    assert store.state(table.id).epoch == ROUNDS + 1
    assert store.merging_attempts(own.refresh_id) == ROUNDS


def test_processes_that_wait_are_served_in_the_order_of_their_tickets(race, address, store):
    registered(store, concurrency="queue")

    served = race(racer.race_in_the_queue, address, "one", "two", "three", rounds=15)

    in_order = [epoch for _, epoch in sorted(pair for pairs in served.values() for pair in pairs)]
    assert in_order == list(range(1, 46))


def test_file_that_several_processes_open_and_write_at_once_is_never_locked(race, tmp_path):
    problems = race(racer.start_and_write, f"sqlite:///{tmp_path / 'new.db'}", "a", "b", "c", rounds=40)

    assert problems == {"a": [], "b": [], "c": []}


def test_server_that_several_processes_migrate_at_once_is_migrated_once(race, postgres):
    problems = race(racer.start_and_write, postgres.new_database(), "a", "b", "c", rounds=10)

    assert problems == {"a": [], "b": [], "c": []}


def test_racers_start_from_a_database_at_this_version(engine):
    assert migrations.check(engine) == migrations.head()
