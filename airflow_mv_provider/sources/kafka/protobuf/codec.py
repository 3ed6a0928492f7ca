"""The codec of Protobuf; see `codec.Codec`."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark import cloudpickle
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField, StructType

from airflow_mv_provider.sources.kafka.codec import problem, problem_of
from airflow_mv_provider.sources.kafka.protobuf import decoding
from airflow_mv_provider.sources.kafka.protobuf.descriptors import columns_of, descriptor_of

# The code goes with the task, so that a cluster needs Python's library for Protobuf and not this package.
cloudpickle.register_pickle_by_value(decoding)  # type: ignore[no-untyped-call]


@dataclass(frozen=True, slots=True)
class ProtobufCodec:
    """Records of Protobuf.

    schema  : as `descriptors.kept` returns it
    message : its full name
    """

    columns: StructType
    schema: str
    message: str

    @classmethod
    def of(cls, schema: str, message: str) -> ProtobufCodec:
        """Return the codec of a message.

        raises : DefinitionError
        """
        return cls(columns_of(descriptor_of(schema, message)), schema, message)

    def parsed(self, frame: DataFrame, content: Column, name: str) -> DataFrame:
        """See `Codec`."""
        kind = StructType([StructField("row", self.columns), StructField("problem", StringType())])
        decode = F.udf(decoding.Decoder(self.schema, self.message), kind, useArrow=False)
        parsed = frame.select("*", content.alias("bytes")).select("*", decode("bytes").alias("found"))
        why = problem(F.col("found.problem")).alias(problem_of(name))
        return parsed.select(*frame.columns, F.col("found.row").alias(name), why)
