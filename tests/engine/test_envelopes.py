"""Envelopes over DataFrames: any cut of a topic gives the same rows, and a record that cannot be one is named."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import pytest
from pyspark.sql import DataFrame

from airflow_mv_provider.exceptions import EventError, EventIncompleteError, StreamRestartedError
from airflow_mv_provider.sources.declared import declared
from airflow_mv_provider.sources.kafka import envelope
from airflow_mv_provider.sources.kafka.avro import AvroCodec
from airflow_mv_provider.sources.kafka.replay import Cut
from airflow_mv_provider.spark.errors import translated
from tests.engine.folding import Log, cuts, folded, in_order, kept
from tests.engine.record_forms import AVRO, AVRO_EVENT, AVRO_EVENTS, DDL, JSON, Form, avro

pytestmark = pytest.mark.slow

LEFT_OUT = "__debezium_unavailable_value"
Row = dict[str, Any]


def rows_of(frame: DataFrame) -> list[tuple[Any, ...]]:
    with translated("t"):
        found = frame.select("id", "n", "v", "tags").collect()
    return sorted((row.id, str(row.n), row.v, None if row.tags is None else tuple(row.tags)) for row in found)


def expected(rows: Iterable[Row]) -> list[tuple[Any, ...]]:
    return sorted((row["id"], row["n"], row["v"], tuple(row["tags"])) for row in rows)


def a_row(draw: random.Random, number: int) -> Row:
    return {"id": number, "n": f"{draw.randrange(1000)}.50", "v": draw.choice(["a", "b", "ü"]), "tags": ["x", "y"]}


UPSERTS = {"json": JSON, "avro": AVRO}


@pytest.mark.in_test_all
@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("form", UPSERTS)
@pytest.mark.sample(1)
def test_any_cut_of_upserts_folds_to_the_same(spark, seed, form):
    draw, log, rows = random.Random(seed), Log(), dict[int, Row]()
    for _ in range(120):
        number = draw.randrange(15)
        if draw.random() < 0.3:
            rows.pop(number, None)
            log.add(f'{{"id": {number}}}', None)
        else:
            rows[number] = a_row(draw, number)
            log.add(f'{{"id": {number}}}', rows[number])

    start, main = [0] * log.num, None
    for end in cuts(draw, log, 3):
        main = kept(spark, folded(spark, log, "upsert", start, end, main, UPSERTS[form]))
        start = end

    assert rows_of(main) == expected(rows.values())
    whole = folded(spark, log, "upsert", [0] * log.num, log.ends, None, UPSERTS[form])
    assert rows_of(whole) == expected(rows.values())


@dataclass
class Database:
    """What Debezium writes of one table of PostgreSQL, by the position in its log."""

    draw: random.Random
    log: Log = field(default_factory=Log)
    rows: dict[int, Row] = field(default_factory=dict)
    lsn: int = 100

    def event(self, op: str, number: int | None, after: Row | None, **more: Any) -> None:
        self.lsn += 1
        source = {"lsn": self.lsn, "snapshot": "false"} | more.pop("source", {})
        value = {"op": op, "before": None, "after": after, "source": source}
        key = None if number is None else f'{{"id": {number}}}'
        if more.get("is_wrapped"):  # as with `schemas.enable`
            value, key = {"schema": {}, "payload": value}, key and f'{{"schema": {{}}, "payload": {key}}}'
        self.log.add(key, value, None if number is not None else 0)
        if op == "d":
            self.log.add(key, None)

    def step(self) -> None:
        number, draw = self.draw.randrange(12), self.draw
        is_there = number in self.rows
        if draw.random() < 0.02:
            self.rows.clear()
            self.event("t", None, None)
        elif is_there and draw.random() < 0.25:
            del self.rows[number]
            self.event("d", number, None)
        elif is_there and draw.random() < 0.2:  # another key: the old one goes, a row with the new one comes
            other = draw.randrange(12, 20)
            moved = self.rows.pop(number) | {"id": other}
            self.event("d", number, None)
            self.event("u" if other in self.rows else "c", other, moved)
            self.rows[other] = moved
        else:
            new = a_row(draw, number)
            after = dict(new)
            if is_there and draw.random() < 0.5:  # a large value that has not changed is left out
                name, value = draw.choice([("v", LEFT_OUT), ("tags", [LEFT_OUT])])
                new[name], after[name] = self.rows[number][name], value
            self.event("u" if is_there else "c", number, after, is_wrapped=draw.random() < 0.2)
            self.rows[number] = new


EVENTS = {"json": JSON, "avro": AVRO_EVENTS}


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("form", EVENTS)
@pytest.mark.sample(1)
def test_any_cut_of_changes_folds_to_the_table(spark, seed, form):
    database = Database(random.Random(seed))
    for _ in range(150):
        database.step()
    log = database.log

    start, main = [0] * log.num, None
    for end in in_order(database.draw, log, 4):
        main = kept(spark, folded(spark, log, "debezium", start, end, main, EVENTS[form]))
        start = end

    assert rows_of(main) == expected(database.rows.values())


def test_events_that_come_again_change_nothing(spark):
    """After a crash the connector sends what it had sent already: later offsets, and no newer rows."""
    database = Database(random.Random(7))
    for _ in range(80):
        database.step()
    log = database.log
    log.records += [record for record in log.records[40:] if '"t"' not in (record[3] or "")]

    found = folded(spark, log, "debezium", [0] * log.num, log.ends, None)

    assert rows_of(found) == expected(database.rows.values())


@pytest.mark.parametrize("form", EVENTS)
def test_what_is_older_than_a_truncate_is_left_out(spark, form):
    database = Database(random.Random(1))
    database.event("c", 1, a_row(database.draw, 1))
    database.event("t", None, None)
    cut = Cut(database.lsn)
    row = a_row(database.draw, 2)
    database.event("c", 2, row)
    log = database.log

    found = folded(spark, log, "debezium", [0] * log.num, log.ends, None, EVENTS[form], truncated=cut)
    whole = folded(spark, log, "debezium", [0] * log.num, log.ends, None, EVENTS[form])

    assert rows_of(found) == rows_of(whole) == expected([row])


@pytest.mark.in_test_all
def test_truncate_is_found_however_it_is_spelt(spark):
    """All events that truncate are looked for among those whose text may have one, which are few."""
    spelt = ['"op":"t"', '"op" : \t"t"', r'"\u006fp":"\u0074"', "'op': 't'"]
    texts = [f'{{"source": {{"lsn": 102}}, {op}, "after": null}}' for op in spelt]
    texts.append(json.dumps({"schema": {}, "payload": texts[0]}))
    for number, text in enumerate(texts):
        database = Database(random.Random(1))
        database.event("c", 1, a_row(database.draw, 1))
        database.log.add(None, text, 0)
        database.lsn = 102
        row = a_row(database.draw, 2)
        database.event("c", 2, row)

        whole = folded(spark, database.log, "debezium", [0] * database.log.num, database.log.ends, None)

        assert rows_of(whole) == expected([row]), number


@pytest.mark.in_test_all
@pytest.mark.parametrize("form", EVENTS)
def test_row_of_a_snapshot_is_older_than_what_follows_it(spark, form):
    """Transactions that were open at the snapshot wrote before it; older events came before it.

    Of what follows it an event that came again is no newer.
    """
    draw, database = random.Random(3), Database(random.Random(3))
    rows = {number: a_row(draw, number) for number in (1, 2, 3, 4)}
    database.event("c", 1, rows[1] | {"v": "older"})
    database.event("c", 3, rows[3], source={"lsn": 50})
    for number, row in rows.items():
        of_snapshot = {"lsn": 200, "snapshot": "true"}
        database.event("r", number, row | {"v": "b", "n": "9.50"}, source=of_snapshot)
    database.event("u", 1, rows[1] | {"tags": [LEFT_OUT]}, source={"lsn": 150})
    database.event("d", 2, None, source={"lsn": 151})
    for lsn, value in ((152, "once"), (153, "twice"), (152, "once")):
        database.event("u", 4, rows[4] | {"v": value}, source={"lsn": lsn})
    log = database.log

    found = folded(spark, log, "debezium", [0] * log.num, log.ends, None, EVENTS[form])

    assert rows_of(found) == expected([rows[1], rows[3] | {"v": "b", "n": "9.50"}, rows[4] | {"v": "twice"}])


GOOD = {"id": 1, "n": "1.50", "v": "a", "tags": ["x"]}


TABLES = [{"name": name, "type": ["null", "string"], "default": None} for name in ("db", "schema", "table")]
EVENT_OF_TABLES = json.loads(json.dumps(AVRO_EVENT))
EVENT_OF_TABLES["fields"][2]["type"]["fields"] += TABLES
OF_TABLES = {
    "json": JSON,
    "avro": Form(
        AVRO_EVENTS.key,
        lambda value: avro({"before": None} | value, EVENT_OF_TABLES),
        lambda spark: (AvroCodec.of(spark, json.dumps(EVENT_OF_TABLES)), AVRO_EVENTS.codecs(spark)[1]),
    ),
}


@pytest.mark.parametrize(
    ("before", "after", "is_alone"),
    [("a", "b", False), ("b", "a", False), ("b", "b", True)],
    ids=["before it", "after it", "one table"],
)
@pytest.mark.parametrize("form", OF_TABLES)
def test_truncate_of_one_of_several_tables_is_refused(spark, form, before, after, is_alone):
    """In a topic that several tables are routed to: it says nothing about rows of the others, which main has, too."""
    database, draw = Database(random.Random(1), Log(1)), random.Random(1)
    row, main = a_row(draw, 2), spark.createDataFrame([], declared(spark, DDL))

    def of(table: str) -> dict[str, Any]:
        return {"db": "shop", "schema": "public", "table": table}

    database.event("c", 1, a_row(draw, 1), source=of(before))
    database.event("t", None, None, source=of("b"))
    cut = Cut(database.lsn, None, "shop.public.b")
    database.event("c", 2, row, source=of(after))
    log, how = database.log, OF_TABLES[form]

    whole = folded(spark, log, "debezium", [0], log.ends, None, how)
    again = folded(spark, log, "debezium", [0], log.ends, main, how, truncated=cut)

    for found in (whole, again):
        if is_alone:
            assert rows_of(found) == expected([row])
            continue
        with pytest.raises(EventError, match=r"a TRUNCATE of shop\.public\.b .*, and shop\.public\.a is in the topic"):
            rows_of(found)


KEY = '{"id": 1}'


def change(**more: Any) -> dict[str, Any]:
    return {"op": "u", "after": GOOD, "source": {"lsn": 5, "snapshot": "false"}} | more


@pytest.mark.parametrize(
    ("how", "key", "value", "error", "words"),
    [
        ("upsert", None, GOOD, EventError, "t, partition 0, offset 1: the record has no key"),
        ("upsert", KEY, "no json", EventError, "does not fit the schema: no json"),
        ("upsert", KEY, GOOD | {"id": "x"}, EventError, "does not fit the schema"),
        ("upsert", KEY, GOOD | {"more": 1}, EventError, "the schema has no field more"),
        ("upsert", KEY, '{"id": 1} {"id": 2}', EventError, "does not fit the schema"),
        ("upsert", KEY, "", EventError, "empty"),
        ("upsert", "7", None, EventError, "offset 1: of its key, does not fit the schema: 7"),
        ("upsert", "7", GOOD, EventError, "of its key, does not fit the schema: 7"),
        ("upsert", '{"id": 1, "v": "a"}', GOOD, EventError, "the table's key is not made of the field v"),
        ("upsert", '{"id": 1, "id": 2}', GOOD, EventError, "of its key, does not fit the schema"),
        ("upsert", "{}", None, EventError, "its key does not have id"),
        ("upsert", '{"id": null}', GOOD | {"id": None}, EventError, "its key does not have id"),
        ("upsert", KEY, GOOD | {"id": 2}, EventError, "offset 1: id is 2 in its row, and 1 in its key"),
        ("upsert", KEY, {"v": "a"}, EventError, "offset 1: id is NULL in its row, and 1 in its key"),
        ("debezium", KEY, change(after=GOOD | {"id": 2}), EventError, "id is 2 in its row, and 1 in its key"),
        ("debezium", "7", change(), EventError, "of its key, does not fit the schema: 7"),
        ("debezium", "{}", change(), EventError, "its key does not have id"),
        ("debezium", KEY, json.dumps(change()) + " {}", EventError, "its value is no JSON object"),
        ("debezium", KEY, json.dumps(change()).replace("{", '{"op": "d", ', 1), EventError, "or has a field twice"),
        (
            "debezium",
            KEY,
            {"schema": {}, "payload": json.dumps(change(after={"v": "\ud800"}), ensure_ascii=False)},
            EventError,
            "half a character",
        ),
        ("debezium", KEY, "[1]", EventError, "no JSON object"),
        ("debezium", KEY, change(op=None), EventError, "the record has no op"),
        ("debezium", KEY, change(op="x"), EventError, "its op is not known: x"),
        ("debezium", KEY, change(source={"lsn": None}), EventError, "no lsn"),
        ("debezium", None, change(), EventError, "the record has no key"),
        ("debezium", KEY, change(after=None), EventError, "no row in after"),
        ("debezium", KEY, change(after=GOOD | {"v": LEFT_OUT}), EventIncompleteError, "v is not in the event"),
        ("debezium", KEY, change(op="r", source={"lsn": 9, "snapshot": "first"}), StreamRestartedError, "begins here"),
    ],
)
@pytest.mark.sample(2)
def test_record_that_cannot_be_a_row_is_named(spark, how, key, value, error, words):
    log, nothing = Log(1), spark.createDataFrame([], declared(spark, DDL))
    log.add('{"id": 2}', change(after=GOOD | {"id": 2}) if how == "debezium" else GOOD | {"id": 2})
    log.add(key, value)
    main = nothing if error is not StreamRestartedError else kept(spark, nothing)

    with pytest.raises(error, match=words):
        rows_of(folded(spark, log, how, [1], log.ends, main))


def test_records_are_rows_where_each_is_one(spark):
    log = Log(2)
    log.add(None, GOOD, 0)
    log.add("k", GOOD, 1)
    log.add("k", GOOD | {"v": None}, 1)

    found = envelope.rows_of(log.frame(spark), JSON.codecs(spark)[0])

    places = {(row[envelope.PARTITION], row[envelope.OFFSET], row.v) for row in found.collect()}
    assert places == {(0, 0, "a"), (1, 0, "a"), (1, 1, None)}


def test_key_whose_partition_changed_is_ordered_by_time(spark):
    """Partitions were added: the newer record may lie in one with a lower number, and at a lower offset."""
    log = Log(2)
    log.add('{"id": 9}', GOOD | {"id": 9}, 1)
    log.add(KEY, GOOD | {"v": "old"}, 1)
    log.add(KEY, GOOD | {"v": "new"}, 0)

    found = folded(spark, log, "upsert", [0, 0], log.ends, None)

    assert [row[2] for row in rows_of(found)] == ["new", "a"]
