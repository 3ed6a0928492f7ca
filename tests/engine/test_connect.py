"""The same engine on a real Spark Connect server: real `amv` processes, each a client that starts no JVM."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from airflow_mv_provider.core.phase import Phase
from airflow_mv_provider.metadata.database import open_engine
from airflow_mv_provider.metadata.store import Store
from airflow_mv_provider.spark.causes.databases import connectors
from tests.conftest import read_independently
from tests.connect import ConnectServer, installed_with, serving
from tests.engine import reading_under_settings
from tests.proxy import proxied
from tests.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.in_process]

PATIENCE_S = 300
GRPC_PING_S = 60  # how long gRPC itself waits for the answer to a ping
AMV = Path(sys.executable).with_name("amv")
DYING = Path(__file__).parents[1] / "dying.py"
TABLES = """
tables:
  - {name: orders, source: {type: delta, path: raw/orders}, key: [id, p], partition_by: [p], chunk_rows: 10}
  - name: lines
    source: {type: files, path: raw/lines/*.csv, format: csv, schema: "id INT, v STRING"}
    key: [id]
    on_conflict: overwrite
    order_by: [v]
  - name: documents
    source: {type: files, path: raw/documents/*.json, format: json, schema: "id INT, tags ARRAY<STRING>"}
    key: [id]
  - name: query
    source: {type: query, sql: "SELECT p, count(*) AS n FROM o GROUP BY p", inputs: {o: raw/orders}}
    key: [p]
    publish: progressive
    partition_by: [p]
"""
FIRST = "SELECT id, CAST(id % 4 AS INT) AS p, concat('v', id) AS v FROM range(40)"
LATER = "SELECT id, CAST(id % 4 AS INT) AS p, IF(id = 7, 'late', concat('v', id)) AS v FROM range(1, 43)"


TASK = """
import json
from tests.airflow_home import Airflow, migrated

migrated()
airflow = Airflow()
run = airflow.run(airflow.load("connected", '''
from airflow.sdk import DAG
from airflow_mv_provider.operators.groups import refresh_table_group

with DAG("connected", schedule=None):
    refresh_table_group("orders", group_id="g")
'''))
print(json.dumps([run.states, [str(each) for errors in run.errors.values() for each in errors]]))
"""

OPEN = """
import sys
from airflow_mv_provider.exceptions import DependencyError
from airflow_mv_provider.spark.session import open_session

try:
    open_session(sys.argv[1])
except DependencyError as error:
    print(error)
"""

ATTEMPTS = """
import grpc
from pyspark.sql.connect.client.retries import Retrying
from airflow_mv_provider.spark.patience import RetryUntilOutage

class Unavailable(grpc.RpcError):
    def code(self):
        return grpc.StatusCode.UNAVAILABLE

    def trailing_metadata(self):
        return None

policy = RetryUntilOutage(max_retries=7)

def attempts():
    made = 0
    try:
        for attempt in Retrying([policy], sleep=lambda seconds: None):
            with attempt:
                made += 1
                raise Unavailable
    except Unavailable:
        return made

print([attempts() for _ in range(3)])
"""


AT_THE_END = """
import atexit, sys
from airflow_mv_provider.spark.session import connect_session

atexit.register(lambda: print(session.client.is_closed))  # after what was registered later
session = connect_session(sys.argv[1])
"""


@dataclass
class Client:
    """A warehouse, its database, and programs that reach Spark through the server alone."""

    root: Path
    remote: str

    def amv(self, *arguments: str, dies_at: str | None = None, **variables: str) -> tuple[int, dict[str, Any], str]:
        """Run amv; return its exit code, its answer and its stderr."""
        environment = {"AMV_DATABASE_URL": f"sqlite:///{self.root}/mv.db", "AMV_WAREHOUSE": str(self.root / "wh")}
        environment |= {"AMV_SPARK_REMOTE": self.remote, "JAVA_HOME": "/nowhere"} | variables
        done = subprocess.run(
            [*((AMV,) if dies_at is None else (sys.executable, DYING, dies_at, "amv")), *arguments, "--json"],
            env=os.environ | environment,
            cwd=self.root,
            capture_output=True,
            text=True,
            check=False,
        )
        return done.returncode, json.loads(done.stdout) if done.stdout else {}, done.stderr

    def write(self, sql: str) -> None:
        """Write the Delta source, from a process of its own: this one speaks to a JVM."""
        program = (
            "from pyspark.sql import SparkSession; import sys\n"
            "spark = SparkSession.builder.remote(sys.argv[1]).create()\n"
            "spark.sql(sys.argv[2]).write.format('delta').mode('overwrite').save(sys.argv[3])\n"
        )
        path = str(self.root / "wh/raw/orders")
        subprocess.run([sys.executable, "-c", program, self.remote, sql, path], check=True, cwd=self.root)

    def is_equal(self) -> bool:
        return read_independently(self.root / "wh/orders") == read_independently(self.root / "wh/raw/orders")


@pytest.fixture
def client(connect: ConnectServer, tmp_path: Path) -> Client:
    client = Client(tmp_path, connect.url)
    (tmp_path / "tables.yaml").write_text(TABLES)
    client.write(FIRST)
    code, _, err = client.amv("apply", "tables.yaml")
    assert code == 0, err
    return client


@pytest.mark.in_test_all
def test_refresh_twice_then_look_then_a_part(client):
    code, first, err = client.amv("refresh", "orders")
    assert (code, first.get("rows_inserted")) == (0, 40), err
    client.write(LATER)

    _, seen, _ = client.amv("refresh", "orders", "--read-only")
    _, part, _ = client.amv("refresh", "orders", "--partition", "3")
    _, rest, _ = client.amv("refresh", "orders", "--stale")

    assert [seen[f"rows_{each}"] for each in ("inserted", "updated", "deleted")] == [3, 1, 1]
    assert [part[f"rows_{each}"] for each in ("inserted", "updated", "deleted")] == [0, 1, 0]
    assert [rest[f"rows_{each}"] for each in ("inserted", "updated", "deleted")] == [3, 0, 1]
    assert client.is_equal()
    assert client.amv("refresh", "orders")[1]["outcome"] == "nothing_to_do"


@pytest.mark.in_test_all
def test_tasks_of_airflow_work_on_the_server(client):
    environment = {"AMV_DATABASE_URL": f"sqlite:///{client.root}/mv.db", "AMV_WAREHOUSE": str(client.root / "wh")}
    environment |= {"AMV_SPARK_REMOTE": client.remote, "JAVA_HOME": "/nowhere"}
    environment["PYTHONPATH"] = str(Path(__file__).parents[2])

    done = subprocess.run(
        [sys.executable, "-c", TASK],
        env=os.environ | environment,
        cwd=client.root,
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stderr[-3000:]
    states, errors = json.loads(done.stdout.splitlines()[-1])
    assert states == {f"g.{task}": "success" for task in ("begin", "stage", "merge", "cleanup")}, errors
    assert client.is_equal()


@pytest.mark.in_test_all
def test_files_and_a_query_and_bad_input(client):
    documents = client.root / "wh/raw/documents"
    documents.mkdir(parents=True)
    (documents / "a.json").write_text('{"id": 1, "tags": ["a", 1.10]}\n')
    lines = client.root / "wh/raw/lines"
    lines.mkdir(parents=True)
    (lines / "a.csv").write_text("id,v\n1,a\n2,b\n2,c\n")

    assert client.amv("refresh", "lines")[1]["rows_inserted"] == 2
    code, document, err = client.amv("refresh", "documents")
    assert (code, document.get("rows_inserted")) == (0, 1), err
    code, query, err = client.amv("refresh", "query")
    assert (code, query.get("rows_inserted")) == (0, 4), err
    (lines / "b.csv").write_text("id,v\nx,a\n")
    code, refused, _ = client.amv("refresh", "lines")

    assert (code, refused["error"]["code"]) == (1, "MV-FILE-CORRUPT")
    assert "b.csv" in refused["error"]["message"]
    assert read_independently(client.root / "wh/lines") == [(1, "a"), (2, "c")]
    assert read_independently(client.root / "wh/documents") == [(1, ("a", "1.10"))]


@pytest.mark.in_test_all
@pytest.mark.sample(1)
@pytest.mark.parametrize("point", ["seal.after", "publish.before", "publish.after"])
def test_killed_client_is_fenced_and_its_refresh_brought_to_its_end(client, point):
    client.amv("refresh", "orders")
    client.write(LATER)
    code, _, _ = client.amv("refresh", "orders", dies_at=point, AMV_LEASE_S="5")
    assert code == -signal.SIGKILL
    wait_until(lambda: not client.amv("status", "orders")[1]["is_lease_live"], 30, "the lease of the dead has run out")

    code, recovered, err = client.amv("recover")

    assert code == 0, err
    assert [report["outcome"] for report in recovered["recovered"]] == ["published"]
    assert client.is_equal()


@pytest.mark.in_test_all
def test_server_that_is_not_there_or_has_no_delta_is_named(client, tmp_path):
    away, wrong = Client(client.root, "sc://127.0.0.1:1/;token=c4n4ry"), Client(client.root, "http://127.0.0.1:1")

    gone, not_one = away.amv("refresh", "orders"), wrong.amv("refresh", "orders")

    assert (gone[0], gone[1]["error"]["code"]) == (75, "MV-ENGINE")
    assert "no server responds at 127.0.0.1:1" in gone[1]["error"]["message"]
    assert "c4n4ry" not in str(gone)
    assert (not_one[0], not_one[1]["error"]["code"]) == (1, "MV-SETTING")


@pytest.mark.in_test_all
def test_only_the_first_call_to_a_server_that_is_gone_is_retried(tmp_path):
    done = subprocess.run([sys.executable, "-c", ATTEMPTS], cwd=tmp_path, capture_output=True, text=True, check=False)

    assert done.stdout == "[8, 1, 1]\n", done.stderr


@pytest.mark.in_test_all
def test_text_column_that_is_added_is_one_that_other_readers_know(client):
    """A type that a Connect client sends names its collation, also the default one: delta-rs cannot read that."""
    lines, tables = client.root / "wh/raw/lines", client.root / "tables.yaml"
    lines.mkdir(parents=True)
    (lines / "a.csv").write_text("id,v\n1,a\n")
    assert client.amv("refresh", "lines")[0] == 0
    (lines / "a.csv").write_text("id,v,w\n1,a,\n")
    tables.write_text(TABLES.replace('v STRING"}', 'v STRING, w STRING"}\n    schema_policy: add'))
    assert client.amv("apply", "tables.yaml")[0] == 0

    code, report, err = client.amv("refresh", "lines")

    assert (code, report["schema_changes"]) == (0, ["column 'w', string, added"]), err
    assert read_independently(client.root / "wh/lines") == [(1, "a", None)]


def test_session_is_closed_before_the_interpreter_ends(connect):
    """Later gRPC's thread is gone: a task of Airflow waited for it for minutes, once, after its work was done."""
    done = subprocess.run([sys.executable, "-c", AT_THE_END, connect.url], capture_output=True, text=True, check=False)

    assert done.stdout == "True\n", done.stderr


@pytest.mark.in_test_all
def test_server_that_stops_answering_ends_a_refresh_in_time(client, connect):
    """Through a network that swallows packets: the connection stays open, and nobody ever answers."""
    store = Store(open_engine(f"sqlite:///{client.root}/mv.db"))
    client.amv("refresh", "orders", "--read-only")  # a server that has just started takes longer than it may below
    with proxied(int(connect.url.rpartition(":")[2])) as proxy, ThreadPoolExecutor() as threads:
        behind = Client(client.root, f"sc://127.0.0.1:{proxy.port}")
        running = threads.submit(behind.amv, "refresh", "orders", AMV_ANSWER_S="2", AMV_LEASE_S="5")
        wait_until(lambda: store.state(1).phase is not Phase.NORMAL or running.done(), PATIENCE_S, "the refresh begins")
        proxy.swallow()

        code, answer, err = running.result(timeout=GRPC_PING_S)

    assert (code, answer["error"]["code"]) == (75, "MV-ENGINE"), err
    assert "the Spark Connect server does not respond" in answer["error"]["message"]
    wait_until(lambda: not store.state(1).is_lease_live, PATIENCE_S, "the lease has run out")
    store.engine.dispose()
    code, report, err = client.amv("refresh", "orders")
    assert (code, report["outcome"]) == (0, "published"), err
    assert client.is_equal()


@pytest.mark.in_test_all
def test_tests_of_the_engine_pass_on_a_server():
    """A client decides once that it speaks to a server: the tests run in a process of their own, with `--connect`."""
    tests = [f"tests/engine/test_{name}.py" for name in ("refresh", "conflicts", "protobuf", "changed_files")]

    done = subprocess.run(
        [sys.executable, "-m", "pytest", "--connect", "-q", "-p", "no:cacheprovider", *tests],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stdout[-3000:]


@pytest.mark.in_test_all
def test_server_without_deltas_jar_is_told_which_one_it_needs(tmp_path):
    """Spark starts without an extension whose class it does not find, and fails where it needs the catalog."""
    with contextmanager(serving)(tmp_path, has_delta=False) as server:
        done = subprocess.run([sys.executable, "-c", OPEN, server.url], capture_output=True, text=True, check=False)

    assert done.stdout.startswith(f"[MV-DEPENDENCY] Spark Connect: the server at {server.url[5:]} has Spark "), done
    assert f"cannot load Delta's jar. Start it with --packages {installed_with()[1]} --conf " in done.stdout


@pytest.mark.in_test_all
def test_settings_of_a_server_change_nothing_that_is_read(tmp_path):
    confs = {name: value for name, (value, _) in reading_under_settings.HARMFUL.items()}
    reading_under_settings.write(tmp_path)

    with contextmanager(serving)(tmp_path, jars=(connectors()["avro"],), **confs) as server:
        command = [sys.executable, "-m", "tests.engine.reading_under_settings", str(tmp_path), server.url]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE_S)

    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == reading_under_settings.EXPECTED
