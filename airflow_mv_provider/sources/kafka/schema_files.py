"""Read the schema files of a definition, when a refresh pins its source; what a file had then is in the frontier.

A schema is kept in one spelling, so that white space is no change: Avro's as JSON, Protobuf's as `descriptors` has it.
"""

from __future__ import annotations

import json
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from airflow_mv_provider.exceptions import DefinitionError, SourceFileError
from airflow_mv_provider.sources.kafka.protobuf import descriptors
from airflow_mv_provider.spark.errors import translated

_MAX_BYTES = 1 << 20


def pinned(spark: SparkSession, location: str, message: str | None = None) -> str:
    """Return the schema in a file, in one spelling.

    message : the message of Protobuf that it has to describe; None for Avro
    cost    : a Spark job of one row: only Spark reaches every place, a Connect server's disk included
    raises  : SourceNotFoundError, SourceFileError; DefinitionError, if it is no JSON, or does not have the message;
              ConnectionUnknownError, where Python has no library for Protobuf
    """
    with translated("source"):
        file = spark.read.format("binaryFile").load(location)
        content = F.when(F.col("length") <= _MAX_BYTES, F.col("content"))
        found = file.select("length", content.alias("content")).limit(2).collect()
    if len(found) != 1:
        raise SourceFileError("source", f"{location} is not one file with a schema.", hint="Name the file itself.")
    if found[0].content is None:
        problem = f"{location} has {found[0].length} bytes, a schema at most {_MAX_BYTES}."
        raise SourceFileError("source", problem, hint="Name the file of the schema.")
    if message is not None:
        return descriptors.kept(bytes(found[0].content), message, location)
    try:
        schema: Any = json.loads(bytes(found[0].content))
    except (ValueError, RecursionError) as error:
        raise DefinitionError("source", f"{location} is no Avro schema: it is not JSON.") from error
    return json.dumps(schema, sort_keys=True, separators=(",", ":"))
