"""A real Kafka broker on loopback, in a directory of its own: started by the tests, stopped by its own pid."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import shutil
import subprocess
import tempfile
import time
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyspark
import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from airflow_mv_provider.spark.warm_start import java
from tests.ports import free_port

VERSION = "4.1.0"
LOGIN, PASSWORD = "reader", "c4n4ry/p4ss w@rd"  # of the listener that wants one
_PATIENCE_S = 90
_MEMORY = ("-Xmx384m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
_PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
# One broker that is its own controller; nothing is replicated, and no log is written that nobody reads.
_SETTINGS = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": "OPEN:PLAINTEXT,LOGIN:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
    "inter.broker.listener.name": "OPEN",
    "sasl.enabled.mechanisms": "PLAIN",
    "listener.name.login.plain.sasl.jaas.config": f'{_PLAIN} user_{LOGIN}="{PASSWORD}";',
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
    "auto.create.topics.enable": "false",
    "log.retention.check.interval.ms": "500",
    "log.segment.delete.delay.ms": "0",
}
_QUIET = """
status = error
appender.file.type = Console
appender.file.name = out
rootLogger.level = error
rootLogger.appenderRef.out.ref = out
"""
_SILENT: dict[str, str | int] = {"log_level": 0}  # the client writes to stderr, also that a broker has been killed
Record = tuple[str | bytes | None, Any]
"""A key and a value; a value that is no text is written as JSON."""


class Broker:
    """One broker: `address` asks nobody for a login, `login_address` does."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        ports = [free_port() for _ in range(3)]
        self.address, self.login_address, controller = (f"127.0.0.1:{port}" for port in ports)
        listeners = f"OPEN://{self.address},LOGIN://{self.login_address},CONTROLLER://{controller}"
        settings = _SETTINGS | {"listeners": listeners, "log.dirs": str(directory / "data")}
        settings |= {"controller.quorum.voters": f"1@{controller}"}
        (directory / "server.properties").write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        (directory / "log4j2.properties").write_text(_QUIET)
        _fetch_jars(directory / "lib")
        name = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        given = f"--cluster-id={name}"  # which may begin with a dash
        self._run("kafka.tools.StorageTool", "format", given, "-c", str(directory / "server.properties"))
        self.start()
        self.admin = AdminClient({"bootstrap.servers": self.address} | _SILENT)

    def start(self) -> None:
        """Start the broker, after `kill` with the same data and at the same addresses."""
        words = [*self._java(), "kafka.Kafka", str(self._directory / "server.properties")]
        with open(self._directory / "broker.log", "ab") as log:
            self._process = subprocess.Popen(
                words, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=_environment()
            )
        until = time.monotonic() + _PATIENCE_S
        admin = AdminClient({"bootstrap.servers": self.address} | _SILENT)
        while True:
            with contextlib.suppress(KafkaException):
                admin.list_topics(timeout=1)
                return
            if self._process.poll() is not None or time.monotonic() > until:
                said = (self._directory / "broker.log").read_text()[-800:]
                self.kill()
                pytest.fail(f"Kafka did not start: {said}", pytrace=False)

    def kill(self) -> None:
        """End the broker by its own pid, as SIGKILL does."""
        self._process.kill()
        self._process.wait(_PATIENCE_S)

    # -- what tests do with it --------------------------------------------------------------------------------------

    def topic(self, name: str | None = None, *, partitions: int = 1, **config: str) -> str:
        """Create a topic and return its name."""
        name = name or f"t{uuid.uuid4().hex[:10]}"
        wanted = {each.replace("_", "."): value for each, value in config.items()}
        self._until_done(self.admin.create_topics([NewTopic(name, partitions, 1, config=wanted)]))
        self._until(lambda: len(self._partitions(name)) == partitions)
        return name

    def drop(self, name: str) -> None:
        self._until_done(self.admin.delete_topics([name]))
        self._until(lambda: not self._partitions(name))

    def grow(self, name: str, partitions: int) -> None:
        self._until_done(self.admin.create_partitions([NewPartitions(name, partitions)]))
        self._until(lambda: len(self._partitions(name)) == partitions)

    def send(self, topic: str, *records: Record, partition: int = -1, at_ms: int = 0) -> None:
        """Write records; without a partition, by their keys as Kafka does.

        at_ms : their time; now, if 0
        """
        producer = Producer({"bootstrap.servers": self.address, "partitioner": "murmur2_random"} | _SILENT)
        _produce(producer, topic, records, partition, at_ms)
        assert producer.flush(_PATIENCE_S) == 0

    def begin(self, topic: str, *records: Record, partition: int = -1) -> Producer:
        """Write records in a transaction and leave it open: `commit_transaction` or `abort_transaction` ends it."""
        producer = Producer({"bootstrap.servers": self.address, "transactional.id": uuid.uuid4().hex} | _SILENT)
        producer.init_transactions(_PATIENCE_S)
        producer.begin_transaction()
        _produce(producer, topic, records, partition)
        producer.flush(_PATIENCE_S)
        return producer

    def commit(self, group: str, topic: str, offset: int, partition: int = 0) -> None:
        """Write an offset into a consumer group, as a consumer of it does."""
        asked = [ConsumerGroupTopicPartitions(group, [TopicPartition(topic, partition, offset)])]
        self._until_done(self.admin.alter_consumer_group_offsets(asked))

    def forget(self, topic: str, before: int, partition: int = 0) -> None:
        """Remove the records before an offset, as retention does."""
        self._until_done(self.admin.delete_records([TopicPartition(topic, partition, before)]))

    def _partitions(self, name: str) -> dict[int, Any]:
        found = self.admin.list_topics(timeout=_PATIENCE_S).topics.get(name)
        return dict(found.partitions) if found is not None and found.error is None else {}

    def _until_done(self, futures: dict[Any, Any]) -> None:
        for each in futures.values():
            each.result(_PATIENCE_S)

    def _until(self, is_so: Any) -> None:
        until = time.monotonic() + _PATIENCE_S
        while not is_so():
            assert time.monotonic() < until, "the broker did not do what it was asked for"

    def _run(self, *words: str) -> None:
        done = subprocess.run([*self._java(), *words], capture_output=True, text=True, check=False, env=_environment())
        if done.returncode:
            pytest.fail(f"Kafka's {words[0]} failed: {done.stderr.strip()[-800:]}", pytrace=False)

    def _java(self) -> list[str]:
        settings = f"-Dlog4j2.configurationFile={self._directory / 'log4j2.properties'}"
        return [_java_program(), *_MEMORY, settings, "-cp", f"{self._directory / 'lib'}/*"]


def _produce(producer: Producer, topic: str, records: Sequence[Record], partition: int, at_ms: int = 0) -> None:
    for key, value in records:
        text = value if value is None or isinstance(value, str | bytes) else json.dumps(value)
        producer.produce(topic, key=key, value=text, partition=partition, timestamp=at_ms)


def _fetch_jars(to: Path) -> None:
    """Fetch the broker's jars by Spark's own Ivy, which keeps them in its cache."""
    ivy = next((Path(pyspark.__file__).parent / "jars").glob("ivy-*.jar"))
    wanted = ["-dependency", "org.apache.kafka", "kafka_2.13", VERSION, "-confs", "default"]
    words = [_java_program(), *_MEMORY, "-jar", str(ivy), *wanted, "-retrieve", f"{to}/[artifact]-[revision].[ext]"]
    done = subprocess.run(words, capture_output=True, text=True, check=False, cwd=to.parent, env=_environment())
    if done.returncode or not any(to.glob("kafka_2.13-*.jar")):
        said = next((line for line in done.stdout.splitlines() if "not found" in line or "Server access" in line), "")
        pytest.fail(
            f"Kafka's jars could not be fetched from Maven: {said.strip() or done.stderr[-300:]}", pytrace=False
        )


def _java_program() -> str:
    found = java()
    if found is None:
        pytest.fail("java is not found: run `make setup`.", pytrace=False)
    return found


def _environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name not in ("JDK_JAVA_OPTIONS", "CLASSPATH")}


@pytest.fixture(scope="session")
def broker() -> Iterator[Broker]:
    """The one broker of the run; a machine that cannot start it fails here, it does not skip."""
    directory = Path(tempfile.mkdtemp(prefix="mv-kafka-"))
    found = None
    try:
        found = Broker(directory)
        yield found
    finally:
        if found is not None:
            found.kill()
        shutil.rmtree(directory)
