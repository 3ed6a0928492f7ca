"""What a reader's schema loses of a record: Avro would drop it, or read it as another value, and say nothing."""

from __future__ import annotations

import json
from typing import Any

import pytest

from airflow_mv_provider.exceptions import DefinitionError
from airflow_mv_provider.sources.kafka.avro_schema import check_record, lost, sealed


def record(name: str, **fields: Any) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [{"name": each, "type": kind} for each, kind in fields.items()]}


A, AB = record("R", a="int"), record("R", a="int", b="string")
NODE = record("Node", v="int", next=["null", "Node"])
RENAMED = {"type": "record", "name": "R", "fields": [{"name": "x", "aliases": ["a"], "type": "int"}]}


@pytest.mark.parametrize(
    ("writer", "reader", "field"),
    [
        (A, A, None),
        (A, AB, None),  # b has to have a default, which Avro itself checks
        (AB, A, "b"),
        (A, RENAMED, None),
        (record("R", i=AB), record("R", i=A), "i.b"),
        (record("R", i={"type": AB}), record("R", i=A), "i.b"),
        (record("R", i={"type": "array", "items": AB}), record("R", i={"type": "array", "items": A}), "i.b"),
        (record("R", i={"type": "map", "values": AB}), record("R", i={"type": "map", "values": A}), "i.b"),
        (record("R", i=["null", AB]), record("R", i=["null", A]), "i.b"),
        (record("R", i=AB), record("R", i=["null", A]), "i.b"),
        (record("R", i=["null", AB]), record("R", i=A), "i.b"),
        (record("R", i=["null", A]), record("R", i=["null", AB]), None),
        (record("S", i=AB, j="R"), record("S", i=AB, j="n.R"), None),
        (record("S", i=AB, j="R"), record("S", i=AB, j=A | {"name": "R2"}), "j.b"),
        (record("S", j=["null", record("X", c="int"), AB]), record("S", j=["null", record("X", c="int"), A]), "j.b"),
        (NODE, NODE, None),
        (record("Node", v="int", w="int", next=["null", "Node"]), NODE, "w"),
        ("string", "string", None),
    ],
)
def test_field_that_the_reader_lacks_is_found(writer, reader, field):
    expected = None if field is None else f"the field {field}, which schema_file lacks"
    assert lost(json.dumps(writer), json.dumps(reader)) == expected


def decimal(precision: int, scale: int, **more: Any) -> dict[str, Any]:
    return {"type": "bytes", "logicalType": "decimal", "precision": precision, "scale": scale} | more


def logical(kind: str, name: str) -> dict[str, Any]:
    return {"type": kind, "logicalType": name}


def of_debezium(name: str) -> dict[str, Any]:
    return {"type": "long", "connect.version": 1, "connect.name": f"io.debezium.time.{name}"}


def symbols(*names: str) -> dict[str, Any]:
    return {"type": "enum", "name": "E", "symbols": names, "default": names[0]}


@pytest.mark.parametrize(
    ("written", "read", "words"),
    [
        (decimal(10, 2), decimal(12, 2), None),
        (decimal(10, 4), decimal(10, 2), "v as decimal(10,4), which schema_file has as decimal(10,2)"),
        (decimal(12, 2), decimal(10, 2), "v as decimal(12,2), which schema_file has as decimal(10,2)"),
        (decimal(10, 2), "bytes", "v as decimal(10,2), which schema_file has as bytes"),
        (decimal(10, 2), "string", "v as decimal(10,2), which schema_file has as string"),
        (decimal(9, 2, type="fixed", name="F", size=4), decimal(9, 1, type="fixed", name="F", size=4), "v as decimal"),
        (logical("long", "timestamp-millis"), logical("long", "timestamp-micros"), "v as timestamp-millis, which"),
        (logical("long", "timestamp-millis"), "long", "v as timestamp-millis, which schema_file has as long"),
        (logical("int", "date"), logical("long", "timestamp-millis"), "v as date, which"),
        (of_debezium("Timestamp"), of_debezium("MicroTimestamp"), "v as io.debezium.time.Timestamp, which"),
        (of_debezium("Timestamp"), "long", None),
        (logical("string", "uuid"), {"type": "string", "avro.java.string": "String"}, None),
        ("int", "long", None),
        ("int", "double", None),
        ("float", "double", None),
        ("string", "bytes", None),
        ("int", "float", "v as int, which schema_file has as float"),
        ("long", "float", "v as long, which schema_file has as float"),
        ("long", {"type": "double"}, "v as long, which schema_file has as double"),
        ("long", "int", None),  # no record can be read, which Avro itself finds
        (symbols("A", "B"), symbols("B", "A", "C"), None),
        (symbols("A", "B"), symbols("A"), "the symbol B of v, which schema_file lacks"),
        (symbols("A", "B"), "string", None),  # as from long to int
    ],
)
@pytest.mark.parametrize("around", ["alone", "union", "into a union", "array", "map", "named"])
def test_value_that_is_read_as_another_one_is_found(written, read, words, around):
    forms: dict[str, Any] = {
        "alone": (written, read),
        "union": (["null", written], ["null", read]),
        "into a union": (written, ["null", read]),
        "array": ({"type": "array", "items": written}, {"type": "array", "items": read}),
        "map": ({"type": "map", "values": ["null", written]}, {"type": "map", "values": ["null", read]}),
        "named": (["null", {"type": written}], [{"type": read}, "null"]),
    }
    writer, reader = (record("R", v=kind) for kind in forms[around])

    found = lost(json.dumps(writer), json.dumps(reader))

    assert found is None if words is None else words in str(found)


def test_only_some_part_may_be_asked_for():
    writer = record("E", after=["null", A], source=AB | {"name": "S"}, more="int")
    reader = record("E", after=["null", A], source=A | {"name": "S"})

    assert lost(json.dumps(writer), json.dumps(reader)) == "the field source.b, which schema_file lacks"
    assert lost(json.dumps(writer), json.dumps(reader), within="after") is None
    without = json.dumps(record("E", after=["null", record("R")]))
    assert lost(json.dumps(writer), without, within="after") == "the field a, which schema_file lacks"


@pytest.mark.parametrize("text", ["{", '{"type": "record"}', '{"fields": []}', "[" * 100_000, json.dumps(A)])
def test_text_that_is_no_schema_is_an_error_and_no_crash(text):
    within = "after" if text == json.dumps(A) else None  # it has no such field

    with pytest.raises(ValueError):
        lost(text, json.dumps(record("E", after=A)), within)


@pytest.mark.parametrize("schema", ['"string"', "[]", "{}", '{"type": "enum", "name": "E", "symbols": []}', "1"])
def test_schema_of_no_record_is_refused(schema):
    with pytest.raises(DefinitionError, match="has to be a record"):
        check_record(schema)


def test_record_is_sealed_without_another_namespace():
    found = json.loads(sealed(json.dumps(A)))

    assert [field["name"] for field in found["fields"]] == ["row", "end"]
    assert found["fields"][0]["type"] == A
    assert "namespace" not in found
