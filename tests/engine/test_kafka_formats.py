"""Topics in Avro, Protobuf or CSV, followed from a real Kafka; `test_record_formats` has single records."""

from __future__ import annotations

import json
from typing import Any

import pytest

from airflow_mv_provider.exceptions import (
    DefinitionError,
    EventError,
    SourceNotFoundError,
    StreamReloadError,
    UnsafeLocationError,
)
from tests.conftest import Crash
from tests.engine.protobuf_forms import ALL, SHOP, described, message
from tests.engine.record_forms import AVRO_KEY, AVRO_ROW, avro
from tests.engine.streaming import Shop, counts, shop
from tests.kafka import Record

__all__ = ["shop"]
pytestmark = [pytest.mark.slow, pytest.mark.in_process]

AVRO_SOURCE = {
    "format": "avro",
    "schema": None,
    "schema_file": "raw/order.avsc",
    "record_key": {"format": "avro", "schema_file": "raw/key.avsc"},
}


def avro_row(number: int, value: str | None) -> Record:
    row = {"id": number, "n": "1.50", "v": value, "tags": None}
    return avro({"id": number}, AVRO_KEY), None if value is None else avro(row, AVRO_ROW)


def write_schemas(shop: Shop, row: Any = AVRO_ROW) -> None:
    (shop.lake.root / "raw").mkdir(exist_ok=True)
    (shop.lake.root / "raw/order.avsc").write_text(json.dumps(row))
    (shop.lake.root / "raw/key.avsc").write_text(json.dumps(AVRO_KEY))


@pytest.mark.in_test_all
def test_topic_in_avro_is_followed_with_the_schema_that_was_pinned(shop, crash_at):
    """A retry decodes as the first attempt did; a schema that is another one later is a changed definition."""
    write_schemas(shop)
    shop.apply(source=AVRO_SOURCE | {"select": ["id", "v"]})
    shop.send(avro_row(1, "a"), avro_row(2, "b"))
    first = shop.refresh()
    shop.send(avro_row(1, None), avro_row(2, "b2"), avro_row(3, "c"))
    caller = shop.lake.caller("test:same")
    crash_at("staging.after")
    with pytest.raises(Crash):
        shop.refresh(caller=caller)
    other = AVRO_ROW | {"fields": list(reversed(AVRO_ROW["fields"]))}
    write_schemas(shop, other)

    retried = shop.refresh(caller=caller)
    with pytest.raises(StreamReloadError, match="the schema that schema_file names has changed"):
        shop.refresh()
    write_schemas(shop)
    key, value = avro_row(4, "d")
    shop.send((key, value + b"\x00"))
    with pytest.raises(EventError, match="not a record of the Avro schema"):
        shop.refresh()
    shop.send((key, value))
    shop.refresh()

    assert counts(first)[1:] == (2, 0, 0)
    assert counts(retried) == ("incremental", 1, 1, 1)
    assert shop.rows == [(2, "b2"), (3, "c"), (4, "d")]


@pytest.mark.in_test_all
def test_topic_in_protobuf_is_followed(shop):
    """Another message in the same descriptor file is no change of this one's schema; a field of it is one."""
    (shop.lake.root / "raw").mkdir(exist_ok=True)
    file = shop.lake.root / "raw/shop.pb"
    file.write_bytes(described(SHOP))
    of_key = {"format": "protobuf", "schema_file": "raw/shop.pb", "message": "shop.Key"}
    source = {"format": "protobuf", "schema": None, "schema_file": "raw/shop.pb", "message": "shop.Order"}
    shop.apply(source=source | {"record_key": of_key, "select": ["id", "v"]})

    def record(number: int, value: str | None, more: bytes = b"") -> Record:
        row = message(SHOP, "shop.Order", {"id": number, "v": value}) + more
        return message(SHOP, "shop.Key", {"id": number}), None if value is None else row

    shop.send(record(1, "a"), record(2, "b"))
    first = shop.refresh()
    file.write_bytes(described(SHOP, ALL))
    shop.send(record(1, None), record(2, "b2"), record(3, "c"))
    second = shop.refresh()
    shop.send(record(4, "d", b"\x48\x01"))
    with pytest.raises(EventError, match="Order has no field 9"):
        shop.refresh()
    file.write_bytes(described(SHOP.replace('name: "v"', 'name: "w"')))
    with pytest.raises(DefinitionError):
        shop.refresh()
    file.write_bytes(described(SHOP.replace("number: 3", "number: 9")))
    with pytest.raises(StreamReloadError, match="the schema that schema_file names has changed"):
        shop.refresh()

    assert counts(first)[1:] == (2, 0, 0)
    assert counts(second) == ("incremental", 1, 1, 1)
    assert shop.rows == [(2, "b2"), (3, "c")]
    assert shop.lake.workspaces() == []


@pytest.mark.in_test_all
def test_topic_in_csv_is_followed(shop):
    key = {"format": "csv", "schema": "id INT"}
    shop.apply(source={"format": "csv", "options": {"sep": ";", "nullValue": "-"}, "record_key": key})
    shop.send(("1", "1;a"), ("2", "2;-"), ("3", '3;"c;c"'))
    shop.refresh()
    shop.send(("1", None), ("2", "2;b"))
    second = shop.refresh()
    shop.send(("4", "4;d;e"))
    with pytest.raises(EventError, match="does not fit the schema: 4;d;e"):
        shop.refresh()

    assert counts(second) == ("incremental", 0, 1, 1)
    assert shop.rows == [(2, "b"), (3, "c;c")]


@pytest.mark.in_test_all
def test_schema_file_is_confined_and_has_to_be_there(shop):
    with pytest.raises(UnsafeLocationError):
        shop.apply(source=AVRO_SOURCE | {"schema_file": "/etc/hostname"})
    with pytest.raises(UnsafeLocationError, match="share a directory"):
        shop.apply(source=AVRO_SOURCE | {"schema_file": "orders/order.avsc"})
    shop.apply(source=AVRO_SOURCE)
    with pytest.raises(SourceNotFoundError, match=r"order\.avsc does not exist"):
        shop.refresh()

    assert shop.lake.workspaces() == []
