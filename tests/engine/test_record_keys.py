"""One key, however it is spelt: what a record brings, what it takes away and what main has is told by its values."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from airflow_mv_provider.exceptions import DefinitionError, EventError, KeyColumnError
from airflow_mv_provider.sources.declared import declared
from airflow_mv_provider.sources.kafka import record_keys
from airflow_mv_provider.sources.kafka.codec import TextCodec
from airflow_mv_provider.spark.errors import translated
from tests.engine.folding import Log, folded, in_order, kept
from tests.engine.record_forms import Json
from tests.engine.streaming import counts, row, shop
from tests.engine.test_kafka_errors import errors
from tests.kafka import Record

__all__ = ["shop"]
pytestmark = [pytest.mark.slow, pytest.mark.in_process]

FORM, KEY = Json("id INT, tenant STRING, v STRING"), ("id", "tenant")
Rows = dict[tuple[int, str], str]


def spelt(draw: random.Random, number: int, tenant: str) -> str:
    """Return a key in one of the many spellings that JSON has for it."""
    blank = draw.choice(["", " ", "\n "])
    text = draw.choice([json.dumps(tenant), json.dumps(tenant, ensure_ascii=False), f'"\\u{ord(tenant):04x}"'])
    fields = [f'"id"{blank}:{blank}{number}', f'{blank}"tenant":{blank}{text}']
    draw.shuffle(fields)
    return f"{{{blank}{','.join(fields)}{blank}}}"


def upsert(draw: random.Random, log: Log, key: tuple[int, str], value: str | None) -> None:
    row = None if value is None else {"id": key[0], "tenant": key[1], "v": value}
    log.add(spelt(draw, *key), row)


def change(draw: random.Random, log: Log, key: tuple[int, str], value: str | None) -> None:
    """Write an event of Debezium; half of the keys are wrapped, as with `schemas.enable`."""
    after = None if value is None else {"id": key[0], "tenant": key[1], "v": value}
    text = spelt(draw, *key)
    wrapped = draw.choice([text, f'{{"schema": {{}}, "payload": {text}}}'])
    source = {"lsn": len(log.records), "snapshot": "false"}
    log.add(wrapped, {"op": "d" if after is None else "u", "after": after, "source": source})


WRITERS = {"upsert": upsert, "debezium": change}


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("how", WRITERS)
@pytest.mark.sample(1)
def test_any_spelling_and_any_cut_fold_to_the_same_rows(spark, seed, how):
    """Spellings lie in several partitions, so each cut is at one moment, as `max_records` cuts."""
    draw, log, rows = random.Random(seed), Log(), Rows()
    for number in range(80):
        key = draw.randrange(5), draw.choice("aü")
        value = None if draw.random() < 0.3 else f"v{number}"
        WRITERS[how](draw, log, key, value)
        rows.pop(key, None) if value is None else rows.update({key: value})

    start, main = [0] * log.num, None
    for end in in_order(draw, log, 3):
        main = kept(spark, folded(spark, log, how, start, end, main, FORM, KEY))
        start = end
    reloaded = folded(spark, log, how, [0] * log.num, log.ends, None, FORM, KEY)

    expected = sorted((*key, value) for key, value in rows.items())
    assert sorted(map(tuple, main.collect())) == expected
    assert sorted(map(tuple, reloaded.collect())) == expected


@pytest.mark.in_test_all
def test_key_in_two_spellings_is_one_row(shop):
    """What is written and deleted in one refresh is gone, as if it had been two; the error table knows the key, too."""
    shop.apply(errors={"max_rows": 3})
    shop.send(row(1, "a"), ('{"id":1}', None), row(2, "a"), ('{"id":2}', {"id": 2, "v": "b"}), partition=0)
    shop.refresh()
    first = shop.rows
    shop.send(('{ "id": 2 }', {"id": 3, "v": "of another key"}), ('{"id":4}', {"id": 4, "v": "d"}), partition=0)
    shop.refresh()
    second = shop.rows, [(each[1], each[4]) for each in errors(shop)]
    shop.send(('{"id":2}', None), row(4, None), row(5, "e"), partition=0)
    shop.refresh()

    assert first == [(2, "b")]
    assert second == ([(4, "d")], [(4, '{"id":2}')])
    assert (shop.rows, errors(shop)) == ([(5, "e")], [])
    assert counts(shop.refresh(force=True))[1:] == (0, 0, 0)


@pytest.mark.in_test_all
def test_key_that_select_makes_is_the_one_that_records_are_folded_by(shop):
    select = ["upper(tenant) AS t", "id + 100 AS n", "v", "_offset AS at"]
    shop.apply(source={"schema": "id INT, tenant STRING, v STRING", "select": select}, key=["t", "n"])

    def record(number: int, tenant: str, value: str | None) -> Record:
        key = {"id": number, "tenant": tenant}
        return json.dumps(key), None if value is None else key | {"v": value}

    shop.send(record(1, "a", "x"), record(2, "a", "y"), record(1, "A", "z"), record(3, "b", "w"), partition=0)
    shop.refresh()
    first = shop.rows
    shop.send(record(1, "a", None), record(3, "b", "w2"), partition=0)
    shop.refresh()

    assert sorted(first) == sorted([(2, 101, "A", "z"), (1, 102, "A", "y"), (3, 103, "B", "w")])
    assert sorted(shop.rows) == sorted([(1, 102, "A", "y"), (5, 103, "B", "w2")])


@pytest.mark.parametrize(
    ("select", "key", "record_key", "error", "words"),
    [
        ((), ["id"], "id INT, tenant STRING", DefinitionError, "is made of id, and the records' key has id, tenant"),
        ((), ["id", "tenant"], "id INT", DefinitionError, "is made of id, tenant, and the records' key has id"),
        (("id", "v"), ["v"], "id INT", DefinitionError, "is made of v, and the records' key has id"),
        (("concat(id, v) AS k",), ["k"], "id INT", DefinitionError, "is made of id, v, and"),
        (("1 AS k", "v"), ["k"], None, DefinitionError, "is made of no column of a record"),
        (("_offset AS k", "v"), ["k"], None, DefinitionError, "'k' is made of more than a record's columns"),
        (("v",), ["id"], None, KeyColumnError, "'id' is not among v"),
        ((), ["x"], None, KeyColumnError, "'x' is not among id, tenant, v"),
    ],
)
@pytest.mark.sample(3)
def test_key_of_the_table_that_is_not_the_records_key_is_named(spark, select, key, record_key, error, words):
    columns = declared(spark, FORM.ddl)
    codec = None if record_key is None else TextCodec(declared(spark, record_key), "csv")

    with pytest.raises(error, match=words):
        record_keys.decoder(spark, columns, select, key, codec)


@pytest.mark.in_test_all
def test_records_of_one_key_and_one_time_in_two_partitions_are_in_no_order(spark):
    log = Log(2)
    log.add('{"id": 1, "tenant": "a"}', {"id": 1, "tenant": "a", "v": "x"}, 0)
    log.add('{"tenant": "a", "id": 1}', None, 1)
    log.records = [(partition, 7, *others) for partition, _, *others in log.records]

    with pytest.raises(EventError, match="t/0/0 has the same key and time"), translated("t"):
        folded(spark, log, "upsert", [0, 0], log.ends, None, FORM, KEY).collect()


@pytest.mark.in_test_all
@pytest.mark.parametrize("how", WRITERS)
def test_keys_of_bytes_that_are_no_text_are_not_one(spark, how):
    """Both would be a replacement character."""
    columns: Any = declared(spark, "id STRING, v STRING")
    decode = record_keys.decoder(spark, columns, (), ["id"], None)
    records = spark.createDataFrame(
        [("t", 0, 0, b'{"id": "\xff"}')], "topic STRING, partition INT, offset INT, key BINARY"
    )
    frame = records.selectExpr("concat_ws('/', topic, partition, offset) AS _mv_at", "key")

    with pytest.raises(EventError, match="of its key, not UTF-8"), translated("t"):
        text = frame.key.cast("string")
        found = decode.keyed(frame, frame.key) if how == "upsert" else decode.keyed_by_text(frame, text, frame.key)
        found.collect()
