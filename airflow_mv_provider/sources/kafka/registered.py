"""Records of Avro with Confluent's header, which names the schema they were written with: a zero byte and an id.

The schemas come from a registry (`schema_registry`), by the ids that records have. Rows are read as of the reader's
schema, the definition's file: Avro fills in defaults and widens numbers. It also drops fields and symbols that the
reader's schema lacks, and reads a number of one unit or scale as one of another; here that is an error, as in JSON.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import BinaryType, StructField, StructType

from airflow_mv_provider.exceptions import EventSchemaError
from airflow_mv_provider.sources.kafka import avro_schema
from airflow_mv_provider.sources.kafka.avro import AvroCodec, end_of, from_avro, has_valid_texts, shown
from airflow_mv_provider.sources.kafka.codec import problem, problem_of
from airflow_mv_provider.spark.causes.streams import BAD_EVENT, BAD_SCHEMA

_HEADER_BYTES = 5
_MAX_IDS = 100  # each is a branch of the plan


@dataclass(frozen=True, slots=True)
class RegisteredCodec:
    """How such records are decoded.

    reader  : of the schema that rows have
    within  : only in this field a schema may not have what the reader's loses; None for everywhere
    writers : the schemas by their ids; None for one that the registry does not have, or not in Avro
    """

    reader: AvroCodec
    within: str | None = None
    writers: Mapping[int, str | None] = field(default_factory=dict)

    @property
    def columns(self) -> StructType:
        """See `Codec`."""
        return self.reader.columns

    def reading(self, writers: Mapping[int, str | None]) -> RegisteredCodec:
        """Return the same codec with the schemas that records were written with."""
        return replace(self, writers=writers)

    def parsed(self, frame: DataFrame, content: Column, name: str) -> DataFrame:
        """See `Codec`. What is refused for its schema is an EventSchemaError."""
        whole, number, payload = F.col("bytes"), F.col("schema_id"), F.col("payload")
        seen = frame.select("*", content.alias("bytes"))
        seen = seen.select("*", schema_id(whole).alias("schema_id"), _payload(whole).alias("payload"))
        parsed = seen.select("*", self._sealed(number, payload).alias("sealed"))
        is_whole = F.coalesce(F.col("sealed.end") == end_of(payload), F.lit(False))
        known = [each for each, text in self.writers.items() if text is not None]
        why = (
            F.when(whole.isNull(), F.lit(None))
            .when(number.isNull(), _because(BAD_EVENT, "the record has no header of a schema registry: ", shown(whole)))
            .when(~number.isin(known), _because(BAD_SCHEMA, "the registry has no Avro schema ", number))
        )
        for each in known:
            if (lacks := self._lacks(each)) is not None:
                why = why.when(number == each, _because(BAD_SCHEMA, lacks))
        why = why.when(~is_whole, _because(BAD_EVENT, "not a record of its Avro schema: ", shown(whole))).when(
            ~has_valid_texts(F.col("sealed.row"), self.columns), _because(BAD_EVENT, "not UTF-8")
        )
        record = F.when(whole.isNotNull() & why.isNull(), F.col("sealed.row"))
        return parsed.select(*frame.columns, record.alias(name), why.alias(problem_of(name)))

    def _sealed(self, number: Column, payload: Column) -> Column:
        """Return the record behind a header with the digest of its bytes after it; NULL if its schema is not known."""
        kind = StructType([StructField("row", self.columns), StructField("end", BinaryType())])
        found = F.when(F.lit(False), F.lit(None).cast(kind))
        reader = avro_schema.sealed(self.reader.schema)
        for each, text in self.writers.items():
            if text is not None and self._lacks(each) is None:
                written = F.concat(payload, end_of(payload))
                found = found.when(number == each, from_avro(written, avro_schema.sealed(text), avroSchema=reader))
        return found

    def _lacks(self, number: int) -> str | None:
        """Return what is wrong with a schema for this reader; None if nothing is."""
        try:
            lost = avro_schema.lost(str(self.writers[number]), self.reader.schema, self.within)
        except ValueError as error:
            return f"its schema {number} cannot be read: {error}"
        return None if lost is None else f"its schema {number} has {lost}"


def _because(what: str, text: str, *more: Column) -> Column:
    return problem(F.concat(F.lit(text), *(each.cast("string") for each in more)), what)


def schema_id(content: Column) -> Column:
    """Return the id in the header of a record; NULL if it has none."""
    has_header = (F.length(content) >= _HEADER_BYTES) & (F.substring(content, 1, 1) == F.unhex(F.lit("00")))
    return F.when(has_header, F.conv(F.hex(F.substring(content, 2, 4)), 16, 10).cast("bigint"))


def ids_in(records: DataFrame, names: Sequence[str]) -> list[int]:
    """Return the ids of the schemas that records have in their headers.

    names  : of the columns with such a header
    cost   : reads the records
    raises : EventSchemaError, if there are more than a hundred
    """
    found = records.select(F.explode(F.array(*(schema_id(F.col(name)) for name in names))).alias("id"))
    rows = found.where("id IS NOT NULL").distinct().limit(_MAX_IDS + 1).collect()
    if len(rows) > _MAX_IDS:
        raise EventSchemaError("source", f"the records have more than {_MAX_IDS} schemas.")
    return sorted(row.id for row in rows)


def _payload(content: Column) -> Column:
    return F.substring(content, _HEADER_BYTES + 1, 1 << 30)
