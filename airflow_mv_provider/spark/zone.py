"""The time zone of Spark's JVMs, which decides what some formats' times are, whatever the session's zone is.

ORC's reader takes a TIMESTAMP as what the JVM's clock showed. Parquet's and Avro's readers convert times before 1900
that Spark 2 has written, or a later one in its legacy mode, by the zone of the JVM if the file names none. In UTC all
of them are what the file has. A JVM that this package starts is in UTC (`core.jvm_zone`); one that somebody else has
started is asked in the task that reads, since each executor has a zone of its own.

A Delta table can have such files, too: Spark reads each file by its own footer. There the JVMs are asked beforehand, as
a question in each task would keep conditions from being evaluated by statistics.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import date
from functools import lru_cache, reduce

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, MapType, StructField, StructType, TimestampType

from airflow_mv_provider.core.definition.identifier import quoted
from airflow_mv_provider.spark.errors import OTHER_ZONE, in_other_zone
from airflow_mv_provider.spark.session import is_remote

_SAME = ("UTC", "Etc/UTC", "Z", "UCT", "Etc/UCT", "Zulu", "Etc/Zulu", "Universal", "GMT", "Etc/GMT", "GMT0")
_ZONE = "reflect('java.time.ZoneId', 'systemDefault')"
_NUM_ASKED = 8  # tasks, which Spark spreads over the executors that are free
_FIRST_WITHOUT_LOCAL_TIMES = date(1900, 2, 1)  # Spark converts nothing from 1900-01-01 on, in no zone


def in_utc(spark: SparkSession, columns: StructType, *, is_of_any_time: bool) -> list[Column]:
    """Return the columns of files such that a value fails in a JVM whose zone may decide it; others are as they are.

    Args:
        is_of_any_time: The zone decides all times, as in ORC, and not only those before 1900.

    Cost:
        Nothing in a local JVM in UTC. Else a question for each task, or for each time before 1900, of two microseconds.
    """
    is_known = _is_local_in_utc(spark)
    return [F.col(quoted(each.name)) if is_known else _asking(each, is_of_any_time) for each in columns.fields]


def check_no_old_times(spark: SparkSession, read: Callable[[], DataFrame]) -> None:
    """Refuse a Delta table's rows if a JVM in another zone may shift one of their times.

    Args:
        spark: The session.
        read: Returns the rows; called only if there is such a JVM.

    Raises:
        SettingError

    Cost:
        Nothing in a local JVM in UTC. Else a question to the executors, once a session; and if one is in another zone,
        a scan for times before 1900, for which statistics leave out most files.
    """
    if _is_local_in_utc(spark):
        return
    if (other := _other_zone(spark)) is not None:
        rows = read()
        old = is_before(rows.schema, _FIRST_WITHOUT_LOCAL_TIMES, (TimestampType,))
        if old is not None and rows.where(old).limit(1).count():
            raise in_other_zone("source", other)


@lru_cache(maxsize=1)
def _other_zone(spark: SparkSession) -> str | None:
    """Return the zone of one of a session's JVMs that is not in UTC; None if there is none."""
    asked = spark.range(0, _NUM_ASKED, 1, _NUM_ASKED).select(F.expr(_ZONE).alias("zone"))
    return next((row.zone for row in asked.collect() if row.zone not in _SAME), None)


def _asking(field: StructField, is_of_any_time: bool) -> Column:
    value = F.col(quoted(field.name))
    is_decided = is_before(
        StructType([field]), None if is_of_any_time else _FIRST_WITHOUT_LOCAL_TIMES, (TimestampType,)
    )
    if is_decided is None:
        return value
    if is_of_any_time:  # the first row of a task is enough; the id's upper bits are the partition's number
        is_decided = F.monotonically_increasing_id() % F.lit(1 << 33) == F.lit(0)
    same = ", ".join(f"'{name}'" for name in _SAME)
    is_utc = F.expr(f"if({_ZONE} IN ({same}), true, raise_error(concat('{OTHER_ZONE} ', {_ZONE}, ' ')))")
    return F.when(is_decided, F.when(is_utc, value)).otherwise(value).alias(field.name)


def is_before(columns: StructType, bound: date | None, kinds: tuple[type[DataType], ...]) -> Column | None:
    """Return whether a row has a value of one of some types of times, at any depth, that is before a day.

    Args:
        bound: None for any time.

    Returns:
        None if there is no column of these types.
    """
    found = [_is_before(F.col(quoted(field.name)), field.dataType, bound, kinds) for field in columns.fields]
    return _any([each for each in found if each is not None])


def _is_before(value: Column, kind: DataType, bound: date | None, kinds: tuple[type[DataType], ...]) -> Column | None:
    if isinstance(kind, kinds):
        return F.lit(True) if bound is None else F.coalesce(value < F.lit(bound), F.lit(False))
    if isinstance(kind, StructType):
        parts = (_is_before(value.getField(f.name), f.dataType, bound, kinds) for f in kind.fields)
        return _any([each for each in parts if each is not None])
    if isinstance(kind, ArrayType):
        return _is_any_before(value, kind.elementType, bound, kinds)
    if isinstance(kind, MapType):
        sides = ((F.map_keys(value), kind.keyType), (F.map_values(value), kind.valueType))
        found = (_is_any_before(each, of_side, bound, kinds) for each, of_side in sides)
        return _any([each for each in found if each is not None])
    return None


def _is_any_before(
    values: Column, kind: DataType, bound: date | None, kinds: tuple[type[DataType], ...]
) -> Column | None:
    if _is_before(F.get(values, F.lit(0)), kind, bound, kinds) is None:
        return None
    return F.coalesce(F.exists(values, lambda each: _is_before(each, kind, bound, kinds)), F.lit(False))  # type: ignore[arg-type, return-value]


def _any(conditions: list[Column]) -> Column | None:
    return reduce(Column.__or__, conditions) if conditions else None


def _is_local_in_utc(spark: SparkSession) -> bool:
    """True if all work is done in this process's own JVM, and that is in UTC."""
    if is_remote(spark) or not (spark.sparkContext.master or "").startswith("local"):
        return False
    return spark._jvm.java.time.ZoneId.systemDefault().getId() in _SAME  # type: ignore[union-attr]
