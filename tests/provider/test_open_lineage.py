"""What OpenLineage is told of refreshes: the events that Airflow's own integration writes to a file."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from airflow_mv_provider import Files, Query
from airflow_mv_provider.open_lineage.gathering import Place, place_in, place_of
from airflow_mv_provider.sources.credentials import Credentials
from tests.conftest import a_table

ONE = """
from airflow.sdk import DAG
from airflow_mv_provider.operators.refresh import RefreshTableOperator

with DAG("lineage", schedule=None):
    RefreshTableOperator(task_id="refresh", table="orders")
"""
GROUP = """
from airflow.sdk import DAG
from airflow_mv_provider.operators.groups import refresh_table_group

with DAG("lineage", schedule=None):
    refresh_table_group("orders", group_id="g")
"""


# -- names and columns: pure ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("location", "namespace", "name"),
    [
        ("/wh/raw/orders", "file", "/wh/raw/orders"),
        ("/wh/raw/2026-*/part?.csv", "file", "/wh/raw"),
        ("s3a://bucket/raw/orders/", "s3://bucket", "raw/orders"),
        ("hdfs://name:8020/raw", "hdfs://name:8020", "raw"),
        ("hdfs:///raw", "hdfs", "/raw"),
    ],
)
def test_a_location_is_a_dataset(location, namespace, name):
    assert place_of(location) == Place(namespace, name)


@pytest.mark.parametrize(
    ("kind", "more", "dataset", "place"),
    [
        ("postgres", {"host": "db", "port": 5433}, "shop.orders", ("postgres://db:5433", "sales.shop.orders")),
        ("postgres", {"host": "db"}, "orders", ("postgres://db:5432", "sales.public.orders")),
        ("mysql", {"host": "db"}, "orders", ("mysql://db:3306", "sales.orders")),
        ("sqlite", {"host": "/data/shop.db"}, "orders", ("file", "/data/shop.db/orders")),
        ("kafka", {"host": "broker"}, "orders", ("kafka://broker:9092", "orders")),
        ("kafka", {"options": {"bootstrap.servers": "a:1,b:2"}}, "orders", ("kafka://a:1", "orders")),
    ],
)
def test_what_a_connection_leads_to_is_a_dataset_without_its_login(kind, more, dataset, place):
    facts = {"host": None, "port": None, "database": "sales", "user": "u", "password": "s3cret", "options": {}} | more

    found = place_in(Credentials(conn_id="c", kind=kind, **facts), dataset)

    assert (found.namespace, found.name) == place


def columns_of(**definition: Any) -> dict[str, Any]:
    from airflow_mv_provider.open_lineage.columns import columns_of

    return dict(columns_of(a_table(**definition)))


def test_columns_of_a_projection_come_from_those_that_its_expressions_name():
    select = [
        "id",
        "make_date(y, m, d) AS day",
        "`a b` AS `c d`",
        "x.y AS nested",
        "now() AS at",
        "*",
        "a +",
        "'k' AS k",
    ]

    found = columns_of(source=Files("raw/*.csv", format="csv", schema="id INT", select=select))

    assert {name: sorted(read) for name, read in found.items()} == {
        "id": [("", "id")],
        "day": [("", "d"), ("", "m"), ("", "y")],
        "c d": [("", "a b")],
        "nested": [("", "x")],
    }


def test_columns_of_a_query_come_from_those_of_its_inputs():
    sql = "SELECT o.id, sum(l.price * l.qty) AS total FROM o JOIN l ON o.id = l.order_id GROUP BY 1"
    inputs = {"o": "raw/orders", "l": "raw/lines"}

    assert {name: sorted(read) for name, read in columns_of(source=Query(sql, inputs=inputs)).items()} == {
        "id": [("o", "id")],
        "total": [("l", "price"), ("l", "qty")],
    }
    assert columns_of(source=Query("SELECT id FROM (WITH", inputs=inputs)) == {}, "it cannot be parsed"
    assert columns_of(source=Query("WITH x AS (SELECT * FROM o) SELECT id FROM x", inputs=inputs)) == {}
    assert columns_of(source=Query(sql, inputs=inputs, select=["id"])) == {}
    assert columns_of() == {}, "all columns as they are"


# -- real task runs ------------------------------------------------------------------------------------------------


@pytest.fixture
def told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, airflow: Any) -> Iterator[Any]:
    """Switch the integration on for a test; return a function that returns the events of tasks so far."""
    from airflow.providers.openlineage import conf
    from airflow.providers.openlineage.plugins.listener import OpenLineageListener
    from airflow.sdk.listener import get_listener_manager

    manager = get_listener_manager()  # Airflow's plugins are loaded before the integration is switched on
    file = tmp_path / "events.jsonl"
    transport = {"type": "file", "log_file_path": str(file), "append": True}
    monkeypatch.setenv("AIRFLOW__OPENLINEAGE__TRANSPORT", json.dumps(transport))
    # A fork of this process would have its JVM's connections.
    monkeypatch.setenv("AIRFLOW__OPENLINEAGE__EXECUTE_IN_THREAD", "true")
    cached = [each for each in vars(conf).values() if hasattr(each, "cache_clear")]
    for each in cached:
        each.cache_clear()
    listener = OpenLineageListener()
    manager.pm.register(listener)

    def events() -> list[dict[str, Any]]:
        found = [json.loads(line) for line in file.read_text().splitlines()]
        return [each for each in found if each["job"]["name"].startswith("lineage.")]

    yield events
    manager.pm.unregister(listener)
    for each in cached:
        each.cache_clear()


def ended(events: list[dict[str, Any]], task: str) -> dict[str, Any]:
    [event] = [e for e in events if e["job"]["name"] == f"lineage.{task}" and e["eventType"] in ("COMPLETE", "FAIL")]
    return event


@pytest.mark.slow
@pytest.mark.in_test_all
def test_a_task_tells_versions_rows_checks_and_columns(home, airflow, told):
    home.apply(
        source={"type": "delta", "path": "raw/orders", "select": ["id", "upper(v) AS v"]}, checks=[{"not_null": ["v"]}]
    )
    dag = airflow.load("lineage", ONE)

    run = airflow.run(dag)

    event = ended(told(), "refresh")
    report = home.store.report(run.refresh_id)
    [source], [main] = event["inputs"], event["outputs"]
    assert (source["namespace"], source["name"]) == ("file", f"{home.root}/raw/orders")
    assert source["facets"]["version"]["datasetVersion"] == "0"
    assert source["inputFacets"]["inputStatistics"]["rowCount"] == 5
    [assertion] = source["inputFacets"]["dataQualityAssertions"]["assertions"]
    assert (assertion["assertion"], assertion["success"], assertion["severity"]) == ("not_null", True, "error")
    assert (main["namespace"], main["name"]) == ("file", f"{home.root}/orders")
    assert main["facets"]["version"]["datasetVersion"] == str(report.main_version)
    assert main["facets"]["symlinks"]["identifiers"] == [
        {"namespace": "mv", "name": "mv://table/orders", "type": "TABLE"}
    ]
    fields = main["facets"]["columnLineage"]["fields"]
    assert {name: [each["field"] for each in found["inputFields"]] for name, found in fields.items()} == {
        "id": ["id"],
        "v": ["v"],
    }
    assert {each["name"] for found in fields.values() for each in found["inputFields"]} == {source["name"]}
    assert main["outputFacets"]["outputStatistics"]["rowCount"] == 5
    assert main["outputFacets"]["outputStatistics"]["size"] == report.bytes_main
    facet = event["run"]["facets"]["mv_refresh"]
    assert (facet["refreshId"], facet["outcome"], facet["rowsInserted"]) == (run.refresh_id, "published", 5)


@pytest.mark.slow
@pytest.mark.in_test_all
def test_only_what_was_published_is_an_output_and_each_refresh_is_told_once(home, airflow, told):
    home.apply(guards={"max_deleted_fraction": 0.1})
    airflow.run(airflow.load("lineage", GROUP))
    events = told()
    home.write("SELECT id, concat('v', id) AS v FROM range(2)")

    airflow.run(airflow.load("lineage", GROUP))  # refused by a guard

    assert [e["job"]["name"] for e in events if e["eventType"] == "COMPLETE" and e["outputs"]] == ["lineage.g.merge"]
    refused = [e for e in told()[len(events) :] if e["eventType"] == "FAIL"]
    [event] = [e for e in refused if e["job"]["name"] == "lineage.g.merge"]
    assert event["outputs"] == []
    assert event["inputs"][0]["facets"]["version"]["datasetVersion"] == "1"
    assert event["run"]["facets"]["mv_refresh"]["outcome"] == "refused"


@pytest.mark.slow
@pytest.mark.in_test_all
def test_a_query_tells_each_of_its_inputs_and_a_refresh_without_news_no_output(home, airflow, told):
    home.write("SELECT id, 'x' AS w FROM range(5)", path="raw/others")
    sql = "SELECT o.id, p.w FROM o JOIN p ON o.id = p.id"
    home.apply(source={"type": "query", "sql": sql, "inputs": {"o": "raw/orders", "p": "raw/others"}})
    dag = airflow.load("lineage", ONE)

    airflow.run(dag)
    first = ended(told(), "refresh")
    before = len(told())
    airflow.run(dag)
    second = ended(told()[before:], "refresh")

    versions = {each["name"]: each["facets"]["version"]["datasetVersion"] for each in first["inputs"]}
    assert versions == {f"{home.root}/raw/orders": "0", f"{home.root}/raw/others": "0"}
    fields = first["outputs"][0]["facets"]["columnLineage"]["fields"]
    read = {name: [(each["name"], each["field"]) for each in found["inputFields"]] for name, found in fields.items()}
    assert read == {"id": [(f"{home.root}/raw/orders", "id")], "w": [(f"{home.root}/raw/others", "w")]}
    assert (second["outputs"], len(second["inputs"])) == ([], 2)
    assert second["run"]["facets"]["mv_refresh"]["outcome"] == "nothing_to_do"
