"""A real Kafka broker on loopback, in a directory of its own: started by the tests, stopped by its own pid."""

from __future__ import annotations

import json
import shutil
import tempfile
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import NewPartitions, NewTopic

from scripts.kafka_server import SILENT, KafkaServer
from scripts.ports import free_port
from scripts.server_error import ServerError
from tests.waiting import wait_until

LOGIN, PASSWORD = "reader", "c4n4ry/p4ss w@rd"  # of the listener that wants one
_PATIENCE_S = 90
_PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
Record = tuple[str | bytes | None, Any]
"""A key and a value; a value that is no text is written as JSON."""


class Broker(KafkaServer):
    """One broker: `address` asks nobody for a login, `login_address` does."""

    def __init__(self, directory: Path) -> None:
        self.login_address = f"127.0.0.1:{free_port()}"
        listeners = {"LOGIN": (self.login_address, "SASL_PLAINTEXT")}
        login = {"listener.name.login.plain.sasl.jaas.config": f'{_PLAIN} user_{LOGIN}="{PASSWORD}";'}
        super().__init__(directory, listeners, **{"sasl.enabled.mechanisms": "PLAIN"} | login)

    # -- what tests do with it --------------------------------------------------------------------------------------

    def topic(self, name: str | None = None, *, partitions: int = 1, **config: str) -> str:
        """Create a topic and return its name."""
        name = name or f"t{uuid.uuid4().hex[:10]}"
        wanted = {each.replace("_", "."): value for each, value in config.items()}
        self._until_done(self.admin.create_topics([NewTopic(name, partitions, 1, config=wanted)]))
        wait_until(lambda: len(self._partitions(name)) == partitions, _PATIENCE_S, f"{name} is there")
        return name

    def drop(self, name: str) -> None:
        self._until_done(self.admin.delete_topics([name]))
        wait_until(lambda: not self._partitions(name), _PATIENCE_S, f"{name} is gone")

    def grow(self, name: str, partitions: int) -> None:
        self._until_done(self.admin.create_partitions([NewPartitions(name, partitions)]))
        wait_until(lambda: len(self._partitions(name)) == partitions, _PATIENCE_S, f"{name} has grown")

    def send(self, topic: str, *records: Record, partition: int = -1, at_ms: int = 0) -> None:
        """Write records; without a partition, by their keys as Kafka does.

        at_ms : their time; now, if 0
        """
        producer = Producer({"bootstrap.servers": self.address, "partitioner": "murmur2_random"} | SILENT)
        _produce(producer, topic, records, partition, at_ms)
        assert producer.flush(_PATIENCE_S) == 0

    def begin(self, topic: str, *records: Record, partition: int = -1) -> Producer:
        """Write records in a transaction and leave it open: `commit_transaction` or `abort_transaction` ends it."""
        producer = Producer({"bootstrap.servers": self.address, "transactional.id": uuid.uuid4().hex} | SILENT)
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


def _produce(producer: Producer, topic: str, records: Sequence[Record], partition: int, at_ms: int = 0) -> None:
    for key, value in records:
        text = value if value is None or isinstance(value, str | bytes) else json.dumps(value)
        producer.produce(topic, key=key, value=text, partition=partition, timestamp=at_ms)


@pytest.fixture(scope="session")
def broker() -> Iterator[Broker]:
    """The one broker of the run; a machine that cannot start it fails here, it does not skip."""
    directory = Path(tempfile.mkdtemp(prefix="mv-kafka-"))
    found = None
    try:
        found = Broker(directory)
        yield found
    except ServerError as error:
        pytest.fail(str(error), pytrace=False)
    finally:
        if found is not None:
            found.kill()
        shutil.rmtree(directory)
