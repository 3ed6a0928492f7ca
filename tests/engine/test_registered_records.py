"""Records with the header of a schema registry: each is decoded with the schema that it was written with."""

from __future__ import annotations

import json
from typing import Any

import pytest

from airflow_mv_provider.exceptions import EventError, EventSchemaError
from airflow_mv_provider.sources.kafka import debezium, envelope
from airflow_mv_provider.sources.kafka.avro import AvroCodec
from airflow_mv_provider.sources.kafka.record_keys import KeyDecoder, decoder
from airflow_mv_provider.sources.kafka.registered import RegisteredCodec, ids_in, schema_id
from airflow_mv_provider.spark.errors import translated
from tests.engine.record_forms import AVRO_EVENT, AVRO_KEY, AVRO_ROW, avro
from tests.engine.test_record_formats import GOOD, records

pytestmark = pytest.mark.slow

KEY = json.dumps(AVRO_KEY)
FIELDS = AVRO_ROW["fields"]
OLD = AVRO_ROW | {"fields": [{"name": "v", "type": "string"}, {"name": "id", "type": "int"}, FIELDS[1]]}  # no tags yet
MORE = AVRO_ROW | {"fields": [*FIELDS, {"name": "colour", "type": "string"}]}
FINER = AVRO_ROW | {"fields": [FIELDS[0], FIELDS[1] | {"type": FIELDS[1]["type"] | {"scale": 4}}, *FIELDS[2:]]}
WRITERS = {
    1: json.dumps(OLD),
    2: json.dumps(AVRO_ROW),
    3: json.dumps(MORE),
    4: None,
    5: json.dumps(FINER),
    9: KEY,
    8: "no json",
}


def headed(number: int, data: bytes) -> bytes:
    return b"\x00" + number.to_bytes(4, "big") + data


def codec(spark: Any) -> RegisteredCodec:
    return RegisteredCodec(AvroCodec.of(spark, json.dumps(AVRO_ROW))).reading(WRITERS)


def keyed(spark: Any, key: RegisteredCodec) -> KeyDecoder:
    return decoder(spark, codec(spark).columns, (), ["id"], key)


def key_codec(spark: Any) -> RegisteredCodec:
    return RegisteredCodec(AvroCodec.of(spark, KEY)).reading(WRITERS)


OLD_ROW = headed(1, avro({"id": 1, "n": "1.50", "v": "old"}, OLD))
NEW_ROW = headed(2, avro(GOOD | {"id": 2}, AVRO_ROW))


def test_each_record_is_read_with_the_schema_that_wrote_it(spark):
    found = envelope.rows_of(records(spark, (None, OLD_ROW), (None, NEW_ROW)), codec(spark))

    rows = {(row.id, str(row.n), row.v, row.tags and tuple(row.tags)) for row in found.collect()}

    assert rows == {(1, "1.50", "old", None), (2, "1.50", "a", ("x",))}


@pytest.mark.in_test_all
@pytest.mark.parametrize(
    ("value", "error", "words"),
    [
        (avro(GOOD, AVRO_ROW), EventError, "the record has no header of a schema registry"),
        (b"\x00\x00\x00\x02", EventError, "the record has no header of a schema registry: 4 bytes, 00000002"),
        (headed(7, b"x"), EventSchemaError, "the registry has no Avro schema 7"),
        (headed(4, b"x"), EventSchemaError, "the registry has no Avro schema 4"),
        (headed(2**32 - 1, b"x"), EventSchemaError, "no Avro schema 4294967295"),
        (headed(3, avro(GOOD | {"colour": "red"}, MORE)), EventSchemaError, "schema 3 has the field colour, which"),
        (
            headed(5, avro(GOOD | {"n": "1.5000"}, FINER)),
            EventSchemaError,
            r"schema 5 has n as decimal\(12,4\), which schema_file has as decimal\(12,2\)",
        ),
        (headed(8, b"x"), EventSchemaError, "schema 8 cannot be read"),
        (headed(2, avro(GOOD, AVRO_ROW)[:-1]), EventError, "not a record of its Avro schema"),
        (headed(2, avro(GOOD, AVRO_ROW) + b"\x00"), EventError, "not a record of its Avro schema"),
        (headed(9, avro({"id": 1}, AVRO_KEY)), EventError, "not a record of its Avro schema"),
        (headed(2, avro(GOOD, AVRO_ROW).replace(b"\x02a", b"\x02\xff")), EventError, "not UTF-8"),
    ],
)
@pytest.mark.sample(2)
def test_record_whose_schema_is_not_its_own_is_named(spark, value, error, words):
    frame = records(spark, (None, NEW_ROW), (None, value))

    with pytest.raises(error, match=f"t, partition 0, offset 1: .*{words}") as caught, translated("t"):
        envelope.rows_of(frame, codec(spark)).collect()

    assert type(caught.value) is error


@pytest.mark.in_test_all
def test_key_is_the_same_whatever_its_schemas_id_is(spark):
    """The id changes when a schema is registered again, with another documentation for example."""
    writers = WRITERS | {10: json.dumps(AVRO_KEY | {"doc": "the key"})}
    key, one = key_codec(spark).reading(writers), avro({"id": 1}, AVRO_KEY)
    frame = records(
        spark, (headed(9, one), OLD_ROW), (headed(9, avro({"id": 2}, AVRO_KEY)), NEW_ROW), (headed(10, one), None)
    )

    rows = {
        (row._mv_key.id, row._mv_gone)
        for row in envelope.last_of_keys(frame, codec(spark), keyed(spark, key)).collect()
    }

    assert rows == {(1, True), (2, False)}


@pytest.mark.in_test_all
def test_only_the_row_of_an_event_may_not_have_more(spark):
    """Debezium adds fields to `source` with its versions."""
    of_source = AVRO_EVENT["fields"][2]["type"]
    newer = json.loads(json.dumps(AVRO_EVENT))
    newer["fields"][2]["type"]["fields"] = [*of_source["fields"], {"name": "ts_ns", "type": "long"}]
    other = json.loads(json.dumps(AVRO_EVENT))
    other["fields"][0]["type"][1]["fields"].append({"name": "colour", "type": "string"})
    writers = {1: json.dumps(newer), 2: json.dumps(other), 9: KEY}
    value = RegisteredCodec(AvroCodec.of(spark, json.dumps(AVRO_EVENT)), "after").reading(writers)
    key = RegisteredCodec(AvroCodec.of(spark, KEY)).reading(writers)
    event = {"before": None, "after": GOOD, "op": "c", "source": {"lsn": 5, "snapshot": "false", "ts_ns": 1}}
    one = headed(9, avro({"id": 1}, AVRO_KEY))

    def rows(data: bytes) -> list[tuple[Any, ...]]:
        changes = debezium.changes_of_avro(records(spark, (one, data)), value, keyed(spark, key), continues=False)
        with translated("t"):
            return [
                (row.id, row.v)
                for row in envelope.last_changes(changes, debezium.row_of_events(value.columns)).collect()
            ]

    assert rows(headed(1, avro(event, newer))) == [(1, "a")]
    with pytest.raises(EventSchemaError, match=r"schema 2 has the field colour"):
        rows(headed(2, avro(event | {"after": GOOD | {"colour": "red"}}, other)))


@pytest.mark.in_test_all
def test_ids_are_found_in_values_and_keys(spark):
    frame = records(
        spark, (headed(9, b""), OLD_ROW), (headed(9, b""), NEW_ROW), (b"plain", None), (None, b"\x01\x00\x00\x00\x05")
    )

    assert ids_in(frame, ["value", "key"]) == [1, 2, 9]
    assert ids_in(frame, ["value"]) == [1, 2]
    many = spark.range(200).selectExpr("unhex(concat('00', lpad(hex(id), 8, '0'))) AS value")
    assert many.select(schema_id(many.value).alias("n")).agg({"n": "max"}).collect()[0][0] == 199
    with pytest.raises(EventSchemaError, match="more than 100 schemas"):
        ids_in(many, ["value"])
