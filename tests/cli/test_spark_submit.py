"""`spark_apps/refresh_table.py` through a real spark-submit: the submitter's session, the environment's database."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from airflow_mv_provider.spark.packages import delta_packages
from tests.cli.elsewhere import wait_for_the_lease
from tests.conftest import read_independently
from tests.standalone import SPARK_HOME, cluster

__all__ = ["cluster"]

APP = Path(__file__).parents[2] / "spark_apps" / "refresh_table.py"
DYING = Path(__file__).parents[1] / "dying.py"
TABLES = "tables: [{name: orders, source: {type: delta, path: raw/orders}, key: [id], partition_by: [p]}]"


def submit(
    amv,
    *arguments: str,
    has_delta: bool = True,
    master: str = "local[2]",
    dies_at: str | None = None,
    **variables: str,
) -> subprocess.CompletedProcess[str]:
    given = {"AMV_DATABASE_URL_FILE": amv.file(amv.url, "database-url"), "PYSPARK_PYTHON": sys.executable}
    options = ["--packages", delta_packages()] if has_delta else []
    (amv.root / "events").mkdir(exist_ok=True)
    confs = ["--conf", "spark.ui.enabled=false", "--conf", "spark.sql.shuffle.partitions=2"]
    confs += ["--conf", "spark.driver.host=127.0.0.1", "--conf", "spark.driver.bindAddress=127.0.0.1"]
    confs += ["--conf", "spark.eventLog.enabled=true", "--conf", f"spark.eventLog.dir={amv.root / 'events'}"]
    program = [APP] if dies_at is None else [DYING, dies_at, "driver"]
    return subprocess.run(
        [SPARK_HOME / "bin" / "spark-submit", "--master", master, *options, *confs, *program, *arguments],
        env=os.environ | {"SPARK_HOME": str(SPARK_HOME)} | given | variables,
        cwd=amv.root,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.in_test_all
@pytest.mark.slow
def test_a_submitted_program_refreshes_the_table(amv, spark):
    source = str(amv.warehouse / "raw/orders")
    spark.sql("SELECT id, id % 2 AS p FROM range(20)").write.format("delta").save(source)
    amv("apply", amv.file(TABLES))

    done = submit(amv, "orders", "--json")

    report = json.loads(done.stdout)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "orders MERGING: publishing" in done.stderr
    assert (report["outcome"], report["rows_inserted"], report["trigger"]) == ("published", 20, "spark-submit")
    assert read_independently(amv.warehouse / "orders") == read_independently(amv.warehouse / "raw/orders")


@pytest.mark.in_test_all
@pytest.mark.slow
def test_a_submitted_program_passes_exit_code_and_error_on(amv):
    amv("apply", amv.file(TABLES))

    missing, unknown = submit(amv, "orders", "--json", has_delta=False), submit(amv, "nope", "--json", has_delta=False)
    lost = submit(amv, "orders", "--json", has_delta=False, AMV_DATABASE_URL="postgresql://u:c4n4ry@127.0.0.1:1/x")

    assert (missing.returncode, unknown.returncode, lost.returncode) == (1, 1, 75)
    assert f"--packages {delta_packages()}" in json.loads(missing.stdout)["error"]["hint"]
    assert json.loads(unknown.stdout)["error"]["code"] == "MV-TABLE-UNKNOWN"
    assert json.loads(lost.stdout)["error"]["code"] == "MV-DATABASE-UNAVAILABLE"
    assert "c4n4ry" not in lost.stdout + lost.stderr


@pytest.mark.in_test_all
@pytest.mark.slow
def test_a_driver_killed_on_a_cluster_is_recovered_by_the_next(amv, spark, cluster):
    amv = replace(amv, url=f"sqlite:///{amv.root / 'c4n4ry.db'}")
    source = str(amv.warehouse / "raw/orders")
    spark.sql("SELECT id, id % 2 AS p FROM range(20)").write.format("delta").save(source)
    amv("apply", amv.file(TABLES))

    killed = submit(amv, "orders", master=cluster.url, dies_at="publish.before", AMV_LEASE_S="5")
    left = amv("status", "orders", "--json").document
    wait_for_the_lease(amv)
    done = submit(amv, "orders", "--json", master=cluster.url)

    assert killed.returncode != 0
    assert left["phase"] == "MERGING", killed.stderr[-3000:]  # what it printed last may have died with it
    report = json.loads(done.stdout)
    assert (done.returncode, report["outcome"], report["epoch"]) == (0, "published", 2), report["error"]
    assert "taking over refresh" in done.stderr
    assert read_independently(amv.warehouse / "orders") == read_independently(amv.warehouse / "raw/orders")
    kept = [path for place in (amv.root / "events", cluster.directory) for path in place.rglob("*") if path.is_file()]
    assert any(path.parent.name == "0" and cluster.work in path.parents for path in kept), "an executor has worked"
    assert [path for path in kept if b"c4n4ry" in path.read_bytes()] == []
    assert "c4n4ry" not in killed.stderr + done.stderr + done.stdout


def test_the_program_is_short_and_takes_no_database():
    text = APP.read_text(encoding="utf-8")

    refused = subprocess.run(
        [sys.executable, APP, "orders", "--database", "sqlite:///x.db"], capture_output=True, text=True, check=False
    )

    assert len(text.splitlines()) <= 30
    assert refused.returncode == 2
    assert "--database" in refused.stderr
