"""Records of a topic without a broker, cut where a test likes, and folded to rows by the envelopes."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from airflow_mv_provider.sources.kafka import debezium, envelope, record_keys, replay
from airflow_mv_provider.sources.kafka.avro import AvroCodec
from airflow_mv_provider.sources.kafka.codec import Codec
from airflow_mv_provider.spark.errors import translated
from tests.engine.record_forms import JSON, Form, Json

_RECORD = "topic STRING, partition INT, offset BIGINT, timestamp TIMESTAMP, key BINARY, value BINARY"
Record = tuple[int, int, str | None, str | None]
"""Partition, time in seconds, key, value."""


@dataclass
class Log:
    """Records of a topic, by partition."""

    num: int = 3
    records: list[Record] = field(default_factory=list)

    def add(self, key: str | None, value: object, partition: int | None = None) -> None:
        text = value if value is None or isinstance(value, str) else json.dumps(value)
        at = sum(map(ord, key or "")) % self.num if partition is None else partition
        self.records.append((at, len(self.records), key, text))

    def frame(
        self,
        spark: Any,
        start: Sequence[int] | None = None,
        end: Sequence[int] | None = None,
        form: Form | Json = JSON,
    ) -> DataFrame:
        """Return the records of each partition from `start` up to `end`."""
        found, seen = [], [0] * self.num
        for partition, second, key, value in self.records:
            offset = seen[partition]
            seen[partition] += 1
            if (start is None or offset >= start[partition]) and (end is None or offset < end[partition]):
                at = datetime.fromtimestamp(second, UTC)
                found.append(("t", partition, offset, at, form.key_of(key), form.value_of(value)))
        return spark.createDataFrame(found, _RECORD)

    @property
    def ends(self) -> list[int]:
        return [sum(each[0] == partition for each in self.records) for partition in range(self.num)]


def folded(
    spark: Any,
    log: Log,
    how: str,
    start: Sequence[int],
    end: Sequence[int],
    main: DataFrame | None,
    form: Form | Json = JSON,
    key: str | Sequence[str] = "id",
    truncated: replay.Cut | None = None,
) -> DataFrame:
    """Fold the records between two cuts onto main, which earlier ones have become; main: None at first."""
    records, (value, _) = log.frame(spark, start, end, form), form.codecs(spark)
    names, columns = [key] if isinstance(key, str) else list(key), rows_columns(value, how)
    by = decoder(spark, columns, form, names)
    continues, truncations = main is not None and any(start), None
    if how == "upsert":
        events = envelope.last_of_keys(records, value, by)
    elif isinstance(form, Json):
        changes = debezium.changes_of_json(records, value, by, continues=continues, cut=truncated)
        events = envelope.last_changes(changes, columns)
        if main is None:
            truncations = debezium.changes_of_json(debezium.may_truncate(records), value, by, continues=False)
    else:
        changes = debezium.changes_of_avro(records, value, by, continues=continues, cut=truncated)
        events = envelope.last_changes(changes, columns)
    return replay.all_rows(envelope.with_keys_of_records(events, names), main, names, truncations)


def rows_columns(value: Codec, how: str) -> StructType:
    """Return the columns of a row, which Debezium's events in Avro have inside."""
    is_wrapped = how == "debezium" and isinstance(value, AvroCodec)
    return debezium.row_of_events(value.columns) if is_wrapped else value.columns


def decoder(spark: Any, columns: StructType, form: Form | Json, names: Sequence[str]) -> record_keys.KeyDecoder:
    """Return how keys of a form become those of a table; keys in JSON have no schema of their own."""
    codec = None if isinstance(form, Json) else form.codecs(spark)[1]
    return record_keys.decoder(spark, columns, (), names, codec)


def kept(spark: Any, frame: DataFrame) -> DataFrame:
    """Return the same rows, computed once."""
    with translated("t"):
        return spark.createDataFrame(frame.collect(), frame.schema)


def cuts(draw: random.Random, log: Log, num: int) -> list[list[int]]:
    """Return the ends of so many parts of a log, each beginning where the one before ends."""
    each = [sorted(draw.randint(0, end) for _ in range(num - 1)) for end in log.ends]
    return [list(cut) for cut in zip(*each, strict=True)] + [log.ends]


def in_order(draw: random.Random, log: Log, num: int) -> list[list[int]]:
    """As `cuts`, but each part ends at one moment: values that are left out are in what came before."""
    moments = sorted(draw.randint(0, len(log.records)) for _ in range(num - 1))
    ends = []
    for moment in [*moments, len(log.records)]:
        ends.append([sum(each[0] == partition for each in log.records[:moment]) for partition in range(log.num)])
    return ends
