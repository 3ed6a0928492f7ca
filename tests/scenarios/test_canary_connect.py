"""The passwords of a database and of a topic, which a refresh hands to a real Spark Connect server: they show nowhere.

The server writes an event log, where it keeps plans, and each request with its options. `amv` is a process of its own,
and logs all that it can.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from sqlalchemy.engine import make_url

from airflow_mv_provider.core.secret import every_spelling
from airflow_mv_provider.spark.causes.databases import DRIVERS, connectors
from tests.conftest import read_independently
from tests.connect import ConnectServer, serving
from tests.engine.streaming import row
from tests.kafka import LOGIN, PASSWORD

pytestmark = [pytest.mark.slow, pytest.mark.in_process, pytest.mark.in_test_all]

# Says everything that Python's loggers know, those of the Connect client included.
LOUD = """
import logging
from airflow_mv_provider.cli.main import main

logging.basicConfig(level=logging.DEBUG)
main()
"""
TABLES = """
tables:
  - {name: orders, source: {type: jdbc, conn_id: base, table: public.orders, split: {column: id, parts: 2}}, key: [id]}
  - name: events
    source: {type: kafka, conn_id: stream, topic: TOPIC, envelope: upsert, schema: "id INT, v STRING"}
    key: [id]
"""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ConnectServer]:
    (tmp_path / "events").mkdir()
    events = {"spark.eventLog.enabled": "true", "spark.eventLog.dir": f"file:{tmp_path}/events"}
    events |= {"spark.eventLog.compress": "false"}  # else no text would be found in it
    jars = [DRIVERS["org.postgresql.Driver"], connectors()["kafka"]]
    yield from serving(tmp_path, jars=jars, **events)


def connections(postgres_url: str, broker: Any, password: str) -> dict[str, str]:
    at = make_url(postgres_url)
    base = {
        "conn_type": "postgres",
        "host": "127.0.0.1",
        "port": at.port,
        "schema": at.database,
        "login": "canary_reader",
    }
    extra = {"bootstrap.servers": broker.login_address, "security.protocol": "SASL_PLAINTEXT"}
    stream = {"conn_type": "kafka", "login": LOGIN, "extra": extra}
    both = {"BASE": base | {"password": password}, "STREAM": stream | {"password": password}}
    return {f"AIRFLOW_CONN_{name}": json.dumps(known) for name, known in both.items()}


def test_passwords_that_go_to_a_connect_server_show_nowhere(server, postgres, broker, tmp_path):
    topic, url = broker.topic(), postgres.new_database()
    with psycopg.connect(url, autocommit=True) as db:
        db.execute(f"CREATE ROLE canary_reader LOGIN PASSWORD '{PASSWORD}'")
        db.execute("CREATE TABLE orders (id int PRIMARY KEY, v numeric(10,2))")
        db.execute("INSERT INTO orders VALUES (1, 1.5), (2, 2.5)")
        db.execute("GRANT SELECT ON orders TO canary_reader")
    broker.send(topic, row(1, "a"), row(2, "b"))
    (tmp_path / "tables.yaml").write_text(TABLES.replace("TOPIC", topic))
    said: list[str] = []

    def amv(*arguments: str, password: str = PASSWORD) -> int:
        environment = {"AMV_DATABASE_URL": f"sqlite:///{tmp_path}/mv.db", "AMV_WAREHOUSE": str(tmp_path / "wh")}
        environment |= {"AMV_SPARK_REMOTE": server.url, "JAVA_HOME": "/nowhere"}
        environment |= connections(url, broker, password)
        done = subprocess.run(
            [sys.executable, "-c", LOUD, *arguments, "--json"],
            env=os.environ | environment,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        said.extend((done.stdout, done.stderr))
        return done.returncode

    codes = [amv("apply", "tables.yaml"), amv("refresh", "orders"), amv("refresh", "events")]
    assert codes == [0, 0, 0], [each[-1500:] for each in said]
    published = [Counter(read_independently(tmp_path / f"wh/{name}")) for name in ("orders", "events")]
    with psycopg.connect(url, autocommit=True) as db:
        db.execute("INSERT INTO orders VALUES (3, 'NaN')")  # Spark's error has the plan
    broker.send(topic, ("1", "{"))
    failed = [amv("refresh", "orders"), amv("refresh", "events"), amv("plan", "orders"), amv("history", "orders")]
    denied = [amv("refresh", name, password="wr0ng/p4ss") for name in ("orders", "events")]
    server.kill()

    assert [len(each) for each in published] == [2, 2]
    assert 0 not in failed[:2] + denied[1:]
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    events = [path.read_text(errors="replace") for path in files if path.is_relative_to(tmp_path / "events")]
    assert [name for name in ("JDBCRelation", topic) if not any(name in text for text in events)] == []
    for secret in (*every_spelling([PASSWORD]), "wr0ng/p4ss"):
        assert [text for text in said if secret in text] == []
        assert [path for path in files if secret.encode() in path.read_bytes()] == []
