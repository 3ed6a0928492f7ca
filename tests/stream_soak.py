"""Soak two tables that follow PostgreSQL through Debezium's real connector and Kafka, while any part of that is killed.

    make soak-stream                                              100 refreshes
    make soak-stream N=200 RECORD=tests/records/soak-stream.json  and write down how it went

As `make soak`, whose rounds these are; the faults of the way to Kafka come to those of a refresh. The tables are the
outputs of one ingestion: most processes are runs of it, the others refresh one table alone. Before the last run of a
round Kafka has everything; then both mains are compared with PostgreSQL's own rows, and what is committed to the group
with the ends of the topics.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, ClassVar

import yaml
from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException, TopicPartition
from confluent_kafka.admin import OffsetSpec

from airflow_mv_provider.spark.causes.databases import connectors
from scripts.debezium_connector import SETTINGS, Connector
from scripts.kafka_server import KafkaServer
from scripts.postgres_server import PostgresServer
from scripts.shop_database import COLUMNS, SCHEMAS, SELECTS, TABLES, ShopDatabase
from tests import faults
from tests.connect import ConnectServer
from tests.postgres import running_server
from tests.scenarios.points import POINTS
from tests.soak import PATIENCE_S, Soak, soak_and_tell

INGESTION, GROUP = "shop", "mv-shop"
# Where a run of the ingestion dies, beside the points of a refresh, which are those of its first table.
_POINTS_OF_A_RUN = [
    *("bind.before", "bind.after", "acquire.before:2", "staging.after:2", "seal.before:2", "seal.after:2"),
    *("publish.before:2", "publish.after:2", "normal.after:2"),
    *("release.before", "release.after", "released.before", "released.after"),
]


def _definitions() -> str:
    tables = []
    for name in TABLES:
        source = {"type": "output", "of": INGESTION, "output": name, "schema": SCHEMAS[name], "select": SELECTS[name]}
        guards = {"max_deleted_fraction": 1.0, "allow_empty": True}
        tables.append({"name": name, "source": source, "key": [COLUMNS[name][0]], "guards": guards})
    shared = {"type": "kafka", "conn_id": "shop", "envelope": "debezium", "group": GROUP}
    outputs = {name: {"topic": _topic(name)} for name in TABLES}
    return yaml.safe_dump({"ingestions": [{"name": INGESTION, "source": shared, "outputs": outputs}], "tables": tables})


def _topic(table: str) -> str:
    return f"shop.public.{table}"


def connector_killed(soak: StreamSoak, name: str) -> bool:
    """The connector dies while a refresh reads, and sends again what it had not noted."""
    with _beside(soak, name) as process:
        soak.connector.kill()
        soak.change(name, 5)
        soak.connector.start()
    return bool(process.exitcode == faults.DONE)


def broker_killed(soak: StreamSoak, name: str) -> bool:
    """The broker dies while a refresh reads, and is started again."""
    with _beside(soak, name) as process:
        soak.kafka.kill()
        soak.change(name, 5)
        soak.kafka.start()
    return bool(process.exitcode == faults.DONE)


def source_killed(soak: StreamSoak, name: str) -> bool:
    """The PostgreSQL that is followed dies without a checkpoint, beside a refresh."""
    with _beside(soak, name) as process:
        soak.source.kill()
        soak.source.start()
        soak.change(name, 5)
    return bool(process.exitcode == faults.DONE)


def whole_way_killed(soak: StreamSoak, name: str) -> bool:
    """PostgreSQL, connector and broker die at once, beside a refresh."""
    with _beside(soak, name) as process:
        for each in (soak.connector, soak.source, soak.kafka):
            each.kill()
        soak.kafka.start()
        soak.source.start()
        soak.change(name, 5)
        soak.connector.start()
    return bool(process.exitcode == faults.DONE)


@contextmanager
def _beside(soak: StreamSoak, name: str) -> Iterator[Any]:
    """Enter at a random moment of a refresh; a value that half of a repetition leaves out may end it."""
    with faults.at_a_moment(soak, name, {*faults.ENDED, faults.PERSON}) as process:
        yield process
    if process.exitcode == faults.PERSON and "MV-EVENT-INCOMPLETE" not in (said := Path(process.name).read_text()):
        soak.fail(f"refresh {name} wants a person:\n{said[-3000:]}")


_NUM_PARTITIONS = int(SETTINGS["topic.creation.default.partitions"])
_OF_A_REFRESH = ("none", "killed at a moment", "killed at a write", "server killed", "PostgreSQL killed")
_OF_A_REFRESH += ("stopped and overtaken", "cancelled", "interrupted")


class StreamSoak(Soak):
    """A shop's two tables in PostgreSQL, and the two that follow them."""

    definitions: ClassVar[str] = _definitions()
    every_fault: ClassVar[Mapping[str, faults.Weighted]] = {
        **{name: faults.FAULTS[name] for name in _OF_A_REFRESH},
        "connector killed": (15, connector_killed),
        "broker killed": (8, broker_killed),
        "source killed": (8, source_killed),
        "connector, broker and source killed": (4, whole_way_killed),
    }

    def __init__(
        self,
        directory: Path,
        server: ConnectServer,
        postgres: PostgresServer,
        seed: int,
        only: Sequence[str],
        way: tuple[PostgresServer, KafkaServer, Connector, ShopDatabase],
    ) -> None:
        self.source, self.kafka, self.connector, self.shop = way
        super().__init__(directory, server, postgres, seed, only)
        extra = {"bootstrap.servers": self.kafka.address}
        self.surroundings["AIRFLOW_CONN_SHOP"] = json.dumps({"conn_type": "kafka", "extra": extra})

    def together(self, name: str) -> tuple[str, ...]:
        return TABLES

    def command(self, name: str) -> tuple[str, ...]:
        """Return a run of the ingestion, now and then a refresh of one of its tables alone."""
        return ("refresh", name) if self.random.random() < 0.2 else self.last_command(name)

    def last_command(self, name: str) -> tuple[str, ...]:
        return ("ingest", INGESTION)

    def points(self, name: str) -> list[str]:
        return [*POINTS["atomic"], *_POINTS_OF_A_RUN]

    def change(self, name: str, num_rows: int) -> None:
        """Change both tables by some statements."""
        self.summary.changed_rows += num_rows
        self.shop.change(3 * num_rows, may_truncate=True)

    def settle(self) -> None:
        """Wait until Kafka has everything."""
        self.connector.settle()

    def _check(self, name: str) -> None:
        super()._check(name)
        asked = [TopicPartition(_topic(name), partition) for partition in range(_NUM_PARTITIONS)]
        until = time.monotonic() + PATIENCE_S
        while True:
            try:
                released, ended = self._offsets(asked)
                break
            except (TimeoutError, KafkaException):  # a broker that has just been started does not answer yet
                assert time.monotonic() < until
        self._hold(released == ended, f"{name} is released up to {released}, and its topic ends at {ended}")

    def _offsets(self, asked: Sequence[TopicPartition]) -> tuple[dict[int, int], dict[int, int]]:
        """Return, by partition, the offsets that are committed to the group, and the ends of the topic."""
        admin = self.kafka.admin
        committed = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(GROUP, list(asked))])[GROUP]
        ends = admin.list_offsets({each: OffsetSpec.latest() for each in asked})
        return (
            {each.partition: each.offset for each in committed.result(30).topic_partitions},
            {each.partition: found.result(30).offset for each, found in ends.items()},
        )

    def wanted(self, name: str) -> list[tuple[Any, ...]]:
        """Return PostgreSQL's own rows, their values in the order of the columns' names."""
        names = COLUMNS[name]
        places = [names.index(each) for each in sorted(names)]
        return [tuple(row[place] for place in places) for row in self.shop.rows(name).elements()]


@contextmanager
def soaking(
    directory: Path, server: ConnectServer, postgres: PostgresServer, seed: int, only: Sequence[str] = ()
) -> Iterator[StreamSoak]:
    """Start PostgreSQL, Kafka and the connector beside the soak, and end them after it."""
    with ExitStack() as stack:
        source = stack.enter_context(running_server(wal_level="logical"))
        places = [directory / name for name in ("kafka", "connect")]
        for place in places:
            place.mkdir()
        kafka = KafkaServer(places[0])
        stack.callback(kafka.kill)
        shop = ShopDatabase(source.new_database(), seed)
        shop.create(40)
        tables = [f"public.{name}" for name in TABLES]
        connector = Connector(places[1], kafka.address, shop.url, "shop", tables)
        stack.callback(connector.kill)
        connector.settle()
        soak = StreamSoak(directory, server, postgres, seed, only, (source, kafka, connector, shop))
        stack.callback(soak.close)
        yield soak


def main() -> int:
    return soak_and_tell(soaking, StreamSoak, __doc__, jars=list(connectors().values()))
