"""CSV and Avro: what a record's bytes stand for, exactly, and that nothing which cannot be one is read."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest

from airflow_mv_provider.exceptions import DefinitionError, EventError, MvError, SourceFileError, SourceNotFoundError
from airflow_mv_provider.sources.declared import declared
from airflow_mv_provider.sources.kafka import debezium, envelope, schema_files
from airflow_mv_provider.sources.kafka.avro import AvroCodec
from airflow_mv_provider.sources.kafka.codec import Codec, TextCodec
from airflow_mv_provider.sources.kafka.codecs import Codecs
from airflow_mv_provider.sources.kafka.model import Kafka
from airflow_mv_provider.sources.kafka.record_keys import KeyDecoder, decoder
from airflow_mv_provider.spark.errors import translated
from tests.engine.protobuf_forms import SHOP, message
from tests.engine.protobuf_forms import codec as codec_of_protobuf
from tests.engine.record_forms import (
    AVRO,
    AVRO_EVENT,
    AVRO_EVENTS,
    AVRO_KEY,
    AVRO_ROW,
    avro,
)

pytestmark = pytest.mark.slow

RECORD = "topic STRING, partition INT, offset BIGINT, timestamp TIMESTAMP, key BINARY, value BINARY"
AT = datetime(2026, 1, 1, tzinfo=UTC)
CSV = "id INT, n DECIMAL(12,2), at DATE, v STRING"
GOOD = {"id": 1, "n": "1.50", "v": "a", "tags": ["x"]}


def records(spark: Any, *pairs: tuple[bytes | None, bytes | None]) -> Any:
    return spark.createDataFrame([("t", 0, n, AT, *pair) for n, pair in enumerate(pairs)], RECORD)


def rows(spark: Any, codec: Codec, *values: bytes | None) -> list[tuple[Any, ...]]:
    """Return the rows of records without keys, in their order."""
    found = envelope.rows_of(records(spark, *((None, value) for value in values)), codec)
    names = [field.name for field in codec.columns.fields]
    with translated("t"):
        return [tuple(row) for row in found.orderBy(envelope.OFFSET).select(*names).collect()]


def csv(spark: Any, ddl: str = CSV, **options: str) -> TextCodec:
    return TextCodec(declared(spark, ddl), "csv", options)


def by_id(spark: Any, value: Codec, key: Codec) -> KeyDecoder:
    """Return how keys become those of a table with the key `id`."""
    return decoder(spark, value.columns, (), ["id"], key)


def avro_of(spark: Any, *fields: tuple[str, Any]) -> tuple[AvroCodec, dict[str, Any]]:
    schema = {"type": "record", "name": "R", "fields": [{"name": name, "type": kind} for name, kind in fields]}
    return AvroCodec.of(spark, json.dumps(schema)), schema


def test_line_of_csv_is_a_row(spark):
    lines = ('1,1.50,2026-01-05,"a, ""quoted"" one"', "2,,,", ' 3,"1,234.5",2026-1-5,ü')
    found = rows(spark, csv(spark, escape='"', ignoreLeadingWhiteSpace="true"), *(line.encode() for line in lines))
    other = rows(spark, csv(spark, sep="|", nullValue="-"), b"4|0.5|2026-01-05|-")

    assert found == [
        (1, Decimal("1.50"), date(2026, 1, 5), 'a, "quoted" one'),
        (2, None, None, None),
        (3, Decimal("1234.50"), date(2026, 1, 5), "ü"),
    ]
    assert other == [(4, Decimal("0.50"), date(2026, 1, 5), None)]


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (b"1,1.50,2026-01-05", "does not fit the schema: 1,1.50,2026-01-05"),
        (b"1,1.50,2026-01-05,a,b", "does not fit the schema: 1,1.50,2026-01-05,a,b"),
        (b"x,1.50,2026-01-05,a", "does not fit the schema: x,1.50"),
        (b"1,1.50,2026,a", "at: expected DATE, found 2026"),
        (b"1,1,2,2026-01-05,a", "does not fit the schema"),
        (b'1,1.50,2026-01-05,"a', "a quoted value is not closed"),
        (b'1,1.50,2026-01-05,"a"b', "a quoted value is not closed, or continues"),
        (b"1,1.50,2026-01-05,a\n2,1.50,2026-01-05,b", "the record has a line break"),
        (b"1,1.50,2026-01-05,\xff", "not UTF-8"),
        (b"", "empty"),
        (None, "empty"),
    ],
)
@pytest.mark.sample(2)
def test_text_that_is_no_record_of_csv_is_named(spark, value, words):
    with pytest.raises(EventError, match=f"t, partition 0, offset 1: .*{words}"):
        rows(spark, csv(spark), b"1,1.50,2026-01-05,a", value)


def test_values_of_avro_are_exact(spark):
    codec, schema = avro_of(
        spark,
        ("i", "int"),
        ("l", ["null", "long"]),
        ("d", "double"),
        ("b", "boolean"),
        ("n", {"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 2}),
        ("on", {"type": "int", "logicalType": "date"}),
        ("at", {"type": "long", "logicalType": "timestamp-micros"}),
        ("ms", {"type": "long", "logicalType": "timestamp-millis"}),
        ("e", {"type": "enum", "name": "E", "symbols": ["A", "B"]}),
        ("f", {"type": "fixed", "name": "F", "size": 2}),
        (
            "in",
            {"type": "record", "name": "In", "fields": [{"name": "s", "type": {"type": "array", "items": "string"}}]},
        ),
    )
    moment = datetime(1500, 2, 3, 4, 5, 6, 789012, tzinfo=UTC)
    whole = datetime(2026, 2, 3, 4, 5, 6, 789000, tzinfo=UTC)
    n = Decimal("-123456789012345678901234567890123456.78")
    given = {"i": -5, "l": 2**62, "d": 0.1, "b": True, "n": n, "on": date(1500, 1, 1), "at": moment, "ms": whole}
    given |= {"e": "B", "f": b"\x00\xff", "in": {"s": ["ü", ""]}}
    nothing = given | {"l": None, "in": {"s": []}}

    found = rows(spark, codec, avro(given, schema), avro(nothing, schema))

    shown = [
        (*row[:6], *(each.replace(tzinfo=UTC) for each in row[6:8]), row[8], bytes(row[9]), row[10].s) for row in found
    ]
    wanted = (-5, 2**62, 0.1, True, n, date(1500, 1, 1), moment, whole, "B", b"\x00\xff")
    assert shown == [(*wanted, ["ü", ""]), (-5, None, *wanted[2:], [])]


ROW = avro(GOOD, AVRO_ROW)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (b"", "not a record of the Avro schema: 0 bytes[.]"),
        (ROW[:-1], "not a record of the Avro schema"),
        (ROW + b"\x00", "not a record of the Avro schema"),
        (b"\xff" * 30, "not a record of the Avro schema: 30 bytes, ffff"),
        (b"\x00\x00\x00\x00\x07" + ROW, "not a record of the Avro schema"),  # Confluent's header
        (avro({"id": 7}, AVRO_KEY), "not a record of the Avro schema: 1 bytes, 0e"),
        (ROW.replace(b"\x02a", b"\x02\xff"), "not UTF-8"),
        (ROW.replace(b"\x02x", b"\x02\xff"), "not UTF-8"),
        (b'{"id": 1}', "not a record of the Avro schema"),
    ],
)
@pytest.mark.sample(2)
def test_bytes_that_are_no_record_of_avro_are_named(spark, value, words):
    with pytest.raises(EventError, match=f"t, partition 0, offset 1: .*{words}"):
        rows(spark, AVRO.codecs(spark)[0], ROW, value)


def test_key_in_another_format_deletes_its_row(spark):
    """Keys are often plain text, whatever the values are."""
    value, key = AVRO.codecs(spark)[0], csv(spark, "id INT")
    second = avro(GOOD | {"id": 2}, AVRO_ROW)
    found = envelope.last_of_keys(
        records(spark, (b"1", ROW), (b"2", second), (b"1", None)), value, by_id(spark, value, key)
    )

    kept = {(row._mv_key.id, row.v, row._mv_gone) for row in found.collect()}

    assert kept == {(1, None, True), (2, "a", False)}


@pytest.mark.parametrize("value", [ROW, None], ids=["brings", "deletes"])
@pytest.mark.parametrize("key", [b"x", b"1,2", b"", b"\xff", None])
@pytest.mark.sample(2)
def test_key_that_cannot_be_decoded_is_named(spark, key, value):
    codec = AVRO.codecs(spark)[0]

    with pytest.raises(EventError, match=r"t, partition 0, offset 0: .* key"), translated("t"):
        envelope.last_of_keys(records(spark, (key, value)), codec, by_id(spark, codec, csv(spark, "id INT"))).collect()


@pytest.mark.parametrize(
    ("event", "words"),
    [
        ({"op": None, "after": GOOD}, "the record has no op"),
        ({"op": "x", "after": GOOD}, "its op is not known: x"),
        ({"op": "u", "after": GOOD, "source": {"lsn": None, "snapshot": None}}, "has no lsn"),
        ({"op": "u", "after": None}, "the record has no row in after"),
    ],
)
@pytest.mark.sample(1)
def test_event_of_avro_that_cannot_be_a_row_is_named(spark, event, words):
    value, key = AVRO_EVENTS.codecs(spark)
    written = AVRO_EVENTS.value({"source": {"lsn": 5, "snapshot": "false"}} | event)
    changes = debezium.changes_of_avro(
        records(spark, (avro({"id": 1}, AVRO_KEY), written)),
        value,
        decoder(spark, debezium.row_of_events(value.columns), (), ["id"], key),
        continues=False,
    )

    with pytest.raises(EventError, match=f"t, partition 0, offset 0: .*{words}"), translated("t"):
        envelope.last_changes(changes, debezium.row_of_events(value.columns)).collect()


KAFKA = {"topic": "t", "conn_id": "k", "envelope": "upsert"}
OF_AVRO = KAFKA | {"format": "avro", "schema_file": "a.avsc", "record_key": {"format": "csv", "schema": "id INT"}}


@pytest.mark.parametrize(
    ("source", "schema", "words"),
    [
        (OF_AVRO, '"string"', "has to be a record"),
        (
            OF_AVRO,
            '{"type": "record", "name": "R", "fields": [{"name": "a", "type": "nothing"}]}',
            "Undefined schema: nothing",
        ),
        (
            OF_AVRO | {"record_key": {"format": "csv", "schema": "id BIGINT"}},
            json.dumps(AVRO_ROW),
            "id as bigint, which is int",
        ),
        (OF_AVRO | {"record_key": {"format": "csv", "schema": "x INT"}}, json.dumps(AVRO_ROW), "not among the values"),
        (
            KAFKA | {"format": "csv", "schema": "id INT, a ARRAY<INT>", "envelope": "none"},
            None,
            "a has a type that a value of csv",
        ),
        (
            OF_AVRO | {"envelope": "debezium", "record_key": {"format": "avro", "schema_file": "k"}},
            json.dumps(AVRO_ROW),
            "none of Debezium's",
        ),
    ],
    ids=lambda each: str(each)[:40] if isinstance(each, str) else None,
)
def test_schema_that_cannot_be_used_is_named(spark, source, schema, words):
    with pytest.raises(DefinitionError, match=words):
        Codecs.of(spark, Kafka(**source), schema, json.dumps(AVRO_KEY), ["id"])


@pytest.mark.in_test_all
def test_rows_of_events_are_those_of_after(spark):
    found = Codecs.of(
        spark,
        Kafka(**(OF_AVRO | {"envelope": "debezium", "record_key": {"format": "avro", "schema_file": "k"}})),
        json.dumps(AVRO_EVENT),
        json.dumps(AVRO_KEY),
        ["id"],
    )

    assert found.columns.names == ["id", "n", "v", "tags"]
    assert isinstance(found.value, AvroCodec)


def test_schema_file_is_kept_in_one_spelling(spark, tmp_path):
    (tmp_path / "a.avsc").write_text(json.dumps(AVRO_KEY, indent=4))
    (tmp_path / "b.avsc").write_text(json.dumps(dict(reversed(AVRO_KEY.items()))))

    first, second = (schema_files.pinned(spark, str(tmp_path / name)) for name in ("a.avsc", "b.avsc"))

    assert first == second
    assert json.loads(first) == AVRO_KEY


@pytest.mark.parametrize(
    ("content", "error", "words"),
    [
        (None, SourceNotFoundError, "does not exist"),
        (b"syntax = 'proto3';", DefinitionError, "not JSON"),
        (b"[" * 100_000, DefinitionError, "not JSON"),
        (b" " * (1 << 20) + b"1", SourceFileError, "bytes, a schema at most"),
        ({"a.avsc": b"{}", "b.avsc": b"{}"}, SourceFileError, "not one file"),
    ],
    ids=["none", "another language", "deep", "large", "a folder"],
)
@pytest.mark.sample(2)
def test_schema_file_that_is_none_is_named(spark, tmp_path, content, error, words):
    place = tmp_path / "schema"
    if isinstance(content, dict):
        place.mkdir()
        for name, data in content.items():
            (place / name).write_bytes(data)
    elif content is not None:
        place.write_bytes(content)

    with pytest.raises(error, match=words) as caught:
        schema_files.pinned(spark, str(place))

    assert isinstance(caught.value, MvError)


@pytest.mark.in_test_all
def test_record_that_cannot_be_decoded_is_marked_where_it_is_to_be_kept(spark):
    """What is no text is shown in hexadecimal."""
    protobuf = message(SHOP, "shop.Order", {"id": 1, "v": "a"})
    found = {}
    for codec, good, bad in (
        (csv(spark), b"1,1.50,2026-01-05,a", b"1,1.50"),
        (AVRO.codecs(spark)[0], ROW, b"\xff" * 3),
        (codec_of_protobuf(SHOP, "shop.Order"), protobuf, b"\xff\xff"),
    ):
        kept = envelope.rows_of(records(spark, (None, bad), (None, good), (None, None)), codec, keeps_bad=True)
        rows = kept.select("id", "_mv_gone", "_mv_bad.*").collect()
        found[bad] = {tuple(row)[:6] for row in rows}
        assert {row.id for row in rows if not row._mv_gone} == {1}

    nothing = (None, True, "t/0", 2, None, "corrupt_record")
    good = (1, False, None, None, None, None)
    assert found == {
        bad: {(None, True, "t/0", 0, shown, "corrupt_record"), good, nothing}
        for bad, shown in ((b"1,1.50", "1,1.50"), (b"\xff" * 3, "0xffffff"), (b"\xff\xff", "0xffff"))
    }
