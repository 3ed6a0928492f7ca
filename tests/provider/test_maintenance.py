"""Cancel, pause, resume and recover as tasks."""

from __future__ import annotations

import os
import re
from pathlib import Path
from uuid import uuid4

import pytest

from airflow_mv_provider.asset import asset_uri
from airflow_mv_provider.core.outcome import Outcome
from airflow_mv_provider.core.phase import Phase

pytestmark = pytest.mark.slow
DOCS = Path(__file__).parents[2] / "docs"


def dag_text(operator: str) -> str:
    return f"""
from airflow.sdk import DAG
from airflow_mv_provider.operators.maintenance import *

with DAG("maintenance", schedule=None):
    {operator}
"""


def run(airflow, operator):
    return airflow.run(airflow.load("maintenance", dag_text(operator)))


def test_a_table_is_paused_and_resumed(home, airflow):
    home.apply()

    paused = run(airflow, "PauseTableOperator(task_id='t', table='orders')")
    again = run(airflow, "PauseTableOperator(task_id='t', table='orders')")
    status = home.store.status(home.store.table("orders"))
    resumed = run(airflow, "ResumeTableOperator(task_id='t', table='orders')")

    assert [r.xcoms["t:return_value"]["changed"] for r in (paused, again, resumed)] == [True, False, True]
    assert (status.paused_by, status.phase) == ("dag_test", Phase.NORMAL)
    assert home.store.status(home.store.table("orders")).paused_since is None


def test_a_refresh_under_way_is_cancelled(home, airflow):
    home.apply()
    caller = home.caller()
    begun = home.refresher().begin("orders", caller)

    asked = run(airflow, "CancelRefreshOperator(task_id='t', table='orders')")
    with pytest.raises(Exception, match="MV-CANCELLED"):
        home.refresher().resume(begun.own.refresh_id, caller, until=Phase.NORMAL)
    nothing = run(airflow, "CancelRefreshOperator(task_id='t', table='orders')")

    assert asked.xcoms["t:return_value"] == {
        "table": "orders", "changed": True, "phase": "REFRESHING", "refresh_id": begun.own.refresh_id,
    }  # fmt: skip
    assert nothing.xcoms["t:return_value"]["changed"] is False
    assert home.store.report(begun.own.refresh_id).outcome is Outcome.CANCELLED


def test_a_sweep_ends_what_a_dead_owner_left(home, airflow, crash_at):
    from tests.conftest import Crash

    home.apply()
    crash_at("seal.after")
    with pytest.raises(Crash):
        home.refresh()
    with home.store.engine.begin() as db:  # what time does
        db.exec_driver_sql("UPDATE refresh_state SET lease_expires_ms = 0")

    swept = run(airflow, "RecoverTablesOperator(task_id='t')")

    [report] = home.store.history(home.store.table("orders").id)
    assert swept.xcoms == {"t:return_value": {"recovered": [report.refresh_id]}}
    assert (report.outcome, home.phase()) == (Outcome.PUBLISHED, "NORMAL")
    assert home.rows("orders") == home.rows("raw/orders")
    event = airflow.events(asset_uri("orders"))[-1]
    assert (event.extra["refresh_id"], event.source_dag_id) == (report.refresh_id, "maintenance")


@pytest.mark.in_test_all
def test_a_sweep_that_fails_for_one_table_tells_what_it_published_of_another(home, airflow, crash_at):
    """A task that fails sends no event, so it fails in its next run."""
    from tests.conftest import Crash

    home.apply()
    home.apply(name="broken", source={"type": "delta", "path": "raw/orders"})
    home.refresh("broken")
    leftover = home.root / "_mv" / home.store.table("broken").uuid / uuid4().hex / "staging-1" / "a.parquet"
    leftover.parent.mkdir(parents=True)
    leftover.write_text("whether nobody needs it is in the table's log")
    os.utime(leftover, (0, 0))
    newest = max((home.root / "broken/_delta_log").glob("*.json"))
    newest.write_text("damaged")
    newest.with_name(f".{newest.name}.crc").unlink(missing_ok=True)
    crash_at("seal.after")
    with pytest.raises(Crash):
        home.refresh()
    with home.store.engine.begin() as db:
        db.exec_driver_sql("UPDATE refresh_state SET lease_expires_ms = 0")

    swept = run(airflow, "RecoverTablesOperator(task_id='t')")
    again = run(airflow, "RecoverTablesOperator(task_id='t')")

    [report] = home.store.history(home.store.table("orders").id)
    assert (swept.states, report.outcome) == ({"t": "success"}, Outcome.PUBLISHED)
    assert airflow.events(asset_uri("orders"))[-1].extra["refresh_id"] == report.refresh_id
    assert again.states == {"t": "failed"}
    assert "broken" in str(again.errors["t"][0])


def test_a_table_that_nobody_knows_fails_without_a_retry(home, airflow):
    found = run(airflow, "PauseTableOperator(task_id='t', table='nowhere', retries=2)")

    assert (found.states, found.tries) == ({"t": "failed"}, {"t": 1})
    assert "[MV-TABLE-UNKNOWN] nowhere" in str(found.errors["t"][0])


@pytest.mark.in_test_all
def test_a_table_is_rolled_back(home, airflow):
    home.apply()
    home.refresh()
    before, version = home.rows(), home.versions()
    home.write("SELECT id, 'x' AS v FROM range(1)")
    home.refresh(overrides=["max_deleted_fraction"])

    done = run(airflow, f"RollbackOperator(task_id='t', table='orders', to='{version}', note='cut short')")

    assert done.states == {"t": "success"}
    assert home.rows() == before
    report = home.store.report(done.xcoms["t:return_value"]["refresh_id"])
    assert (report.outcome, report.trigger) == (Outcome.PUBLISHED, "manual")
    assert home.store.status(home.store.table("orders")).paused_by == report.user


@pytest.mark.in_test_all
def test_a_rollback_whose_task_dies_at_its_end_is_found_done_by_the_retry(home, airflow, crash_at):
    home.apply()
    home.refresh()
    before, version = home.rows(), home.versions()
    home.write("SELECT id, 'x' AS v FROM range(1)")
    home.refresh(overrides=["max_deleted_fraction"])
    crash_at("normal.after")

    done = run(airflow, f"RollbackOperator(task_id='t', table='orders', to='{version}', note='cut short', retries=1)")

    assert (done.states, done.tries) == ({"t": "success"}, {"t": 2})
    assert home.rows() == before
    refresh_id = done.xcoms["t:return_value"]["refresh_id"]
    assert airflow.events(asset_uri("orders"))[-1].extra["refresh_id"] == refresh_id


@pytest.mark.in_test_all
def test_a_rollback_that_has_waited_long_enough_leaves_the_queue(home, airflow):
    home.apply(concurrency="queue")
    home.refresh()
    version = home.versions()
    home.write("SELECT id, 'new' AS v FROM range(3)")
    home.refresher().begin("orders", home.caller())

    found = run(airflow, f"RollbackOperator(task_id='t', table='orders', to='{version}', note='bad', queue_timeout=0)")

    assert "number 1 in the queue." in str(found.errors["t"][0])
    assert home.store.waiters(home.store.table("orders").id) == ()


@pytest.mark.in_test_all
def test_a_table_is_loaded_and_exported(home, airflow):
    """As docs/loading.md has it."""
    [example] = re.findall(r"```python\n(.*?)```", (DOCS / "loading.md").read_text(), flags=re.DOTALL)
    home.apply(name="shop", source={"type": "delta", "path": "raw/orders"})
    home.write("SELECT id, 'loaded' AS v FROM range(3)", path="backfill/shop")
    to = str(home.root.parent / "exports")
    steps = example.replace('"/exports/shop"', repr(to)).replace("\n\n", "\n").strip().splitlines()
    text = "from airflow.sdk import DAG\n" + steps[0] + "\nwith DAG('transfer', schedule=None):\n"
    text += "\n".join("    " + line for line in steps[1:]).replace("    ExportTable", "    export = ExportTable")
    text = text.replace("    LoadTable", "    load = LoadTable") + "\n    load >> export\n"

    done = airflow.run(airflow.load("transfer", text))

    assert set(done.states.values()) == {"success"}
    assert home.rows("shop") == home.rows("backfill/shop")
    pushed = done.xcoms["export:return_value"]
    assert (pushed["rows"], pushed["root"]) == (3, to)
    assert home.store.report(done.xcoms["load:return_value"]).note == "loaded from another source: the lost week"
