"""Debezium's real connector for PostgreSQL, in a standalone worker of Kafka Connect on loopback; ended by its pid."""

from __future__ import annotations

import json
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.error import URLError

import psutil
import psycopg

from scripts.java_programs import class_words, fetch, start
from scripts.kafka_server import VERSION as KAFKA
from scripts.ports import free_port
from scripts.server_error import ServerError

VERSION = "3.2.0.Final"
_PATIENCE_S = 120
_LOOKS_EVERY_S = 0.1
_DIRECTLY = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # no proxy reaches this machine's loopback
_JARS = (
    f"io.debezium:debezium-connector-postgres:{VERSION}",
    f"org.apache.kafka:connect-runtime:{KAFKA}",
    f"org.apache.kafka:connect-json:{KAFKA}",
    "org.apache.logging.log4j:log4j-slf4j-impl:2.24.3",  # else it logs nothing
)
_WORKER = {
    "plugin.discovery": "only_scan",
    "offset.flush.interval.ms": "1000",
    "key.converter": "org.apache.kafka.connect.json.JsonConverter",
    "value.converter": "org.apache.kafka.connect.json.JsonConverter",
    "key.converter.schemas.enable": "false",
    "value.converter.schemas.enable": "false",
}
# docs/kafka.md, "Debezium's connector", says why; below them what makes it come back within seconds of a fault.
SETTINGS = {
    "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
    "plugin.name": "pgoutput",
    "decimal.handling.mode": "string",
    "time.precision.mode": "isostring",
    "skipped.operations": "none",
    "publication.autocreate.mode": "filtered",
    "topic.creation.default.replication.factor": "1",
    "topic.creation.default.partitions": "3",
    "retriable.restart.connector.wait.ms": "500",
    "slot.retry.delay.ms": "500",
    "slot.max.retries": "60",
    "poll.interval.ms": "50",
}


class Connector:
    """A worker with one connector. `settings` are the connector's own, after `SETTINGS`.

    kafka    : the broker's address
    database : PostgreSQL's, as a URL; its server has `wal_level=logical`
    name     : of the connector, its slot and its publication, and what its topics' names begin with
    """

    def __init__(self, directory: Path, kafka: str, database: str, name: str, tables: list[str], **settings: str):
        self._directory, self.name = directory, name
        self._database = database
        self._rest, self._offsets = f"http://127.0.0.1:{free_port()}", directory / "offsets"
        fetch(directory / "lib", *_JARS)
        worker = {
            "bootstrap.servers": kafka,
            "listeners": self._rest,
            "offset.storage.file.filename": str(self._offsets),
        }
        self._properties = directory / "worker.properties"
        lines = (f"{key}={value}\n" for key, value in (_WORKER | worker).items())
        self._properties.write_text("".join(lines), encoding="utf-8")
        at = psycopg.conninfo.conninfo_to_dict(database)
        self._settings = {
            **SETTINGS,
            "database.hostname": str(at["host"]),
            "database.port": str(at["port"]),
            "database.user": str(at["user"]),
            "database.password": str(at.get("password", "none")),
            "database.dbname": str(at["dbname"]),
            "topic.prefix": name,
            "slot.name": name,
            "publication.name": name,
            "table.include.list": ",".join(tables),
            **settings,
        }
        (directory / "connector.json").write_text(json.dumps({"name": name, "config": self._settings}))
        self._words = class_words(directory, "512m", level="warn")
        self.start()

    def start(self) -> None:
        """Start the worker and wait until the connector runs; after `kill` it goes on from its own offsets.

        raises : ServerError
        """
        words = ["org.apache.kafka.connect.cli.ConnectStandalone", str(self._properties)]
        self._process = start([*self._words, *words, str(self._directory / "connector.json")], self._log)
        self._wait(self._runs, "did not start")

    def kill(self) -> None:
        """End the worker by its own pid, as SIGKILL does, but not while it writes its offsets.

        A standalone worker empties their file and then writes it: killed in between it has none, and begins with a new
        snapshot. Those that people run keep them in a topic, where that cannot happen.
        """
        while self._process.poll() is None:
            worker = psutil.Process(self._process.pid)
            worker.suspend()
            while worker.status() not in (psutil.STATUS_STOPPED, psutil.STATUS_ZOMBIE):
                time.sleep(0.001)
            if not self._offsets.exists() or self._offsets.stat().st_size > 0:
                break
            worker.resume()
            time.sleep(0.01)
        self._process.kill()
        self._process.wait(_PATIENCE_S)

    def settle(self) -> None:
        """Wait until Kafka has all that was committed in PostgreSQL before this call, repetitions included.

        The connector confirms a position of PostgreSQL's log once Kafka has acknowledged all events before it. After
        a fault it goes on from its own offsets, so what it repeats comes before the mark that is written here. The mark
        is outside of a transaction: of one in a transaction only its begin is confirmed until something follows it.
        """
        with psycopg.connect(self._database, autocommit=True) as db:
            mark = db.execute("SELECT pg_logical_emit_message(false, 'mark', '')").fetchone()
            query = "SELECT confirmed_flush_lsn >= %s FROM pg_replication_slots WHERE slot_name = %s"

            def is_confirmed() -> bool:
                self._mend()
                found = db.execute(query, (mark[0] if mark else None, self.name)).fetchone()
                return bool(found and found[0])

            self._wait(is_confirmed, "does not come after PostgreSQL")

    def _runs(self) -> bool:
        self._mend()
        found = self._ask(f"/connectors/{self.name}/status")
        tasks = found["tasks"] if found else []
        return bool(tasks) and all(task["state"] == "RUNNING" for task in tasks)

    def _mend(self) -> None:
        """Restart a task that has failed, as an operator of Connect would: some faults are none that it retries."""
        found = self._ask(f"/connectors/{self.name}/status")
        if found and any(task["state"] == "FAILED" for task in found["tasks"]):
            self._ask(f"/connectors/{self.name}/restart?includeTasks=true&onlyFailed=true", "POST")

    def _ask(self, path: str, method: str = "GET") -> dict[str, Any] | None:
        """Return what the worker's interface answers, None if it does not answer."""
        try:
            with _DIRECTLY.open(urllib.request.Request(self._rest + path, method=method), timeout=5) as answer:
                return dict(json.load(answer))
        except (URLError, OSError, ValueError):
            return None

    def _wait(self, is_so: Callable[[], bool], otherwise: str) -> None:
        until = time.monotonic() + _PATIENCE_S
        while not is_so():
            if self._process.poll() is not None or time.monotonic() > until:
                said = self._log.read_text(encoding="utf-8", errors="replace")[-1500:]
                self.kill()
                raise ServerError(f"Debezium's connector {otherwise}: {said}")
            time.sleep(_LOOKS_EVERY_S)

    @property
    def _log(self) -> Path:
        return self._directory / "connect.log"
