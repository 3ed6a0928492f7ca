"""A deferrable task whose driver runs in YARN's cluster mode: what becomes of a driver that ends badly.

There is no YARN here. Its ResourceManager is a web server of the test that answers as YARN's REST API does, and
spark-submit a program that prints what YARN's client prints; the driver is the trigger's thread, under the task's key.
"""

from __future__ import annotations

import gc
import json
import os
import warnings
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest
from airflow.sdk.exceptions import AirflowFailException

from airflow_mv_provider.core.outcome import Outcome
from airflow_mv_provider.core.state import Caller
from airflow_mv_provider.exceptions import NullKeyError
from airflow_mv_provider.operators.submit import SubmitRefreshTableOperator
from airflow_mv_provider.triggers.wait import TableTrigger
from tests.provider.dag_texts import history

# The apache-spark provider leaves the pipe open from which it has read what spark-submit prints.
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore:unclosed file <_io.FileIO:ResourceWarning")]

DAG_TEXT = """
from datetime import timedelta
from airflow.sdk import DAG
from airflow_mv_provider.operators.submit import SubmitRefreshTableOperator

with DAG("on_yarn", schedule=None, default_args={"retry_delay": timedelta(0)}):
    SubmitRefreshTableOperator(
        task_id="refresh", table="orders", conn_id="yarn", yarn_track_via_rm_api=True, deferrable=True,
        poll_interval=0.05, retries=1,
    )
"""
SPARK_SUBMIT = """#!/bin/sh
echo submitted >> "{submissions}"
echo "INFO impl.YarnClientImpl: Submitted application application_1700000000000_0001"
"""


@dataclass
class Yarn:
    """What YARN says of the one application, and how often one was submitted."""

    submissions: Path
    state: str = "RUNNING"
    final: str = "UNDEFINED"

    @property
    def num_submitted(self) -> int:
        return len(self.submissions.read_text().splitlines())

    def ends(self, final: str) -> None:
        self.state, self.final = "FINISHED", final


@pytest.fixture
def yarn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Yarn]:
    found = Yarn(tmp_path / "submissions")

    class Answers(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = json.dumps({"app": {"state": found.state, "finalStatus": found.final, "diagnostics": ""}}).encode()
            self.send_response(200)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_said: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Answers) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        extra = {"deploy-mode": "cluster", "yarn_resourcemanager_webapp_address": f"127.0.0.1:{server.server_port}"}
        monkeypatch.setenv("AIRFLOW_CONN_YARN", json.dumps({"conn_type": "spark", "host": "yarn", "extra": extra}))
        program = tmp_path / "bin" / "spark-submit"
        program.parent.mkdir()
        program.write_text(SPARK_SUBMIT.format(submissions=found.submissions))
        program.chmod(0o755)
        monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
        yield found
        server.shutdown()
    with warnings.catch_warnings(action="ignore", category=ResourceWarning):
        gc.collect()  # here, and not in a test that has nothing to do with it


@pytest.fixture
def driver(monkeypatch, yarn):
    """Let a function be the driver: it is called once for each submission, with the task's caller."""

    def let(work) -> None:
        look, num_begun = TableTrigger._waits_behind, 0

        def look_and_work(trigger, store):
            nonlocal num_begun
            if num_begun < yarn.num_submitted:
                num_begun += 1
                work(Caller(trigger.caller_key, process="the cluster:1"))
            return look(trigger, store)

        monkeypatch.setattr(TableTrigger, "_waits_behind", look_and_work)

    return let


def test_the_drivers_own_error_is_the_tasks_and_nothing_is_submitted_again(home, airflow, yarn, driver):
    home.apply()
    home.write("SELECT CAST(NULL AS BIGINT) AS id, 'x' AS v")

    def fails(who):
        with suppress(NullKeyError):
            home.refresher().refresh("orders", who)
        yarn.ends("FAILED")

    driver(fails)
    run = airflow.run(airflow.load("on_yarn", DAG_TEXT))

    assert (run.states, run.tries) == ({"refresh": "failed"}, {"refresh": 1}), "a person must act: no retry"
    assert "[MV-KEY-NULL] orders" in str(run.errors["refresh"][0])
    assert yarn.num_submitted == 1


def test_a_driver_that_leaves_no_answer_costs_a_try(home, airflow, yarn, driver):
    home.apply()
    driver(lambda who: yarn.ends("FAILED"))

    run = airflow.run(airflow.load("on_yarn", DAG_TEXT))

    assert (run.states, run.tries) == ({"refresh": "failed"}, {"refresh": 2})
    assert yarn.num_submitted == 2
    assert history(home) == ()


def test_what_was_submitted_before_a_clear_is_no_answer_to_it(home, airflow, yarn, driver, monkeypatch):
    """Somebody has marked the task as failed while its driver worked; the driver has published since."""
    home.apply()

    def publishes(who):
        home.refresher().refresh("orders", who)
        yarn.ends("SUCCEEDED")

    driver(publishes)
    dag = airflow.load("on_yarn", DAG_TEXT)
    with monkeypatch.context() as patch:
        patch.setattr(SubmitRefreshTableOperator, "look_again", marked_as_failed)
        run = airflow.run(dag)
    assert run.states == {"refresh": "failed"}
    home.write("SELECT id, concat('w', id) AS v FROM range(7)")
    yarn.state, yarn.final = "RUNNING", "UNDEFINED"

    cleared = airflow.clear(dag, run, "refresh")

    assert cleared.states == {"refresh": "success"}, str(cleared.errors)
    assert [report.outcome for report in history(home)] == [Outcome.PUBLISHED] * 2
    assert home.rows("orders") == home.rows("raw/orders")


def marked_as_failed(*_given: object, **_more: object) -> None:
    raise AirflowFailException
