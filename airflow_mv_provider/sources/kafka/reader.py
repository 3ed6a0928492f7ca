"""A topic as source: what lies between two of its states, read with Spark, as the last event of each key."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Collection, Sequence
from dataclasses import replace

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import (
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from airflow_mv_provider.core.changeset import Changeset, SignedRows, Whole
from airflow_mv_provider.core.definition.identifier import quoted
from airflow_mv_provider.core.frontier import Frontier
from airflow_mv_provider.core.strategy import Determinism
from airflow_mv_provider.exceptions import DefinitionError, SourceChangedError, StreamRestartedError
from airflow_mv_provider.sources.credentials import Credentials
from airflow_mv_provider.sources.kafka import envelope, record_keys, replay, schema_files
from airflow_mv_provider.sources.kafka.client import Found, bounded, deletes_kept_ms, inspect, last_time_ms, offsets_at
from airflow_mv_provider.sources.kafka.cluster import SECRET_OPTIONS, cluster_of
from airflow_mv_provider.sources.kafka.codecs import Codecs
from airflow_mv_provider.sources.kafka.frontier import (
    KafkaFrontier,
    Order,
    Span,
    check_continues,
    check_deletes_kept,
    check_kept,
    compared,
    num_offsets,
    spans,
    starts_of,
)
from airflow_mv_provider.sources.kafka.gaps import left_to_main
from airflow_mv_provider.sources.kafka.model import Kafka
from airflow_mv_provider.sources.kafka.schema_registry import registry_of, schemas_of
from airflow_mv_provider.sources.kafka.shared import SharedTopics
from airflow_mv_provider.sources.projection import MORE_THAN_ROWS, projected, projected_determinism
from airflow_mv_provider.sources.reader import Copied, LogReader, SharingReader
from airflow_mv_provider.sources.shared import SharedState
from airflow_mv_provider.spark import delta
from airflow_mv_provider.spark.errors import translated
from airflow_mv_provider.spark.layout import sql_of
from airflow_mv_provider.spark.session import hide_passwords

log = logging.getLogger(__name__)

_RECORD = StructType(
    [
        StructField("topic", StringType()),
        StructField("partition", IntegerType()),
        StructField("offset", LongType()),
        StructField("timestamp", TimestampType()),
        StructField("key", BinaryType()),
        StructField("value", BinaryType()),
    ]
)
_END_OF_TIME_MS = 253_402_300_800_000  # the year 10000, which no date of Python has
_CLOCKS_DIFFER_MS = 3_600_000  # at most, of a database and of who writes its events into the topic
# What a record has beside its content, for `select`, unless the schema has a column of the name.
_LINEAGE = {
    "_partition": (envelope.PARTITION, "INT"),
    "_offset": (envelope.OFFSET, "BIGINT"),
    "_timestamp": (envelope.TIME, "TIMESTAMP"),
}


class KafkaReader(SharingReader[Kafka, KafkaFrontier], LogReader[Kafka, KafkaFrontier]):
    """A reader of one topic, from one of its states up to another; see `LogReader.events`."""

    def __init__(
        self, spark: SparkSession, source: Kafka, warehouse: str, roots: Sequence[str], credentials: Credentials
    ) -> None:
        super().__init__(spark, source, warehouse, roots)
        self._cluster = cluster_of(credentials)
        self._registry = registry_of(credentials) if source.registry else None
        self._found: Found | None = None
        self._shared: SharedTopics | None = None
        self._codecs: tuple[tuple[str | None, str | None], Codecs] | None = None  # with the schemas that it is of
        self._wanted: tuple[Span, ...] = ()  # what the last call of `events` reads
        self._writers: tuple[tuple[Span, ...], dict[int, str | None]] | None = (
            None  # with the spans whose ids they have
        )

    def share(self, state: SharedState[Kafka]) -> None:
        """See `SourceReader`."""
        assert isinstance(state, SharedTopics)
        self._shared = state

    def probe(self) -> KafkaFrontier:
        """Return where the topic's partitions end, with the schemas of its records; see `SourceReader`.

        raises : SourceUnavailableError, SourceDeniedError, SourceNotFoundError, DefinitionError; SourceFileError
        """
        value_schema, key_schema = self._schemas()
        self._codecs_of(value_schema, key_schema)
        self._found = self._pinned()
        return replace(self._found.frontier, value_schema=value_schema, key_schema=key_schema)

    def from_start(self, frontier: KafkaFrontier) -> KafkaFrontier:
        """Return the frontier that begins at the lowest offsets; see `SourceReader`."""
        return frontier.from_start(self._known.lows)

    def check_continues(self, since: Frontier, until: KafkaFrontier) -> None:
        """Check that it is the same topic, and that nothing between the two is gone; see `SourceReader`.

        raises : SourceReplacedError, SourceRegressedError, StreamGoneError
        """
        assert isinstance(since, KafkaFrontier), "the definition has changed, which is checked before"
        check_continues(since, until)
        wanted = spans(since, until)
        check_kept(self._source.topic, wanted, self._known.lows)
        if wanted and self._source.envelope != "none" and since.at_ms is not None:
            self._check_deletes_kept(since.at_ms, until, wanted)

    def _check_deletes_kept(self, at_ms: int, until: KafkaFrontier, wanted: Sequence[Span]) -> None:
        """Check that no delete was removed that came after the last publish; not where the login may not know.

        A publish that is younger than deletes are kept has none after it that is older. After another one only a place
        without young records can have lost one.
        """
        topic, timeout_s = self._source.topic, self._source.read_timeout
        kept_ms, now_ms = deletes_kept_ms(self._cluster, topic, timeout_s), round(time.time() * 1000)
        if kept_ms is None or now_ms - at_ms <= kept_ms:
            return
        kept = offsets_at(self._cluster, topic, now_ms - kept_ms, until.offsets, timeout_s)
        check_deletes_kept(topic, wanted, kept, kept_ms)

    def bounded(self, since: Frontier | None, until: KafkaFrontier) -> KafkaFrontier:
        """Return the state up to which at most `max_records` are read; see `SourceReader`.

        raises : SourceUnavailableError, SourceDeniedError, SourceNotFoundError
        """
        assert since is None or isinstance(since, KafkaFrontier)
        most, num = self._source.max_records, num_offsets(spans(since, until))
        if most is None or num <= most:
            return until
        starts = starts_of(since, until)
        timeout_s = self._source.read_timeout
        ends = bounded(self._cluster, self._source.topic, starts, until.offsets, most, timeout_s)
        # What is left was written before `until` was found.
        found = replace(until, offsets=ends, at_ms=None if since is None else since.at_ms)
        taken = num_offsets(spans(since, found))
        if taken < num:
            self.note = f"this refresh takes {taken} of {num} new records, and the next one goes on from there"
            log.info("%s: %s", until.topic, self.note)
        return found

    def time_ms(self, frontier: KafkaFrontier) -> int | None:
        """Return the latest time of a record up to the frontier, as the topic has it; see `SourceReader`.

        Returns:
            None also for a time after the year 9999: a producer may send any number, such as microseconds.
        """
        found = last_time_ms(self._cluster, self._source.topic, frontier.offsets, self._source.read_timeout)
        return found if found is not None and found < _END_OF_TIME_MS else None

    def events(self, since: Frontier | None, until: KafkaFrontier, copied: Copied | None = None) -> DataFrame:
        """Return the last event of each key between two states; see `LogReader`.

        If one truncates, the newer ones are returned from before `since` too: their partitions may have been read
        further than others. With a schema registry the records are read for the ids of their schemas first.

        raises : SourceChangedError, StreamGoneError; of a registry SourceUnavailableError, SourceDeniedError,
                 EventSchemaError; EventError while it is read
        """
        found = self._events(since, until)
        if copied is None:
            return found
        found = copied(found)
        if since is None:
            return found
        with translated("source"):
            noticed = replay.noticed_in(found)
        if noticed.snapshot_end is not None:
            self._check_begun(since, until, noticed.snapshot_end)
        if noticed.cut is None:
            return found
        log.info("%s: records that are newer than a TRUNCATE are read once more", until.topic)
        return copied(self._events(since, until, noticed.cut))

    def all_rows(self, events: DataFrame, main: DataFrame | None, key: Sequence[str]) -> DataFrame:
        """Return all rows that there are after the events; see `LogReader`."""
        return replay.all_rows(events, main, key)

    def signed(self, events: DataFrame, main: DataFrame, key: Sequence[str]) -> DataFrame:
        """Return the rows that the events take away and bring; see `LogReader`."""
        return replay.signed(events, main, key)

    def rejected(self, events: DataFrame, key: Sequence[str], former: DataFrame | None) -> DataFrame:
        """Return the records that cannot be rows; see `LogReader`."""
        found = replay.rejected(events, key)
        return found if former is None else found.unionByName(replay.still_rejected(former, events, key))

    def _events(self, since: Frontier | None, until: KafkaFrontier, cut: replay.Cut | None = None) -> DataFrame:
        """Return the last event of each key; with `cut` all that are newer, also those from before `since`."""
        assert since is None or isinstance(since, KafkaFrontier)
        self._check_same(self._known, until)
        begin = since if since is None or cut is None else self._before(cut, since, until)
        self._wanted = wanted = spans(begin, until)
        check_kept(self._source.topic, wanted, self._known.lows)
        log.info("%s: at most %d records of %d partitions", until.describe(), num_offsets(wanted), len(wanted))
        records, continues = self._records(wanted), since is not None and any(since.offsets) and cut is None
        codecs = self._reading(self._codecs_at(until), records)
        rows = codecs.last(records, self._source.envelope, continues=continues, cut=cut, keeps_bad=self.keeps_bad)
        return self._projected(rows, codecs.columns)

    def _check_begun(self, since: Frontier, until: KafkaFrontier, snapshot_end: int) -> None:
        """Check that a snapshot which ends after `since` began before it.

        Debezium marks the only row of a table as its last one, so the snapshot of one row that the connector takes when
        it has lost its place looks like the end of the first one.

        cost : reads the topic up to `since`; once for each snapshot, if a refresh ends within it
        """
        assert isinstance(since, KafkaFrontier)
        lows = self._known.lows[: len(since.offsets)]
        records = self._records(spans(replace(since, offsets=tuple(map(min, lows, since.offsets))), since))
        codecs = self._codecs_at(until)
        with translated("source"):
            if self._registry is not None:
                ids = codecs.schema_ids(records)
                codecs = codecs.reading(schemas_of(self._registry, ids, self._source.read_timeout))
            changes = codecs.changes(records, continues=False)
            begins = F.col(envelope.SNAPSHOT).isin(*envelope.FIRST_ROWS) & (F.col(replay.LSN) == snapshot_end)
            has_begun = bool(changes.where(begins).limit(1).count())
        if not has_begun:
            problem = f"{until.topic} has a new snapshot: what was deleted before it is in no event."
            raise StreamRestartedError("source", problem)

    def _before(self, cut: replay.Cut, since: KafkaFrontier, until: KafkaFrontier) -> KafkaFrontier:
        """Return a state of the topic, not after `since`, in which nothing newer than `cut` was written yet."""
        lows = self._known.lows
        known = starts_of(since, until)
        if cut.written_ms is None:
            return replace(since, offsets=tuple(map(min, lows, known)))
        then = cut.written_ms - _CLOCKS_DIFFER_MS
        found = offsets_at(self._cluster, self._source.topic, then, until.offsets, self._source.read_timeout)
        return replace(since, offsets=tuple(map(min, map(max, lows, found), known)))

    def read(self, frontier: KafkaFrontier, extra: Sequence[str] = ()) -> DataFrame:
        """Return the rows that the topic gives from its start; see `SourceReader`. Order columns do not exist.

        A frontier that continues has no rows by itself, only columns.
        """
        if not frontier.continues:
            events, records = self._events(None, frontier), self._records(spans(None, frontier))
            truncations = self._codecs_at(frontier).truncations(records, self._source.envelope)
            return replay.all_rows(events, None, (), truncations)
        columns = self._codecs_at(frontier).columns
        return projected(_with_lineage(self._nothing(columns), columns), self._select(columns))

    def _nothing(self, columns: StructType) -> DataFrame:
        """Return no rows, with these columns and those of a record's place."""
        lineage = [F.lit(None).cast(kind).alias(mark) for mark, kind in _LINEAGE.values()]
        return delta.no_rows(self._spark, columns).select("*", *lineage)

    def changes(self, since: Frontier, until: KafkaFrontier) -> Changeset:
        """Return at most how many records came; see `SourceReader`."""
        if not isinstance(since, KafkaFrontier) or compared(since, until) in (Order.ANOTHER, Order.BEHIND):
            return Whole("another topic answers than at the last publish", is_another=True)
        if not until.continues:
            return Whole("the topic is read from its start")
        return SignedRows(num_offsets(spans(since, until)))

    def determinism(self, frontier: KafkaFrontier) -> Determinism:
        """Return that it is: a `select` that is not is refused by `probe`, because rows are never read again."""
        return Determinism()

    def verify(self, frontier: KafkaFrontier) -> None:
        """Check that the topic is the same, and begins not later than what was read; see `SourceReader`.

        raises : SourceChangedError, StreamGoneError
        """
        now = self._inspected()
        self._check_same(now, frontier)
        check_kept(frontier.topic, self._wanted, now.lows)

    def _check_same(self, found: Found, frontier: KafkaFrontier) -> None:
        if (found.frontier.cluster, found.frontier.topic_id) != (frontier.cluster, frontier.topic_id):
            raise SourceChangedError("source", f"{frontier.topic} was made again after it was pinned.")

    @property
    def _known(self) -> Found:
        if self._found is None:
            self._found = self._pinned()
        return self._found

    def _pinned(self) -> Found:
        """Return the topic as it is now, or as it was in the state that this table shares with others."""
        shared = None if self._shared is None else self._shared.found(self._source.topic)
        return self._inspected() if shared is None else shared

    def _inspected(self) -> Found:
        return inspect(self._cluster, self._source.topic, self._source.read_timeout)

    def _schemas(self) -> tuple[str | None, str | None]:
        """Return what the definition's schema files have now, that of values and that of keys."""
        key, named = self._source.record_key, [self._source.message] if self._source.schema_file is not None else []
        named += [key.message] if key is not None and key.schema_file is not None else []
        both = zip(self.locations, named, strict=True)
        found = [schema_files.pinned(self._spark, location, message) for location, message in both]
        of_value = found.pop(0) if self._source.schema_file is not None else None
        return of_value, found[0] if found else None

    def _reading(self, codecs: Codecs, records: DataFrame) -> Codecs:
        """Return the codecs with the schemas of these records, which the registry is asked for once."""
        if self._registry is None:
            return codecs
        if self._writers is None or self._writers[0] != self._wanted:
            with translated("source"):
                ids = codecs.schema_ids(records)
            log.info("the records have the schemas %s", ids)
            self._writers = self._wanted, schemas_of(self._registry, ids, self._source.read_timeout)
        return codecs.reading(self._writers[1])

    def _codecs_at(self, frontier: KafkaFrontier) -> Codecs:
        return self._codecs_of(frontier.value_schema, frontier.key_schema)

    def _codecs_of(self, value_schema: str | None, key_schema: str | None) -> Codecs:
        schemas = (value_schema, key_schema)
        if self._codecs is None or self._codecs[0] != schemas:
            codecs = Codecs.of(self._spark, self._source, *schemas, self.key, self._check_columns)
            self._codecs = schemas, codecs
        return self._codecs[1]

    def _select(self, columns: StructType) -> list[str]:
        return list(record_keys.expanded(self._source.select or ("*",), columns))

    def _check_columns(self, columns: StructType) -> None:
        """Refuse a projection that is not computed row by row, or not the same each time: events are read once."""
        if self._source.select is None:
            return
        names = {field.name.lower() for field in columns.fields}
        each = [f"CAST(NULL AS {sql_of(field.dataType)}) AS {quoted(field.name)}" for field in columns.fields]
        each += [f"CAST(NULL AS {kind}) AS {name}" for name, (_, kind) in _LINEAGE.items() if name not in names]
        found = projected_determinism(self._spark, self._select(columns), f"(SELECT {', '.join(each)})")
        why = found.nondeterminism_reason or (None if found.is_by_row else MORE_THAN_ROWS)
        if why is not None:
            raise DefinitionError("select", f"a topic is read once, and row by row: {why}.")

    def _projected(self, rows: DataFrame, columns: StructType) -> DataFrame:
        """Return rows after the definition's projection, with their marks."""
        marks = [column.name for column in replay.marks_of(rows)]
        select = [each.strip() for each in self._select(columns)]
        if self._source.select is not None and replay.UNFILLED in marks:
            names = [field.name for field in columns.fields]
            gaps = [field.name for field in columns.fields if envelope.may_be_left_out(field.dataType)]

            def without(some: Collection[str]) -> DataFrame:
                fields = StructType([field for field in columns.fields if field.name not in some])
                return _with_lineage(self._nothing(fields), columns)

            rows = rows.withColumn(replay.UNFILLED, left_to_main(select, names, gaps, without))
        kept = [name for name in (record_keys.KEY, envelope.VALUE) if name in rows.columns]
        found = projected(_with_lineage(rows, columns), [*select, *marks, *kept])
        return envelope.with_keys_of_records(found, self.key) if record_keys.KEY in kept else found

    def _records(self, wanted: Sequence[Span]) -> DataFrame:
        """Return the records of some offsets, those of aborted transactions left out; lazy."""
        if not wanted:
            return delta.no_rows(self._spark, _RECORD)
        topic, timeout_ms = self._source.topic, str(self._source.read_timeout * 1000)
        options = {
            **self._cluster.spark,
            "kafka.isolation.level": "read_committed",
            "kafka.default.api.timeout.ms": timeout_ms,
            "kafka.request.timeout.ms": timeout_ms,
            "kafkaConsumer.pollTimeoutMs": timeout_ms,
            "fetchOffset.numRetries": "1",
            "failOnDataLoss": "true",
            "assign": json.dumps({topic: [span.partition for span in wanted]}),
            "startingOffsets": json.dumps({topic: {str(span.partition): span.start for span in wanted}}),
            "endingOffsets": json.dumps({topic: {str(span.partition): span.end for span in wanted}}),
        }
        with translated("source"):
            hide_passwords(self._spark, SECRET_OPTIONS)
            rows = self._spark.read.format("kafka").options(**options).load()
            _ = rows.schema  # over Spark Connect this is the first analysis
        return rows.select(*(field.name for field in _RECORD.fields))


def _with_lineage(rows: DataFrame, columns: StructType) -> DataFrame:
    names = {field.name.lower() for field in columns.fields}
    wanted = {name: mark for name, (mark, _) in _LINEAGE.items() if name not in names}
    return rows.select("*", *(F.col(mark).alias(name) for name, mark in wanted.items()))
