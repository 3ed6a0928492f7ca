"""What differs between Airflow's versions, in environments of their own: `make matrix`."""

from __future__ import annotations

import json
import os
import re
import signal
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import psycopg
import pytest
from sqlalchemy.engine import make_url

from scripts.trial_install import CUSTOMERS, write_tables
from tests.conftest import read_independently
from tests.dags.test_flights import real_rows, write
from tests.matrix.conftest import NEWEST, PATIENCE_S, ROOT, Running
from tests.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.matrix, pytest.mark.timeout(3600)]

IMPORT_ALL = """
import importlib, pkgutil
import airflow_mv_provider
left_out = ("open_lineage.", ".postgres", "migrations.env", "migrations.versions")  # extras; programs of others
failed = {}
for module in pkgutil.walk_packages(airflow_mv_provider.__path__, "airflow_mv_provider."):
    if not any(each in module.name for each in left_out):
        try:
            importlib.import_module(module.name)
        except Exception as error:
            failed[module.name] = repr(error)
assert failed == {}, failed
for name in airflow_mv_provider.__all__:
    getattr(airflow_mv_provider, name)
"""
# A source that waits until it is let go, and says which process reads it.
SOURCE = """
import os, pathlib, time
HERE = pathlib.Path(os.environ["AIRFLOW_HOME"])
def rows(spark):
    (HERE / "reader").write_text(str(os.getpid()))
    while not (HERE / "go").exists():
        time.sleep(0.1)
    return spark.sql((HERE / "rows.sql").read_text())
"""
DAGS_OF_IT = """
from datetime import timedelta
from airflow.sdk import DAG
from airflow_mv_provider import *
OFTEN = {"poll_interval": 1, "retries": 2, "retry_delay": timedelta(0)}
def table(name):
    return RefreshableTable(name=name, source=Function("slow_source:rows"), key=["id"])
with DAG("slow", schedule=None, params=refresh_params()):
    told = RefreshNotifier(prefix="told:")
    RefreshTableOperator(task_id="refresh", table=table("slow"), on_success_callback=told, **OFTEN)
with DAG("submitted", schedule=None):
    SubmitRefreshTableOperator(task_id="refresh", table=table("submitted"), **OFTEN)
"""
# The DAGs of dags/, in an order in which each finds the tables that it is about; and with what conf.
EXAMPLES = {
    "flights": {},
    "refresh_shop.lines": {},
    "refresh_shop.orders": {},
    "refresh_shop.revenue_by_month": {},
    "shop": {},
    "refresh_on_demand": {"table": "flights"},
    "audit_flights": {},
    "mv_maintenance": {},
    "why_row": {
        "table": "flights",
        "key": {"flight_date": "2013-01-01", "carrier": "UA", "flight": 1545, "origin": "EWR"},
    },
}
INPUTS = """
import sys
from airflow_mv_provider.spark.session import local_session

spark = local_session()
for path, rows in {
    "orders": "SELECT 1 AS order_id, 7 AS customer_id, 'DE' AS country, DATE'2026-01-15' AS ordered_on",
    "lines": "SELECT 1 AS line_id, 1 AS order_id, 5 AS product_id, 2 AS quantity, CAST(4.5 AS DECIMAL(12,2)) AS price",
}.items():
    spark.sql(rows).write.format("delta").save(f"{sys.argv[1]}/raw/{path}")
spark.stop()
"""
IMPORTS = "from airflow_mv_provider import *"
TABLE = "RefreshableTable(name='t', source=DeltaSource('raw/t'), key=['id'])"
TEN, HALF = "SELECT id, 'a' AS v FROM range(10)", "SELECT id, 'a' AS v FROM range(5)"


def numbered(num_rows: int) -> list[tuple[int, str]]:
    return [(each, "a") for each in range(num_rows)]


def test_every_module_is_imported(installed):
    installed.run("python", "-c", IMPORT_ALL)


def test_airflow_knows_what_the_provider_brings(installed):
    assert "airflow-mv-provider" in installed.run("airflow", "providers", "list")
    assert "mv" in installed.run("airflow", "providers", "hooks")
    assert installed.run("airflow", "config", "get-value", "mv", "warehouse").strip().endswith("warehouse")
    if installed.airflow >= (3, 2):
        assert json.loads(installed.run("airflow", "mv", "status", "--json")) == {"tables": []}


def test_every_example_is_a_dag(installed):
    examples = installed.with_settings(AIRFLOW__CORE__DAGS_FOLDER=str(ROOT / "dags"))

    examples.run("airflow", "dags", "reserialize")

    assert "No data found" in examples.run("airflow", "dags", "list-import-errors")
    assert set(EXAMPLES) <= set(re.findall(r"[\w.]+", examples.run("airflow", "dags", "list", "--output", "plain")))


@pytest.mark.parametrize("installed", [NEWEST], indirect=True, ids=str)
def test_every_example_runs(installed, postgres):
    shop = make_url(postgres.new_database())
    with psycopg.connect(shop.render_as_string(), autocommit=True) as db:
        db.execute("CREATE TABLE orders AS SELECT 1 AS order_id, 9.90::numeric(12,2) AS amount")
    warehouse = installed.place / "examples"
    examples = installed.with_settings(
        AIRFLOW__CORE__DAGS_FOLDER=str(ROOT / "dags"),
        AIRFLOW__MV__WAREHOUSE=str(warehouse),
        AIRFLOW__MV__SQL_ALCHEMY_CONN=f"sqlite:///{installed.place}/examples.db",
        AIRFLOW__MV__SOURCE_DATABASES="postgresql",
        AIRFLOW_CONN_SHOP=shop.set(drivername="postgresql").render_as_string(),
    )
    write(warehouse, real_rows()[:1])
    examples.run("airflow-mv", "db", "migrate")
    examples.run("python", "-c", INPUTS, str(warehouse))

    for dag_id, conf in EXAMPLES.items():
        examples.run("airflow", "dags", "test", dag_id, "--conf", json.dumps(conf))

    tables = {table["table"] for table in examples.mv("status")["tables"]}
    assert tables == {"flights", "shop.lines", "shop.orders", "shop.revenue_by_month", "shop_orders"}
    assert len(read_independently(warehouse / "flights")) == 1
    assert read_independently(warehouse / "shop/revenue_by_month")[0][-1] == Decimal("9.00")
    assert len(read_independently(warehouse / "shop_orders")) == 1


def test_the_readmes_dag_publishes_both_tables(installed):
    write_tables(installed.dags, installed.warehouse, (ROOT / "README.md").read_text(encoding="utf-8"))
    installed.run("python", "-c", CUSTOMERS, f"{installed.warehouse}/raw/customers")

    once = installed.with_settings(AIRFLOW__CORE__DAGS_ARE_PAUSED_AT_CREATION="True")
    once.run("airflow", "dags", "test", "sales")

    outcomes = {table["table"]: table["last"]["outcome"] for table in installed.mv("status")["tables"]}
    assert outcomes == {"customers": "published", "orders": "published"}
    assert read_independently(installed.warehouse / "customers") == [(1, "ann"), (2, "bob")]
    assert read_independently(installed.warehouse / "orders") == [
        (Decimal("5.00"), "bob", date(2026, 2, 1), 2),
        (Decimal("9.90"), "ann", date(2026, 1, 1), 1),
    ]


def test_what_the_version_lacks_is_said_in_one_line(installed):
    lacks = f"[MV-DEPENDENCY] airflow: Airflow {'.'.join(map(str, installed.airflow))} has no"
    has_policies, has_deadlines = installed.airflow >= (3, 3), installed.airflow >= (3, 2)

    policy = installed.run("python", "-c", f"{IMPORTS}; print(retry_policy())", fails=not has_policies)
    deadline = installed.run("python", "-c", f"{IMPORTS}; freshness_deadline({TABLE}, None)", fails=True)

    assert (lacks in policy.strip().splitlines()[-1]) == (not has_policies)
    assert (lacks in deadline.strip().splitlines()[-1]) == (not has_deadlines)
    assert ("has no freshness target" in deadline) == has_deadlines


def test_the_page_shows_each_role_what_it_may(running):
    def look(name: str, path: str) -> Any:
        with running.user(name) as client:
            return client.get(f"/mv/{path}")

    wait_until(lambda: look("ann", "").is_success, PATIENCE_S, "the page answers")
    admin, viewer = look("ann", ""), look("vic", "")
    with running.user("vic") as client:
        refused = client.post("/mv/tables/orders/pause", headers={"sec-fetch-site": "same-origin"})

    assert (admin.status_code, viewer.status_code, refused.status_code) == (200, 200, 403)
    assert "orders" in admin.text
    assert look("vic", "tables/orders").status_code == 200
    assert "Pause" in look("ann", "tables/orders").text


@pytest.fixture(scope="module")
def slow(running: Running) -> Path:
    """The home of DAGs whose source waits for the file `go`; it has ten rows."""
    home = running.installed.dags.parent
    (running.installed.dags / "slow_source.py").write_text(SOURCE)
    (home / "rows.sql").write_text(TEN)
    (running.installed.dags / "slow.py").write_text(DAGS_OF_IT)
    return home


@pytest.mark.parametrize("dag_id", ["slow", "submitted"])
def test_a_refresh_killed_in_the_middle_is_finished_by_a_retry(running, slow, dag_id):
    for file in ("reader", "go"):
        (slow / file).unlink(missing_ok=True)
    run_id = running.trigger(dag_id)
    wait_until((slow / "reader").exists, PATIENCE_S, "the source is read")
    os.kill(int((slow / "reader").read_text()), signal.SIGKILL)
    (slow / "go").touch()

    running.succeeds(dag_id, run_id)

    assert running.task(dag_id, run_id)["try_number"] == 2
    assert read_independently(running.installed.warehouse / dag_id) == numbered(10)
    assert running.installed.mv("history", dag_id)["refreshes"][0]["outcome"] == "published"
    assert ("told: " in running.log(dag_id, run_id)) == (dag_id == "slow")


def test_a_held_difference_waits_and_is_published_once_it_is_approved(running, slow):
    (slow / "go").touch()
    (slow / "rows.sql").write_text(HALF)
    run_id = running.trigger("slow", hold=True)
    waits = "awaiting_input" if running.installed.airflow >= (3, 3) else "up_for_reschedule"

    wait_until(lambda: running.task("slow", run_id)["state"] == waits, PATIENCE_S, f"the task is {waits}")
    assert running.installed.mv("status", "slow")["is_held"]
    assert read_independently(running.installed.warehouse / "slow") == numbered(10)
    running.installed.run("airflow-mv", "approve", "slow", "--note", "half was recalled")
    running.succeeds("slow", run_id)

    assert read_independently(running.installed.warehouse / "slow") == numbered(5)
