"""Decode Avro by Spark's own function, strictly. What that does in silence:

    bytes after the record       dropped; so a record of another schema may be read as one of this
    a text that is not UTF-8     kept as it is

A record is therefore decoded together with the MD5 of its bytes after it, which is only found whole where it ends.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, MapType, StringType, StructType

from airflow_mv_provider.exceptions import DefinitionError
from airflow_mv_provider.sources.kafka import avro_schema
from airflow_mv_provider.sources.kafka.codec import problem, problem_of
from airflow_mv_provider.spark.errors import FROM_SPARK, first_line, translate

_NUM_SHOWN = 16
_NO_SCHEMA = ("AvroTypeException", "SchemaParseException", "AvroRuntimeException", "IncompatibleSchemaException")
_OF_AVRO = {"mode": "PERMISSIVE", "datetimeRebaseMode": "CORRECTED"}


@dataclass(frozen=True, slots=True)
class AvroCodec:
    """Records of Avro.

    schema : as JSON, that of the writers
    """

    columns: StructType
    schema: str

    @classmethod
    def of(cls, spark: SparkSession, schema: str) -> AvroCodec:
        """Return the codec of a schema; runs no job.

        raises : DefinitionError, if it is no schema of a record or Spark has no type for it
        """
        avro_schema.check_record(schema)
        found = _analysed(spark, from_avro(F.lit(None).cast("binary"), avro_schema.sealed(schema)))
        columns = found.fields[0].dataType
        assert isinstance(columns, StructType)
        return cls(columns, schema)

    def parsed(self, frame: DataFrame, content: Column, name: str) -> DataFrame:
        """See `Codec`."""
        parsed = frame.select("*", content.alias("bytes")).select("*", self._sealed(F.col("bytes")).alias("sealed"))
        is_whole = F.coalesce(F.col("sealed.end") == end_of(F.col("bytes")), F.lit(False))
        not_utf_8 = ~has_valid_texts(F.col("sealed.row"), self.columns)
        detail = F.when(~is_whole, F.concat(F.lit("not a record of the Avro schema: "), shown(F.col("bytes"))))
        why = F.when(F.col("bytes").isNotNull(), detail.when(not_utf_8, F.lit("not UTF-8")))
        record = F.when(why.isNull(), F.col("sealed.row"))
        return parsed.select(*frame.columns, record.alias(name), problem(why).alias(problem_of(name)))

    def _sealed(self, content: Column) -> Column:
        return from_avro(F.concat(content, end_of(content)), avro_schema.sealed(self.schema))


def from_avro(content: Column, schema: str, **more: str) -> Column:
    """Return the value of Avro's bytes; NULL, or a struct of NULLs, for bytes that have none.

    schema : that of the writer
    more   : options of Spark's function
    """
    options = F.create_map(*(F.lit(text) for pair in (_OF_AVRO | more).items() for text in pair))
    return F.call_function("from_avro", content, F.lit(schema), options)


def _analysed(spark: SparkSession, found: Column) -> StructType:
    try:
        kind = spark.range(0).select(found.alias("r")).schema.fields[0].dataType
    except FROM_SPARK as error:
        text = str(error)
        if any(words in text for words in _NO_SCHEMA):
            problem = f"the Avro schema cannot be used: {first_line(text)}."
            raise DefinitionError("source", problem, hint="Correct the schema file.") from error
        raise translate(error, "source") from error
    assert isinstance(kind, StructType)
    return kind


def end_of(content: Column) -> Column:
    """Return the 16 bytes that are put behind a record to see that it ends there."""
    return F.unhex(F.md5(content))


def shown(content: Column) -> Column:
    """Return bytes as a message shows them: how many, and how they begin."""
    start = F.lower(F.hex(F.substring(content, 1, _NUM_SHOWN)))
    length = F.length(content)
    return F.concat(
        length.cast("string"), F.lit(" bytes"), F.when(length > 0, F.concat(F.lit(", "), start)).otherwise("")
    )


def has_valid_texts(value: Column, kind: DataType) -> Column:
    """Return the condition that each text in a value is UTF-8; NULL counts as valid."""
    match kind:
        case StringType():
            return F.coalesce(F.is_valid_utf8(value), F.lit(True))
        case ArrayType(elementType=element) if _has_texts(element):
            return F.coalesce(F.forall(value, lambda each: has_valid_texts(each, element)), F.lit(True))
        case MapType(keyType=key, valueType=inner):
            keys = F.forall(F.map_keys(value), lambda each: has_valid_texts(each, key))
            inside = F.forall(F.map_values(value), lambda each: has_valid_texts(each, inner))
            return F.coalesce(keys & inside, F.lit(True))
        case StructType(fields=fields) if _has_texts(kind):
            found = [has_valid_texts(value[each.name], each.dataType) for each in fields if _has_texts(each.dataType)]
            return reduce(Column.__and__, found)
    return F.lit(True)


def _has_texts(kind: DataType) -> bool:
    match kind:
        case StructType(fields=fields):
            return any(_has_texts(each.dataType) for each in fields)
        case ArrayType(elementType=element):
            return _has_texts(element)
    return isinstance(kind, StringType | MapType)
