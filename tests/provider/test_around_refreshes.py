"""What stands around a refresh in Airflow: freshness, events of assets, links, retries, notifications, the form."""

from __future__ import annotations

from datetime import timedelta

import pytest

from airflow_mv_provider.core.definition.table import parse_table
from airflow_mv_provider.core.outcome import Outcome
from airflow_mv_provider.core.phase import Phase
from airflow_mv_provider.exceptions import (
    ArgumentError,
    CommitUnknownError,
    FencedError,
    GuardRefusedError,
    MainMovedError,
)
from airflow_mv_provider.metadata.database import open_engine
from airflow_mv_provider.metadata.migrations import migrate
from airflow_mv_provider.metadata.store import Store
from tests.metadata.rows import acquired, registered, walk

pytestmark = pytest.mark.slow

DAG_TEXT = """
from datetime import timedelta
from airflow.sdk import DAG
from airflow_mv_provider.notifications import RefreshNotifier
from airflow_mv_provider.operators.groups import refresh_table_group
from airflow_mv_provider.operators.refresh import RefreshTableOperator

with DAG("around", schedule=None, default_args={"retry_delay": timedelta(0)}):
"""
ONE = DAG_TEXT + "    RefreshTableOperator(task_id='refresh', table='orders')\n"
GROUP = DAG_TEXT + "    refresh_table_group('orders', group_id='g')\n"


# -- freshness ---------------------------------------------------------------------------------------------------------


def is_fresh(home, **asked):
    from airflow_mv_provider.sensors.freshness import TableFreshnessSensor

    sensor = TableFreshnessSensor(task_id="s", table="orders", **asked)
    return sensor.poke({})


@pytest.mark.in_test_all
def test_a_table_is_as_fresh_as_its_last_look_at_the_source(home, airflow):
    home.write("SELECT id, CAST(id AS STRING) AS p FROM range(3)")
    home.apply(partition_by=["p"], key=["id", "p"])
    never = is_fresh(home, max_age=timedelta(days=1))
    home.refresh(partitions=["1"])
    in_part = is_fresh(home, max_age=timedelta(days=1))
    home.refresh()
    with home.store.engine.begin() as db:
        db.exec_driver_sql("UPDATE refresh SET started_ms = started_ms - 7200000")
    old = [is_fresh(home, max_age=timedelta(hours=h)) for h in (1, 3)]
    home.refresh()  # finds nothing new: main is as the source is now

    assert (never, in_part, old) == (False, False, [False, True])
    assert home.store.history(home.store.table("orders").id)[0].outcome is Outcome.NOTHING_TO_DO
    assert is_fresh(home, max_age=timedelta(minutes=10))
    assert is_fresh(home, since="2020-01-01T00:00:00+00:00")
    assert not is_fresh(home, since="2999-01-01")


def test_a_sensor_takes_one_bound_or_the_tables_own(tmp_path, airflow, monkeypatch):
    from airflow.sdk.exceptions import AirflowFailException

    from airflow_mv_provider.sensors.freshness import TableFreshnessSensor

    with pytest.raises(ArgumentError, match="max_age or since, not both"):
        TableFreshnessSensor(task_id="s", table="orders", max_age=timedelta(1), since="x")
    url = f"sqlite:///{tmp_path / 'mv.db'}"
    monkeypatch.setenv("AIRFLOW__MV__SQL_ALCHEMY_CONN", url)
    engine = open_engine(url)
    migrate(engine)
    store = Store(engine)
    sensor = TableFreshnessSensor(task_id="s", table="orders")
    table = registered(store, "orders")
    with pytest.raises(AirflowFailException, match="orders has no freshness target"):
        sensor.poke({})
    store.registry.register(
        parse_table(table.definition.to_json() | {"freshness": {"target": 3600}}),
        warehouse=table.warehouse,
        location=table.location,
    )
    assert not sensor.poke({})
    walk(store, acquired(store, table), Phase.NORMAL)
    assert sensor.poke({})
    engine.dispose()


# -- events and links --------------------------------------------------------------------------------------------------


@pytest.mark.sample("text0-refresh-refresh")
@pytest.mark.parametrize(("text", "first", "publisher"), [(ONE, "refresh", "refresh"), (GROUP, "g.begin", "g.merge")])
def test_a_published_refresh_is_an_event_with_its_facts_and_another_is_none(home, airflow, text, first, publisher):
    home.apply()
    dag = airflow.load("around", text)

    run = airflow.run(dag)
    nothing = airflow.run(dag)

    assert (run.state, nothing.state) == ("success", "success")
    runs = {run.run_id, nothing.run_id}
    [event] = [each for each in airflow.events("mv://table/orders") if each.source_run_id in runs]
    report = home.store.report(run.refresh_id)
    assert (event.source_task_id, event.source_run_id) == (publisher, run.run_id)
    assert event.extra["refresh_id"] == report.refresh_id
    assert (event.extra["main_version"], event.extra["rows_inserted"], event.extra["rows_deleted"]) == (
        report.main_version, 5, 0,
    )  # fmt: skip
    assert run.links[f"{first}:_link_TableLink"] == "/mv/tables/orders"
    page = "/mv/tables/orders/refreshes"
    assert {link for name, link in run.links.items() if "History" in name} == {f"{page}/{run.refresh_id}"}
    assert nothing.links[f"{first}:_link_HistoryLink"].endswith(f"{page}/{nothing.refresh_id}")


def test_links_know_the_path_under_which_airflow_is_served(airflow, monkeypatch):
    from airflow_mv_provider.links import page_url

    monkeypatch.setenv("AIRFLOW__API__BASE_URL", "https://example.org/airflow/")

    assert page_url() == "/airflow/mv/"
    assert page_url("gold.a/b", "r1") == "/airflow/mv/tables/gold.a%2Fb/refreshes/r1"


# -- retries -----------------------------------------------------------------------------------------------------------


def test_the_policy_tells_what_a_retry_may_mend_from_what_a_person_must(airflow):
    from airflow.sdk import RetryAction

    from airflow_mv_provider.operators.retry import retry_policy

    def decide(error):
        decision = retry_policy().evaluate(error, 1, 3)
        return decision.action, decision.retry_delay

    assert decide(GuardRefusedError("orders", "too many")) == (RetryAction.FAIL, None)
    assert decide(CommitUnknownError("orders", "no answer")) == (RetryAction.RETRY, timedelta(seconds=10))
    assert decide(FencedError("orders", "overtaken")) == (RetryAction.RETRY, timedelta(minutes=1))
    assert decide(MainMovedError("orders", "moved")) == (RetryAction.RETRY, None)
    assert decide(ValueError("x")) == (RetryAction.DEFAULT, None)


def test_airflow_obeys_the_policy(home, airflow):
    text = """
from datetime import timedelta
from airflow.sdk import DAG, task
from airflow_mv_provider.exceptions import EngineError, NullKeyError
from airflow_mv_provider.operators.retry import retry_policy

with DAG("policy", schedule=None, default_args={"retries": 2, "retry_delay": timedelta(0)}):
    @task(retry_policy=retry_policy())
    def refused():
        raise NullKeyError("orders", "a key is NULL.")
    refused()
"""

    run = airflow.run(airflow.load("policy", text))

    assert (run.states, run.tries) == ({"refused": "failed"}, {"refused": 1})


# -- notifications -----------------------------------------------------------------------------------------------------


@pytest.mark.in_test_all
def test_people_are_told_how_a_refresh_failed(home, airflow, webhook):
    home.apply()
    home.refresh()
    home.write("SELECT id, 'x' AS v FROM range(1)")
    notifier = "RefreshNotifier('alerts', prefix='@data')"
    text = DAG_TEXT + f"    RefreshTableOperator(task_id='refresh', table='orders', on_failure_callback={notifier})\n"

    run = airflow.run(airflow.load("around", text), keep_callbacks=True)

    assert run.states == {"refresh": "failed"}
    [(path, document)] = webhook
    assert path == "/services/T0/s3cr3t"
    assert document["text"].startswith("@data orders: refused. [MV-GUARD] orders: max_deleted_fraction")
    assert f"DAG around, run {run.run_id}. " in document["text"]
    assert document["text"].endswith(f"/mv/tables/orders/refreshes/{document['refresh']['refresh_id']}")
    assert (document["refresh"]["is_failure"], document["refresh"]["error"]["code"]) == (True, "MV-GUARD")


@pytest.mark.in_test_all
def test_a_try_that_fails_before_it_began_a_refresh_is_not_told_as_an_earlier_tries(home, airflow, webhook):
    home.apply()
    told = "on_failure_callback=RefreshNotifier('alerts')"
    dag = airflow.load("around", f"{DAG_TEXT}    RefreshTableOperator(task_id='refresh', table='orders', {told})\n")
    run = airflow.run(dag, keep_callbacks=True)
    (home.root / "raw/orders").rename(home.root / "raw/elsewhere")

    cleared = airflow.clear(dag, run, "refresh", keep_callbacks=True)

    assert (run.states, cleared.states) == ({"refresh": "success"}, {"refresh": "failed"})
    [(_, document)] = webhook
    assert "MV-SOURCE-MISSING" in document["text"]
    assert document["refresh"] is None


# -- what people ask for -----------------------------------------------------------------------------------------------


@pytest.mark.in_test_all
def test_who_set_a_guard_aside_and_why_is_in_the_history(home, airflow):
    home.apply()
    home.refresh()
    home.write("SELECT id, 'x' AS v FROM range(1)")
    dag = airflow.load("around", ONE)

    silent = airflow.run(dag, overrides=["max_deleted_fraction"])
    run = airflow.run(dag, overrides=["max_deleted_fraction"], note="the source was cleaned up")

    assert (silent.states, silent.tries) == ({"refresh": "failed"}, {"refresh": 1})
    assert "needs a reason" in str(silent.errors["refresh"][0])
    report = home.store.report(run.refresh_id)
    assert (report.user, report.trigger, report.overrides, report.note) == (
        "dag_test", "manual", ("max_deleted_fraction",), "the source was cleaned up",
    )  # fmt: skip
