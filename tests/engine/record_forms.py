"""Records of one shop in each format, written by a library that is not Spark's: fastavro."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import fastavro

from airflow_mv_provider.sources.declared import declared
from airflow_mv_provider.sources.kafka.avro import AvroCodec
from airflow_mv_provider.sources.kafka.codec import Codec, TextCodec

DDL = "id INT, n DECIMAL(12,2), v STRING, tags ARRAY<STRING>"
AVRO_ROW: dict[str, Any] = {
    "type": "record",
    "name": "Value",
    "namespace": "shop.public.orders",
    "fields": [
        {"name": "id", "type": "int"},
        {"name": "n", "type": {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 2}},
        {"name": "v", "type": ["null", "string"], "default": None},
        {"name": "tags", "type": ["null", {"type": "array", "items": "string"}], "default": None},
    ],
}
AVRO_KEY = {"type": "record", "name": "Key", "fields": [{"name": "id", "type": "int"}]}
_OF_SOURCE = {
    "type": "record",
    "name": "Source",
    "namespace": "io.debezium.connector.postgresql",
    "fields": [
        {"name": "snapshot", "type": ["null", "string"], "default": None},
        {"name": "lsn", "type": ["null", "long"], "default": None},
    ],
}
AVRO_EVENT = {  # as Debezium's converter registers it, but for fields that nobody reads
    "type": "record",
    "name": "Envelope",
    "namespace": "shop.public.orders",
    "fields": [
        {"name": "before", "type": ["null", AVRO_ROW], "default": None},
        {"name": "after", "type": ["null", "Value"], "default": None},
        {"name": "source", "type": _OF_SOURCE},
        {"name": "op", "type": ["null", "string"], "default": None},
    ],
}


def avro(value: Mapping[str, Any], schema: Any) -> bytes:
    """Return a record in Avro; a text that stands for a decimal is one there."""
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(json.loads(json.dumps(schema))), _with_decimals(value))
    return out.getvalue()


def _with_decimals(value: Any) -> Any:
    if not isinstance(value, Mapping):
        return value
    return {name: Decimal(each) if name == "n" else _with_decimals(each) for name, each in value.items()}


@dataclass(frozen=True)
class Form:
    """A format: how the JSON of a key or a value is written in it, and read by the package."""

    key: Callable[[Any], bytes]
    value: Callable[[Any], bytes]
    codecs: Callable[[Any], tuple[Codec, Codec]]

    def key_of(self, text: str | None) -> bytes | None:
        return None if text is None else self.key(_unwrapped(json.loads(text)))

    def value_of(self, text: str | None) -> bytes | None:
        return None if text is None else self.value(_unwrapped(json.loads(text)))


@dataclass(frozen=True)
class Json:
    """Keys and values as they are, right or wrong."""

    ddl: str = DDL

    def key_of(self, text: str | None) -> bytes | None:
        return None if text is None else text.encode()

    value_of = key_of

    def codecs(self, spark: Any) -> tuple[Codec, Codec]:
        codec = TextCodec(declared(spark, self.ddl))
        return codec, codec


def _unwrapped(found: Any) -> Any:
    return found.get("payload", found)


def _of_avro(value: Any) -> Callable[[Any], tuple[Codec, Codec]]:
    return lambda spark: (AvroCodec.of(spark, json.dumps(value)), AvroCodec.of(spark, json.dumps(AVRO_KEY)))


JSON = Json()
AVRO = Form(lambda key: avro(key, AVRO_KEY), lambda value: avro(value, AVRO_ROW), _of_avro(AVRO_ROW))
AVRO_EVENTS = Form(AVRO.key, lambda value: avro({"before": None} | value, AVRO_EVENT), _of_avro(AVRO_EVENT))
