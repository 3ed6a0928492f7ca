"""What a record has that its reader's schema lacks: Avro would drop it, and say nothing."""

from __future__ import annotations

import json
from typing import Any

import pytest

from airflow_mv_provider.exceptions import DefinitionError
from airflow_mv_provider.sources.kafka.avro_schema import check_record, lacking, sealed


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
    assert lacking(json.dumps(writer), json.dumps(reader)) == field


def test_only_some_part_may_be_asked_for():
    writer = record("E", after=["null", A], source=AB | {"name": "S"}, more="int")
    reader = record("E", after=["null", A], source=A | {"name": "S"})

    assert lacking(json.dumps(writer), json.dumps(reader)) == "source.b"
    assert lacking(json.dumps(writer), json.dumps(reader), within="after") is None
    assert lacking(json.dumps(writer), json.dumps(record("E", after=["null", record("R")])), within="after") == "a"


@pytest.mark.parametrize("text", ["{", '{"type": "record"}', '{"fields": []}', "[" * 100_000, json.dumps(A)])
def test_text_that_is_no_schema_is_an_error_and_no_crash(text):
    within = "after" if text == json.dumps(A) else None  # it has no such field

    with pytest.raises(ValueError):
        lacking(text, json.dumps(record("E", after=A)), within)


@pytest.mark.parametrize("schema", ['"string"', "[]", "{}", '{"type": "enum", "name": "E", "symbols": []}', "1"])
def test_schema_of_no_record_is_refused(schema):
    with pytest.raises(DefinitionError, match="has to be a record"):
        check_record(schema)


def test_record_is_sealed_without_another_namespace():
    found = json.loads(sealed(json.dumps(A)))

    assert [field["name"] for field in found["fields"]] == ["row", "end"]
    assert found["fields"][0]["type"] == A
    assert "namespace" not in found
