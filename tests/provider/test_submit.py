"""A table refreshed by a driver on a real standalone cluster, submitted through the apache-spark provider."""

from __future__ import annotations

import gc
import json
import os
import signal
import subprocess
import sys
import threading
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.orc
import pytest

from airflow_mv_provider.core.approval.hold import Decision
from airflow_mv_provider.core.outcome import Outcome
from airflow_mv_provider.core.phase import Phase
from airflow_mv_provider.triggers.wait import TableTrigger
from tests.airflow_home import DAGS
from tests.standalone import StandaloneCluster, cluster
from tests.waiting import wait_until

__all__ = ["cluster"]
# The apache-spark provider leaves the pipe open from which it has read what spark-submit prints.
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore:unclosed file <_io.FileIO:ResourceWarning")]

DAG_TEXT = """
from datetime import timedelta
from airflow.sdk import DAG
from airflow_mv_provider import DeltaSource
from airflow_mv_provider.core.definition.table import RefreshableTable
from airflow_mv_provider.operators.submit import SubmitRefreshTableOperator

CONFS = {
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}

with DAG("submitted", schedule=None, default_args={"retry_delay": timedelta(0)}):
    SubmitRefreshTableOperator(
        task_id="refresh",
        table=RefreshableTable(name="orders", source=DeltaSource("raw/orders"), key=["id"]),
        conn_id="cluster",
        conf=CONFS,
        total_executor_cores=1,
        executor_memory="512m",
        poll_interval=0.2,
        retries=1,
    )
"""
_PATIENCE_S = 500


@pytest.fixture
def submitted(home, airflow, cluster: StandaloneCluster, monkeypatch: pytest.MonkeyPatch):
    """A DAG that submits to the cluster; its database's name is a word that must be seen nowhere."""
    host, _, port = cluster.url.removeprefix("spark://").partition(":")
    connection = {
        "conn_type": "spark",
        "host": f"spark://{host}",
        "port": int(port),
        "extra": {"deploy-mode": "client"},
    }
    monkeypatch.setenv("AIRFLOW_CONN_CLUSTER", json.dumps(connection))
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    monkeypatch.chdir(home.root.parent)
    yield airflow.load("submitted", DAG_TEXT)
    with warnings.catch_warnings(action="ignore", category=ResourceWarning):
        gc.collect()  # here, and not in a test that has nothing to do with it


def history(home):
    return home.store.history(home.store.table("orders").id)


@pytest.mark.in_test_all
def test_a_driver_on_the_cluster_refreshes_the_table_and_the_task_says_so(home, airflow, submitted, cluster, capfd):
    run = airflow.run(submitted)
    shown = capfd.readouterr()

    assert run.states == {"refresh": "success"}, str(run.errors)
    assert home.rows("orders") == home.rows("raw/orders")
    [report] = history(home)
    assert run.xcoms == {"refresh:return_value": report.refresh_id}
    assert (report.trigger, report.user, len(report.attempts)) == ("manual", "dag_test", 1)
    assert any(cluster.work.rglob("0/stderr")), "an executor has worked"
    text = shown.out + shown.err
    command = next(line for line in text.splitlines() if "Spark-Submit cmd" in line)
    assert "--caller" in command
    assert home.settings.database_url not in text
    assert run.links["refresh:_link_HistoryLink"] == f"/mv/tables/orders/refreshes/{report.refresh_id}"

    # Cleared, it is submitted again; a succeeded task is not taken for one that has submitted already.
    home.write("SELECT id, concat('w', id) AS v FROM range(7)")
    cleared = airflow.clear(submitted, run, "refresh")
    assert cleared.states == {"refresh": "success"}, str(cleared.errors)
    assert [r.outcome for r in history(home)] == [Outcome.PUBLISHED] * 2
    assert home.rows("orders") == home.rows("raw/orders")


@pytest.mark.in_test_all
def test_executors_on_machines_in_another_time_zone_are_in_utc(home, airflow, submitted, monkeypatch):
    """Otherwise they are asked and refuse to read ORC."""
    monkeypatch.setenv("TZ", "America/New_York")
    at = datetime.fromisoformat("2024-03-10 02:30:00")
    (home.root / "raw/orc").mkdir(parents=True)
    pyarrow.orc.write_table(pa.table({"id": [1], "v": pa.array([at], pa.timestamp("us"))}), home.root / "raw/orc/a.orc")
    orc = """Files("raw/orc", format="orc", schema="id BIGINT, v TIMESTAMP")"""
    text = DAG_TEXT.replace('DeltaSource("raw/orders")', orc).replace("import DeltaSource", "import Files")
    text = text.replace("CONFS = {", 'CONFS = {"spark.executorEnv.TZ": "America/New_York",')

    run = airflow.run(airflow.load("submitted", text))

    assert run.states == {"refresh": "success"}, str(run.errors)
    assert [(n, v.replace(tzinfo=None)) for n, v in home.rows("orders")] == [(1, at)]


@pytest.mark.in_test_all
def test_a_worker_killed_after_the_submission_does_not_double_the_driver(home, airflow, submitted, capfd):
    code = "import tests.airflow_home as h; h.Airflow().run(h.Airflow().load('submitted'))"
    keep = os.environ | {"AMV_TEST_HOME": str(DAGS.parent), "PYTHONPATH": str(Path(__file__).parents[2])}
    worker = subprocess.Popen([sys.executable, "-c", code], env=keep, stdout=subprocess.DEVNULL, start_new_session=True)
    try:
        wait_until(lambda: _is_taken(home) or worker.poll() is not None, _PATIENCE_S, "the driver begins")
        assert _is_taken(home), "the task ended before its driver began"
        worker.send_signal(signal.SIGKILL)  # it alone: its driver is another process, and lives on
        worker.wait()
    except BaseException:
        os.killpg(worker.pid, signal.SIGKILL)
        raise

    run = airflow.retry(submitted, "refresh")
    shown = capfd.readouterr()

    assert run.states == {"refresh": "success"}, str(run.errors)
    assert run.tries == {"refresh": 2}
    assert "Spark-Submit cmd" not in shown.out + shown.err, "the second try submits nothing"
    [report] = history(home)
    assert (report.outcome, len(report.attempts)) == (Outcome.PUBLISHED, 1)
    assert run.refresh_id == report.refresh_id
    assert home.rows("orders") == home.rows("raw/orders")


def _is_taken(home) -> bool:
    return any(home.store.state(table.id).epoch > 0 for table in home.store.tables())


@pytest.mark.in_test_all
def test_an_error_of_the_driver_is_the_tasks_own(home, airflow, submitted):
    home.write("SELECT CAST(NULL AS BIGINT) AS id, 'x' AS v")

    run = airflow.run(submitted)

    assert (run.states, run.tries) == ({"refresh": "failed"}, {"refresh": 1}), "a person must act: no retry"
    assert "[MV-KEY-NULL] orders" in str(run.errors["refresh"][0])


@pytest.mark.in_test_all
def test_a_refresh_that_awaits_approval_is_waited_for_and_published_by_another_driver(home, airflow, submitted):
    dag = airflow.load("submitted", DAG_TEXT.replace('key=["id"])', 'key=["id"], approval="always")'))

    def approve(context):
        if context["task_reschedule_count"] == 1:
            home.store.holds.decide(home.store.table("orders").id, Decision.APPROVED, "ann", "looked")

    dag.get_task("refresh").on_execute_callback = [approve]
    run = airflow.run(dag)

    assert (run.states, run.tries, run.reschedules) == ({"refresh": "success"}, {"refresh": 1}, {"refresh": 1})
    [report] = history(home)
    assert (report.outcome, report.hold.decision) == (Outcome.PUBLISHED, Decision.APPROVED)
    assert home.rows("orders") == home.rows("raw/orders")


@pytest.mark.in_test_all
def test_a_table_in_other_hands_is_waited_for_without_a_driver(home, airflow, submitted, monkeypatch):
    home.apply(concurrency="queue")
    other = home.caller()
    home.refresher().begin("orders", other)
    task = submitted.get_task("refresh")
    task.definition, task.queue_timeout, task.table = None, 0, "orders"

    run = airflow.run(submitted)

    assert run.states == {"refresh": "failed"}
    assert "host:1 is refreshing it; number 1 in the queue. " in str(run.errors["refresh"][0])
    assert home.store.waiters(home.store.table("orders").id) == ()


def test_a_deferrable_task_leaves_its_worker_while_the_driver_of_an_earlier_try_works(
    home, airflow, submitted, monkeypatch
):
    """Here another thread is that driver: it works under the task's key."""
    home.apply()
    task, looks, look = submitted.get_task("refresh"), [], TableTrigger._waits_behind
    task.definition, task.deferrable, task.table, task.poll_interval = None, True, "orders", 0.05
    monkeypatch.setattr(TableTrigger, "_waits_behind", lambda *seen: looks.append(seen) or look(*seen))
    begun, drivers = [], []

    def as_an_earlier_try(context):
        if not begun:
            drivers.append(task.caller(context))
            begun.append(home.refresher().begin("orders", drivers[0]).own.refresh_id)

    def the_driver_ends():
        wait_until(lambda: len(looks) > 1, 60, "the trigger looks")
        home.refresher().resume(begun[0], drivers[0], until=Phase.NORMAL)

    task._pre_execute_hook = as_an_earlier_try
    with ThreadPoolExecutor() as threads:
        ending = threads.submit(the_driver_ends)
        run = airflow.run(submitted)
        ending.result()

    assert (run.states, run.tries, run.errors) == ({"refresh": "success"}, {"refresh": 1}, {})
    assert [run.refresh_id] == begun == [report.refresh_id for report in history(home)]
    assert {trigger.kept["since"] for trigger, _ in looks} == {None}, "this is not waiting in the queue"
    assert home.rows("orders") == home.rows("raw/orders")


def test_a_killed_task_ends_its_driver_within_seconds(home, airflow, submitted):
    task = submitted.get_task("refresh")
    is_over = threading.Event()
    started = time.monotonic()

    class Slow:
        def on_kill(self) -> None:
            is_over.wait()

    task._hook = Slow()
    task.on_kill()

    assert time.monotonic() - started < 5
    is_over.set()
