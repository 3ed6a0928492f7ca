"""An ingestion in Airflow: one task for each of its tables, all in one state, and who fails if one is left behind."""

from __future__ import annotations

import json

import pytest
from sqlalchemy.engine import make_url

from airflow_mv_provider.core.phase import Phase
from tests.airflow_home import DAGS
from tests.engine.ingesting import Database

pytestmark = pytest.mark.slow

FILE = """
ingestions:
  - name: shop
    source: {type: jdbc, conn_id: shop}
    outputs: {ones: {table: public.ones}, twos: {table: public.twos}}
tables:
  - {name: ones, key: [id], source: {type: output, of: shop, output: ones}}
  - {name: twos, key: [id], source: {type: output, of: shop, output: twos}}
  - {name: orders, key: [id], source: {type: delta, path: raw/orders}}
dags:
  defaults: {retries: 0}
  ingestions: {shop: {tasks: TASKS}}
"""
DAG_FILE = """
from airflow_mv_provider.operators.factory import refresh_dags

globals().update(refresh_dags("shop.yaml"))
"""


@pytest.fixture
def shop(home, postgres, monkeypatch):
    found = Database(home, address=postgres.new_database())
    at = make_url(found.address)
    known = {"conn_type": "postgres", "host": "127.0.0.1", "port": at.port, "schema": at.database, "login": "mv"}
    monkeypatch.setenv("AIRFLOW_CONN_SHOP", json.dumps(known))
    found.run(*(f"CREATE TABLE {name} (id int PRIMARY KEY, v text)" for name in found.names))
    return found


def loaded(airflow, tasks):
    (DAGS / "shop.yaml").write_text(FILE.replace("TASKS", tasks))
    return airflow.load("ingest_shop", DAG_FILE)


def test_ingestion_has_a_dag_and_its_tables_have_none_of_their_own(airflow):
    group, ids = loaded(airflow, "phases"), airflow.load_all()

    assert sorted(group.task_ids) == ["ingest.finish", "ingest.publish_ones", "ingest.publish_twos", "ingest.stage"]
    assert {"ingest_shop", "refresh_orders"} <= ids
    assert not {"refresh_ones", "refresh_twos"} & ids
    outlets = {task.task_id: [getattr(a, "uri", a.name) for a in task.outlets] for task in group.tasks if task.outlets}
    assert outlets == {
        "ingest.stage": ["mv_recovered"],
        "ingest.publish_ones": ["mv://table/ones"],
        "ingest.publish_twos": ["mv://table/twos"],
    }
    assert loaded(airflow, "one").task_ids == ["ingest"]


@pytest.mark.parametrize(("tasks", "first"), [("phases", "ingest.stage"), ("one", "ingest")])
def test_run_that_asks_for_other_than_all_of_it_is_refused_before_anything_is_written(home, airflow, tasks, first):
    run = airflow.run(loaded(airflow, tasks), read_only=True, scope="everything")

    assert (run.state, run.tries[first]) == ("failed", 1)
    [error] = run.errors[first]
    assert (
        "[MV-ARGUMENT] shop: all its tables are refreshed in one state; a run takes no options, not read_only."
        in str(error)
    )
    assert home.store.tables() == ()


@pytest.mark.in_test_all
def test_group_brings_all_tables_to_one_state_and_a_table_that_cannot_be_read_fails_alone(shop, airflow):
    dag = loaded(airflow, "phases")
    shop.add(1, 2)
    first = airflow.run(dag)
    nothing = airflow.run(dag)
    shop.add(3)
    shop.run("ALTER TABLE twos RENAME TO gone")
    broken = airflow.run(dag)

    assert (first.state, nothing.state, broken.state) == ("success", "success", "failed")
    assert nothing.states["ingest.publish_ones"] == "skipped"
    assert broken.states == {
        "ingest.stage": "success",
        "ingest.publish_ones": "success",
        "ingest.publish_twos": "failed",
        "ingest.finish": "failed",
    }
    [error] = broken.errors["ingest.publish_twos"]
    assert "MV-SOURCE-MISSING" in str(error)
    assert [len(shop.rows(name)) for name in shop.names] == [3, 2]
    assert len([each for each in airflow.events("mv://table/ones") if each.source_run_id == broken.run_id]) == 1
    newest = shop.lake.store.ingestion_runs("shop")[0]
    assert {each.table: each.is_in_state for each in newest.tables} == {"ones": True, "twos": False}


@pytest.mark.in_test_all
def test_one_task_does_all_and_fails_if_a_table_was_left_behind(shop, airflow):
    dag = loaded(airflow, "one")
    shop.add(1)
    good = airflow.run(dag)
    shop.run("DROP TABLE twos")
    bad = airflow.run(dag)

    assert (good.state, bad.state) == ("success", "failed")
    assert [shop.rows(name) for name in shop.names] == [[(1, "v1")]] * 2
    [error] = bad.errors["ingest"]
    assert "MV-SOURCE-MISSING" in str(error)


@pytest.mark.in_test_all
def test_a_table_that_was_published_before_another_one_was_free_has_its_event(shop, airflow):
    """Airflow takes no event of a task that looks again later; then the table has nothing new."""
    dag = loaded(airflow, "one")
    shop.add(1)
    airflow.run(dag)
    shop.add(2)
    other = shop.lake.caller("other")
    begun = shop.lake.refresher().begin("twos", other)

    def the_other_ends(context):
        if context["task_reschedule_count"] == 1:
            shop.lake.refresher().resume(begun.own.refresh_id, other, until=Phase.NORMAL)

    task = dag.get_task("ingest")
    task.poll_interval, task.on_execute_callback = 0, [the_other_ends]
    run = airflow.run(dag)

    assert (run.states, run.reschedules) == ({"ingest": "success"}, {"ingest": 1}), str(run.errors)
    assert [len(shop.rows(name)) for name in shop.names] == [2, 2]
    assert [each for each in airflow.events("mv://table/ones") if each.source_run_id == run.run_id]


@pytest.mark.in_test_all
def test_a_run_that_leaves_its_ingestion_out_succeeds(shop, airflow):
    text = """
from airflow.providers.standard.operators.python import BranchPythonOperator
from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.sdk import DAG
from airflow_mv_provider import ingest_group

with DAG("branching", schedule=None):
    BranchPythonOperator(task_id="choose", python_callable=lambda: "other") >> [
        ingest_group("shop", ["ones", "twos"]), EmptyOperator(task_id="other")
    ]
"""

    run = airflow.run(airflow.load("branching", text))

    assert (run.state, run.states["ingest_shop.finish"], run.states["other"]) == ("success", "skipped", "success")


@pytest.mark.in_test_all
def test_sensor_waits_for_tables_that_follow_their_sources(shop, airflow):
    from airflow.sdk.exceptions import AirflowFailException

    from airflow_mv_provider.core.outcome import ErrorReport
    from airflow_mv_provider.sensors.health import HealthSensor

    shop.register()
    store = shop.lake.store
    sensor = HealthSensor(task_id="s", ingestion="shop", fails=True)
    created = sensor.poke({})
    error = ErrorReport("MV-SOURCE-DENIED", "ones: refused.", "Grant it.", False)
    for released in (error, None):
        store.ingestions.end(store.ingestions.bind("shop", "somewhere", shop.lake.caller()), None, released)
        if released is not None:
            with pytest.raises(AirflowFailException, match=r"shop \(release\) is stalled"):
                sensor.poke({})
    store.obstacles.met(store.table("ones").id, error)

    assert created is False
    assert HealthSensor(task_id="t", table="ones", statuses=["stalled"]).poke({})
    with pytest.raises(AirflowFailException, match="Grant it"):
        sensor.poke({})
    with pytest.raises(AirflowFailException, match="MV-TABLE-UNKNOWN"):
        HealthSensor(task_id="u", ingestion="nobody").poke({})
