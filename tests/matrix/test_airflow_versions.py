"""What differs between Airflow's versions, in environments of their own: `make matrix`."""

from __future__ import annotations

import json
import os
import shutil
import signal
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from scripts.trial_install import CUSTOMERS, write_tables
from tests.conftest import read_independently
from tests.matrix.conftest import PATIENCE_S, ROOT, Running
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
    RefreshTableOperator(task_id="refresh", table=table, poll_interval=1)
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
    for file in (ROOT / "dags").iterdir():
        if file.is_file():
            shutil.copy(file, installed.dags)

    assert "No data found" in installed.run("airflow", "dags", "list-import-errors")


def test_the_readmes_dag_publishes_both_tables(installed):
    write_tables(installed.dags, installed.warehouse, (ROOT / "README.md").read_text(encoding="utf-8"))
    installed.run("python", "-c", CUSTOMERS, f"{installed.warehouse}/raw/customers")

    installed.run("airflow", "dags", "test", "sales")

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
    assert read_independently(running.installed.warehouse / "slow") == numbered(10)
    assert running.installed.mv("history", "slow")["refreshes"][0]["outcome"] == "published"


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
