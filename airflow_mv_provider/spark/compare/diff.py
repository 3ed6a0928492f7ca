"""Compare rows by hash; the only module that does.

    desired ─┐  one row per key (the seal checked it)
             ├─▶ digests by buckets of keys: which differ? ─▶ corrections: key by key inside those buckets
    main  ───┘  arbitrary rows, duplicates and NULL keys included

A row is compared by one 64-bit hash over all its columns. Spark's xxhash64 skips NULLs and ignores where an array ends.
Therefore `row_hash` adds a marker before every value that may be NULL and the length of every array. Equal hash input
then means equal rows; only hash collisions remain (2⁻⁶⁴ for a changed row). NaN equals NaN, and -0.0 equals 0.0, as in
SQL.

Duplicate rows and NULL keys in main are differences too. Each correction is one row with one of these `_mv_op`
(`_mv_copies` counts main's rows with the key):

    I  insert                     in desired, not in main
    U  update                     in both, different
    D  delete                     in main, not in desired
    X  delete every copy          main has this key more than once
    R  insert after an X          and desired has this key too
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, Observation
from pyspark.sql import functions as F

from airflow_mv_provider.core.definition import schema
from airflow_mv_provider.core.definition.identifier import quoted
from airflow_mv_provider.core.definition.table import RefreshableTable
from airflow_mv_provider.spark.layout import Layout

HASH, OLD_HASH, NEW_HASH, OP, COPIES = "_mv_hash", "_mv_old_hash", "_mv_new_hash", "_mv_op", "_mv_copies"
BUCKET, ROWS, DIGEST, MIXED, NULL_KEYS = "_mv_bucket", "_mv_rows", "_mv_digest", "_mv_mixed", "_mv_null_keys"
_KEYS, _MAIN_KEYS = "_mv_keys", "_mv_main_keys"
MAIN_ROWS, MAIN_DIGEST, _MAIN_MIXED = "_mv_main_rows", "_mv_main_digest", "_mv_main_mixed"
DIFFERS, KEYS_DIFFER, STANDS_FOR = "_mv_differs", "_mv_keys_differ", "_mv_stands_for"
SIGN, _NET, _ROW = "_mv_sign", "_mv_net", "_mv_row"
CHANGE_COLUMNS = (
    schema.Column(OP, "string"),
    *(schema.Column(name, "long") for name in (OLD_HASH, NEW_HASH, COPIES)),
)
HASHED = schema.Column(HASH, "long")
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


def row_hash(columns: Sequence[schema.Column], value: Callable[[schema.Column], str] | None = None) -> str:
    """Return the SQL of a row's hash, a BIGINT that is never NULL.

    columns : all columns of main, in main's order; both sides must be hashed with the same list
    value   : returns the SQL of a column's value; None if that is the quoted name
    """
    parts = [part for c in columns for part in _marked(value(c) if value else quoted(c.name), c.type, 0)]
    return f"xxhash64({', '.join(parts)})"


def aligned(source: DataFrame, layout: Layout) -> DataFrame:
    """Return the source's rows with main's columns in main's order, and the row hash.

    returns : (*columns, _mv_hash bigint)
    """
    return source.select(
        *_quoted(layout.names),
        F.expr(row_hash(layout.columns)).alias(HASH),
    )


def measure() -> tuple[Column, Column, Column]:
    """Return the aggregates of hashed rows: `num_rows`, the xor of hashes `digest`, the sum of mixed hashes `mixed`."""
    digest, mixed = F.bit_xor(HASH), F.sum(_mixed(F.col(HASH)))
    zero = F.lit(0)
    return (
        F.count(F.lit(1)).alias("num_rows"),
        F.coalesce(digest, zero).alias("digest"),
        F.coalesce(mixed, zero).alias("mixed"),
    )


def measured(seen: Observation) -> tuple[int, int, int]:
    """Return the values of `measure` after the job has run."""
    try:
        return seen.get["num_rows"], seen.get["digest"], seen.get["mixed"]
    except (Py4JError, PySparkException, KeyError):
        return 0, 0, 0  # Spark found the input empty and optimised the observation away


def digested(rows: DataFrame, table: RefreshableTable, num_buckets: int) -> DataFrame:
    """Return the digests of rows by buckets of keys: equal digests mean equal multisets of rows.

    rows    : (*group_by, _mv_hash bigint)
    returns : (*partition_by, *DIGEST_COLUMNS), one row per bucket that is not empty
    cost    : one scan; only the buckets are shuffled
    """
    has_null_key = reduce(Column.__or__, (F.col(quoted(name)).isNull() for name in table.key))
    in_bucket = bucket(table, num_buckets).alias(BUCKET)
    # A xor and a sum over independently mixed hashes: in a xor alone, duplicate rows cancel out.
    return rows.groupBy(*_quoted(table.partition_by), in_bucket).agg(
        F.count(F.lit(1)).alias(ROWS),
        F.bit_xor(HASH).alias(DIGEST),
        F.sum(_mixed(F.col(HASH))).alias(MIXED),
        F.bit_xor(F.xxhash64(*_quoted(table.group_by))).alias(_KEYS),
        F.count_if(has_null_key).alias(NULL_KEYS),
    )


def by_fewer(digests: DataFrame, table: RefreshableTable, num_buckets: int) -> DataFrame:
    """Return digests of the same rows by fewer buckets.

    digests     : as `digested` returns them
    num_buckets : a power of two, at most their present number of buckets
    """
    buckets = F.col(BUCKET).bitwiseAND(F.lit(num_buckets - 1)).alias(BUCKET)
    rows = digests.select(*_quoted(table.partition_by), buckets, ROWS, DIGEST, MIXED, _KEYS, NULL_KEYS)
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


def standing_for(beside: DataFrame, num_buckets: int) -> DataFrame:
    """Set the number of buckets that each row stands for: `num_buckets`, but at most its number of rows.

    beside : as `bucketwise` returns it, for sides that are equal
    """
    return beside.withColumn(STANDS_FOR, F.least(F.col(ROWS), F.lit(num_buckets).cast("bigint")))


def beside_itself(digests: DataFrame) -> DataFrame:
    """Return what `bucketwise` returns for two equal sides, without a join."""
    same = {MAIN_ROWS: F.col(ROWS), MAIN_DIGEST: F.col(DIGEST)}
    return digests.withColumns(same | {DIFFERS: F.lit(False), KEYS_DIFFER: F.lit(False), STANDS_FOR: _one()})


def desired_side(beside: DataFrame) -> DataFrame:
    """Return the digests of the desired side only.

    beside : as `bucketwise` returns it
    """
    return beside.drop(MAIN_ROWS, MAIN_DIGEST, DIFFERS, KEYS_DIFFER, STANDS_FOR)


def corrections(desired: DataFrame, main: DataFrame, layout: Layout) -> DataFrame:
    """Return the corrections that turn `main` into `desired`.

    desired : (*columns, _mv_hash bigint), each key once
    main    : (*group_by, _mv_hash bigint), arbitrary rows
    returns : (*CHANGE_COLUMNS, *columns); rows to delete have only the key and the partition columns, others NULL
    cost    : one shuffle of both sides on the key; lazy, runs no action
    source  : "corrections", Materialize `src/compute/src/sink/materialized_view.rs`
    """
    table = layout.table
    counted = main.groupBy(*_quoted(table.group_by)).agg(
        F.max(HASH).alias(OLD_HASH), F.count(F.lit(1)).cast("bigint").alias(COPIES)
    )
    d, m = desired.withColumnRenamed(HASH, NEW_HASH).alias("d"), counted.alias("m")
    # Desired keys are never NULL, so a plain `=` finds all pairs; a partition column may be NULL.
    on = [F.col(f"d.{quoted(k)}") == F.col(f"m.{quoted(k)}") for k in table.key]
    on += [F.col(f"d.{quoted(p)}").eqNullSafe(F.col(f"m.{quoted(p)}")) for p in table.group_by if p not in table.key]
    both = d.join(m, reduce(Column.__and__, on), "full_outer")
    is_wanted, copies = F.col(NEW_HASH).isNotNull(), F.coalesce(COPIES, F.lit(0))
    ops = (
        F.when(copies > 1, F.when(is_wanted, F.array(F.lit("X"), F.lit("R"))).otherwise(F.array(F.lit("X"))))
        .when(copies == 0, F.array(F.lit("I")))
        .when(~is_wanted, F.array(F.lit("D")))
        .otherwise(F.array(F.lit("U")))
    )
    differing = both.where((copies != 1) | ~F.col(NEW_HASH).eqNullSafe(F.col(OLD_HASH)))
    columns = (
        F.coalesce(f"d.{quoted(name)}", f"m.{quoted(name)}").alias(name)
        if name in table.group_by
        else F.col(f"d.{quoted(name)}")
        for name in layout.names
    )
    return differing.select(F.explode(ops).alias(OP), OLD_HASH, NEW_HASH, copies.alias(COPIES), *columns)


def missing(rows: DataFrame, others: DataFrame, table: RefreshableTable) -> DataFrame:
    """Return the rows whose key, in its partition, is not among `others`.

    rows, others : (*group_by, ...)
    """
    r, o = rows.alias("r"), others.alias("o")
    on = [F.col(f"r.{quoted(name)}").eqNullSafe(F.col(f"o.{quoted(name)}")) for name in table.group_by]
    return r.join(o, reduce(Column.__and__, on), "left_anti")


def moved(desired: DataFrame, main: DataFrame, table: RefreshableTable) -> DataFrame:
    """Return the desired keys that main has in another partition.

    desired, main : (*group_by, ...)
    """
    d, m = desired.alias("d"), main.alias("m")
    on = [F.col(f"d.{quoted(k)}") == F.col(f"m.{quoted(k)}") for k in table.key]
    elsewhere = [
        ~F.col(f"d.{quoted(p)}").eqNullSafe(F.col(f"m.{quoted(p)}")) for p in table.group_by if p not in table.key
    ]
    return d.join(m, reduce(Column.__and__, on) & reduce(Column.__or__, elsewhere), "left_semi")


def netted(feed: DataFrame, layout: Layout) -> DataFrame:
    """Return the net corrections of a change feed.

    feed    : (*columns, _mv_sign int): -1 for a former row, +1 for a present row, in any order
    returns : (*CHANGE_COLUMNS, *columns), as `corrections` does; op "?" for a key that is left with several rows
    cost    : one shuffle of the feed on the key
    """
    by, row, net, most = _quoted(layout.table.group_by), F.col(_ROW), F.col(_NET), "_mv_most"
    signed = feed.select(*_quoted(layout.names), F.col(SIGN), F.expr(row_hash(layout.columns)).alias(HASH))
    # A row that was added and removed again, or the reverse, is no change. One shuffle serves both groupings.
    whole = F.first(F.struct(*_quoted(layout.names))).alias(_ROW)
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
    names = (
        F.col(quoted(name)) if name in layout.table.group_by else row.getField(name).alias(name)
        for name in layout.names
    )
    return keys.select(op.alias(OP), OLD_HASH, NEW_HASH, copies.alias(COPIES), *names)


def digested_changes(changes: DataFrame, table: RefreshableTable, num_buckets: int) -> DataFrame:
    """Return the digests that corrections add to the digests of the rows that they correct.

    changes : (*CHANGE_COLUMNS, *columns), with ops I, U and D
    returns : (*partition_by, *DIGEST_COLUMNS); counts and sums may be negative
    """
    op, old, new = F.col(OP), F.col(OLD_HASH), F.col(NEW_HASH)
    in_bucket = bucket(table, num_buckets).alias(BUCKET)
    zero = F.lit(0).cast("bigint")
    both = F.coalesce(old, zero).bitwiseXOR(F.coalesce(new, zero))
    gained, lost = (F.when(each.isNotNull(), _mixed(each)).otherwise(zero) for each in (new, old))
    return changes.groupBy(*_quoted(table.partition_by), in_bucket).agg(
        F.sum(F.when(op == "I", 1).when(op == "D", -1).otherwise(0)).alias(ROWS),
        F.bit_xor(both).alias(DIGEST),
        F.sum(gained - lost).alias(MIXED),
        F.bit_xor(F.when(op == "U", zero).otherwise(F.xxhash64(*_quoted(table.group_by)))).alias(_KEYS),
        zero.alias(NULL_KEYS),
    )


def added(digests: DataFrame, changes: DataFrame, table: RefreshableTable) -> DataFrame:
    """Return the digests of rows after changes to them; every aggregate in a digest is additive.

    digests, changes : as `digested` and `digested_changes` return them, with the same number of buckets
    """
    return _summed(digests.unionByName(changes), table).where(F.col(ROWS) != 0)


def insertions(desired: DataFrame, layout: Layout) -> DataFrame:
    """Return what `corrections` returns for a main without rows, without a shuffle.

    desired : (*columns, _mv_hash bigint)
    """
    null, none = F.lit(None).cast("bigint").alias(OLD_HASH), F.lit(0).cast("bigint").alias(COPIES)
    return desired.select(F.lit("I").alias(OP), null, F.col(HASH).alias(NEW_HASH), none, *_quoted(layout.names))


def bucket(table: RefreshableTable, num_buckets: int) -> Column:
    """Return the bucket of a row's key, computed from its columns."""
    return F.xxhash64(*_quoted(table.group_by)).bitwiseAND(F.lit(num_buckets - 1)).cast("int")


def _beside_larger(
    digests: DataFrame, buckets: DataFrame, table: RefreshableTable, num_buckets: int, how: str
) -> DataFrame:
    d, b = digests.alias("d"), F.broadcast(buckets.alias("b"))
    on = [F.col(f"d.{BUCKET}").bitwiseAND(F.lit(num_buckets - 1)) == F.col(f"b.{BUCKET}")]
    on += [F.col(f"d.{quoted(p)}").eqNullSafe(F.col(f"b.{quoted(p)}")) for p in table.partition_by]
    return d.join(b, reduce(Column.__and__, on), how)


def _one() -> Column:
    return F.lit(1).cast("bigint")


def _summed(digests: DataFrame, table: RefreshableTable) -> DataFrame:
    sums = (
        F.sum(name).alias(name) if name in (ROWS, MIXED, NULL_KEYS) else F.bit_xor(name).alias(name)
        for name in (ROWS, DIGEST, MIXED, _KEYS, NULL_KEYS)
    )
    return digests.groupBy(*_quoted(table.partition_by), BUCKET).agg(*sums)


def _mixed(hashed: Column) -> Column:
    """Return a row's summand of the `mixed` sum: 32 bits, so that four billion of them do not overflow."""
    return F.shiftright(F.xxhash64(hashed), 32)


def _quoted(names: Sequence[str]) -> list[Column]:
    return [F.col(quoted(name)) for name in names]


def _marked(sql: str, kind: schema.Type, depth: int) -> list[str]:
    """Return the arguments of xxhash64 that distinguish a value from every other value of its type."""
    if isinstance(kind, str):
        return [f"isnull({sql})", sql]
    if kind["type"] == "struct":
        fields = [p for f in kind["fields"] for p in _marked(f"{sql}.{quoted(f['name'])}", f["type"], depth)]
        return [f"isnull({sql})", *fields]
    element = f"e{depth}"
    parts = ", ".join(_marked(element, kind["elementType"], depth + 1))
    return [f"isnull({sql})", f"size({sql})", f"transform({sql}, {element} -> struct({parts}))"]
