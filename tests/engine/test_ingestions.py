"""Runs of an ingestion over a real Kafka: one state for all tables, who is left behind, and what the group is told."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka import Consumer

from airflow_mv_provider.core.outcome import Outcome
from airflow_mv_provider.core.phase import Phase
from airflow_mv_provider.exceptions import DefinitionError, SourceUnavailableError, TableNotFoundError
from tests.conftest import Crash
from tests.engine.ingesting import Topics
from tests.engine.streaming import row

pytestmark = [pytest.mark.slow, pytest.mark.in_process]

PUBLISHED, NOTHING = Outcome.PUBLISHED, Outcome.NOTHING_TO_DO
DYING = Path(__file__).parents[1] / "dying.py"
# Of a run over two tables, whose refreshes are incremental: each of the first one's, then of the second one's; the
# numbers count passings.
POINTS = [
    *("bind.before", "bind.after", "acquire.after", "staging.after", "seal.before", "seal.after", "acquire.before:2"),
    *("staging.before:2", "seal.after:2", "seal.after", "publish.before", "publish.after", "normal.after"),
    *("publish.before:2", "publish.after:2", "release.before", "release.after", "released.before"),
]


@pytest.fixture
def shop(lake, broker, monkeypatch):
    return Topics.of(lake, broker, monkeypatch)


@pytest.mark.in_test_all
def test_all_tables_come_to_one_state_and_the_group_is_told(shop, at_point):
    """What arrives while the first table is staged is in none of them; a table that stands still loses nothing."""
    shop.send("ones", row(1, "a"), row(2, "b"))
    shop.send("twos", row(1, "x"))
    late = {"ones": row(3, "late"), "twos": row(2, "late")}
    at_point("staging.after", lambda: [shop.send(name, each) for name, each in late.items()])

    first = shop.ingest()
    seen, told = [shop.rows(name) for name in shop.names], shop.committed()
    second, third = shop.ingest(), shop.ingest()

    assert shop.results(first) == {"ones": (PUBLISHED, None), "twos": (PUBLISHED, None)}
    assert seen == [[(1, "a"), (2, "b")], [(1, "x")]]
    assert (told, first.released) == ({"ones": 2, "twos": 1}, {shop.topics["ones"]: [2], shop.topics["twos"]: [1]})
    assert shop.results(second) == shop.results(first)
    assert shop.rows("ones") == [(1, "a"), (2, "b"), (3, "late")]
    assert shop.rows("twos") == [(1, "x"), (2, "late")]
    assert shop.results(third) == {"ones": (NOTHING, None), "twos": (NOTHING, None)}
    assert shop.committed() == {"ones": 3, "twos": 2}
    assert shop.lake.workspaces() == []


@pytest.mark.in_test_all
def test_no_table_is_published_before_all_are_sealed(shop, at_point):
    shop.send("ones", row(1, "a"))
    shop.send("twos", row(1, "x"))
    shop.ingest()
    for name in shop.names:
        shop.send(name, row(2, "new"))
    seen = []
    at_point("seal.before:2", lambda: seen.extend(shop.rows(name) for name in shop.names))

    shop.ingest()

    assert seen == [[(1, "a")], [(1, "x")]]
    assert [len(shop.rows(name)) for name in shop.names] == [2, 2]


@pytest.mark.in_test_all
def test_table_that_fails_is_left_behind_and_goes_on_later_from_its_own_place(shop):
    shop.send("ones", row(1, "a"))
    shop.send("twos", row(1, "x"))
    shop.ingest()
    shop.send("ones", row(2, "b"))
    shop.send("twos", (row(2, "y")[0], "not json"))

    failed = shop.ingest()

    assert shop.results(failed) == {"ones": (PUBLISHED, None), "twos": (None, "MV-EVENT-MALFORMED")}
    assert [len(shop.rows(name)) for name in shop.names] == [2, 1]
    assert shop.committed() == {"ones": 2, "twos": 1}
    assert shop.phases() == {"NORMAL"}


def test_missing_topic_keeps_no_other_table_waiting(shop):
    shop.send("ones", row(1, "a"))
    shop.broker.drop(shop.topics["twos"])

    found = shop.ingest()

    assert shop.results(found) == {"ones": (PUBLISHED, None), "twos": (None, "MV-SOURCE-MISSING")}
    assert shop.rows("ones") == [(1, "a")]
    assert shop.committed() == {"ones": 1}


@pytest.mark.in_test_all
def test_table_that_another_refresh_has_or_that_is_paused_is_left_behind_and_holds_the_release_back(shop):
    shop.send("ones", row(1, "a"))
    shop.send("twos", row(1, "x"))
    shop.ingest()
    for name in shop.names:
        shop.send(name, row(2, "new"))
    other = shop.lake.caller()
    shop.lake.refresher().begin("twos", other)
    meanwhile = shop.ingest()
    shop.let_leases_expire()
    shop.lake.store.pause(shop.lake.store.table("twos").id, "somebody")
    paused = shop.ingest()
    shop.lake.store.resume(shop.lake.store.table("twos").id)
    resumed = shop.ingest()

    assert shop.results(meanwhile) == {"ones": (PUBLISHED, None), "twos": (None, "MV-REFRESH-IN-PROGRESS")}
    assert meanwhile.released == {shop.topics["ones"]: [2], shop.topics["twos"]: [1]}
    assert shop.results(paused)["twos"] == (None, "MV-PAUSED")
    assert shop.results(resumed) == {"ones": (NOTHING, None), "twos": (PUBLISHED, None)}
    assert shop.committed() == {"ones": 2, "twos": 2}


@pytest.mark.in_test_all
def test_table_that_another_refresh_brings_further_meanwhile_is_no_regression(shop, at_point):
    shop.send("ones", row(1, "a"))
    shop.send("twos", row(1, "x"))
    shop.ingest()
    for name in shop.names:
        shop.send(name, row(2, "new"))
    at_point("staging.after", lambda: (shop.send("twos", row(3, "newer")), shop.lake.refresh("twos")))

    report = shop.ingest()

    assert shop.results(report) == {"ones": (PUBLISHED, None), "twos": (None, "MV-REFRESH-IN-PROGRESS")}
    assert shop.rows("twos") == [(1, "x"), (2, "new"), (3, "newer")]
    assert shop.lake.store.obstacle(shop.lake.store.table("twos").id) is None
    assert shop.committed() == {"ones": 2, "twos": 3}


@pytest.mark.in_test_all
def test_table_that_a_dead_owner_has_brought_further_is_no_regression(shop, at_point):
    """The run itself completes what died, and only then sees that the table is further than its own state."""
    shop.send("ones", row(1, "a"))
    shop.send("twos", row(1, "x"))
    shop.ingest()
    for name in shop.names:
        shop.send(name, row(2, "new"))

    def refresh_and_die() -> None:
        shop.send("twos", row(3, "newer"))
        other = shop.lake.caller()
        acquired = shop.lake.refresher().begin("twos", other)
        shop.lake.refresher().resume(acquired.own.refresh_id, other, until=Phase.MERGING)
        shop.lake.clock.pass_ms(shop.lake.settings.handover_ms + 1)

    at_point("staging.after", refresh_and_die)

    report = shop.ingest()

    assert shop.results(report) == {"ones": (PUBLISHED, None), "twos": (None, "MV-REFRESH-IN-PROGRESS")}
    assert shop.rows("twos") == [(1, "x"), (2, "new"), (3, "newer")]
    assert shop.lake.store.obstacle(shop.lake.store.table("twos").id) is None
    assert shop.committed() == {"ones": 2, "twos": 3}


@pytest.mark.in_test_all
def test_offsets_of_a_topic_are_not_released_to_another_one_of_its_name(shop):
    for name in shop.names:
        shop.send(name, row(1, "a"), row(2, "b"))
    shop.ingest()
    shop.broker.drop(shop.topics["twos"])
    shop.broker.topic(shop.topics["twos"])
    shop.send("ones", row(3, "c"))

    report = shop.ingest()

    assert shop.results(report) == {"ones": (PUBLISHED, None), "twos": (None, "MV-SOURCE-REPLACED")}
    assert report.released == {shop.topics["ones"]: [3]}


@pytest.mark.in_test_all
def test_topic_of_two_tables_is_released_as_far_as_both_are(shop):
    shop.topics["twos"] = shop.topics["ones"]
    shop.register()
    shop.send("ones", row(1, "a"))
    shop.ingest()
    shop.send("ones", row(2, "b"))
    shop.lake.store.pause(shop.lake.store.table("twos").id, "somebody")

    found = shop.ingest()

    assert found.released == {shop.topics["ones"]: [1]}
    assert [len(shop.rows(name)) for name in shop.names] == [2, 1]


@pytest.mark.in_test_all
def test_group_with_a_member_is_left_alone_and_named(shop):
    shop.send("ones", row(1, "a"))
    consumer = Consumer({"bootstrap.servers": shop.broker.address, "group.id": shop.group, "log_level": 0})
    consumer.subscribe([shop.topics["ones"]])
    for _ in range(60):
        consumer.poll(1)
        if consumer.assignment():
            break
    try:
        found = shop.ingest()
    finally:
        consumer.close()

    assert shop.results(found) == {"ones": (PUBLISHED, None), "twos": (PUBLISHED, None)}
    assert (found.released, found.error.code) == (None, "MV-SOURCE-DENIED")
    assert "has members" in found.error.message


@pytest.mark.in_test_all
def test_what_the_group_says_is_never_read(shop):
    shop.send("ones", row(1, "a"))
    shop.ingest()
    shop.send("ones", row(2, "b"))
    shop.broker.commit(shop.group, shop.topics["ones"], 2)

    shop.ingest()

    assert shop.rows("ones") == [(1, "a"), (2, "b")]


@pytest.mark.in_test_all
@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("is_retry", [False, True], ids=["another caller", "retry"])
@pytest.mark.sample(6)
def test_killed_run_is_followed_by_a_whole_one(shop, crash_at, point, is_retry):
    """Whoever comes next brings both tables to one state, and it takes no longer than a lease."""
    for name in shop.names:
        shop.send(name, row(1, "a"), row(2, "b"))
    shop.ingest()
    for name in shop.names:
        shop.send(name, row(1, None), row(2, "c"))
    caller = shop.lake.caller(will_retry=True)
    crash_at(point)
    with pytest.raises(Crash):
        shop.ingest(caller)
    for name in shop.names:
        shop.send(name, row(3, "d"))
    if not is_retry:
        shop.let_leases_expire()

    found = shop.ingest(caller if is_retry else None)

    assert all(each.is_in_state for each in found.tables)
    assert [shop.rows(name) for name in shop.names] == [[(2, "c"), (3, "d")]] * 2
    assert shop.committed() == {"ones": 5, "twos": 5}
    assert shop.phases() == {"NORMAL"}
    assert shop.lake.workspaces() == []


@pytest.mark.in_test_all
@pytest.mark.parametrize("point", ["seal.after:2", "publish.after", "release.before"])
def test_process_that_dies_keeps_its_tables_for_a_lease_only(shop, point):
    for name in shop.names:
        shop.send(name, row(1, "a"))
    lake = shop.lake
    given = {
        "AMV_DATABASE_URL": lake.settings.database_url,
        "AMV_WAREHOUSE": lake.settings.warehouse,
        "AMV_SOURCE_DATABASES": "kafka",
    }
    died = subprocess.run(
        [sys.executable, str(DYING), point, "amv", "ingest", "shop"],
        env={**os.environ, **given, "PYTHONPATH": str(DYING.parents[1])},
        capture_output=True,
        text=True,
        check=False,
    )
    shop.lake.clock.pass_ms(60_001)  # a lease as it is by default

    found = shop.ingest()

    assert died.returncode == -9, died.stderr
    assert all(each.is_in_state for each in found.tables)
    assert [shop.rows(name) for name in shop.names] == [[(1, "a")]] * 2
    assert shop.committed() == {"ones": 1, "twos": 1}


@pytest.mark.in_test_all
def test_what_cannot_be_one_ingestion_is_named(shop, monkeypatch):
    with pytest.raises(TableNotFoundError, match="did you mean shop"):
        shop.lake.refresher().ingest("shap", shop.lake.caller())
    del shop.topics["twos"]
    shop.register(group="another")
    with pytest.raises(DefinitionError, match="same consumer group"):
        shop.ingest()


@pytest.mark.in_test_all
def test_cluster_that_is_away_fails_the_run_once(shop, monkeypatch):
    monkeypatch.setenv("AIRFLOW_CONN_SHOP", '{"conn_type": "kafka", "host": "127.0.0.1", "port": 1}')

    with pytest.raises(SourceUnavailableError):
        shop.ingest()

    assert shop.phases() == {"NORMAL"}
