"""Large values that Debezium leaves out: how each type's is marked, and from which event it is taken, without a broker.

Below a projection, with one: main has them, unless `select` computes with one.
"""

from __future__ import annotations

import json
from base64 import b64decode
from typing import Any

import pytest

from airflow_mv_provider.exceptions import EventIncompleteError
from airflow_mv_provider.sources.kafka import debezium, envelope, replay
from airflow_mv_provider.sources.kafka.avro import AvroCodec
from tests.engine.folding import Log, decoder, folded, kept
from tests.engine.record_forms import AVRO_EVENT, AVRO_EVENTS, AVRO_KEY, JSON, Form, Json, avro
from tests.engine.streaming import shop
from tests.kafka import Record

__all__ = ["shop"]
pytestmark = [pytest.mark.slow, pytest.mark.in_process]

LEFT_OUT = "__debezium_unavailable_value"
SCHEMA = {"schema": "id INT, v STRING, w STRING, x STRING"}


NUMBERS = list(LEFT_OUT.encode())
KINDS: dict[str, tuple[Any, Any, Any]] = {  # of PostgreSQL: a value, what stands for one that is left out, the schema
    "bigints": ([1, 2], NUMBERS, {"type": "array", "items": ["null", "long"]}),
    "bytea": ("AP8=", "X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ==", "bytes"),
    "byteas": (["AP8="], ["X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ=="], {"type": "array", "items": "bytes"}),
    "hstore": ('{"a":"b"}', json.dumps({LEFT_OUT: LEFT_OUT}, separators=(",", ":")), "string"),
    "hstores": ({"a": "b"}, {LEFT_OUT: LEFT_OUT}, {"type": "map", "values": "string"}),
    "ints": ([1, 2], NUMBERS, {"type": "array", "items": "int"}),
    "texts": (["a"], [LEFT_OUT], {"type": "array", "items": "string"}),
    "uuids": (["00112233"], ["b68a35a7-17ad-35b3-af2a-ae46edb4545a"], {"type": "array", "items": "string"}),
}
DDL_OF_KINDS = (
    "id INT, bigints ARRAY<BIGINT>, bytea BINARY, byteas ARRAY<BINARY>, hstore STRING, hstores MAP<STRING,STRING>,"
    " ints ARRAY<INT>, texts ARRAY<STRING>, uuids ARRAY<STRING>"
)
ROW_OF_KINDS = {
    "type": "record",
    "name": "Value",
    "namespace": "shop.public.orders",
    "fields": [{"name": "id", "type": "int"}, *({"name": name, "type": kind[2]} for name, kind in KINDS.items())],
}
EVENT_OF_KINDS = AVRO_EVENT | {
    "fields": [{"name": "before", "type": ["null", ROW_OF_KINDS], "default": None}, *AVRO_EVENT["fields"][1:]]
}


def _of_kinds(value: Any) -> bytes:
    """Return an event in Avro, whose bytes are in base64."""
    after = dict(value["after"])
    after["bytea"], after["byteas"] = b64decode(after["bytea"]), [b64decode(each) for each in after["byteas"]]
    return avro({"before": None} | value | {"after": after}, EVENT_OF_KINDS)


FORMS_OF_KINDS = {
    "json": Json(DDL_OF_KINDS),
    "avro": Form(
        AVRO_EVENTS.key,
        _of_kinds,
        lambda spark: (AvroCodec.of(spark, json.dumps(EVENT_OF_KINDS)), AvroCodec.of(spark, json.dumps(AVRO_KEY))),
    ),
}
GOOD = {"id": 1, "n": "1.50", "v": "a", "tags": ["x"]}


def a_log(*events: tuple[str, int, dict[str, Any]], snapshot: str = "true") -> Log:
    """Return a topic of one partition, with events of op, lsn and row; those with op r are of a snapshot."""
    found = Log(1)
    for op, lsn, after in events:
        source = {"lsn": lsn, "snapshot": snapshot if op == "r" else "false"}
        found.add(json.dumps({"id": after["id"]}), {"op": op, "after": after, "source": source})
    return found


@pytest.mark.parametrize("form", FORMS_OF_KINDS)
def test_value_of_each_type_is_taken_from_an_earlier_event_or_main(spark, form):
    whole = {"id": 1} | {name: kind[0] for name, kind in KINDS.items()}
    log = a_log(("c", 1, whole), ("u", 2, {"id": 1} | {name: kind[1] for name, kind in KINDS.items()}))

    before = kept(spark, folded(spark, log, "debezium", [0], [1], None, FORMS_OF_KINDS[form]))
    from_main = folded(spark, log, "debezium", [1], [2], before, FORMS_OF_KINDS[form])
    from_event = folded(spark, log, "debezium", [0], [2], None, FORMS_OF_KINDS[form])

    assert from_main.collect() == from_event.collect() == before.collect()
    assert before.select("ints", "uuids").collect()[0] == ([1, 2], ["00112233"])


@pytest.mark.parametrize("form", ["json", "avro"])
def test_value_is_taken_from_what_follows_a_snapshot_and_not_from_it(spark, form):
    """A transaction that was open at the snapshot wrote before it and comes after it; so is the order of rows."""
    log = a_log(
        ("c", 50, GOOD | {"v": "oldest"}),
        ("r", 100, GOOD | {"v": "snapshot"}),
        ("u", 90, GOOD | {"v": "newest"}),
        ("u", 110, GOOD | {"v": LEFT_OUT, "n": "2.50"}),
    )

    found = folded(spark, log, "debezium", [0], log.ends, None, {"json": JSON, "avro": AVRO_EVENTS}[form])

    assert [(str(row.n), row.v) for row in found.collect()] == [("2.50", "newest")]


@pytest.mark.parametrize(
    ("events", "rows", "reason"),
    [
        ([("u", 10, GOOD | {"n": "x", "v": "new"}), ("u", 20, GOOD | {"v": LEFT_OUT})], [], "v is not in the event"),
        (
            [
                ("u", 9, GOOD | {"v": "older"}),
                ("u", 10, GOOD | {"n": "x", "v": "new"}),
                ("u", 20, GOOD | {"v": LEFT_OUT}),
            ],
            [],
            "v is not in the event",
        ),
        ([("u", 10, GOOD | {"n": "x", "v": LEFT_OUT}), ("u", 20, GOOD | {"v": LEFT_OUT})], ["main"], None),
        (
            [
                ("u", 10, GOOD | {"n": "x", "v": "new"}),
                ("u", 15, GOOD | {"v": "newer"}),
                ("u", 20, GOOD | {"v": LEFT_OUT}),
            ],
            ["newer"],
            None,
        ),
        ([("u", 10, GOOD | {"n": "x", "v": "new"}), ("u", 20, GOOD | {"v": "newest"})], ["newest"], None),
        ([("u", 10, GOOD), ("u", 20, GOOD | {"n": "x", "v": LEFT_OUT})], [], "does not fit the schema"),
    ],
    ids=["main", "an earlier event", "left out in both", "a later event", "nothing is left out", "the last one is bad"],
)
def test_value_that_a_bad_event_may_have_had_is_not_taken_from_before_it(spark, events, rows, reason):
    main = spark.createDataFrame([(1, None, "main", None)], JSON.codecs(spark)[0].columns)
    log, codec = a_log(*events), JSON.codecs(spark)[0]
    by = decoder(spark, codec.columns, JSON, ["id"])
    changes = debezium.changes_of_json(log.frame(spark), codec, by, continues=True, keeps_bad=True)
    found = envelope.with_keys_of_records(envelope.last_changes(changes, codec.columns), ["id"])

    kept_bad = replay.rejected(found, ["id"]).collect()

    assert [row.v for row in replay.all_rows(found, main, ["id"]).collect()] == rows
    assert [(row.key, row.source_position) for row in kept_bad] == ([] if rows else [('{"id":1}', len(events) - 1)])
    assert reason is None or reason in kept_bad[0].reason


def event(op: str, lsn: int, **row: Any) -> Record:
    source = {"lsn": lsn, "snapshot": "false"}
    return json.dumps({"id": row["id"]}), {"op": op, "after": row, "source": source}


@pytest.mark.in_test_all
@pytest.mark.parametrize(
    ("select", "expected"),
    [
        (["*"], (1, "a", "new", "c")),
        (["id", " v ", "`x`", "upper(w) AS w"], (1, "a", "NEW", "c")),
        (["id", "v", "_offset >= 0 AS w"], (1, "a", True)),
    ],
    ids=["all", "an expression of another", "one is not selected"],
)
@pytest.mark.sample("an expression of another")
def test_value_that_passes_as_it_is_is_mains(shop, select, expected):
    shop.send(event("c", 1, id=1, v="a", w="b", x="c"), partition=0)
    shop.apply("debezium", source=SCHEMA | {"select": select})
    shop.refresh()
    shop.send(event("u", 2, id=1, v=LEFT_OUT, w="new", x=LEFT_OUT), partition=0)

    shop.refresh()

    assert shop.rows == [expected]


@pytest.mark.in_test_all
@pytest.mark.parametrize("text", ["upper(v) AS u", "to_json(struct(*)) AS u"])
def test_value_that_an_expression_computes_with_is_named(shop, text):
    shop.send(event("c", 1, id=1, v="a", w="b", x="c"), partition=0)
    shop.apply("debezium", source=SCHEMA | {"select": ["id", "v", text]})
    shop.refresh()
    before = shop.rows
    shop.send(event("u", 2, id=1, v=LEFT_OUT, w="new", x="c"), partition=0)

    with pytest.raises(EventIncompleteError, match="v is not in the event, and `select` computes with it"):
        shop.refresh()

    assert shop.rows == before
