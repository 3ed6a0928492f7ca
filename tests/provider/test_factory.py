"""DAGs made of a definition file, and what their runs refresh."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import UTC, datetime
from types import SimpleNamespace

import pytest
import yaml
from airflow.sdk import Asset, AssetAny

from airflow_mv_provider import definition_file as definitions
from airflow_mv_provider.core.outcome import Outcome
from airflow_mv_provider.exceptions import DefinitionError
from tests.airflow_home import DAGS

DAG_FILE = """
from airflow_mv_provider.operators.factory import refresh_dags

globals().update(refresh_dags("tables.yaml"))
"""
ORDERS = {"name": "orders", "source": {"type": "delta", "path": "raw/orders"}, "key": ["id", "day"]}
ORDERS |= {"partition_by": ["day"]}
LINES = {"name": "gold.lines", "source": {"type": "delta", "path": "raw/lines"}, "key": ["id"]}


def write(dags: object, *tables: object) -> None:
    (DAGS / "tables.yaml").write_text(yaml.safe_dump({"tables": list(tables or [ORDERS, LINES]), "dags": dags}))


@pytest.mark.slow
def test_each_table_gets_the_dag_that_its_file_asks_for(airflow):
    write(
        {
            "defaults": {"retries": 5, "tags": ["x"]},
            "tables": {
                "orders": {"schedule": "@daily", "interval": "day", "timezone": "Europe/Berlin", "tasks": "phases"},
                "gold.lines": {"dag_id": "lines", "after": ["orders"], "max_active_runs": 1, "pool": "p"},
            },
        }
    )

    orders = airflow.load("refresh_orders", DAG_FILE)
    lines = airflow.load("lines")

    assert sorted(orders.task_ids) == ["refresh.begin", "refresh.cleanup", "refresh.merge", "refresh.stage"]
    assert orders.timetable.__class__.__name__ == "CronDataIntervalTimetable"
    assert (str(orders.timezone), orders.fileloc) == ("Europe/Berlin", str(DAGS / "refresh_orders_file.py"))
    assert sorted(orders.tags) == ["mv", "x"]
    assert {task.retries for task in (*orders.tasks, *lines.tasks)} == {5}
    assert {task.retry_policy is not None for task in orders.tasks} == {True}
    assert (lines.task_ids, lines.max_active_runs, lines.get_task("refresh").pool) == (["refresh"], 1, "p")
    # Airflow knows which DAG publishes a table, and which one waits for it.
    assert [a.uri for a in orders.get_task("refresh.merge").outlets] == ["mv://table/orders"]
    # Its first task may publish what another one left, so its event comes by an alias.
    assert [a.name for a in orders.get_task("refresh.begin").outlets] == ["mv_recovered"]
    assert [a.uri for a in lines.get_task("refresh").outlets] == ["mv://table/gold.lines"]
    assert "mv://table/orders" in str(lines.timetable.asset_condition)
    assert {"scope", "from", "until", "partitions", "overrides", "note"} <= set(lines.params)


@pytest.mark.slow
def test_a_dag_starts_when_one_of_several_tables_was_published(airflow):
    """A refresh that finds nothing new sends no event, so a DAG that needs one of each might never start."""
    write({"tables": {"gold.lines": {"after": ["orders", "customers"]}}})

    condition = airflow.load("refresh_gold.lines", DAG_FILE).timetable.asset_condition

    assert isinstance(condition, AssetAny)
    assert [each.uri for each in condition.objects] == ["mv://table/orders", "mv://table/customers"]


@pytest.mark.slow
def test_an_ingestion_starts_when_one_of_several_tables_was_published(airflow):
    outputs = {"ones": {"table": "public.ones"}}
    ingestion = {"name": "shop", "source": {"type": "jdbc", "conn_id": "shop"}, "outputs": outputs}
    ones = {"name": "ones", "key": ["id"], "source": {"type": "output", "of": "shop", "output": "ones"}}
    dags = {"ingestions": {"shop": {"after": ["orders", "gold.lines"]}}}
    document = {"ingestions": [ingestion], "tables": [ones, ORDERS, LINES], "dags": dags}
    (DAGS / "tables.yaml").write_text(yaml.safe_dump(document))

    assert isinstance(airflow.load("ingest_shop", DAG_FILE).timetable.asset_condition, AssetAny)


@pytest.mark.slow
@pytest.mark.parametrize("is_or_asset", [False, True])
def test_an_interval_is_of_the_time_zone_of_its_timetable(airflow, is_or_asset):
    from airflow.sdk import DAG, AssetOrTimeSchedule, CronDataIntervalTimetable

    from airflow_mv_provider.operators.dag_run import interval_of

    timetable = CronDataIntervalTimetable("0 0 * * *", timezone="America/New_York")
    dag = DAG("d", schedule=AssetOrTimeSchedule(timetable=timetable, assets=[Asset("x")]) if is_or_asset else timetable)
    day = [datetime(2026, 3, each, 5, tzinfo=UTC) for each in (1, 2)]
    run = SimpleNamespace(data_interval_start=day[0], data_interval_end=day[1])

    assert interval_of({"dag": dag, "dag_run": run}, "day", None) == ("2026-03-01", "2026-03-02")


@pytest.mark.slow
def test_a_table_that_another_task_names_is_parsed(airflow):
    text = """
from airflow.sdk import DAG, task
from airflow_mv_provider import RefreshTableOperator
from airflow_mv_provider.operators.maintenance import RollbackOperator

@task
def choose():
    return "orders"

with DAG("chosen", schedule=None):
    name = choose()
    RefreshTableOperator(task_id="refresh", table=name, options=choose())
    RollbackOperator(task_id="rollback", table=name, to="1", note="why")
"""

    assert {"refresh", "rollback"} < set(airflow.load("chosen", text).task_ids)


@pytest.mark.slow
def test_a_dag_that_follows_its_source_watches_it(airflow):
    write({"tables": {"orders": {"schedule": "source"}}}, ORDERS)

    asset = airflow.load("refresh_orders", DAG_FILE).timetable.asset_condition

    [watcher] = asset.watchers
    assert asset.uri == "mv://source/raw/orders"
    assert watcher.trigger.serialize()[1]["path"] == "raw/orders"


@pytest.mark.slow
def test_the_watcher_of_a_source_has_the_connection_of_its_tasks(airflow):
    write({"tables": {"orders": {"schedule": "source"}}}, ORDERS)

    text = DAG_FILE.replace('"tables.yaml"', '"tables.yaml", mv_conn_id="mv_prod"')
    [watcher] = airflow.load("refresh_orders", text).timetable.asset_condition.watchers

    assert watcher.trigger.serialize()[1]["mv_conn_id"] == "mv_prod"


@pytest.mark.slow
def test_a_dag_of_a_cluster_submits_a_driver(airflow):
    write({"tables": {"orders": {"tasks": "submit", "spark_conn_id": "cluster"}}}, ORDERS)

    task = airflow.load("refresh_orders", DAG_FILE).get_task("refresh")

    assert (type(task).__name__, task._conn_id) == ("SubmitRefreshTableOperator", "cluster")
    assert task.application.endswith("spark_apps/refresh_table.py")
    assert [a.uri for a in task.outlets] == ["mv://table/orders"]


@pytest.mark.parametrize(
    ("dags", "problem"),
    [
        ([], "expected `defaults`, `tables` and `ingestions`"),
        ({"orders": {}}, "expected `defaults`, `tables` and `ingestions`"),
        ({"tables": {"nope": {}}}, "'nope' is not a table of this file"),
        ({"tables": {"orders": 1}}, "expected a mapping"),
        ({"defaults": {"shedule": "@daily"}}, "shedule: unknown name (did you mean schedule?)"),
        ({"defaults": {"schedule": "@daily", "after": ["gold.lines"]}}, "give only one of them"),
        ({"tables": {"orders": {"interval": "day"}}}, "needs a schedule by time"),
        ({"tables": {"orders": {"interval": "week", "schedule": "@daily"}}}, "'day'"),
        ({"tables": {"gold.lines": {"interval": "day", "schedule": "@daily"}}}, "needs a table with partition_by"),
        ({"defaults": {"retries": True}}, "retries"),
        ({"defaults": {"dag_id": "a/b"}}, "dag_id"),
    ],
    ids=str,
)
def test_options_that_do_not_fit_are_refused_with_the_files_name(dags, problem):
    with pytest.raises(DefinitionError, match=r"tables\.yaml, dags") as refused:
        definitions.parse_file(yaml.safe_dump({"tables": [ORDERS, LINES], "dags": dags}), where="tables.yaml")

    assert problem in str(refused.value)


def test_the_command_line_reads_over_dags():
    text = yaml.safe_dump({"tables": [ORDERS], "dags": {"defaults": {"schedule": "@daily"}}})

    assert definitions.parse(text)[0].name == "orders"


@pytest.mark.slow
def test_two_dags_of_one_id_are_an_import_error(airflow):
    from airflow.dag_processing.dagbag import DagBag

    write({"defaults": {"dag_id": "same"}})
    (DAGS / "same.py").write_text(DAG_FILE)

    [error] = DagBag(str(DAGS)).import_errors.values()

    assert "two DAGs have the id 'same'" in error


@pytest.mark.in_test_all
@pytest.mark.slow
def test_two_hundred_dags_are_parsed_without_pyspark(tmp_path):
    tables = [ORDERS | {"name": f"t{i}", "source": {"type": "delta", "path": f"raw/t{i}"}} for i in range(200)]
    dags = {"defaults": {"schedule": "@daily", "interval": "day"}, "tables": {"t0": {"tasks": "submit"}}}
    dags["tables"] |= {"t1": {"schedule": "source", "interval": None}}
    (tmp_path / "tables.yaml").write_text(json.dumps({"tables": tables, "dags": dags}))
    (tmp_path / "many.py").write_text(DAG_FILE)
    code = "import runpy, sys; found = runpy.run_path('many.py')"
    code += "; print(sum('refresh_t' in name for name in found), [m for m in sys.modules if m in ('pyspark', 'py4j')])"

    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True, capture_output=True, text=True)

    assert done.stdout.splitlines()[-1] == "200 []"


# -- intervals ---------------------------------------------------------------------------------------------------------


def one_dag(dag_id: str, **more: str) -> object:
    """Give each test a DAG of its own: Airflow keeps every version of one that changes."""
    options = {"dag_id": dag_id, "schedule": "@daily", "interval": "day", "start_date": "2026-03-01"}
    return {"tables": {"orders": options | more}}


def days(home, text="concat('v', id)", *, last=5, but="1 = 0") -> None:
    """Write a source with two rows a day, 1 to `last` March, without those that `but` names."""
    home.write(
        f"SELECT id, CAST(date_add(DATE'2026-03-01', CAST(id DIV 2 AS INT)) AS DATE) AS day, {text} AS v "
        f"FROM range({2 * last}) WHERE NOT ({but})"
    )


def scopes(home):
    return [(r.scope, r.outcome) for r in home.store.history(home.store.table("orders").id)]


@pytest.mark.in_test_all
@pytest.mark.slow
def test_runs_of_a_backfill_do_exactly_their_intervals_one_after_the_other(home, airflow):
    days(home, last=6)
    write(one_dag("backfilled", tasks="phases"), ORDERS)
    dag = airflow.load("backfilled", DAG_FILE.replace('yaml")', 'yaml", poll_interval=0)'))

    runs = airflow.backfill(dag, "2026-03-02", "2026-03-04")

    assert {run.state for run in runs} == {"success"}
    assert {tries for run in runs for tries in run.tries.values()} == {1}, "losing the race is no failure"
    assert sum(run.reschedules["refresh.begin"] for run in runs) > 0, "they met"
    assert sorted(scopes(home)) == [
        (f"partitions from 2026-03-0{day} until 2026-03-0{day + 1}", Outcome.PUBLISHED) for day in (2, 3, 4)
    ]
    assert {r.trigger for r in home.store.history(home.store.table("orders").id)} == {"backfill"}
    assert {row[0].day for row in home.rows("orders")} == {2, 3, 4}

    # The source loses rows inside and outside of the intervals that are done again: deletes stay inside.
    days(home, "'later'", last=6, but="id % 2 = 1")
    again = airflow.backfill(
        dag, "2026-03-03", "2026-03-03", reprocess=True, overrides=["max_deleted_fraction"], note="x"
    )

    assert [(run.run_id, run.state) for run in again] == [(runs[1].run_id, "success")], "the same run, done again"
    assert [(row[0].day, row[2]) for row in home.rows("orders")] == [
        (2, "v2"), (2, "v3"), (3, "later"), (4, "v6"), (4, "v7"),
    ]  # fmt: skip
    table = home.store.table("orders")
    entries = home.store.ledger(table.id, "2026-03-01", "2026-03-06")
    assert [(e.start[-2:], str(e.state)) for e in entries] == [
        ("01", "missing"), ("02", "done"), ("03", "done"), ("04", "done"), ("05", "missing"),
    ]  # fmt: skip


@pytest.mark.in_test_all
@pytest.mark.slow
def test_a_run_without_an_interval_refreshes_everything_and_a_form_may_ask_for_less(home, airflow):
    days(home)
    write(one_dag("by_form"), ORDERS)
    dag = airflow.load("by_form", DAG_FILE)

    by_rest = airflow.run(dag, logical_date=None)
    days(home, "'b'")
    by_hand = airflow.run(dag, logical_date=datetime(2026, 3, 2, tzinfo=UTC))
    days(home, "'c'")
    asked = {"scope": "range", "from": "2026-03-03", "until": "2026-03-05"}
    by_form = airflow.run(dag, logical_date=datetime(2026, 3, 3, tzinfo=UTC), **asked)
    days(home, "'d'")
    dag = airflow.load("by_form")  # what a form says stays in the DAG's params where it is run in one process
    everything = airflow.run(dag, logical_date=datetime(2026, 3, 4, tzinfo=UTC), scope="everything")

    assert {run.state for run in (by_rest, by_hand, by_form, everything)} == {"success"}
    assert [scope for scope, _ in scopes(home)] == [
        None,
        "partitions from 2026-03-03 until 2026-03-05",
        "partitions from 2026-03-01 until 2026-03-02",  # the interval that was complete by then
        None,
    ]
    assert {row[2] for row in home.rows("orders")} == {"d"}


@pytest.mark.in_test_all
@pytest.mark.slow
def test_a_day_begins_where_the_timetable_of_a_hand_made_dag_says(home, airflow):
    days(home)
    home.apply(partition_by=["day"], key=["id", "day"])
    text = """
from datetime import datetime
from airflow.sdk import CronDataIntervalTimetable, DAG
from airflow_mv_provider.operators.refresh import RefreshTableOperator

daily = CronDataIntervalTimetable("0 0 * * *", timezone="Europe/Berlin")
with DAG("berlin", schedule=daily, start_date=datetime(2026, 3, 1)):
    RefreshTableOperator(task_id="refresh", table="orders", interval="day")
"""

    run = airflow.run(airflow.load("berlin", text), logical_date=datetime(2026, 3, 2, 12, tzinfo=UTC))

    assert run.states == {"refresh": "success"}
    assert scopes(home) == [("partitions from 2026-03-01 until 2026-03-02", Outcome.PUBLISHED)]


@pytest.mark.in_test_all
@pytest.mark.slow
def test_a_backfill_of_moments_is_refused_before_it_refreshes_everything_thirty_times(home, airflow):
    days(home)
    home.apply(partition_by=["day"], key=["id", "day"])
    text = """
from datetime import datetime
from airflow.sdk import DAG
from airflow_mv_provider.operators.refresh import RefreshTableOperator

with DAG("moments", schedule="@daily", start_date=datetime(2026, 3, 1)):
    RefreshTableOperator(task_id="refresh", table="orders", interval="day", retries=2)
"""

    [run] = airflow.backfill(airflow.load("moments", text), "2026-03-02", "2026-03-02")

    assert (run.state, run.tries) == ("failed", {"refresh": 1})
    assert "CronDataIntervalTimetable" in str(run.errors["refresh"][0])
    assert scopes(home) == []
