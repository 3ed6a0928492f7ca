"""Runs of an ingestion over a real PostgreSQL: all tables are read in one exported snapshot."""

from __future__ import annotations

import json

import psycopg
import pytest
from sqlalchemy.engine import make_url

from airflow_mv_provider.core.outcome import Outcome
from airflow_mv_provider.exceptions import DefinitionError
from airflow_mv_provider.metadata.rows import iso
from tests.conftest import Crash
from tests.engine.ingesting import Database

pytestmark = [pytest.mark.slow, pytest.mark.in_process]

PUBLISHED = Outcome.PUBLISHED
HOLDERS = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'airflow-mv-provider'"


@pytest.fixture
def shop(lake, postgres, monkeypatch):
    found = Database(lake, address=postgres.new_database())
    at = make_url(found.address)
    known = {"conn_type": "postgres", "host": "127.0.0.1", "port": at.port, "schema": at.database, "login": "mv"}
    monkeypatch.setenv("AIRFLOW_CONN_SHOP", json.dumps(known))
    found.run(*(f"CREATE TABLE {name} (id int PRIMARY KEY, v text)" for name in found.names))
    found.register()
    return found


@pytest.mark.in_test_all
def test_tables_are_of_one_moment_while_others_write(shop, at_point):
    shop.add(1, 2, 3)
    at_point("staging.after", lambda: shop.add(4))

    first = shop.ingest()
    seen = [shop.rows(name) for name in shop.names]
    second = shop.ingest()

    assert shop.results(first) == {"ones": (PUBLISHED, None), "twos": (PUBLISHED, None)}
    assert seen == [[(1, "v1"), (2, "v2"), (3, "v3")]] * 2
    assert all(each.is_in_state for each in second.tables)
    assert [len(shop.rows(name)) for name in shop.names] == [4, 4]
    assert shop.run("SELECT query FROM pg_stat_activity WHERE application_name = 'airflow-mv-provider'") == []
    assert shop.lake.workspaces() == []


@pytest.mark.in_test_all
def test_all_tables_are_as_fresh_as_the_state_that_they_share(shop, at_point):
    store = shop.lake.store
    before_ms = shop.lake.refresher().store.now_ms()
    shop.add(1)
    at_point("staging.after", lambda: shop.lake.clock.pass_ms(60_000))

    report = shop.ingest()

    looks = [shop.lake.refresher().store.last_check(store.table(name).id)[0].checked_ms for name in shop.names]
    began = [store.report(each.refresh_id).started_at for each in report.tables]
    assert looks[0] == looks[1]
    assert before_ms <= looks[0] < before_ms + 60_000
    assert began[1] > iso(before_ms + 60_000)
    assert report.started_at >= iso(looks[0]), "the state is not newer than the time it is said to be of"


@pytest.mark.in_test_all
@pytest.mark.parametrize("more", ["", ", changes: xmin"])
def test_table_that_another_refresh_brings_further_meanwhile_never_goes_back(shop, at_point, more):
    shop.register(more)
    shop.add(1, 2)
    shop.ingest()
    shop.add(3)
    at_point("staging.after", lambda: (shop.add(4), shop.lake.refresh("twos")))

    report = shop.ingest()
    seen = {name: [row[0] for row in shop.rows(name)] for name in shop.names}
    later = shop.ingest()

    assert shop.results(report) == {"ones": (PUBLISHED, None), "twos": (None, "MV-REFRESH-IN-PROGRESS")}
    assert seen == {"ones": [1, 2, 3], "twos": [1, 2, 3, 4]}
    assert all(each.is_in_state for each in later.tables)
    assert [len(shop.rows(name)) for name in shop.names] == [4, 4]
    assert shop.lake.store.obstacle(shop.lake.store.table("twos").id) is None


@pytest.mark.in_test_all
def test_refresh_that_a_retry_has_begun_is_not_read_in_the_state_of_the_try_before(shop, at_point):
    """A try that was taken for dead, and is not, would seal its older rows as the newer state of its retry."""
    shop.add(1, 2)
    shop.ingest()
    shop.add(3)
    caller = shop.lake.caller(will_retry=True)
    at_point("staging.after", lambda: (shop.add(4), shop.lake.refresher().begin("twos", caller)))

    report = shop.ingest(caller)
    later = shop.ingest(caller)

    assert shop.results(report) == {"ones": (PUBLISHED, None), "twos": (None, "MV-REFRESH-IN-PROGRESS")}
    assert all(each.is_in_state for each in later.tables)
    assert [[r[0] for r in shop.rows(name)] for name in shop.names] == [[1, 2, 3, 4]] * 2


@pytest.mark.in_test_all
def test_table_that_is_dropped_meanwhile_is_left_behind(shop, at_point):
    shop.add(1)
    at_point("staging.after", lambda: shop.lake.refresher().drop("twos", shop.lake.caller()))

    report = shop.ingest()

    assert shop.results(report) == {"ones": (PUBLISHED, None), "twos": (None, "MV-TABLE-UNKNOWN")}
    assert shop.rows("ones") == [(1, "v1")]


@pytest.mark.in_test_all
def test_truncate_waits_until_all_tables_are_read(shop, at_point):
    shop.add(1, 2)

    def truncate() -> None:
        with psycopg.connect(shop.address, autocommit=True) as connection:
            connection.execute("SET lock_timeout = '200ms'")
            with pytest.raises(psycopg.errors.LockNotAvailable):
                connection.execute("TRUNCATE twos")

    at_point("staging.after", truncate)

    shop.ingest()

    assert [len(shop.rows(name)) for name in shop.names] == [2, 2]


@pytest.mark.in_test_all
@pytest.mark.parametrize("more", [", changes: xmin", ", split: {column: id, parts: 3}"])
def test_each_way_of_reading_is_of_the_shared_state(shop, at_point, more):
    shop.register(more)
    shop.add(*range(1, 9))
    shop.ingest()
    shop.add(9)
    shop.run("DELETE FROM ones WHERE id = 1")
    at_point("staging.after", lambda: shop.add(10))

    found = shop.ingest()

    assert all(each.is_in_state for each in found.tables)
    assert [[r[0] for r in shop.rows(name)] for name in shop.names] == [[*range(2, 10)], [*range(1, 10)]]


def test_table_that_does_not_exist_or_may_not_be_read_is_left_behind(shop):
    shop.add(1)
    shop.run("DROP TABLE ones")

    found = shop.ingest()

    assert shop.results(found) == {"ones": (None, "MV-SOURCE-MISSING"), "twos": (PUBLISHED, None)}
    assert shop.rows("twos") == [(1, "v1")]


@pytest.mark.in_test_all
def test_lost_snapshot_leaves_behind_who_needed_it_and_the_next_run_has_one_state(shop, at_point):
    shop.add(1)
    at_point("acquire.before:2", lambda: shop.run(HOLDERS))

    lost = shop.ingest()
    shop.add(2)
    again = shop.ingest()

    assert shop.results(lost) == {"ones": (PUBLISHED, None), "twos": (None, "MV-SNAPSHOT-LOST")}
    assert all(each.is_in_state for each in again.tables)
    assert [shop.rows(name) for name in shop.names] == [[(1, "v1"), (2, "v2")]] * 2


@pytest.mark.in_test_all
@pytest.mark.parametrize("point", ["bind.after", "seal.before", "seal.after", "staging.before:2", "publish.after"])
@pytest.mark.parametrize("is_retry", [False, True], ids=["another caller", "retry"])
@pytest.mark.sample(4)
def test_killed_run_never_mixes_two_states(shop, crash_at, point, is_retry):
    shop.add(1)
    shop.ingest()
    shop.add(2)
    caller = shop.lake.caller(will_retry=True)
    crash_at(point)
    with pytest.raises(Crash):
        shop.ingest(caller)
    shop.add(3)
    if not is_retry:
        shop.let_leases_expire()

    found = shop.ingest(caller if is_retry else None)

    assert all(each.is_in_state for each in found.tables)
    assert [shop.rows(name) for name in shop.names] == [[(n, f"v{n}") for n in (1, 2, 3)]] * 2
    assert shop.phases() == {"NORMAL"}


@pytest.mark.in_test_all
@pytest.mark.parametrize("kind", ["mysql", "sqlite"])
def test_databases_without_shared_snapshots_are_refused(shop, monkeypatch, kind):
    monkeypatch.setenv("AIRFLOW_CONN_SHOP", json.dumps({"conn_type": kind, "host": "127.0.0.1", "schema": "x"}))

    with pytest.raises(DefinitionError, match="share a snapshot"):
        shop.ingest()
