"""The corrections that turn main into the desired rows, key by key.

Main may hold arbitrary rows: duplicate rows and NULL keys are differences too. Each correction is one row with one of
these `_mv_op` (`_mv_copies` counts main's rows with the key):

    I  insert                     in desired, not in main
    U  update                     in both, different
    D  delete                     in main, not in desired
    X  delete every copy          main has this key more than once
    R  insert after an X          and desired has this key too
    ?  none: desired has this key more than once, which is an error of the source
"""

from __future__ import annotations

from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from airflow_mv_provider.core.definition import schema
from airflow_mv_provider.core.definition.identifier import quoted
from airflow_mv_provider.spark.compare.hashing import HASH, row_hash
from airflow_mv_provider.spark.layout import Layout, columns, same_values

OLD_HASH, NEW_HASH, OP, COPIES = "_mv_old_hash", "_mv_new_hash", "_mv_op", "_mv_copies"
SIGN, _NET, _ROW, _OPS = "_mv_sign", "_mv_net", "_mv_row", "_mv_ops"
CHANGE_COLUMNS = (
    schema.Column(OP, "string"),
    *(schema.Column(name, "long") for name in (OLD_HASH, NEW_HASH, COPIES)),
)


def between(desired: DataFrame, main: DataFrame, layout: Layout) -> DataFrame:
    """Return the corrections that turn `main` into `desired`.

    desired : (*columns, _mv_hash bigint), arbitrary rows
    main    : (*group_by, _mv_hash bigint), arbitrary rows
    returns : (*CHANGE_COLUMNS, *columns); rows to delete have only the key and the partition columns, others NULL
    cost    : one shuffle of both sides on the key; lazy, runs no action
    source  : "corrections", Materialize `src/compute/src/sink/materialized_view.rs`
    """
    row = F.first(F.when(F.col(SIGN) > 0, F.struct(*columns(layout.names))), ignorenulls=True).alias(_ROW)
    found = _differing(desired, main, layout, row)
    return found.select(F.explode(_OPS).alias(OP), OLD_HASH, NEW_HASH, COPIES, *_values(layout))


def keys_between(desired: DataFrame, main: DataFrame, layout: Layout) -> DataFrame:
    """Return the keys and operations of the corrections that turn `main` into `desired`, for `with_values`.

    desired, main : (*group_by, _mv_hash bigint), arbitrary rows
    returns       : (*CHANGE_COLUMNS, *group_by)
    cost          : one shuffle of both sides' keys and hashes; where few rows differ, less than half of `between`
    """
    found = _differing(desired, main, layout)
    return found.select(F.explode(_OPS).alias(OP), OLD_HASH, NEW_HASH, COPIES, *columns(layout.table.group_by))


def with_values(keys: DataFrame, desired: DataFrame, layout: Layout, *, are_few: bool) -> DataFrame:
    """Return corrections with the values of their rows.

    keys    : as `keys_between` returns them
    desired : (*columns)
    are_few : the keys are sent to every task, and the desired rows are not shuffled
    """
    table = layout.table
    new, gone = keys.where(brings_row()), keys.where(~brings_row())
    new = F.broadcast(new) if are_few else new
    d, k = desired.alias("d"), new.alias("k")
    on = same_values("d", "k", table.group_by)
    both = d.join(k, reduce(Column.__and__, on))
    changes = [F.col(f"k.{each.name}") for each in CHANGE_COLUMNS]
    with_rows = both.select(*changes, *(F.col(f"d.{quoted(name)}") for name in layout.names))
    return with_rows.unionByName(gone, allowMissingColumns=True)


def _differing(desired: DataFrame, main: DataFrame, layout: Layout, *more: Column) -> DataFrame:
    """Return the keys by which the two sides differ: (*group_by, hashes, copies, _mv_ops array<string>, *more)."""
    is_new = F.col(SIGN) > 0
    both = desired.withColumn(SIGN, F.lit(1)).unionByName(main.withColumn(SIGN, F.lit(-1)), allowMissingColumns=True)
    keys = both.groupBy(*columns(layout.table.group_by)).agg(
        F.max(F.when(~is_new, F.col(HASH))).alias(OLD_HASH),
        F.max(F.when(is_new, F.col(HASH))).alias(NEW_HASH),
        F.count_if(is_new).alias(_NET),
        F.count_if(~is_new).alias(COPIES),
        *more,
    )
    num_new, copies = F.col(_NET), F.col(COPIES)
    twice = F.when(num_new > 0, F.array(F.lit("X"), F.lit("R"))).otherwise(F.array(F.lit("X")))
    ops = (
        F.when(num_new > 1, F.array(F.lit("?")))
        .when(copies > 1, twice)
        .when(copies == 0, F.array(F.lit("I")))
        .when(num_new == 0, F.array(F.lit("D")))
        .otherwise(F.array(F.lit("U")))
    )
    is_same = (num_new == 1) & (copies == 1) & (F.col(NEW_HASH) == F.col(OLD_HASH))
    return keys.where(~is_same).withColumn(_OPS, ops)


def brings_row() -> Column:
    """Return whether a correction brings a row of the desired ones. "X" shows the row's hash too: "R" brings it."""
    return F.col(OP).isin("I", "U", "R", "?")


def insertions(desired: DataFrame, layout: Layout) -> DataFrame:
    """Return the corrections that insert rows into a main without rows, without a shuffle.

    desired : (*columns, _mv_hash bigint), each key once
    """
    null, none = F.lit(None).cast("bigint").alias(OLD_HASH), F.lit(0).cast("bigint").alias(COPIES)
    return desired.select(F.lit("I").alias(OP), null, F.col(HASH).alias(NEW_HASH), none, *columns(layout.names))


def deletions(gone: DataFrame, layout: Layout) -> DataFrame:
    """Return the corrections that delete rows of main, which has each key once.

    gone : (*group_by, _mv_hash bigint)
    """
    null, one = F.lit(None).cast("bigint").alias(NEW_HASH), F.lit(1).cast("bigint").alias(COPIES)
    return gone.select(F.lit("D").alias(OP), F.col(HASH).alias(OLD_HASH), null, one, *columns(layout.table.group_by))


def netted(feed: DataFrame, layout: Layout) -> DataFrame:
    """Return the net corrections of a change feed.

    feed    : (*columns, _mv_sign int): -1 for a former row, +1 for a present row, in any order
    returns : (*CHANGE_COLUMNS, *columns), as `between` does; op "?" for a key that is left with several rows
    cost    : one shuffle of the feed on the key; of former rows only keys and hashes
    """
    by, row, net, most = columns(layout.table.group_by), F.col(_ROW), F.col(_NET), "_mv_most"
    row_of_new = F.when(F.col(SIGN) > 0, F.struct(*columns(layout.names))).alias(_ROW)
    signed = feed.select(*by, F.col(SIGN), F.expr(row_hash(layout.columns)).alias(HASH), row_of_new)
    # A row that was added and removed again, or the reverse, is no change. One shuffle serves both groupings.
    whole = F.first(row, ignorenulls=True).alias(_ROW)
    left = signed.repartition(*by).groupBy(*by, HASH).agg(F.sum(SIGN).alias(_NET), whole).where(net != 0)
    is_old, is_new = net < 0, net > 0
    keys = left.groupBy(*by).agg(
        F.max(F.when(is_old, F.col(HASH))).alias(OLD_HASH),
        F.max(F.when(is_new, F.col(HASH))).alias(NEW_HASH),
        F.greatest(F.sum(F.when(is_old, -net).otherwise(0)), F.sum(F.when(is_new, net).otherwise(0))).alias(most),
        F.first(F.when(is_new, row), ignorenulls=True).alias(_ROW),
    )
    op = (
        F.when(F.col(most) > 1, "?")
        .when(F.col(OLD_HASH).isNull(), "I")
        .when(F.col(NEW_HASH).isNull(), "D")
        .otherwise("U")
    )
    copies = F.when(F.col(OLD_HASH).isNull(), 0).otherwise(1).cast("bigint")
    return keys.select(op.alias(OP), OLD_HASH, NEW_HASH, copies.alias(COPIES), *_values(layout))


def _values(layout: Layout) -> list[Column]:
    """Return the values of rows that were grouped by key, the others in a struct."""
    return [
        F.col(quoted(name)) if name in layout.table.group_by else F.col(_ROW).getField(name).alias(name)
        for name in layout.names
    ]
