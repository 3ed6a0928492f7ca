"""`amv refresh` and `amv recover`, with Spark: every outcome, its report and its exit code."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from dataclasses import fields
from pathlib import Path

import psutil
import pytest

from airflow_mv_provider.core.outcome import Outcome, RefreshReport
from tests.cli.elsewhere import wait_for_the_lease
from tests.conftest import read_independently
from tests.metadata.rows import acquired

pytestmark = pytest.mark.slow

AMV = Path(sys.executable).with_name("amv")
DYING = Path(__file__).parents[1] / "dying.py"
TABLES = """
tables:
  - name: orders
    source: {type: delta, path: raw/orders}
    key: [id]
    partition_by: [p]
    chunk_rows: 10
    strategy: corrections  # a first load is one chunk otherwise, and some tests stop between two
"""


@pytest.fixture
def orders(amv, spark):
    """A registered table of four partitions, its source written, never refreshed."""

    def write(sql):
        path = str(amv.warehouse / "raw/orders")
        spark.sql(sql).write.format("delta").mode("overwrite").option("overwriteSchema", "true").save(path)

    write("SELECT id, id % 4 AS p, concat('v', id) AS v FROM range(40)")
    assert amv("apply", amv.file(TABLES)).code == 0
    return write


def is_equal_to_source(amv) -> bool:
    return read_independently(amv.warehouse / "orders") == read_independently(amv.warehouse / "raw/orders")


def test_refresh_reports_what_it_did(amv, orders):
    said = amv("refresh", "orders", "--json")

    assert said.code == 0
    assert set(said.document) == {each.name for each in fields(RefreshReport)} - {"error"}
    assert (said.document["outcome"], said.document["rows_inserted"]) == ("published", 40)
    assert [p["rows_inserted"] for p in said.document["partitions"]] == [10, 10, 10, 10]
    assert "orders MERGING: publishing" in said.err
    assert is_equal_to_source(amv)


@pytest.mark.in_test_all
def test_refresh_read_aloud(amv, orders):
    first, again = amv("refresh", "orders"), amv("refresh", "orders")

    assert "orders: published in" in first.out
    assert "40 inserted, 0 updated, 0 deleted, 0 unchanged" in first.out
    assert (again.code, "orders: nothing to do" in again.out) == (0, True)
    assert amv("history", "orders").out.count("\n") == 3
    assert "orders: NORMAL" in amv("status", "orders").out


@pytest.mark.in_test_all
def test_force_compares_although_nothing_is_new(amv, orders):
    amv("refresh", "orders")

    said = amv("refresh", "orders", "--force", "--json")

    assert (said.document["outcome"], said.document["rows_unchanged"]) == ("published", 40)


@pytest.mark.in_test_all
def test_only_some_partitions(amv, orders):
    first = amv("refresh", "orders", "--from", "1", "--until", "3", "--json")
    second = amv("refresh", "orders", "--partition", "[0]", "--json")
    refused = amv("refresh", "orders", "--partition", "one", "--json")
    last = amv("refresh", "orders", "--stale")

    assert (first.code, first.document["rows_inserted"], first.document["scope"]) == (
        0,
        20,
        "partitions from 1 until 3",
    )
    assert (second.document["rows_inserted"], second.document["scope"]) == (10, 'partitions ["0"]')
    assert (refused.code, refused.document["error"]["code"]) == (2, "MV-ARGUMENT")
    assert "'one' is not a value of 'p', which is a long" in refused.document["error"]["message"]
    assert "10 inserted, 0 updated, 0 deleted" in last.out
    assert is_equal_to_source(amv)


def test_plan_and_read_only_report_and_write_nothing(amv, orders):
    planned = amv("plan", "orders", "--json")
    said = amv("refresh", "orders", "--read-only", "--json")

    assert (planned.code, planned.document.get("strategy")) == (0, "corrections"), planned.err
    assert said.code == 0
    assert (said.document["outcome"], said.document["rows_inserted"]) == ("differences", 40)
    assert not (amv.warehouse / "orders").exists()


@pytest.mark.in_test_all
def test_a_guard_refuses_until_a_person_overrides_it(amv, orders):
    amv("refresh", "orders")
    orders("SELECT id, id % 4 AS p, concat('v', id) AS v FROM range(10)")

    refused, read_aloud = amv("refresh", "orders", "--json"), amv("refresh", "orders")
    anyway = ("refresh", "orders", "--override", "max_deleted_fraction", "--json")
    unsaid, allowed = amv(*anyway), amv(*anyway, "--note", "they closed the shop")

    assert (refused.code, read_aloud.code, unsaid.code, allowed.code) == (1, 1, 2, 0)
    assert unsaid.document["error"]["code"] == "MV-ARGUMENT"
    assert "needs a reason" in unsaid.document["error"]["message"]
    assert refused.document["outcome"] == "refused"
    assert refused.document["refresh_id"]
    assert refused.document["started_at"]
    assert refused.document["error"]["code"] == "MV-GUARD"
    assert "--override" in read_aloud.err
    assert allowed.document["rows_deleted"] == 30
    assert is_equal_to_source(amv)


def test_ctrl_c_frees_the_table_and_the_next_refresh_goes_on(amv, orders, interrupt_at):
    interrupt_at("seal.after")

    stopped = amv("refresh", "orders", "--json")
    left = amv("status", "orders", "--json").document
    finished = amv("refresh", "orders", "--json")

    assert stopped.code == 75
    assert stopped.document["error"]["code"] == "MV-INTERRUPTED"
    assert "Run it again" in stopped.document["error"]["hint"]
    assert (left["phase"], left["is_lease_live"], left["partitions_completed"]) == ("MERGING", False, 4)
    assert finished.document["recovered"] == [stopped.document["refresh_id"]]
    assert is_equal_to_source(amv)


@pytest.fixture
def interrupt_at(monkeypatch):
    """Have Ctrl-C pressed at a durable write, and the work go on from there once it was told."""
    from airflow_mv_provider.runner import crash_points
    from airflow_mv_provider.runner.refresh import Refresher

    was_told, interrupt = threading.Event(), Refresher.interrupt

    def told(refresher):
        interrupt(refresher)
        was_told.set()

    def arm(point):
        def reach(reached):
            if reached == point:
                crash_points.arm(None)
                os.kill(os.getpid(), signal.SIGINT)
                assert was_told.wait(30)

        crash_points.arm(reach)

    monkeypatch.setattr(Refresher, "interrupt", told)
    yield arm
    crash_points.arm(None)


@pytest.mark.in_test_all
def test_a_killed_amv_is_recovered_by_another(amv, orders):
    """A real process, killed by SIGKILL before its publish; its successor says one object on stdout."""
    killed = _started(amv, "refresh", "orders", "--json", dies_at="publish.before", AMV_LEASE_S="5")
    killed.communicate()
    left = amv("status", "orders", "--json").document
    wait_for_the_lease(amv)

    recovered = _started(amv, "recover", "--json")
    out, err = recovered.communicate()

    assert not (amv.root / "spark-warehouse").exists(), "nothing is left in the directory that a command is run in"
    assert killed.returncode == -signal.SIGKILL
    assert (left["phase"], left["partitions_completed"]) == ("MERGING", 4)
    assert recovered.returncode == 0, err
    assert [r["outcome"] for r in json.loads(out)["recovered"]] == ["published"]
    assert "was ended: published." in err
    assert "Traceback" not in err
    assert is_equal_to_source(amv)
    assert amv("recover", "--json").document == {"recovered": [], "notes": []}


@pytest.mark.in_test_all
@pytest.mark.parametrize("moment", ["no earlier process", "publishing the changes"])
def test_a_real_amv_whose_jvm_is_killed_asks_for_another_try(amv, orders, moment):
    """Python notices a dead JVM by refused connections, between two calls as well as in the middle of one."""
    running = _started(amv, "refresh", "orders", "--json", AMV_LEASE_S="5")
    for line in running.stderr:
        if moment in line:
            break
    for child in psutil.Process(running.pid).children(recursive=True):
        if "java" in child.name():
            child.kill()

    out, err = running.communicate(timeout=120)
    wait_for_the_lease(amv)

    assert (running.returncode, json.loads(out)["error"]["code"]) == (75, "MV-ENGINE"), out + err
    assert "may have been killed" in json.loads(out)["error"]["message"]
    assert amv("refresh", "orders", "--json").code == 0
    assert is_equal_to_source(amv)


@pytest.mark.in_test_all
def test_sigint_stops_a_real_amv_in_the_middle(amv, orders):
    running = _started(amv, "refresh", "orders")
    for line in running.stderr:
        if "MERGING" in line:
            break
    running.send_signal(signal.SIGINT)
    out, err = running.communicate(timeout=120)

    assert running.returncode == 75, out + err
    assert "MV-INTERRUPTED" in err
    assert "Run it again" in err
    assert "Traceback" not in err
    assert amv("status", "orders", "--json").document["is_lease_live"] is False


@pytest.mark.in_test_all
def test_a_real_amv_that_waits_says_for_whom_and_leaves_the_queue_at_ctrl_c(amv, orders):
    amv("apply", amv.file(TABLES + "    concurrency: queue\n"))
    acquired(amv.store, amv.store.table("orders"), "elsewhere")
    running = _started(amv, "refresh", "orders", "--json")
    for line in running.stderr:
        if "number 1 in the queue" in line:
            break
    waiting = amv("status", "orders", "--json").document["queue"]

    running.send_signal(signal.SIGINT)
    out, err = running.communicate(timeout=120)

    assert "host:elsewhere is refreshing it since" in line
    assert [(w["place"], w["trigger"], w["waits_for"]) for w in waiting] == [(1, "command line", "host:elsewhere")]
    assert running.returncode == 75, out + err
    assert json.loads(out)["error"]["code"] == "MV-INTERRUPTED"
    assert amv("status", "orders", "--json").document["queue"] == []
    assert "Traceback" not in err


@pytest.mark.in_test_all
def test_a_real_amv_is_let_in_when_the_table_is_free(amv, orders):
    amv("apply", amv.file(TABLES + "    concurrency: queue\n"))
    own = acquired(amv.store, amv.store.table("orders"), "elsewhere")
    running = _started(amv, "refresh", "orders", "--json")
    for line in running.stderr:
        if "number 1 in the queue" in line:
            break

    amv.store.abandon(own, Outcome.FAILED, None, {})
    out, err = running.communicate(timeout=120)

    assert running.returncode == 0, err
    assert json.loads(out)["outcome"] == "published"
    assert is_equal_to_source(amv)


@pytest.mark.in_test_all
def test_a_refresh_of_a_killed_amv_is_abandoned_by_a_person(amv, orders):
    killed = _started(amv, "refresh", "orders", "--json", dies_at="publish.before", AMV_LEASE_S="5")
    killed.communicate()
    wait_for_the_lease(amv)

    said, again = amv("recover", "--abandon", "orders", "--json"), amv("recover", "--abandon", "orders")

    [report] = said.document["recovered"]
    assert (said.code, report["outcome"], report["error"]["code"]) == (0, "abandoned", "MV-ABANDONED")
    assert "no refresh is running" in again.out
    assert amv("status", "orders", "--json").document["phase"] == "NORMAL"


@pytest.mark.in_test_all
def test_a_dropped_table_keeps_its_rows_until_a_person_wants_them_gone(amv, orders):
    amv("refresh", "orders")

    kept = amv("drop", "orders", "--yes", "--json")
    rows = read_independently(amv.warehouse / "orders")
    amv("apply", amv.file(TABLES))
    refused = amv("drop", "orders", "--delete-main", "--yes", "--json")
    amv("refresh", "orders")  # finds its identity in main again
    gone = amv("drop", "orders", "--delete-main", "--yes")

    assert (kept.code, kept.document["is_main_deleted"], len(rows)) == (0, False, 40)
    assert (refused.code, refused.document["error"]["code"]) == (1, "MV-MAIN-NOT-OURS")
    assert "is deleted" in gone.out
    assert not (amv.warehouse / "orders").exists()
    assert amv("status", "--json").document == {"tables": []}


@pytest.mark.in_test_all
def test_a_table_that_cannot_be_relocated_keeps_no_other_from_it(amv, orders):
    amv("apply", amv.file(TABLES.replace("orders", "items").replace("raw/items", "raw/orders"), "items.yaml"))
    elsewhere = amv.warehouse.with_name("elsewhere")
    for name in ("items", "orders"):
        amv("refresh", name)
    shutil.copytree(amv.warehouse, elsewhere)
    shutil.rmtree(amv.warehouse / "orders")

    said = amv("relocate", "--all", "--json", "--warehouse", str(elsewhere))
    shown = amv("relocate", "--all", "--warehouse", str(elsewhere))

    assert (said.code, shown.code) == (1, 1)
    assert [each["location"] for each in said.document["tables"]] == [str(elsewhere / "orders")]
    [failed] = said.document["failed"]
    assert (failed["table"], failed["error"]["code"]) == ("items", "MV-TABLE-CONFLICT")
    assert f"orders: {elsewhere / 'orders'}, as before" in shown.out
    assert "amv: items: not relocated. [MV-TABLE-CONFLICT]" in shown.err


def _started(amv, *arguments: str, dies_at: str | None = None, **variables: str) -> subprocess.Popen[str]:
    environment = os.environ | variables | {"AMV_DATABASE_URL": amv.url, "AMV_WAREHOUSE": str(amv.warehouse)}
    pipe = subprocess.PIPE
    program = [AMV] if dies_at is None else [sys.executable, DYING, dies_at, "amv"]
    return subprocess.Popen([*program, *arguments], env=environment, cwd=amv.root, stdout=pipe, stderr=pipe, text=True)
