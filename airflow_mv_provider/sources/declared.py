"""Parse a definition's `schema` with Spark, without running a job or opening a file."""

from __future__ import annotations

from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from airflow_mv_provider.exceptions import DefinitionError
from airflow_mv_provider.spark.errors import first_line


def declared(spark: SparkSession, ddl: str) -> StructType:
    """Return the columns that a schema declares.

    raises : DefinitionError, if Spark cannot parse it
    """
    try:
        found = spark.range(0).select(F.from_json(F.lit("{}"), ddl)).schema.fields[0].dataType
    except AnalysisException as error:
        raise DefinitionError("source", f"the schema cannot be parsed: {_why(spark, ddl, error)}.") from error
    assert isinstance(found, StructType)
    return found


def _why(spark: SparkSession, ddl: str, error: AnalysisException) -> str:
    """Return the parser's message for `ddl` as a list of columns, which is clearer than `from_json`'s own.

    If it parses as columns, return `from_json`'s message, which explains why `ddl` is not a type.
    """
    try:
        spark.sql(f"SELECT CAST(NULL AS STRUCT<{ddl}>)").schema  # noqa: B018  # nosec B608  # the author's
    except AnalysisException as better:
        return first_line(str(better))
    return first_line(str(error))
