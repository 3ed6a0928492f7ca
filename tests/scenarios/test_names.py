"""Names in a Hive metastore, by real processes: one registers and publishes, another reads, one is killed between.

On embedded Derby they follow one another; in PostgreSQL two of them use the metastore at the same time.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.conftest import read_independently
from tests.connect import ConnectServer, serving
from tests.metastore import InPostgresql, hive_confs, spark_defaults
from tests.postgres import ASKED, running_server
from tests.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.in_process, pytest.mark.in_test_all]

AMV = Path(sys.executable).with_name("amv")
ROOT = Path(__file__).parents[2]
DYING = ROOT / "tests/dying.py"
NAME = "spark_catalog.shop.orders"
TABLES = f"""
tables:
  - {{name: orders, source: {{type: delta, table: spark_catalog.shop.raw}}, key: [id], catalog_name: {NAME}}}
"""
# A program of its own: it runs statements, one a line, the names that the metastore has being all that it knows.
STATEMENTS = """
import json, sys
from airflow_mv_provider.spark.session import open_session
spark = open_session(sys.argv[1] or None)
for statement in sys.stdin:
    print(json.dumps([list(row) for row in spark.sql(statement).collect()]), flush=True)
"""
PASSWORD = "c4n4ry-m3t4"


class Sql:
    """A process with a Spark of its own that runs statements until it is closed."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def run(self, *statements: str) -> list[list[list[Any]]]:
        asked, answers = self._process.stdin, self._process.stdout
        assert asked is not None
        assert answers is not None
        found = []
        for statement in statements:
            print(statement, file=asked, flush=True)
            line = answers.readline()
            assert line, self._process.communicate()[1][-2000:]
            found.append(json.loads(line))
        return found

    def rows(self) -> list[tuple[Any, ...]]:
        """The rows that a reader of the name sees."""
        return sorted(tuple(row) for row in self.run(f"SELECT id, v FROM {NAME}")[0])


@dataclass
class Site:
    """A warehouse with its database, and processes whose Spark has a metastore, here or on a Connect server."""

    root: Path
    variables: dict[str, str]

    @property
    def warehouse(self) -> Path:
        return self.root / "wh"

    def amv(self, *arguments: str, dies_at: str | None = None) -> subprocess.CompletedProcess[str]:
        process = self.start(*arguments, dies_at=dies_at)
        out, err = process.communicate()
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    def is_lease_live(self) -> bool:
        return bool(json.loads(self.amv("status", "orders").stdout)["is_lease_live"])

    def start(self, *arguments: str, dies_at: str | None = None) -> subprocess.Popen[str]:
        program = (AMV,) if dies_at is None else (sys.executable, DYING, dies_at, "amv")
        return self._process(*map(str, program), *arguments, "--json")

    @contextmanager
    def session(self) -> Iterator[Sql]:
        process = self._process(sys.executable, "-c", STATEMENTS, self.variables.get("AMV_SPARK_REMOTE", ""))
        with process:
            yield Sql(process)

    def sql(self, *statements: str) -> list[list[list[Any]]]:
        with self.session() as session:
            return session.run(*statements)

    def rows(self) -> list[tuple[Any, ...]]:
        with self.session() as session:
            return session.rows()

    def _process(self, *words: str) -> subprocess.Popen[str]:
        own = {"AMV_DATABASE_URL": f"sqlite:///{self.root}/mv.db", "AMV_WAREHOUSE": str(self.warehouse)}
        own |= {"AMV_SOURCE_ROOTS": str(self.root / "schema"), "PYTHONPATH": str(ROOT)}
        own |= {"AMV_SPARK_REMOTE": "", "AIRFLOW_HOME": str(self.root)}  # not a server that somebody has started
        return subprocess.Popen(
            words,
            env=os.environ | own | self.variables,
            cwd=self.root,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
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


@pytest.fixture
def metastore(tmp_path: Path) -> Iterator[dict[str, str]]:
    """The environment of processes whose metastore is in a PostgreSQL that asks for a password."""
    with running_server() as server:
        address = server.new_database("metastore")
        with psycopg.connect(address, autocommit=True) as connection:
            connection.execute(f"CREATE ROLE {ASKED} LOGIN PASSWORD '{PASSWORD}'")
            connection.execute(f"ALTER DATABASE metastore OWNER TO {ASKED}")
        found = InPostgresql(tmp_path, address.replace("//mv@", f"//{ASKED}@"), PASSWORD)
        variables = {"SPARK_CONF_DIR": str(found.conf), "AMV_LEASE_S": "1"}
        found.write(is_new=True)
        assert Site(tmp_path, variables).sql("SHOW SCHEMAS") == [[["default"]]]
        found.write(is_new=False)
        yield variables


@pytest.mark.parametrize("point", ["register_name.before", "register_name.after"])
def test_name_is_registered_once_its_killed_process_is_followed_by_another(tmp_path, point):
    site = begun(tmp_path, {"SPARK_CONF_DIR": str(spark_defaults(tmp_path)), "AMV_LEASE_S": "1"})

    assert site.amv("refresh", "orders", dies_at=point).returncode == -signal.SIGKILL
    wait_until(lambda: not site.is_lease_live(), 30, "the lease has ended")
    done = site.amv("refresh", "orders")

    assert done.returncode == 0, done.stderr
    rows = site.rows()
    assert rows == read_independently(site.warehouse / "orders")
    assert len(rows) == 10


def test_two_processes_use_a_metastore_in_postgresql_at_once(tmp_path, metastore):
    site = begun(tmp_path, metastore)
    first = [(number, "a") for number in range(10)]
    with site.session() as other:
        refresh = site.amv("refresh", "orders")
        assert refresh.returncode == 0, refresh.stderr
        assert other.rows() == first == read_independently(site.warehouse / "orders")

        other.run("ALTER TABLE shop.orders RENAME TO shop.former")
        refused = site.amv("refresh", "orders")
        assert (refused.returncode, "MV-NAME-GONE" in refused.stdout) == (1, True)
        other.run("DROP TABLE shop.former", f"CREATE TABLE {NAME} USING delta LOCATION '{site.warehouse}/orders'")
        assert other.rows() == first

        other.run("UPDATE shop.raw SET v = 'late' WHERE id = 3", "DELETE FROM shop.raw WHERE id = 4")
        seen = [other.rows()]
        process = site.start("refresh", "orders")
        while process.poll() is None:
            seen.append(other.rows())
        assert process.returncode == 0, process.communicate()[1]
        seen.append(other.rows())

    later = [(number, "late" if number == 3 else "a") for number in range(10) if number != 4]
    num_before = seen.count(first)
    assert seen == [first] * num_before + [later] * (len(seen) - num_before)
    assert seen[-1] == later
    assert later == read_independently(site.warehouse / "orders")


def test_process_by_process_on_a_connect_server(tmp_path, server):
    site = begun(tmp_path, {"AMV_SPARK_REMOTE": server.url, "JAVA_HOME": "/nowhere"})

    assert site.amv("refresh", "orders").returncode == 0
    site.sql("UPDATE shop.raw SET v = 'late' WHERE id = 3", "DELETE FROM shop.raw WHERE id = 4")
    done = site.amv("refresh", "orders")

    assert done.returncode == 0, done.stderr
    expected = [(number, "late" if number == 3 else "a") for number in range(10) if number != 4]
    assert site.rows() == expected == read_independently(site.warehouse / "orders")
    assert not [path for path in (site.warehouse / "_mv").rglob("staging*/*") if path.is_file()]

    site.sql("ALTER TABLE shop.orders RENAME TO shop.former", "CREATE TABLE shop.orders USING delta AS SELECT 7L AS id")
    refused = site.amv("refresh", "orders")
    assert (refused.returncode, "MV-NAME-TAKEN" in refused.stdout) == (1, True)
    assert json.loads(site.amv("drop", "orders", "--delete-main", "--yes").stdout)["is_name_dropped"] is False
    assert site.sql(f"SELECT id FROM {NAME}") == [[[7]]]
    assert not (site.warehouse / "orders").exists()
