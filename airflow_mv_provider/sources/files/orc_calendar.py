"""Refuse old dates of ORC files that do not name the calendar that their days are counted by.

ORC has a date as a number of days, and a file may name the calendar by which its writer has counted them: the Gregorian
one for all times, or the Julian one before 1582-10-15, as Spark does. Arrow's files name none and mean the first; those
of Java before ORC 1.6 name none and mean the second. Spark's reader has an option for them. Where both of its values
give the same rows, the calendar does not matter.
"""

from __future__ import annotations

from datetime import date
from functools import reduce

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import DateType, StructType, TimestampType

from airflow_mv_provider.core.definition.identifier import quoted
from airflow_mv_provider.exceptions import SourceFileError
from airflow_mv_provider.spark.errors import translated
from airflow_mv_provider.spark.marking import FILE, plain_path
from airflow_mv_provider.spark.zone import is_before

_SAME_IN_BOTH = date(1583, 1, 1)
_KINDS = (DateType, TimestampType)


def check_calendar(spark: SparkSession, paths: list[str], columns: StructType) -> None:
    """Refuse files with a date or timestamp that is another one by the other calendar.

    Raises:
        SourceFileError: With one of the files.

    Cost:
        Reads the statistics of all stripes if there are such columns, and the rows of those that have old dates.
    """
    timed = StructType([each for each in columns.fields if is_before(StructType([each]), None, _KINDS) is not None])
    old = is_before(timed, _SAME_IN_BOTH, _KINDS)
    if old is None:
        return
    reader = spark.read.schema(timed).format("orc")

    def summed(sign: int, is_gregorian: str) -> DataFrame:
        rows = reader.option("orc.proleptic.gregorian.default", is_gregorian).load(paths).where(old)
        # As text: Spark hashes no maps.
        digest = F.xxhash64(*(F.col(quoted(name)).cast("string") for name in timed.fieldNames())).cast("decimal(38,0)")
        return rows.select(F.col(FILE).alias("file"), (digest * sign).alias("digest"))

    with translated("source"):
        both = reduce(DataFrame.union, (summed(1, "true"), summed(-1, "false"))).groupBy("file")
        differ = both.agg(F.sum("digest").alias("sum")).where("sum <> 0").select(plain_path(F.col("file"))).limit(1)
        found = differ.collect()
    if found:
        problem = (
            f"{found[0][0]} has a date before 1582-10-15 and does not say in which calendar: it may be another day"
        )
        hint = "Write it with Spark, or as Parquet, which has one calendar; or without dates that old."
        raise SourceFileError("source", f"{problem}.", hint=hint)
