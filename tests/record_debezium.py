"""Record what Debezium's real connector writes, as fixtures: `.venv/bin/python -m tests.record_debezium`, a minute.

    tests/engine/debezium/customers.jsonl, accounts.jsonl   a snapshot, then random statements, in four acts; the
                                                            connector is killed between them and sends events again
    tests/engine/debezium/kinds.jsonl                       a row of each type of PostgreSQL
    tests/engine/debezium/moved.jsonl                       a key that changes in a row with a large value

Each line is a message, or after an act the rows of PostgreSQL itself. The first line has what a field of an event is
unless it is given, and a long run of one character is written as ⟪x×2100⟫: `read` gives the events as they were, less
the times that the connector notes (`ts_ms`, ...) and `sequence`.
"""

from __future__ import annotations

import json
import re
import shutil
import tempfile
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psycopg
from confluent_kafka import Consumer, TopicPartition

from scripts.debezium_connector import VERSION, Connector
from scripts.kafka_server import SILENT, KafkaServer
from scripts.shop_database import TABLES, ShopDatabase
from tests.postgres import running_server

HERE = Path(__file__).parent / "engine" / "debezium"
ACTS, STATEMENTS, ROWS = 4, 200, 18
_LEFT_OUT = ("ts_ms", "ts_us", "ts_ns", "sequence")
_KINDS = """
CREATE TYPE mood AS ENUM ('sad', 'ok');
CREATE TABLE kinds (
  id int PRIMARY KEY, small smallint, big bigint, exact numeric(30, 10), any_scale numeric, single real, double float8,
  words text, short varchar(8), fixed char(5), flag boolean, day date, at timestamp, moment timestamptz, clock time,
  uid uuid, doc jsonb, bytes bytea, numbers int[], texts text[], feeling mood, span interval, host inet
);
INSERT INTO kinds VALUES
  (1, -32768, 9223372036854775807, 12345678901234567890.0123456789, 1e30, 1.5, 0.1, E'a\\tb "ü" \\\\ 𝄞', 'short', 'ab',
   true, '1900-02-28', '1582-10-15 00:00:00.000001', '2026-03-29 02:30:00.123456+02', '23:59:59.999999',
   '00112233-4455-6677-8899-aabbccddeeff', '{"b": [1, null], "a": "x"}', '\\x00ff10', '{1,NULL,-3}', '{"a,b",NULL,""}',
   'ok', '1 year 2 days 03:04:05.6', '10.0.0.0/8'),
  (2, 0, 0, 0, 0.10, -0.0, 1e300, '', '', '', false, '9999-12-31', '2026-01-01', '2026-01-01 00:00:00+00', '00:00:00',
   '00000000-0000-0000-0000-000000000000', 'null', '', '{}', '{}', 'sad', '0', '::1');
INSERT INTO kinds (id) VALUES (3);
"""
# As the events have them: what Debezium writes as text in a form of its own is brought into that form.
_KINDS_ROWS = """
SELECT id, small, big, exact, any_scale::text, single, double, words, short, fixed, flag, day, at, moment, clock::text,
  uid::text, doc::text, encode(bytes, 'base64'), numbers, texts, feeling::text, abbrev(host) FROM kinds
"""
_MOVED = """
CREATE TABLE moved (id int PRIMARY KEY, v text, note text);
ALTER TABLE moved ALTER COLUMN note SET STORAGE EXTERNAL;
INSERT INTO moved VALUES (1, 'a', repeat('x', 2100));
"""


class Recording:
    """The messages of one topic so far, and the rows of its table after each act."""

    def __init__(self, kafka: str, topic: str) -> None:
        self.lines: list[dict[str, Any]] = []
        self._kafka, self._topic = kafka, topic
        self._seen: dict[int, int] = {}

    def take(self) -> None:
        """Add what has come since, in the order in which it came."""
        consumer = Consumer({"bootstrap.servers": self._kafka, "group.id": "recorder"} | SILENT)
        found: list[tuple[int, int, int, dict[str, Any]]] = []
        partitions = consumer.list_topics(self._topic, 30).topics[self._topic].partitions
        for partition in partitions:
            at = TopicPartition(self._topic, partition, self._seen.get(partition, 0))
            end = consumer.get_watermark_offsets(at, 30)[1]
            consumer.assign([at])
            while consumer.position([at])[0].offset < end and at.offset < end:
                message = consumer.poll(30)
                assert message is not None, f"{self._topic} ends before {end}"
                assert not message.error(), message.error()
                line = {"p": partition, "key": _parsed(message.key()), "value": _parsed(message.value())}
                found.append((message.timestamp()[1], partition, message.offset(), line))
                at.offset = message.offset() + 1
            self._seen[partition] = end
        consumer.close()
        self.lines += [line for *_, line in sorted(found, key=lambda each: each[:3])]

    def write(self, name: str, postgres: str) -> None:
        """Write the file, and see that what is read back is what was recorded."""
        recorded = json.loads(json.dumps(self.lines))
        events = [line["value"] for line in self.lines if line.get("value")]
        sources = [event["source"] for event in events]
        usual = {"source": _usual(sources), "event": _usual([event | {"source": None} for event in events])}
        head = {"debezium": VERSION, "postgresql": postgres, "partitions": len(self._seen), **usual}
        for event in events:
            _shorten(event["source"], usual["source"])
            _shorten(event, usual["event"])
        HERE.mkdir(exist_ok=True)
        with (HERE / f"{name}.jsonl").open("w", encoding="utf-8") as file:
            for line in [head, *self.lines]:
                text = json.dumps(line, ensure_ascii=False, separators=(",", ":"))
                print(re.sub(r"(\w)\1{99,}", lambda run: f"⟪{run[1]}×{len(run[0])}⟫", text), file=file)
        assert read(name)[1:] == recorded
        print(f"{name}: {sum('p' in line for line in self.lines)} messages, {file.name}")


def read(name: str) -> list[dict[str, Any]]:
    """Return the lines of a recording with whole events, its head the first."""
    text = (HERE / f"{name}.jsonl").read_text(encoding="utf-8")
    whole = re.sub(r"⟪(\w)×(\d+)⟫", lambda run: run[1] * int(run[2]), text)
    head, *lines = map(json.loads, whole.splitlines())
    for line in lines:
        if event := line.get("value"):
            line["value"] = head["event"] | event | {"source": head["source"] | event["source"]}
    return [head, *lines]


def _usual(found: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the value of each field that most have."""
    names = [name for name in found[0] if name not in ("lsn", "txId", "after", "source")]
    return {name: Counter(each[name] for each in found if _is_plain(each[name])).most_common(1)[0][0] for name in names}


def _is_plain(value: Any) -> bool:
    return not isinstance(value, dict | list)


def _shorten(found: dict[str, Any], usual: dict[str, Any]) -> None:
    for name, value in usual.items():
        if found[name] == value:
            del found[name]


def plain(rows: Sequence[Sequence[Any]]) -> list[list[Any]]:
    """Return rows in values that JSON has, in an order of their own."""
    return sorted(([_plain(value) for value in row] for row in rows), key=repr)


def _plain(value: Any) -> Any:
    match value:
        case datetime():
            return (value if value.tzinfo is None else value.astimezone(UTC).replace(tzinfo=None)).isoformat()
        case list() | tuple():
            return [_plain(each) for each in value]
        case None | bool() | int() | float():
            return value
    return str(value)


def _parsed(text: bytes | None) -> Any:
    found = None if text is None else json.loads(text)
    for each in (found, (found or {}).get("source")):
        if isinstance(each, dict):
            for name in _LEFT_OUT:
                each.pop(name, None)
    return found


def _rows(url: str, query: Any) -> list[list[Any]]:
    with psycopg.connect(url, options="-c timezone=UTC") as db:
        return plain(db.execute(query).fetchall())


def _record_the_shop(directory: Path, kafka: KafkaServer, url: str, version: str) -> None:
    shop = ShopDatabase(url, seed=20)
    shop.create(ROWS)
    names = [f"public.{table}" for table in TABLES]
    connector = Connector(directory, kafka.address, url, "shop", names)
    recordings = {table: Recording(kafka.address, f"shop.public.{table}") for table in TABLES}
    for act in range(ACTS):
        connector.settle()
        for table, recording in recordings.items():
            recording.take()
            recording.lines.append({"rows": plain(list(shop.rows(table).elements()))})
        if act < ACTS - 1:
            shop.change(STATEMENTS, may_truncate=act == 1)
            connector.kill()  # before it has noted how far it is
            connector.start()
    connector.kill()
    for table, recording in recordings.items():
        recording.write(table, version)


def _record_a_table(directory: Path, kafka: KafkaServer, url: str, version: str, name: str, later: Any) -> None:
    with psycopg.connect(url, autocommit=True) as db:
        db.execute({"kinds": _KINDS, "moved": _MOVED}[name])
    connector = Connector(directory, kafka.address, url, name, [f"public.{name}"])
    connector.settle()
    with psycopg.connect(url, autocommit=True) as db:
        for statement in later:
            db.execute(statement)
    connector.settle()
    connector.kill()
    recording = Recording(kafka.address, f"{name}.public.{name}")
    recording.take()
    recording.lines.append({"rows": _rows(url, _KINDS_ROWS if name == "kinds" else f"SELECT * FROM {name}")})
    recording.write(name, version)


def main() -> None:
    directory = Path(tempfile.mkdtemp(prefix="mv-recording-"))
    places = [directory / name for name in ("kafka", "shop", "kinds", "moved")]
    for place in places:
        place.mkdir()
    with running_server(wal_level="logical") as postgres:
        kafka = KafkaServer(places[0])
        try:
            url = postgres.new_database()
            with psycopg.connect(url) as db:
                version = str(db.execute("SHOW server_version").fetchone()[0]).split()[0]  # type: ignore[index]
            _record_the_shop(places[1], kafka, url, version)
            more = ["UPDATE kinds SET texts = '{late}' WHERE id = 2", "DELETE FROM kinds WHERE id = 3"]
            _record_a_table(places[2], kafka, postgres.new_database(), version, "kinds", more)
            moves = ["UPDATE moved SET id = 2 WHERE id = 1"]
            _record_a_table(places[3], kafka, postgres.new_database(), version, "moved", moves)
        finally:
            kafka.kill()
    shutil.rmtree(directory)


if __name__ == "__main__":
    main()
