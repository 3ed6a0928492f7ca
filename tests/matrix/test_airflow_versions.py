"""What differs between Airflow's versions, in environments of their own: `make matrix`."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable, QueryBuilder

from tests.matrix.conftest import PATIENCE_S, ROOT, Installed, Running
from tests.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.matrix, pytest.mark.timeout(1200)]

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
DAG_OF_IT = """
from datetime import timedelta
from airflow.sdk import DAG
from airflow_mv_provider import Function, RefreshableTable, RefreshTableOperator, refresh_params
table = RefreshableTable(name="slow", source=Function("slow_source:rows"), key=["id"])
with DAG("slow", schedule=None, params=refresh_params(), default_args={"retries": 2, "retry_delay": timedelta(0)}):
    RefreshTableOperator(task_id="refresh", table=table, decision_interval=5, queue_interval=5)
"""
TEN, HALF = "SELECT id, 'a' AS v FROM range(10)", "SELECT id, 'a' AS v FROM range(5)"


def rows(installed: Installed, table: str) -> list[dict[str, Any]]:
    """A table's rows, read by delta-rs."""
    query = QueryBuilder().register("t", DeltaTable(str(installed.warehouse / table)))
    return sorted(query.execute("SELECT * FROM t").read_all().to_pylist(), key=repr)


def test_every_module_is_imported(installed):
    installed.run("python", "-c", IMPORT_ALL)


def test_airflow_knows_what_the_provider_brings(installed):
    assert "airflow-mv-provider" in installed.run("airflow", "providers", "list")
    assert "mv" in installed.run("airflow", "providers", "hooks")
    assert installed.run("airflow", "config", "get-value", "mv", "warehouse").strip().endswith("warehouse")
    if installed.airflow >= (3, 2):
        assert json.loads(installed.run("airflow", "mv", "status", "--json")) == {"tables": []}


def test_every_example_is_a_dag(installed):
    for file in (ROOT / "dags").iterdir():
        if file.is_file():
            shutil.copy(file, installed.dags)

    assert "No data found" in installed.run("airflow", "dags", "list-import-errors")


def test_the_readmes_dag_publishes_both_tables(installed):
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    for language, name in (("yaml", "tables.yaml"), ("python", "sales.py")):
        (text,) = re.findall(rf"```{language}\n(.*?)```", readme, re.DOTALL)
        (installed.dags / name).write_text(text, encoding="utf-8")
    orders = installed.warehouse / "raw/orders"
    orders.mkdir(parents=True)
    (orders / "2026.csv").write_text(
        "order_id,ordered_on,customer,amount\n1,2026-01-15,ann,9.90\n2,2026-02-01,bob,5.00\n"
    )
    write = (
        'from airflow_mv_provider.spark.session import local_session as s; t = s(); t.sql("SELECT 1 AS customer_id")'
    )
    installed.run("python", "-c", f"{write}.write.format('delta').save('{installed.warehouse}/raw/customers')")

    installed.run("airflow", "dags", "test", "sales")

    outcomes = {table["table"]: table["last"]["outcome"] for table in installed.mv("status")["tables"]}
    assert outcomes == {"customers": "published", "orders": "published"}
    assert [row["customer"] for row in rows(installed, "orders")] == ["ann", "bob"]


def test_what_the_version_lacks_is_said_in_one_line(installed):
    has = {"retry_policy()": (3, 3), "freshness_deadline(None, None)": (3, 2)}
    for call, since in has.items():
        if installed.airflow < since:
            said = installed.run("python", "-c", f"from airflow_mv_provider import *; {call}", fails=True)
            version = ".".join(map(str, installed.airflow))
            assert f"[MV-DEPENDENCY] airflow: Airflow {version} has no" in said.strip().splitlines()[-1]


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
    assert running.url.split("//")[1] not in admin.text.replace(running.url, ""), "links are of this server"


@pytest.fixture(scope="module")
def slow(running: Running) -> Path:
    """The home of a DAG whose source waits for the file `go`; its table has ten rows."""
    home = running.installed.dags.parent
    (running.installed.dags / "slow_source.py").write_text(SOURCE)
    (running.installed.dags / "slow.py").write_text(DAG_OF_IT)
    (home / "rows.sql").write_text(TEN)
    return home


def test_a_task_killed_in_the_middle_is_finished_by_its_retry(running, slow):
    run_id = running.trigger("slow")
    wait_until((slow / "reader").exists, PATIENCE_S, "the source is read")
    os.kill(int((slow / "reader").read_text()), signal.SIGKILL)
    (slow / "go").touch()

    running.succeeds("slow", run_id)

    assert running.task("slow", run_id)["try_number"] == 2
    assert len(rows(running.installed, "slow")) == 10
    assert running.installed.mv("history", "slow")["refreshes"][0]["outcome"] == "published"


def test_a_held_difference_waits_and_is_published_once_it_is_approved(running, slow):
    (slow / "go").touch()
    (slow / "rows.sql").write_text(HALF)
    run_id = running.trigger("slow", hold=True)
    waits = "awaiting_input" if running.installed.airflow >= (3, 3) else "up_for_reschedule"

    wait_until(lambda: running.task("slow", run_id)["state"] == waits, PATIENCE_S, f"the task is {waits}")
    assert running.installed.mv("status", "slow")["is_held"]
    before = len(rows(running.installed, "slow"))
    running.installed.run("airflow-mv", "approve", "slow", "--note", "half was recalled")
    running.succeeds("slow", run_id)

    assert (before, len(rows(running.installed, "slow"))) == (10, 5)
