"""The codecs of one definition: how its records' values are decoded, and their keys."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import ArrayType, MapType, StructType

from airflow_mv_provider.exceptions import DefinitionError
from airflow_mv_provider.sources.declared import declared
from airflow_mv_provider.sources.kafka import debezium, envelope, record_keys
from airflow_mv_provider.sources.kafka.avro import AvroCodec
from airflow_mv_provider.sources.kafka.codec import Codec, TextCodec
from airflow_mv_provider.sources.kafka.model import Kafka, RecordKey
from airflow_mv_provider.sources.kafka.protobuf.codec import ProtobufCodec
from airflow_mv_provider.sources.kafka.record_keys import KeyDecoder
from airflow_mv_provider.sources.kafka.registered import RegisteredCodec, ids_in
from airflow_mv_provider.sources.kafka.replay import Cut

_NESTED = (ArrayType, MapType, StructType)


@dataclass(frozen=True, slots=True)
class Codecs:
    """How the records of a topic become rows.

    Attributes:
        columns: Of a row.
        key: None where keys are not read, since each record is a row of its own.
    """

    columns: StructType
    value: Codec
    key: KeyDecoder | None

    @classmethod
    def of(
        cls,
        spark: SparkSession,
        source: Kafka,
        value_schema: str | None,
        key_schema: str | None,
        table_key: Sequence[str],
        check: Callable[[StructType], None] = lambda _: None,
    ) -> Codecs:
        """Return the codecs of a definition; runs no job.

        Args:
            value_schema: The content of its schema file, as `schema_files.pinned` returns it.
            key_schema: As `value_schema`.
            table_key: See `record_keys.decoder`.
            check: Refuses a projection of these columns that cannot be used.

        Raises:
            DefinitionError: If it cannot be used.
            KeyColumnError: See `record_keys.decoder`.
        """
        value = _codec(spark, source, value_schema)
        is_wrapped = source.envelope == "debezium" and isinstance(value, AvroCodec)
        columns = debezium.row_of_events(value.columns) if is_wrapped else value.columns
        check(columns)
        if source.registry and isinstance(value, AvroCodec):
            value = RegisteredCodec(value, "after" if is_wrapped else None)
        if source.envelope == "none":
            return cls(columns, value, None)
        key = None if source.record_key is None else _codec(spark, source.record_key, key_schema)
        if source.registry and isinstance(key, AvroCodec):
            key = RegisteredCodec(key)
        select = record_keys.expanded(source.select, columns)
        return cls(columns, value, record_keys.decoder(spark, columns, select, table_key, key))

    def schema_ids(self, records: DataFrame) -> list[int]:
        """Return the ids of the registered schemas that records have; reads them, unless there is no registry.

        raises : EventSchemaError, if they are too many
        """
        both = {"value": self.value, "key": None if self.key is None else self.key.codec}
        names = [name for name, codec in both.items() if isinstance(codec, RegisteredCodec)]
        return ids_in(records, names) if names else []

    def reading(self, writers: Mapping[int, str | None]) -> Codecs:
        """Return the same codecs with the schemas that records were written with."""

        def with_them(codec: Codec) -> Codec:
            return codec.reading(writers) if isinstance(codec, RegisteredCodec) else codec

        key = None if self.key is None else replace(self.key, codec=with_them(self.key.codec))
        return replace(self, value=with_them(self.value), key=key)

    def last(
        self, records: DataFrame, how: str, *, continues: bool, cut: Cut | None = None, keeps_bad: bool = False
    ) -> DataFrame:
        """Return the last event of each key; see `envelope`.

        how       : the definition's envelope
        continues : events came before these
        cut       : an event of Debezium that truncates; older ones are left out
        keeps_bad : what cannot be decoded is marked, and does not raise
        """
        if self.key is None:
            return envelope.rows_of(records, self.value, keeps_bad=keeps_bad)
        if how == "upsert":
            return envelope.last_of_keys(records, self.value, self.key, keeps_bad=keeps_bad)
        changes = self.changes(records, continues=continues, cut=cut, keeps_bad=keeps_bad)
        return envelope.last_changes(changes, self.columns)

    def changes(
        self, records: DataFrame, *, continues: bool, cut: Cut | None = None, keeps_bad: bool = False
    ) -> DataFrame:
        """Return each event of Debezium as a row; see `last`. An event in Avro is decoded as a whole, or raises."""
        assert self.key is not None, "envelope none has no changes"
        if isinstance(self.value, TextCodec):
            return debezium.changes_of_json(
                records, self.value, self.key, continues=continues, cut=cut, keeps_bad=keeps_bad
            )
        return debezium.changes_of_avro(records, self.value, self.key, continues=continues, cut=cut)

    def truncations(self, records: DataFrame, how: str) -> DataFrame | None:
        """Return, as `changes` does, the events of a topic from its start among which are all that truncate.

        returns : None if they are not found for less than by reading all of them
        """
        if how != "debezium" or not isinstance(self.value, TextCodec):
            return None
        return self.changes(debezium.may_truncate(records), continues=False)


def _codec(spark: SparkSession, what: Kafka | RecordKey, schema: str | None) -> Codec:
    match what.format:
        case "json" | "csv":
            assert what.schema_ is not None, "checked by the definition"
            columns = declared(spark, what.schema_)
            nested = (field.name for field in columns.fields if isinstance(field.dataType, _NESTED))
            if what.format == "csv" and (name := next(nested, None)) is not None:
                raise DefinitionError("source", f"{name} has a type that a value of csv cannot have.")
            return TextCodec(columns, what.format, what.options)
        case "avro":
            assert schema is not None, "pinned before anything is read"
            return AvroCodec.of(spark, schema)
        case "protobuf":
            assert schema is not None and what.message is not None, "pinned before; checked by the definition"
            return ProtobufCodec.of(schema, what.message)
