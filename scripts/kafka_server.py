"""A real Kafka broker on loopback, in a directory of its own: one node in KRaft mode, ended by its own pid."""

from __future__ import annotations

import base64
import contextlib
import subprocess  # nosec B404  # to format the broker's storage, without a shell
import time
import uuid
from collections.abc import Mapping
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from scripts.java_programs import class_words, environment, fetch, start
from scripts.ports import free_port
from scripts.server_error import ServerError

VERSION = "4.1.0"
_PATIENCE_S = 90
SILENT: dict[str, str | int] = {"log_level": 0}
"""Keeps the client from writing to stderr, also that a broker has been killed."""
# One broker that is its own controller; nothing is replicated, and no log is written that nobody reads.
_SETTINGS = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "inter.broker.listener.name": "OPEN",
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
    "auto.create.topics.enable": "false",
    "log.segment.delete.delay.ms": "0",
}


class KafkaServer:
    """One broker, started; whoever reaches `address` may do everything.

    more : listeners beside it, by name, and their settings
    """

    def __init__(self, directory: Path, more: Mapping[str, tuple[str, str]] | None = None, **settings: str) -> None:
        more = more or {}
        self._directory = directory
        self.address, controller = (f"127.0.0.1:{free_port()}" for _ in range(2))
        protocols = {"OPEN": "PLAINTEXT", "CONTROLLER": "PLAINTEXT"} | {name: p for name, (_, p) in more.items()}
        listeners = {"OPEN": self.address, "CONTROLLER": controller} | {name: at for name, (at, _) in more.items()}
        every = _SETTINGS | settings
        every["listener.security.protocol.map"] = ",".join(f"{name}:{each}" for name, each in protocols.items())
        every["listeners"] = ",".join(f"{name}://{each}" for name, each in listeners.items())
        every |= {"log.dirs": str(directory / "data"), "controller.quorum.voters": f"1@{controller}"}
        self._file = directory / "server.properties"
        self._file.write_text("".join(f"{name}={value}\n" for name, value in every.items()), encoding="utf-8")
        fetch(directory / "lib", f"org.apache.kafka:kafka_2.13:{VERSION}")
        self._words = class_words(directory, "384m")
        name = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        given = f"--cluster-id={name}"  # which may begin with a dash
        self._run("kafka.tools.StorageTool", "format", given, "-c", str(self._file))
        self.start()

    def start(self) -> None:
        """Start the broker, after `kill` with the same data and at the same addresses.

        raises : ServerError
        """
        log = self._directory / "broker.log"
        self._process = start([*self._words, "kafka.Kafka", str(self._file)], log)
        until = time.monotonic() + _PATIENCE_S
        self.admin = AdminClient({"bootstrap.servers": self.address} | SILENT)  # an older one may not answer any more
        while True:
            with contextlib.suppress(KafkaException):
                self.admin.list_topics(timeout=1)
                return
            if self._process.poll() is not None or time.monotonic() > until:
                said = log.read_text(encoding="utf-8", errors="replace")[-800:]
                self.kill()
                raise ServerError(f"Kafka did not start: {said}")

    def kill(self) -> None:
        """End the broker by its own pid, as SIGKILL does."""
        self._process.kill()
        self._process.wait(_PATIENCE_S)

    def _run(self, *words: str) -> None:
        done = subprocess.run(  # nosec B603  # our own words alone
            [*self._words, *words], capture_output=True, text=True, check=False, env=environment()
        )
        if done.returncode:
            raise ServerError(f"Kafka's {words[0]} failed: {done.stderr.strip()[-800:]}")
