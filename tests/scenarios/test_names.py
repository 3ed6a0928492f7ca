"""Names in a Hive metastore, by real processes: one registers and publishes, another reads, one is killed between."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import read_independently
from tests.connect import ConnectServer, serving
from tests.metastore import hive_confs, spark_defaults

pytestmark = [pytest.mark.slow, pytest.mark.in_process, pytest.mark.in_test_all]

AMV = Path(sys.executable).with_name("amv")
ROOT = Path(__file__).parents[2]
DYING = ROOT / "tests/dying.py"
NAME = "spark_catalog.shop.orders"
TABLES = f"""
tables:
  - {{name: orders, source: {{type: delta, table: spark_catalog.shop.raw}}, key: [id], catalog_name: {NAME}}}
"""
# A program of its own: it runs statements, the names that the metastore has being all that it knows.
STATEMENTS = """
import json, sys
from airflow_mv_provider.spark.session import open_session
spark = open_session(sys.argv[1] or None)
print(json.dumps([[list(row) for row in spark.sql(each).collect()] for each in sys.argv[2:]]))
"""


@dataclass
class Site:
    """A warehouse with its database, and processes whose Spark has a metastore, here or on a Connect server."""

    root: Path
    variables: dict[str, str]

    @property
    def warehouse(self) -> Path:
        return self.root / "wh"

    def amv(self, *arguments: str, dies_at: str | None = None) -> subprocess.CompletedProcess[str]:
        program = (AMV,) if dies_at is None else (sys.executable, DYING, dies_at, "amv")
        return self._run(*map(str, program), *arguments, "--json")

    def sql(self, *statements: str) -> list[list[list[Any]]]:
        done = self._run(sys.executable, "-c", STATEMENTS, self.variables.get("AMV_SPARK_REMOTE", ""), *statements)
        assert done.returncode == 0, done.stderr[-2000:]
        found: list[list[list[Any]]] = json.loads(done.stdout)
        return found

    def rows(self) -> list[list[Any]]:
        """The rows that a reader of the name sees."""
        return sorted(self.sql(f"SELECT id, v FROM {NAME}")[0])

    def _run(self, *words: str) -> subprocess.CompletedProcess[str]:
        own = {"AMV_DATABASE_URL": f"sqlite:///{self.root}/mv.db", "AMV_WAREHOUSE": str(self.warehouse)}
        own |= {"AMV_SOURCE_ROOTS": str(self.root / "schema"), "PYTHONPATH": str(ROOT)}
        own |= {"AMV_SPARK_REMOTE": "", "AIRFLOW_HOME": str(self.root)}  # not a server that somebody has started
        return subprocess.run(
            words, env=os.environ | own | self.variables, cwd=self.root, capture_output=True, text=True, check=False
        )


def begun(root: Path, variables: dict[str, str]) -> Site:
    """Return a site with a managed table of ten rows, and the definition of a table that reads it by its name."""
    site = Site(root, variables)
    site.warehouse.mkdir()
    (root / "tables.yaml").write_text(TABLES, encoding="utf-8")
    site.sql(
        f"CREATE DATABASE shop LOCATION '{root}/schema'",
        "CREATE TABLE shop.raw USING delta AS SELECT id, 'a' AS v FROM range(10)",
    )
    assert site.amv("apply", "tables.yaml").returncode == 0
    return site


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ConnectServer]:
    directory = tmp_path / "server"
    directory.mkdir()
    yield from serving(directory, **hive_confs(directory))


@pytest.mark.parametrize("point", ["register_name.before", "register_name.after"])
def test_name_is_registered_once_its_killed_process_is_followed_by_another(tmp_path, point):
    site = begun(tmp_path, {"SPARK_CONF_DIR": str(spark_defaults(tmp_path)), "AMV_LEASE_S": "1"})

    assert site.amv("refresh", "orders", dies_at=point).returncode == -signal.SIGKILL
    done = site.amv("refresh", "orders")

    assert done.returncode == 0, done.stderr
    rows = [tuple(row) for row in site.rows()]
    assert rows == read_independently(site.warehouse / "orders")
    assert len(rows) == 10


def test_process_by_process_on_a_connect_server(tmp_path, server):
    site = begun(tmp_path, {"AMV_SPARK_REMOTE": server.url, "JAVA_HOME": "/nowhere"})

    assert site.amv("refresh", "orders").returncode == 0
    site.sql("UPDATE shop.raw SET v = 'late' WHERE id = 3", "DELETE FROM shop.raw WHERE id = 4")
    done = site.amv("refresh", "orders")

    assert done.returncode == 0, done.stderr
    expected = [(number, "late" if number == 3 else "a") for number in range(10) if number != 4]
    assert [tuple(row) for row in site.rows()] == expected == read_independently(site.warehouse / "orders")
    assert not [path for path in (site.warehouse / "_mv").rglob("staging*/*") if path.is_file()]

    site.sql("ALTER TABLE shop.orders RENAME TO shop.former", "CREATE TABLE shop.orders USING delta AS SELECT 7L AS id")
    refused = site.amv("refresh", "orders")
    assert (refused.returncode, "MV-NAME-TAKEN" in refused.stdout) == (1, True)
    assert json.loads(site.amv("drop", "orders", "--delete-main", "--yes").stdout)["is_name_dropped"] is False
    assert site.sql(f"SELECT id FROM {NAME}") == [[[7]]]
    assert not (site.warehouse / "orders").exists()
