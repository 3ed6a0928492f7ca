"""Check for keys that main cannot have (NULL, duplicate or moved) and for partition values that Delta would alter."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import reduce

from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as F

from airflow_mv_provider.core.definition.identifier import quoted
from airflow_mv_provider.core.definition.table import RefreshableTable
from airflow_mv_provider.core.guard import Counts
from airflow_mv_provider.core.progress.partition import partition_values, unstorable
from airflow_mv_provider.exceptions import DuplicateKeyError, KeyMovedError, NullKeyError, PartitionValueError
from airflow_mv_provider.spark import partitions
from airflow_mv_provider.spark.errors import translated
from airflow_mv_provider.spark.layout import any_null, columns, same_values

_NUM_SAMPLES = 10
_MAX_SUSPECTS = 1000  # hashes that more than one row has
_IS_NEW = "_mv_is_new"
_REPLACEMENT = "\ufffd"
# Values that a hint proposes for a NULL key in `select`, by the first word of the key's type.
_STAND_INS = {
    **{"string": "'none'", "date": "DATE'0001-01-01'", "timestamp": "TIMESTAMP'0001-01-01 00:00:00'"},
    **{"timestamp_ntz": "TIMESTAMP_NTZ'0001-01-01 00:00:00'", "tinyint": "-1Y", "smallint": "-1S", "int": "-1"},
    **{"bigint": "-1", "decimal": "CAST(-1 AS {kind})"},  # Spark would take -1 for an INT, and widen the key for it
}


def samples(rows: DataFrame, key: Sequence[str]) -> list[str]:
    """Return the first ten keys as JSON, for an error's message; other columns are not shown."""
    keys = rows.select(F.to_json(F.struct(*columns(key)), {"ignoreNullFields": "false"}).alias("k"))
    return [row.k for row in _first(keys.distinct(), "k", _NUM_SAMPLES)]


def _first(rows: DataFrame, column: str, number: int) -> list[Row]:
    """Return the first rows by a column, in one job: a bare `limit` runs one partition, then some, then the rest."""
    return rows.orderBy(column).limit(number).collect()


def null_key(staged: DataFrame, table: RefreshableTable, num_rows: int) -> NullKeyError:
    """Return the error for rows with a NULL key, with sample keys and the first key column that is NULL."""
    is_null = {name: F.col(quoted(name)).isNull() for name in table.key}
    bad = staged.where(any_null(table.key))
    found = samples(bad, table.key)
    column = next(name for name, null in is_null.items() if bad.where(null).limit(1).collect())
    kind = dict(staged.dtypes)[column]
    stand_in = _STAND_INS.get(kind.split("(")[0], "...").format(kind=kind.upper())
    return NullKeyError(
        table.name,
        f"key column {column!r} is NULL in {num_rows:,} rows of the source, such as {shown(found)}.",
        hint=f"Give it one in `select`, as in coalesce({quoted(column)}, {stand_in}) AS {quoted(column)}, that no other"
        " row has; or leave these rows out.",
        column=column,
        samples=found,
    )


def check_unique(staged: DataFrame, table: RefreshableTable) -> None:
    """Check that no key occurs twice, by a 64-bit hash first, so that far fewer bytes are shuffled and compared.

    raises : DuplicateKeyError
    """
    hashed = staged.groupBy(F.xxhash64(*columns(table.key)).alias("h")).count().where("count > 1").select("h")
    suspects = [row.h for row in _first(hashed, "h", _MAX_SUSPECTS)]
    if not suspects:
        return
    twice = (
        staged.where(F.xxhash64(*columns(table.key)).isin(suspects))
        .groupBy(*columns(table.key))
        .count()
        .where("count > 1")
    )
    if not (found := samples(twice, table.key)):
        if len(suspects) < _MAX_SUSPECTS:
            return  # different keys with one hash
        twice = staged.groupBy(*columns(table.key)).count().where("count > 1")
        if not (found := samples(twice, table.key)):
            return
    raise duplicate_key(table, found)


def counted(desired: DataFrame, main: DataFrame, table: RefreshableTable) -> tuple[dict[str, Counts], bool]:
    """Return by partition what overwriting main with other rows does to it, as far as keys show that.

    desired, main : (*group_by, ...)
    returns       : the counts, in which every row whose key stays is updated; and whether each key is desired once
    cost          : a scan and a shuffle of the keys of both
    """
    by, is_new = columns(table.group_by), F.col(_IS_NEW)
    both = desired.select(*by, F.lit(True).alias(_IS_NEW)).unionAll(main.select(*by, F.lit(False).alias(_IS_NEW)))
    each = both.groupBy(*by).agg(F.count_if(is_new).alias("n"), F.count_if(~is_new).alias("m"))
    names, n, m = partitions.names(table), F.col("n"), F.col("m")
    sums = (
        *(F.sum(n), F.sum(m), F.sum(F.when(m == 0, n).otherwise(0))),
        *(F.count_if((n > 0) & (m > 0)), F.sum(F.when(n == 0, m).otherwise(m - F.least(n, m)))),
        F.count_if(n > 1),
    )
    with translated(table.name):
        found = each.groupBy(*names).agg(*sums).collect()
    counts = {partitions.name(row[: len(names)]): Counts(*(v or 0 for v in row[len(names) : -1])) for row in found}
    return counts, not any(row[-1] for row in found)


def duplicate_key(table: RefreshableTable, found: Sequence[str]) -> DuplicateKeyError:
    """Return the error for keys that the source has more than once, with sample keys."""
    return DuplicateKeyError(
        table.name,
        f"key ({', '.join(table.key)}) is not unique in the source; more than one row has {shown(found)}.",
        samples=found,
    )


def check_unmoved(inserted: DataFrame, main: DataFrame, table: RefreshableTable) -> None:
    """Refuse rows whose key main has in another partition.

    A commit of some partitions cannot delete such a row from the partition it left, so main would have it twice.

    inserted : (*group_by, ...), the rows that are new in their partitions
    main     : all of main's rows
    cost     : a scan of main's keys, and a shuffle of them
    raises   : KeyMovedError, with up to ten samples
    """
    by = columns(table.group_by)
    with translated(table.name):
        if found := samples(_moved(inserted.select(*by), main.select(*by), table), table.key):
            raise KeyMovedError(
                table.name,
                f"rows are in other partitions than in the table: key {shown(found)}.",
                samples=found,
            )


def _moved(desired: DataFrame, main: DataFrame, table: RefreshableTable) -> DataFrame:
    """Return the desired keys that main has in another partition.

    desired, main : (*group_by, ...)
    """
    d, m = desired.alias("d"), main.alias("m")
    on = [F.col(f"d.{quoted(k)}") == F.col(f"m.{quoted(k)}") for k in table.key]
    elsewhere = [
        ~F.col(f"d.{quoted(p)}").eqNullSafe(F.col(f"m.{quoted(p)}")) for p in table.group_by if p not in table.key
    ]
    return d.join(m, reduce(Column.__and__, on) & reduce(Column.__or__, elsewhere), "left_semi")


def check_storable(table: RefreshableTable, names: Iterable[str], rows: DataFrame) -> None:
    """Refuse partition values that Delta would store as other values.

    names  : of the partitions
    rows   : (*partition_by, ...), of at least all new partitions; read only if a value may be invalid UTF-8
    raises : PartitionValueError
    """
    names = list(names) if table.partition_by else []
    for name in names:
        if problem := unstorable(name, table.partition_by):
            raise PartitionValueError(table.name, problem)
    if any(_REPLACEMENT in (value or "") for name in names for value in partition_values(name)):
        _check_text(table, rows)


def _check_text(table: RefreshableTable, rows: DataFrame) -> None:
    """Refuse invalid UTF-8: Python receives the replacement character for it, and so does Delta's log."""
    for column in table.partition_by:
        text = F.col(quoted(column)).cast("string")
        with translated(table.name):
            bad = rows.where(~F.is_valid_utf8(text)).select(F.hex(text.cast("binary")).alias("bytes"))
            found = bad.limit(1).collect()
        if found:
            problem = (
                f"column {column!r} holds bytes that are not UTF-8 (hex {found[0].bytes[:80]}), which Delta stores"
            )
            raise PartitionValueError(table.name, f"{problem} as {_REPLACEMENT!a}.")


def shown(found: Sequence[str]) -> str:
    """Return samples as text for a message."""
    return ", ".join(found)


def missing(rows: DataFrame, others: DataFrame, table: RefreshableTable) -> DataFrame:
    """Return the rows whose key, in its partition, is not among `others`.

    rows, others : (*group_by, ...)
    """
    r, o = rows.alias("r"), others.alias("o")
    on = same_values("r", "o", table.group_by)
    return r.join(o, reduce(Column.__and__, on), "left_anti")
