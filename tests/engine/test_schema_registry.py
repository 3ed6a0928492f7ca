"""A topic whose records name their schemas: a real registry, a real broker, and the producer's own serializer."""

from __future__ import annotations

import json
import logging
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from airflow_mv_provider.core.secret import every_spelling
from airflow_mv_provider.exceptions import EventSchemaError, SourceUnavailableError
from tests.conftest import Crash, Lake
from tests.engine.record_forms import AVRO_KEY, AVRO_ROW
from tests.kafka import Broker, Record
from tests.registry import Registry, registry

__all__ = ["registry"]
pytestmark = [pytest.mark.slow, pytest.mark.in_process, pytest.mark.in_test_all]
SECRET = "c4n4ry/p4ss w@rd"
FIELDS = AVRO_ROW["fields"]
OLD = AVRO_ROW | {"fields": FIELDS[:3]}
MORE = AVRO_ROW | {"fields": [*FIELDS, {"name": "colour", "type": "string", "default": "none"}]}
SOURCE = {
    "type": "kafka",
    "conn_id": "shop",
    "envelope": "upsert",
    "format": "avro",
    "registry": True,
    "schema_file": "raw/order.avsc",
    "record_key": {"format": "avro", "schema_file": "raw/key.avsc"},
    "select": ["id", "v", "tags"],
}


@dataclass
class Shop:
    lake: Lake
    broker: Broker
    topic: str
    client: SchemaRegistryClient

    def send(self, *rows: tuple[int, str | None], schema: Any = AVRO_ROW) -> None:
        """Write rows as a producer does; None deletes."""
        self.broker.send(self.topic, *(self.record(number, value, schema) for number, value in rows))

    def record(self, number: int, value: str | None, schema: Any = AVRO_ROW) -> Record:
        row = {"id": number, "n": Decimal("1.50"), "v": value, "tags": ["x"], "colour": "red"}
        known = {field["name"] for field in schema["fields"]}
        return self._written({"id": number}, AVRO_KEY, MessageField.KEY), None if value is None else self._written(
            {name: each for name, each in row.items() if name in known}, schema, MessageField.VALUE
        )

    def _written(self, value: Any, schema: Any, field: str) -> bytes | None:
        settings = {"auto.register.schemas": True}
        serializer = AvroSerializer(self.client, json.dumps(schema), conf=settings)
        return serializer(value, SerializationContext(self.topic, field))


@pytest.fixture
def shop(lake: Lake, broker: Broker, registry: Registry, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shop]:
    login = {"schema.registry.basic.auth.user.info": f"me:{SECRET}"}  # which this registry does not ask for
    extra = {"bootstrap.servers": broker.address, "schema.registry.url": registry.url} | login
    monkeypatch.setenv("AIRFLOW_CONN_SHOP", json.dumps({"conn_type": "kafka", "extra": extra}))
    (lake.root / "raw").mkdir()
    (lake.root / "raw/order.avsc").write_text(json.dumps(AVRO_ROW))
    (lake.root / "raw/key.avsc").write_text(json.dumps(AVRO_KEY))
    with SchemaRegistryClient({"url": registry.url}) as client:
        found = Shop(lake, broker, broker.topic(partitions=2), client)
        lake.apply(source=SOURCE | {"topic": found.topic}, guards={"max_deleted_fraction": 1.0, "allow_empty": True})
        yield found


def test_schemas_change_and_rows_stay_in_order(shop, registry, crash_at):
    """Old and new records, a registry that is away, a refresh that is killed, and a field that rows do not have."""
    shop.send((1, "a"), (2, "b"), schema=OLD)
    shop.send((3, "c"))
    shop.lake.refresh()
    assert shop.lake.rows() == [(1, None, "a"), (2, None, "b"), (3, ("x",), "c")]

    shop.send((1, None), (2, "b2"))
    shop.send((4, "d"), schema=OLD)
    registry.kill()
    try:
        with pytest.raises(SourceUnavailableError, match="the schema registry http"):
            shop.lake.refresh()
    finally:
        registry.start()
    with pytest.raises(EventSchemaError, match=r"the registry has no Avro schema \d+"):
        shop.lake.refresh()  # it keeps its schemas in memory, and has forgotten them
    assert shop.lake.rows() == [(1, None, "a"), (2, None, "b"), (3, ("x",), "c")]

    with SchemaRegistryClient({"url": registry.url}) as shop.client:  # the other one would remember them
        for schema in (AVRO_KEY, OLD, AVRO_ROW):  # in the order of their first use, so with the same ids
            shop.record(0, "again", schema) if schema is not AVRO_KEY else shop.record(0, None)
        crash_at("staging.after")
        with pytest.raises(Crash):
            shop.lake.refresh()
        shop.lake.clock.pass_ms(shop.lake.settings.lease_ms + 1)
        report = shop.lake.refresh()
        assert (report.rows_inserted, report.rows_updated, report.rows_deleted) == (1, 1, 1)
        assert shop.lake.rows() == [(2, ("x",), "b2"), (3, ("x",), "c"), (4, None, "d")]

        shop.send((5, "e"), schema=MORE)
        with pytest.raises(EventSchemaError, match=r"has the field colour, which schema_file lacks"):
            shop.lake.refresh()
        shop.send((5, "e"))
        shop.lake.refresh()
    assert shop.lake.rows() == [(2, ("x",), "b2"), (3, ("x",), "c"), (4, None, "d"), (5, ("x",), "e")]


def test_login_of_the_registry_is_shown_nowhere(shop, caplog, capfd):
    caplog.set_level(logging.INFO, logger="py4j")
    caplog.set_level(logging.DEBUG)
    shop.send((1, "a"))
    report = shop.lake.refresh()
    shop.send((1, "b"), schema=MORE)
    with pytest.raises(EventSchemaError) as caught:
        shop.lake.refresh()

    said = [caplog.text, *capfd.readouterr(), str(report.to_json()), "".join(traceback.format_exception(caught.value))]
    said += [file.read_bytes().decode("latin-1") for file in shop.lake.root.parent.rglob("*") if file.is_file()]
    for secret in every_spelling([SECRET, f"me:{SECRET}"]):
        assert not [text for text in said if secret in text]
    assert shop.lake.rows() == [(1, ("x",), "a")]
