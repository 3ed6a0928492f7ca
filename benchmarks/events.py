"""Measure a table that follows Debezium's events in Kafka, beside a MERGE of the same rows, folded beforehand.

    python benchmarks/events.py                      1,000,000 rows, 100,000 events a round, 3 rounds
    python benchmarks/events.py --rows 20000 --events 2000 --rounds 1
    AMV_DRIVER_MEMORY=1g python benchmarks/events.py --rows 3000000 --events 1000000

One process with an embedded Spark on two cores, and a Kafka broker of its own on loopback. The events are written here,
in the form in which Debezium's connector for PostgreSQL writes them (`tests/engine/debezium`): a snapshot of all rows,
then by round updates (eight of ten), inserts and deletes of rows drawn at random; a row may change several times. The
first round is not counted:

    read       the round's records by Spark's own Kafka reader; they are thrown away
    refresh    `amv refresh` of the table that follows the topic
    merge      a MERGE of the last row of each key, which lies ready in a Delta table, into another main

After each round both mains are compared by their number of rows and the sum of the rows' hashes. Printed are medians of
seconds, and of the rounds' ratios of refresh to merge (goal 1.5); the most memory that Spark's JVM has held in the
first load, whose range is all rows, and in the later ones; then how long the same events take in refreshes of a quarter
each (`max_records`), and what memory those.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import NewTopic, OffsetSpec

from airflow_mv_provider.core.definition.table import RefreshableTable
from airflow_mv_provider.core.outcome import Outcome, RefreshReport
from airflow_mv_provider.runner.local import command_line_caller, open_store
from airflow_mv_provider.runner.refresh import Refresher
from airflow_mv_provider.runner.settings import Settings
from airflow_mv_provider.sources.kafka.model import Kafka
from airflow_mv_provider.spark.session import local_session
from benchmarks.refresh import Memory
from scripts.kafka_server import KafkaServer
from tests.waiting import wait_until

TOPIC, NUM_PARTITIONS = "shop.public.orders", 4
COLUMNS = "id INT, customer INT, day STRING, amount DECIMAL(12,2), note STRING"
NAMES = ["id", "customer", "day", "amount", "note"]
# What each event has beside its row and its operation, as in the recordings of the real connector.
SOURCE = {"version": "3.2.0.Final", "connector": "postgresql", "name": "shop", "db": "shop", "schema": "public"}
SOURCE |= {"table": "orders", "sequence": '["26399008","26399008"]', "xmin": ""}
PATIENCE_S = 300
Row = tuple[int, int, str, str, str]


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--rows", type=int, default=1_000_000)
    arguments.add_argument("--events", type=int, default=100_000)
    arguments.add_argument("--rounds", type=int, default=3)
    arguments.add_argument("--out", type=Path)
    asked = arguments.parse_args()
    os.environ |= {"AMV_SPARK_MASTER": "local[2]", "AMV_SOURCE_DATABASES": "kafka"}
    with tempfile.TemporaryDirectory(prefix="amv-events-") as home:
        broker = KafkaServer(Path(home))
        try:
            trial = Trial(Path(home), local_session(), broker, asked.rows, asked.events)
            trial.load()
            for number in range(asked.rounds + 1):
                trial.round(number)
            found = {"rows": asked.rows, "events": asked.events, "rounds": asked.rounds} | trial.summary()
        finally:
            broker.kill()
    print(json.dumps(found, indent=2))
    if asked.out:
        asked.out.write_text(json.dumps(found, indent=2) + "\n")


@dataclass
class Trial:
    """A topic, the tables that follow it, and a main that is kept up by MERGE.

    seconds : by round, of each step; those of `load` come first
    peaks   : by round, the most MB that Spark's JVM held
    starts  : where the events of the last round begin, by partition
    """

    home: Path
    spark: Any
    broker: KafkaServer
    num_rows: int
    num_events: int
    seconds: list[dict[str, float]] = field(default_factory=list)
    peaks: list[dict[str, int]] = field(default_factory=list)
    starts: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        extra = {"bootstrap.servers": self.broker.address}
        os.environ["AIRFLOW_CONN_SHOP"] = json.dumps({"conn_type": "kafka", "extra": extra})
        settings = Settings(f"sqlite:///{self.home / 'mv.db'}", str(self.home))
        self.runner = Refresher(open_store(settings), settings, lambda: self.spark)
        self.memory = Memory(self.spark)
        self.draw = random.Random(1)
        self.lsn, self.next_id = 26_399_008, self.num_rows
        self.broker.admin.create_topics([NewTopic(TOPIC, NUM_PARTITIONS, 1)])[TOPIC].result(PATIENCE_S)
        wait_until(lambda: TOPIC in self.broker.admin.list_topics(timeout=5).topics, PATIENCE_S, "the topic is there")
        for name in ("refresh", "quarters"):
            self.apply(name)

    def load(self) -> None:
        """Write the snapshot, and bring all mains up to it."""
        self.seconds.append({})
        self.peaks.append({})
        self.send(self.event("r", row(each, 0)) for each in range(self.num_rows))
        self.timed("refresh", lambda: self.refresh("refresh"))
        self.refresh("quarters")
        self.apply("quarters", max(self.num_events // 4, 1))
        self.table("refresh").write.format("delta").option("delta.enableDeletionVectors", "true").save(self.at("merge"))

    def round(self, number: int) -> None:
        """Change rows, and bring all mains up to them, each round in another order."""
        self.seconds.append({})
        self.peaks.append({})
        changed = self.change(number + 1)
        self.fold(changed)
        steps: dict[str, Callable[[], Any]] = {
            "read": self.read,
            "refresh": lambda: self.refresh("refresh"),
            "merge": self.merge,
            "quarters": self.until_all_is_taken,
        }
        names = list(steps)[number % 3 :] + list(steps)[: number % 3]
        for name in names:
            self.timed(name, steps[name])
        wanted = self.hashed("merge")
        assert self.hashed("refresh") == self.hashed("quarters") == wanted, f"round {number}: the mains differ"

    # -- the topic ---------------------------------------------------------------------------------------------------

    def change(self, number: int) -> dict[int, Row | None]:
        """Write the events of a round; return the last row of each key that has one, and None of a deleted one."""
        found: dict[int, Row | None] = {}
        events = []
        for _ in range(self.num_events):
            kind = self.draw.choices("ucd", (8, 1, 1))[0]
            key = self.draw.randrange(self.num_rows)
            if kind == "c":
                key, self.next_id = self.next_id, self.next_id + 1
            elif key in found and found[key] is None:  # it was deleted in this round
                kind = "c"
            found[key] = None if kind == "d" else row(key, number)
            events.append(self.event(kind, row(key, number)))
        self.starts = self.ends()
        self.send(events)
        return found

    def event(self, kind: str, changed: Row) -> tuple[str, str]:
        """Return the key and the value of one event."""
        self.lsn += 88
        values = dict(zip(NAMES, changed, strict=True))
        gone = dict.fromkeys(NAMES) | {"id": changed[0]}
        at = 1_767_225_600_000 + self.lsn
        source = SOURCE | {"snapshot": "true" if kind == "r" else "false", "ts_ms": at, "txId": self.lsn // 440}
        value = {
            "before": gone if kind == "d" else None,
            "after": None if kind == "d" else values,
            "source": source | {"lsn": self.lsn},
            "transaction": None,
            "op": kind,
            "ts_ms": at + 200,
        }
        return json.dumps({"id": changed[0]}), json.dumps(value)

    def send(self, events: Iterable[tuple[str, str]]) -> None:
        """Write events, each key into one partition."""
        settings = {"bootstrap.servers": self.broker.address, "partitioner": "murmur2_random", "linger.ms": 50}
        producer = Producer(settings)
        for number, (key, value) in enumerate(events):
            producer.produce(TOPIC, key=key, value=value)
            if number % 10_000 == 0:
                producer.flush(PATIENCE_S)
        assert producer.flush(PATIENCE_S) == 0

    def ends(self) -> dict[str, int]:
        """Return the end of each partition, as Spark's reader takes it."""
        asked = {TopicPartition(TOPIC, each): OffsetSpec.latest() for each in range(NUM_PARTITIONS)}
        return {
            str(each.partition): found.result(PATIENCE_S).offset
            for each, found in self.broker.admin.list_offsets(asked).items()
        }

    # -- the ways ----------------------------------------------------------------------------------------------------

    def read(self) -> None:
        options = {"subscribe": TOPIC, "kafka.bootstrap.servers": self.broker.address}
        options |= {"startingOffsets": json.dumps({TOPIC: self.starts})}
        options |= {"endingOffsets": json.dumps({TOPIC: self.ends()})}
        self.spark.read.format("kafka").options(**options).load().write.format("noop").mode("overwrite").save()

    def refresh(self, name: str) -> RefreshReport:
        report: RefreshReport = self.runner.refresh(name, command_line_caller())
        assert report.outcome in (Outcome.PUBLISHED, Outcome.NOTHING_TO_DO), report
        return report

    def until_all_is_taken(self) -> None:
        """Refresh the table that takes a quarter at a time, until nothing is left."""
        while self.refresh("quarters").outcome is not Outcome.NOTHING_TO_DO:
            pass

    def apply(self, name: str, max_records: int | None = None) -> None:
        source = Kafka(topic=TOPIC, conn_id="shop", envelope="debezium", schema=COLUMNS, max_records=max_records)
        guards = {"max_deleted_fraction": 1.0}
        self.runner.apply(RefreshableTable(name=name, source=source, key=["id"], guards=guards))

    def fold(self, changed: dict[int, Row | None]) -> None:
        """Write the rows that MERGE takes: of each key the last one, or that it is gone."""
        nothing = (None, None, None, None)
        rows = [(*(found or (key, *nothing)), found is None) for key, found in changed.items()]
        schema = COLUMNS.replace("amount DECIMAL(12,2)", "amount STRING") + ", gone BOOLEAN"
        folded = self.spark.createDataFrame(rows, schema)
        columns = ("id", "customer", "day", "CAST(amount AS DECIMAL(12,2)) AS amount", "note", "gone")
        folded.selectExpr(*columns).write.format("delta").mode("overwrite").save(self.at("folded"))

    def merge(self) -> None:
        self.spark.sql(
            f"MERGE INTO delta.`{self.at('merge')}` AS t USING delta.`{self.at('folded')}` AS s ON t.id = s.id "
            "WHEN MATCHED AND s.gone THEN DELETE WHEN MATCHED THEN UPDATE SET * "
            "WHEN NOT MATCHED AND NOT s.gone THEN INSERT *"
        ).collect()

    # -- what is kept ------------------------------------------------------------------------------------------------

    def timed(self, what: str, action: Callable[[], Any]) -> None:
        """Remember the seconds of an action, and the most memory meanwhile."""
        self.memory.reset()
        began = time.perf_counter()
        action()
        self.seconds[-1][what] = time.perf_counter() - began
        self.peaks[-1][what] = self.memory.peak_mb()
        print(f"{what}: {self.seconds[-1][what]:.1f} s, {self.peaks[-1][what]} MB", file=sys.stderr, flush=True)

    def at(self, name: str) -> str:
        return str(self.home / name)

    def table(self, name: str) -> Any:
        return self.spark.read.format("delta").load(self.at(name)).select(*NAMES)

    def hashed(self, name: str) -> Any:
        return self.table(name).selectExpr("count(*)", "sum(CAST(xxhash64(*) AS DECIMAL(38,0)))").collect()

    def summary(self) -> dict[str, Any]:
        """Return medians of seconds and ratios of the rounds but the first, and the memory of all."""
        loaded, _, *rounds = self.seconds
        ratios = {
            "refresh to merge (goal 1.5)": [each["refresh"] / each["merge"] for each in rounds],
            "in quarters to refresh": [each["quarters"] / each["refresh"] for each in rounds],
        }
        return {
            "seconds": {"first load": round(loaded["refresh"], 2)}
            | {name: round(statistics.median(each[name] for each in rounds), 2) for name in sorted(rounds[0])},
            "ratios": {name: round(statistics.median(found), 2) for name, found in ratios.items()},
            "heap": os.environ.get("AMV_DRIVER_MEMORY", "2g"),
            "peak_mb": {"first load": self.peaks[0]["refresh"]}
            | {name: max(each[name] for each in self.peaks[2:]) for name in sorted(rounds[0])},
        }


def row(key: int, number: int) -> Row:
    """Return the row that a key has since a round."""
    day, cents = f"2026-{1 + key % 12:02}-{1 + number % 28:02}", (key * 31 + number) % 1_000_000
    return key, key * 7919 % 100_000, day, f"{cents / 100:.2f}", f"note {key * 7 + number:032}"


if __name__ == "__main__":
    main()
