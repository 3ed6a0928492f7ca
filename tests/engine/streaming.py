"""A topic of a real Kafka, and a table of a lake that follows it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from tests.conftest import Lake
from tests.kafka import Broker, Record

ANY = {"max_deleted_fraction": 1.0, "allow_empty": True}


@dataclass
class Shop:
    """A topic, and a table of a lake that follows it. `rows` is what the topic should have made of the table."""

    lake: Lake
    broker: Broker
    topic: str

    def apply(self, envelope: str = "upsert", **more: Any) -> None:
        source = {"type": "kafka", "topic": self.topic, "conn_id": "shop", "envelope": envelope}
        source |= {"schema": "id INT, v STRING"} | more.pop("source", {})
        self.lake.apply(**({"source": source, "guards": ANY} | more))

    def send(self, *records: Record, **more: Any) -> None:
        self.broker.send(self.topic, *records, **more)

    def refresh(self, **more: Any) -> Any:
        return self.lake.refresh(**more)

    @property
    def rows(self) -> list[tuple[Any, ...]]:
        return self.lake.rows()


@pytest.fixture
def shop(lake: Lake, broker: Broker, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shop]:
    extra = {"bootstrap.servers": broker.address}
    monkeypatch.setenv("AIRFLOW_CONN_SHOP", json.dumps({"conn_type": "kafka", "extra": extra}))
    found = Shop(lake, broker, broker.topic(partitions=2))
    yield found


def row(number: int, value: str | None) -> Record:
    """The record of a row, or of its deletion."""
    return json.dumps({"id": number}), None if value is None else {"id": number, "v": value}


def counts(report: Any) -> tuple[str, int, int, int]:
    return report.strategy, report.rows_inserted, report.rows_updated, report.rows_deleted
