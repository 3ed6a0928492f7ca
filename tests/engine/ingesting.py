"""Two tables of one ingestion, from a real Kafka or a real PostgreSQL, and runs that refresh both."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

import psycopg

from airflow_mv_provider.core.state import Caller
from airflow_mv_provider.definition_file import parse
from tests.conftest import Lake
from tests.kafka import Broker, Record

ANY = "guards: {max_deleted_fraction: 1.0, allow_empty: true}"


@dataclass
class Group:
    """Tables of one ingestion, called `shop`."""

    lake: Lake
    names: tuple[str, ...] = ("ones", "twos")

    def apply(self, text: str) -> None:
        for definition in parse(text):
            self.lake.refresher().apply(definition)

    def ingest(self, caller: Caller | None = None) -> Any:
        return self.lake.refresher().ingest("shop", caller or self.lake.caller())

    def rows(self, name: str) -> list[tuple[Any, ...]]:
        return self.lake.rows(name)

    def results(self, report: Any) -> dict[str, tuple[str | None, str | None]]:
        """What became of each table: its outcome if it is in the state of the run, and the code of its error."""
        return {
            each.table: (each.outcome if each.is_in_state else None, each.error.code if each.error else None)
            for each in report.tables
        }

    def phases(self) -> set[str]:
        return {self.lake.phase(name) for name in self.names}

    def let_leases_expire(self) -> None:
        self.lake.clock.pass_ms(self.lake.settings.lease_ms + 1)


@dataclass
class Topics(Group):
    """Two topics, one for each table, and a consumer group that nobody else uses."""

    broker: Broker | None = None
    topics: dict[str, str] = field(default_factory=dict)
    group: str = ""

    @classmethod
    def of(cls, lake: Lake, broker: Broker, monkeypatch: Any) -> Topics:
        extra = {"bootstrap.servers": broker.address}
        monkeypatch.setenv("AIRFLOW_CONN_SHOP", json.dumps({"conn_type": "kafka", "extra": extra}))
        topics = {name: broker.topic() for name in ("ones", "twos")}
        found = cls(lake, broker=broker, topics=topics, group=f"mv-{topics['ones']}")
        found.register()
        return found

    def register(self, group: str | None = None, more: str = "") -> None:
        outputs = "\n".join(f"      {name}: {{topic: {topic}}}" for name, topic in self.topics.items())
        tables = "\n".join(
            f"  - name: {name}\n    {ANY}\n    key: [id]\n    source:\n"
            f"      {{type: output, of: shop, output: {name}, schema: 'id INT, v STRING'{more}}}"
            for name in self.topics
        )
        source = f"{{type: kafka, conn_id: shop, envelope: upsert, group: {group or self.group}}}"
        self.apply(f"ingestions:\n  - name: shop\n    source: {source}\n    outputs:\n{outputs}\ntables:\n{tables}\n")

    def send(self, name: str, *records: Record) -> None:
        assert self.broker is not None
        self.broker.send(self.topics[name], *records)

    def committed(self, group: str | None = None) -> dict[str, int]:
        """The offsets in the consumer group, by table; none for a topic without any."""
        from confluent_kafka import ConsumerGroupTopicPartitions

        assert self.broker is not None
        asked = [ConsumerGroupTopicPartitions(group or self.group)]
        (answer,) = self.broker.admin.list_consumer_group_offsets(asked).values()
        at = {each.topic: each.offset for each in answer.result(30).topic_partitions}
        return {name: at[topic] for name, topic in self.topics.items() if topic in at}


@dataclass
class Database(Group):
    """Two tables of a database, which writers change together: both always have the same numbers."""

    address: str = ""

    def register(self, more: str = "") -> None:
        outputs = "\n".join(f"      {name}: {{table: public.{name}}}" for name in self.names)
        tables = "\n".join(
            f"  - name: {name}\n    {ANY}\n    key: [id]\n    source: {{type: output, of: shop, output: {name}{more}}}"
            for name in self.names
        )
        source = "{type: jdbc, conn_id: shop}"
        self.apply(f"ingestions:\n  - name: shop\n    source: {source}\n    outputs:\n{outputs}\ntables:\n{tables}\n")

    def run(self, *statements: str) -> list[tuple[Any, ...]]:
        """Run statements in one transaction; return the rows of the last."""
        with psycopg.connect(self.address) as connection:
            for each in statements:
                found = connection.execute(each)  # type: ignore[arg-type]
            return found.fetchall() if found.pgresult and found.pgresult.nfields else []

    def add(self, *numbers: int) -> None:
        """Write rows into both tables, in one transaction."""
        self.run(*(f"INSERT INTO {name} VALUES ({n}, 'v{n}')" for n in numbers for name in self.names))
