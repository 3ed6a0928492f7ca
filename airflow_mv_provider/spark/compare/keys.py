"""Keys that cannot be main's: NULL in one, the same one twice; and partitions that Delta would store as others."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from airflow_mv_provider.core.definition.identifier import quoted
from airflow_mv_provider.core.definition.table import RefreshableTable
from airflow_mv_provider.core.progress import SealedPartition, partition_values, unstorable
from airflow_mv_provider.exceptions import DuplicateKeyError, NullKeyError, PartitionValueError
from airflow_mv_provider.spark.errors import translated
from airflow_mv_provider.spark.layout import any_null, columns

_NUM_SAMPLES = 10
_REPLACEMENT = "\ufffd"
# What a key without a value may get in `select`, by the first word of its type.
_STAND_INS = {"string": "'none'", "date": "DATE'0001-01-01'", "timestamp": "TIMESTAMP'0001-01-01 00:00:00'"}
_STAND_INS |= dict.fromkeys(("tinyint", "smallint", "int", "bigint", "decimal"), "-1")


def samples(rows: DataFrame, key: Sequence[str]) -> list[str]:
    """Return up to ten keys as JSON, for an error's message; none of the other columns is shown."""
    keys = rows.select(F.to_json(F.struct(*columns(key)), {"ignoreNullFields": "false"}).alias("k"))
    return sorted(row.k for row in keys.distinct().limit(_NUM_SAMPLES).collect())


def null_key(staged: DataFrame, table: RefreshableTable, num_rows: int) -> NullKeyError:
    """Return the error for rows without a key, by samples of them and the column that lacks it."""
    is_null = {name: F.col(quoted(name)).isNull() for name in table.key}
    bad = staged.where(any_null(table.key))
    found = samples(bad, table.key)
    column = next(name for name, null in is_null.items() if bad.where(null).limit(1).collect())
    stand_in = _STAND_INS.get(dict(staged.dtypes)[column].split("(")[0], "...")
    return NullKeyError(
        table.name,
        f"key column {column!r} is NULL in {num_rows:,} rows of the source, such as {shown(found)}.",
        hint=f"Give it one in `select`, as in coalesce({quoted(column)}, {stand_in}) AS {quoted(column)}, that no other"
        " row has; or leave these rows out.",
        column=column,
        samples=found,
    )


def check_unique(staged: DataFrame, table: RefreshableTable) -> None:
    """Look for a key that is there twice, by a 64-bit hash of it first: far fewer bytes are shuffled and compared.

    raises : DuplicateKeyError
    """
    hashed = (
        staged.groupBy(F.xxhash64(*columns(table.key)).alias("h")).count().where("count > 1").select("h").limit(1000)
    )
    suspects = [row.h for row in hashed.collect()]
    if not suspects:
        return
    twice = (
        staged.where(F.xxhash64(*columns(table.key)).isin(suspects))
        .groupBy(*columns(table.key))
        .count()
        .where("count > 1")
    )
    if not (found := samples(twice, table.key)):
        if len(suspects) < 1000:
            return  # different keys with one hash
        twice = staged.groupBy(*columns(table.key)).count().where("count > 1")
        if not (found := samples(twice, table.key)):
            return
    raise duplicate_key(table, found)


def duplicate_key(table: RefreshableTable, found: Sequence[str]) -> DuplicateKeyError:
    """Return the error for keys that the source has twice, by samples of them."""
    return DuplicateKeyError(
        table.name,
        f"key ({', '.join(table.key)}) is not unique in the source; more than one row has {shown(found)}.",
        samples=found,
    )


def check_storable(table: RefreshableTable, parts: Iterable[SealedPartition], digests: Callable[[], DataFrame]) -> None:
    """Refuse partitions with values that Delta would store as others.

    digests : gives those of the same rows, (*partition_by, ...); asked only where a value may be bytes that are no text
    raises  : PartitionValueError
    """
    names = [part.partition for part in parts] if table.partition_by else []
    for name in names:
        if problem := unstorable(name, table.partition_by):
            raise PartitionValueError(table.name, problem)
    if any(_REPLACEMENT in (value or "") for name in names for value in partition_values(name)):
        _check_text(table, digests())


def _check_text(table: RefreshableTable, rows: DataFrame) -> None:
    """Refuse bytes that are no text: Python is given the replacement character for them, and so is Delta's log."""
    for column in table.partition_by:
        text = F.col(quoted(column)).cast("string")
        with translated(table.name):
            bad = rows.where(~F.is_valid_utf8(text)).select(F.hex(text.cast("binary")).alias("bytes"))
            found = bad.limit(1).collect()
        if found:
            problem = f"column {column!r} holds bytes that are no UTF-8 (hex {found[0].bytes[:80]}), which Delta stores"
            raise PartitionValueError(table.name, f"{problem} as {_REPLACEMENT!a}.")


def shown(found: Sequence[str]) -> str:
    """Return samples as a message has them."""
    return ", ".join(found)
