"""The only place where rows are compared.

    desired ─┐  one row a key (the seal checked it)
             ├─▶ suspects: buckets of keys whose checksums differ ─▶ corrections: key by key inside those buckets
    main  ───┘  any rows at all, duplicates and NULL keys included

A row is compared by one 64-bit hash over all its columns. Spark's xxhash64 skips NULLs and does not tell where an
array ends, so `row_hash` feeds it a marker before every value that may be NULL and the length of every array; then
equal input means equal rows, down to the hash's own collisions (2⁻⁶⁴ for a changed row). NaN equals NaN, and -0.0
equals 0.0, as in SQL.

Rows that exist twice in main, or have no key, are differences too. Corrections, one a row, by `_mv_op`:

    I  insert                     in desired, not in main
    U  update                     in both, different
    D  delete                     in main, not in desired
    X  delete every copy          main has this key more than once
    R  insert after an X          and desired has it too
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from airflow_mv_provider.core import schema
from airflow_mv_provider.core.identifier import quoted

HASH, OLD_HASH, NEW_HASH, OP, COPIES = "_mv_hash", "_mv_old_hash", "_mv_new_hash", "_mv_op", "_mv_copies"
_BUCKET = "_mv_bucket"
_ROWS_PER_BUCKET = 8
_MAX_BUCKETS = 1 << 20


def row_hash(columns: Sequence[schema.Column], alias: str | None = None) -> str:
    """Return the SQL of a row's hash, a BIGINT that is never NULL.

    columns : all columns of main, in main's order; both sides must be hashed by the same list
    alias   : the relation that the columns belong to, where more than one is in scope
    """
    prefix = f"{quoted(alias)}." if alias else ""
    parts = [part for c in columns for part in _marked(prefix + quoted(c.name), c.type, 0)]
    return f"xxhash64({', '.join(parts)})"


def suspects(desired: DataFrame, main: DataFrame, group_by: Sequence[str], num_rows: int) -> DataFrame:
    """Return the buckets of keys in which the two sides differ.

    desired, main : (*group_by, _mv_hash bigint)
    num_rows      : about how many rows desired has; decides the number of buckets
    returns       : (_mv_bucket int)
    cost          : one scan of both sides; only the buckets are shuffled, for they are summed up before
    """
    num_buckets = bucket_count(num_rows)
    sides = [
        side.select(_bucket(group_by, num_buckets), F.lit(sign).alias("side"), F.col(HASH))
        for side, sign in ((desired, 1), (main, -1))
    ]
    # Equal multisets have equal counts, sums and xors. Two sums over independently mixed hashes are compared because a
    # xor alone forgets rows that are there twice.
    checked = (
        sides[0]
        .unionAll(sides[1])
        .groupBy(_BUCKET)
        .agg(
            F.sum("side").alias("rows"),
            F.bit_xor(HASH).alias("xor"),
            F.sum(F.col("side") * F.shiftright(F.xxhash64(HASH), 24)).alias("mixed"),
        )
    )
    return checked.where("rows <> 0 OR xor <> 0 OR mixed <> 0").select(_BUCKET)


def within(side: DataFrame, buckets: DataFrame, group_by: Sequence[str], num_rows: int) -> DataFrame:
    """Return the rows of one side that lie in `buckets`.

    num_rows : as given to `suspects`
    """
    bucketed = side.withColumn(_BUCKET, _bucket(group_by, bucket_count(num_rows)))
    return bucketed.join(F.broadcast(buckets), _BUCKET, "left_semi").drop(_BUCKET)


def corrections(desired: DataFrame, main: DataFrame, group_by: Sequence[str]) -> DataFrame:
    """Return what turns `main` into `desired`, without the values.

    desired, main : (*group_by, _mv_hash bigint); desired has each key once
    returns       : (*group_by, _mv_op, _mv_old_hash, _mv_new_hash, _mv_copies), where copies counts main's rows
    cost          : one shuffle of both sides on group_by; lazy, runs no action
    source        : "corrections", Materialize `src/compute/src/sink/materialized_view.rs`
    """
    null = F.lit(None).cast("bigint")
    sides = desired.select(*_quoted(group_by), F.col(HASH).alias(NEW_HASH), null.alias(OLD_HASH)).unionAll(
        main.select(*_quoted(group_by), null.alias(NEW_HASH), F.col(HASH).alias(OLD_HASH))
    )
    keys = sides.groupBy(*_quoted(group_by)).agg(
        F.max(NEW_HASH).alias(NEW_HASH), F.max(OLD_HASH).alias(OLD_HASH), F.count(OLD_HASH).alias(COPIES)
    )
    is_wanted, copies = F.col(NEW_HASH).isNotNull(), F.col(COPIES)
    ops = (
        F.when(copies > 1, F.when(is_wanted, F.array(F.lit("X"), F.lit("R"))).otherwise(F.array(F.lit("X"))))
        .when(copies == 0, F.array(F.lit("I")))
        .when(~is_wanted, F.array(F.lit("D")))
        .when(F.col(NEW_HASH) != F.col(OLD_HASH), F.array(F.lit("U")))
        .otherwise(F.array().cast("array<string>"))
    )
    differing = keys.where((copies != 1) | ~F.col(NEW_HASH).eqNullSafe(F.col(OLD_HASH)))
    return differing.select(*_quoted(group_by), F.explode(ops).alias(OP), OLD_HASH, NEW_HASH, COPIES)


def bucket_count(num_rows: int) -> int:
    """Return how many buckets the keys of `num_rows` rows are put into: a power of two, about eight rows each."""
    return max(64, min(_MAX_BUCKETS, 1 << (num_rows // _ROWS_PER_BUCKET).bit_length()))


def _bucket(group_by: Sequence[str], num_buckets: int) -> Column:
    return (F.xxhash64(*_quoted(group_by)).bitwiseAND(F.lit(num_buckets - 1))).cast("int").alias(_BUCKET)


def _quoted(names: Sequence[str]) -> list[Column]:
    return [F.col(quoted(name)) for name in names]


def _marked(sql: str, kind: schema.Type, depth: int) -> list[str]:
    """Return the parts that tell a value apart from every other of its type, in xxhash64's eyes."""
    if isinstance(kind, str):
        return [f"isnull({sql})", sql]
    if kind["type"] == "struct":
        fields = [p for f in kind["fields"] for p in _marked(f"{sql}.{quoted(f['name'])}", f["type"], depth)]
        return [f"isnull({sql})", *fields]
    element = f"e{depth}"
    parts = ", ".join(_marked(element, kind["elementType"], depth + 1))
    return [f"isnull({sql})", f"size({sql})", f"transform({sql}, {element} -> struct({parts}))"]
