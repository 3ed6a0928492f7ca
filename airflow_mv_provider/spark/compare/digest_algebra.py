"""Digests of rows by buckets of keys, and what can be computed from them: equal digests mean equal multisets of rows.

    rows ──▶ digested ──┬─▶ bucketwise        joined with the other side's: in which buckets do they differ?
                        ├─▶ in_fewer_buckets  of larger buckets; inside, outside: of some of them
                        └─▶ added             of the rows after changes, from `digested_changes`

Every aggregate in a digest is additive, so digests of rows that were changed follow from digests of the changes.
"""

from __future__ import annotations

from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from airflow_mv_provider.core.definition import schema
from airflow_mv_provider.core.definition.identifier import quoted
from airflow_mv_provider.core.definition.table import RefreshableTable
from airflow_mv_provider.spark.compare.corrections import NEW_HASH, OLD_HASH, OP
from airflow_mv_provider.spark.compare.hashing import HASH, mixed
from airflow_mv_provider.spark.layout import any_null, columns

BUCKET, ROWS, DIGEST, MIXED, NULL_KEYS = "_mv_bucket", "_mv_rows", "_mv_digest", "_mv_mixed", "_mv_null_keys"
_KEYS, _MAIN_KEYS = "_mv_keys", "_mv_main_keys"
MAIN_ROWS, MAIN_DIGEST, _MAIN_MIXED = "_mv_main_rows", "_mv_main_digest", "_mv_main_mixed"
DIFFERS, KEYS_DIFFER, STANDS_FOR = "_mv_differs", "_mv_keys_differ", "_mv_stands_for"
DIGEST_COLUMNS = (
    schema.Column(BUCKET, "integer"),
    *(schema.Column(name, "long") for name in (ROWS, DIGEST, MIXED, _KEYS, NULL_KEYS)),
)
BESIDE_COLUMNS = (
    *DIGEST_COLUMNS,
    *(schema.Column(name, "long") for name in (MAIN_ROWS, MAIN_DIGEST)),
    *(schema.Column(name, "boolean") for name in (DIFFERS, KEYS_DIFFER)),
    schema.Column(STANDS_FOR, "long"),
)


def digested(rows: DataFrame, table: RefreshableTable, num_buckets: int) -> DataFrame:
    """Return the digests of rows by buckets of keys.

    rows    : (*group_by, _mv_hash bigint)
    returns : (*partition_by, *DIGEST_COLUMNS), one row per bucket that is not empty
    cost    : one scan; only the buckets are shuffled
    """
    in_bucket = bucket(table, num_buckets).alias(BUCKET)
    # A xor and a sum over independently mixed hashes: in a xor alone, duplicate rows cancel out.
    return rows.groupBy(*columns(table.partition_by), in_bucket).agg(
        F.count(F.lit(1)).alias(ROWS),
        F.bit_xor(HASH).alias(DIGEST),
        F.sum(mixed(F.col(HASH))).alias(MIXED),
        F.bit_xor(F.xxhash64(*columns(table.group_by))).alias(_KEYS),
        F.count_if(any_null(table.key)).alias(NULL_KEYS),
    )


def digested_changes(changes: DataFrame, table: RefreshableTable, num_buckets: int) -> DataFrame:
    """Return the digests that corrections add to the digests of the rows that they correct.

    changes : (*CHANGE_COLUMNS, *columns), with ops I, U and D
    returns : (*partition_by, *DIGEST_COLUMNS); counts and sums may be negative
    """
    op, zero = F.col(OP), F.lit(0).cast("bigint")
    in_bucket = bucket(table, num_buckets).alias(BUCKET)
    return changes.groupBy(*columns(table.partition_by), in_bucket).agg(
        F.sum(F.when(op == "I", 1).when(op == "D", -1).otherwise(0)).alias(ROWS),
        *hash_changes(),
        F.bit_xor(F.when(op == "U", zero).otherwise(F.xxhash64(*columns(table.group_by)))).alias(_KEYS),
        zero.alias(NULL_KEYS),
    )


def hash_changes() -> tuple[Column, Column]:
    """Return the aggregates of corrections that add to the hashes of all rows: to their xor, and to their mixed sum."""
    old, new, zero = F.col(OLD_HASH), F.col(NEW_HASH), F.lit(0).cast("bigint")
    both = F.coalesce(old, zero).bitwiseXOR(F.coalesce(new, zero))
    gained, lost = (F.when(each.isNotNull(), mixed(each)).otherwise(zero) for each in (new, old))
    return F.bit_xor(both).alias(DIGEST), F.sum(gained - lost).alias(MIXED)


def added(digests: DataFrame, changes: DataFrame, table: RefreshableTable) -> DataFrame:
    """Return the digests of rows after changes to them.

    digests, changes : as `digested` and `digested_changes` return them, with the same number of buckets
    """
    return joined(digests.unionByName(changes), table)


def joined(layers: DataFrame, table: RefreshableTable) -> DataFrame:
    """Return the digests of rows from layers of them: each bucket once, and none that is empty.

    layers : a union of what `digested` and `digested_changes` return, with the same number of buckets
    """
    return _summed(layers, table).where(F.col(ROWS) != 0)


def in_fewer_buckets(digests: DataFrame, table: RefreshableTable, num_buckets: int) -> DataFrame:
    """Return digests of the same rows by fewer buckets.

    digests     : as `digested` returns them
    num_buckets : a power of two, at most their present number of buckets
    """
    buckets = F.col(BUCKET).bitwiseAND(F.lit(num_buckets - 1)).alias(BUCKET)
    rows = digests.select(*columns(table.partition_by), buckets, ROWS, DIGEST, MIXED, _KEYS, NULL_KEYS)
    return _summed(rows, table)


def bucketwise(desired: DataFrame, main: DataFrame, table: RefreshableTable) -> DataFrame:
    """Join the digests of both sides by bucket.

    desired, main : as `digested` returns them, with the same number of buckets
    returns       : (*partition_by, *BESIDE_COLUMNS), NULL for a side without rows; `_mv_stands_for` is the number of
                    buckets. Equal row counts and equal xors of keys mean equal keys, if main has each key once
    cost          : a shuffle and a sort of both; without partition columns a result that `digested` has just computed
                    is only sorted
    """
    pairs = {ROWS: MAIN_ROWS, DIGEST: MAIN_DIGEST, MIXED: _MAIN_MIXED, _KEYS: _MAIN_KEYS}
    place = [*(quoted(p) for p in table.partition_by), BUCKET]
    theirs = main.select(*place, *(F.col(name).alias(main_name) for name, main_name in pairs.items()))
    d, m = desired.alias("d"), theirs.alias("m")
    on = [F.col(f"d.{BUCKET}") == F.col(f"m.{BUCKET}")]
    on += [F.col(f"d.{quoted(p)}").eqNullSafe(F.col(f"m.{quoted(p)}")) for p in table.partition_by]
    same = {name: F.col(name).eqNullSafe(F.col(main_name)) for name, main_name in pairs.items()}
    return d.join(m, reduce(Column.__and__, on), "full_outer").select(
        *(F.coalesce(f"d.{quoted(p)}", f"m.{quoted(p)}").alias(p) for p in table.partition_by),
        F.coalesce(f"d.{BUCKET}", f"m.{BUCKET}").alias(BUCKET),
        *(ROWS, DIGEST, MIXED, _KEYS, NULL_KEYS, MAIN_ROWS, MAIN_DIGEST),
        (~(same[ROWS] & same[DIGEST] & same[MIXED])).alias(DIFFERS),
        (~(same[ROWS] & same[_KEYS])).alias(KEYS_DIFFER),
        _one().alias(STANDS_FOR),
    )


def slim(beside: DataFrame) -> DataFrame:
    """Return joined digests without the redundant values that `restored` recomputes: digests equal on both sides."""
    return beside.withColumn(MAIN_DIGEST, F.when(F.col(DIFFERS), F.col(MAIN_DIGEST)))


def restored(beside: DataFrame) -> DataFrame:
    """Return the joined digests that `slim` was applied to."""
    return beside.withColumn(MAIN_DIGEST, F.when(F.col(DIFFERS), F.col(MAIN_DIGEST)).otherwise(F.col(DIGEST)))


def desired_side(beside: DataFrame) -> DataFrame:
    """Return the digests of the desired side only.

    beside : as `bucketwise` returns it
    """
    return beside.drop(MAIN_ROWS, MAIN_DIGEST, DIFFERS, KEYS_DIFFER, STANDS_FOR)


def equal_sides(digests: DataFrame) -> DataFrame:
    """Return what `bucketwise` returns for two equal sides, without a join."""
    same = {MAIN_ROWS: F.col(ROWS), MAIN_DIGEST: F.col(DIGEST)}
    return digests.withColumns(same | {DIFFERS: F.lit(False), KEYS_DIFFER: F.lit(False), STANDS_FOR: _one()})


def with_represented_buckets(beside: DataFrame, num_buckets: int) -> DataFrame:
    """Set the number of buckets that each row stands for: `num_buckets`, but at most its number of rows.

    beside : as `bucketwise` returns it, for sides that are equal
    """
    return beside.withColumn(STANDS_FOR, F.least(F.col(ROWS), F.lit(num_buckets).cast("bigint")))


def within(side: DataFrame, buckets: DataFrame, table: RefreshableTable, num_buckets: int) -> DataFrame:
    """Return the rows of one side that lie in `buckets`.

    side, buckets : (*group_by, ...), (*partition_by, _mv_bucket int)
    """
    s, b = side.withColumn(BUCKET, bucket(table, num_buckets)).alias("s"), F.broadcast(buckets.alias("b"))
    on = [F.col(f"s.{BUCKET}") == F.col(f"b.{BUCKET}")]
    on += [F.col(f"s.{quoted(p)}").eqNullSafe(F.col(f"b.{quoted(p)}")) for p in table.partition_by]
    return s.join(b, reduce(Column.__and__, on), "left_semi").drop(BUCKET)


def outside(digests: DataFrame, buckets: DataFrame, table: RefreshableTable, num_buckets: int) -> DataFrame:
    """Return the digests outside of the given larger buckets.

    digests, buckets : as `digested` returns them; (*partition_by, _mv_bucket int), of `num_buckets` buckets
    """
    return _beside_larger(digests, buckets, table, num_buckets, "left_anti")


def inside(digests: DataFrame, buckets: DataFrame, table: RefreshableTable, num_buckets: int) -> DataFrame:
    """Return the digests inside the given larger buckets: those that `outside` leaves out."""
    return _beside_larger(digests, buckets, table, num_buckets, "left_semi")


def bucket(table: RefreshableTable, num_buckets: int) -> Column:
    """Return the bucket of a row's key, computed from its columns."""
    return F.xxhash64(*columns(table.group_by)).bitwiseAND(F.lit(num_buckets - 1)).cast("int")


def _beside_larger(
    digests: DataFrame, buckets: DataFrame, table: RefreshableTable, num_buckets: int, how: str
) -> DataFrame:
    d, b = digests.alias("d"), F.broadcast(buckets.alias("b"))
    on = [F.col(f"d.{BUCKET}").bitwiseAND(F.lit(num_buckets - 1)) == F.col(f"b.{BUCKET}")]
    on += [F.col(f"d.{quoted(p)}").eqNullSafe(F.col(f"b.{quoted(p)}")) for p in table.partition_by]
    return d.join(b, reduce(Column.__and__, on), how)


def _summed(digests: DataFrame, table: RefreshableTable) -> DataFrame:
    sums = (
        F.sum(name).alias(name) if name in (ROWS, MIXED, NULL_KEYS) else F.bit_xor(name).alias(name)
        for name in (ROWS, DIGEST, MIXED, _KEYS, NULL_KEYS)
    )
    return digests.groupBy(*columns(table.partition_by), BUCKET).agg(*sums)


def _one() -> Column:
    return F.lit(1).cast("bigint")
