"""Write a chunk's corrections, and publish them as one compare-and-append.

    corrections (keys and ops) ──┐
                                 ├─▶ changes-<epoch>-<round>-<chunk>: whole rows to insert and update, keys to delete
    desired rows, read again ────┘   each with main's old hash

    all recorded changes ──▶ one MERGE ──▶ main

The MERGE believes nothing: an insert that finds its key, an update or delete that finds none, or an old hash that
differs calls raise_error, which aborts it before any commit. WHEN NOT MATCHED BY SOURCE is never used: it rewrites
files of every partition. A moved row is a delete in one partition and an insert in the other, so the partition columns
are part of the match.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

from pyspark.sql import Column, DataFrame, Observation, SparkSession
from pyspark.sql import functions as F

from airflow_mv_provider.core.fence import CommitNote
from airflow_mv_provider.core.guard import Counts
from airflow_mv_provider.core.identifier import literal, quoted
from airflow_mv_provider.core.progress import (
    WHOLE_TABLE,
    Chunk,
    PartitionCounts,
    RecordedChunk,
    Seal,
    SealedPartition,
    partition_name,
    partition_values,
)
from airflow_mv_provider.core.table import RefreshableTable
from airflow_mv_provider.exceptions import AdoptionError, SealBrokenError
from airflow_mv_provider.spark import delta, diff, staging
from airflow_mv_provider.spark.diff import COPIES, HASH, NEW_HASH, OLD_HASH, OP
from airflow_mv_provider.spark.errors import ROW_MISMATCH, SEAL_MISMATCH, translated
from airflow_mv_provider.spark.staging import Layout

_MAX_BROADCAST_ROWS = 200_000
_MAX_PRUNED_PARTITIONS = 200
_MAX_SUSPECT_FRACTION = 0.5
_MIN_ROWS_FOR_CHECKSUMS = 200_000  # below, one more job costs more than it saves


@dataclass(frozen=True, slots=True)
class Difference:
    """What one chunk's comparison found: corrections without values, and their counts per partition.

    corrections : kept by Spark until `release`; None when there was nothing to compare
    """

    corrections: DataFrame | None
    num_rows: int
    partitions: tuple[PartitionCounts, ...]

    def release(self) -> None:
        """Let Spark forget the corrections."""
        if self.corrections is not None:
            self.corrections.unpersist()

    @property
    def counts(self) -> Counts:
        return sum((p.counts for p in self.partitions), Counts())


def compare(
    spark: SparkSession, main: delta.Main, layout: Layout, seal: Seal, chunk: Chunk, base_version: int
) -> Difference:
    """Compare one chunk of what is sealed with main at `base_version`.

    cost   : a scan of both; a shuffle of the keys in buckets that differ
    raises : SealBrokenError, when the sealed counts or digests no longer hold
    """
    table = layout.table
    with translated(table.name):
        members = _members(main, table, seal, chunk, base_version)
        if members == ():
            return Difference(None, 0, ())
        desired = _restricted(staging.desired_keys(spark, seal, table), table, members)
        sealed = [p for p in seal.partitions if members is None or p.partition in set(members)]
        _verify(desired, table, sealed)
        existing = staging.aligned(delta.read(spark, main.location, base_version), layout)
        actual = _restricted(existing, table, members).select(*_columns(table.group_by), HASH)
        num_rows = sum(p.num_rows for p in sealed)
        if num_rows < _MIN_ROWS_FOR_CHECKSUMS:
            found = diff.corrections(desired, actual, table.group_by).persist()
            return Difference(found, *_counted(found, table, sealed))
        suspects = diff.suspects(desired, actual, table.group_by, num_rows).persist()
        num_suspects = suspects.count()
        if num_suspects <= _MAX_SUSPECT_FRACTION * diff.bucket_count(num_rows):
            desired = diff.within(desired, suspects, table.group_by, num_rows)
            actual = diff.within(actual, suspects, table.group_by, num_rows)
        found = diff.corrections(desired, actual, table.group_by).persist()
        counted = _counted(found, table, sealed, is_empty=num_suspects == 0)
        suspects.unpersist()
    return Difference(found, *counted)


def check_adoptable(difference: Difference, table: RefreshableTable) -> None:
    """Refuse to adopt a main that has a key twice or a NULL in one.

    raises : AdoptionError
    """
    if difference.corrections is None:
        return
    with translated(table.name):
        bad = difference.corrections.where((F.col(OP) == "X") | _any_null(table.key))
        if samples := staging.sample_keys(bad, table.key):
            raise AdoptionError(table.name, f"main has a key twice or NULL: {', '.join(samples)}.", samples=samples)


def write_changes(
    spark: SparkSession,
    layout: Layout,
    seal: Seal,
    source: DataFrame | None,
    difference: Difference,
    path: str,
) -> tuple[int, int, int]:
    """Write a chunk's corrections as whole rows, once.

    returns : (rows, digest, bytes) of what was written
    raises  : SealBrokenError, when a row to insert or update no longer reads as it was sealed
    """
    table = layout.table
    assert difference.corrections is not None
    found = difference.corrections.drop(COPIES)
    needs_row = F.col(OP).isin("I", "U", "R")
    keys = found.where(needs_row)
    if difference.counts.changes <= _MAX_BROADCAST_ROWS:
        keys = F.broadcast(keys)
    w, c = staging.desired_rows(spark, seal, source, layout).alias("w"), keys.alias("c")
    on = (F.col(f"w.{quoted(k)}").eqNullSafe(F.col(f"c.{quoted(k)}")) for k in table.group_by)
    is_sealed = F.col(f"w.{HASH}") == F.col(f"c.{NEW_HASH}")
    op = F.when(is_sealed, F.col(f"c.{OP}")).otherwise(F.raise_error(F.lit(SEAL_MISMATCH)).cast("string"))
    written = w.join(c, reduce(Column.__and__, on)).select(
        op.alias(OP),
        F.col(f"c.{OLD_HASH}"),
        F.col(f"c.{NEW_HASH}"),
        *(F.col(f"w.{quoted(name)}") for name in layout.names),
    )
    with translated(table.name):
        deleted = found.where(~needs_row)
        seen = Observation()
        rows = written.unionByName(deleted, allowMissingColumns=True).observe(seen, *_digest())
        rows.write.format("delta").mode("errorifexists").save(path)
        num_rows, digest = seen.get["num_rows"], seen.get["digest"]
    if num_rows != difference.num_rows:
        raise SealBrokenError(
            table.name, f"{difference.num_rows:,} corrections were found, and rows for {num_rows:,} of them."
        )
    return num_rows, digest, int(delta.history(spark, path, 1)[0].operationMetrics["numOutputBytes"])


def publish(
    spark: SparkSession,
    main: delta.Main,
    layout: Layout,
    chunks: Sequence[RecordedChunk],
    note: CommitNote,
) -> None:
    """Merge exactly the recorded chunks into main, in one commit; whether it happened is for main's log to say.

    raises : SealBrokenError, when a chunk no longer reads as it was recorded; MainMovedError, when a row of main is not
             what it was, or another writer came in between; FencedError
    """
    read = [_recorded_changes(spark, layout.table, chunk) for chunk in chunks if chunk.path]
    has_null_keys = any(has_null for _, has_null in read)
    with translated(layout.table.name):
        merged = reduce(DataFrame.unionByName, (changes for changes, _ in read))
        view = f"mv_changes_{note.refresh_id}"
        merged.createOrReplaceTempView(view)
    touched = [p.partition for chunk in chunks for p in chunk.partitions if p.counts.changes]
    sql = merge_sql(main.location, view, layout, touched, has_null_keys=has_null_keys)
    try:
        with main.transaction(note):
            spark.sql(sql).collect()
    finally:
        spark.catalog.dropTempView(view)


def merge_sql(location: str, view: str, layout: Layout, touched: Sequence[str], *, has_null_keys: bool) -> str:
    """Return the MERGE of the changes in `view` into main.

    touched       : the partitions that change; a short list lets Delta skip the files of all others
    has_null_keys : main holds rows without a key, which have to go; a plain `=` would not find them
    """
    table, op = layout.table, f"s.{OP}"
    equals = "<=>" if has_null_keys else "="
    match = [f"t.{quoted(k)} {equals} s.{quoted(k)}" for k in table.key]
    match += [f"t.{quoted(p)} <=> s.{quoted(p)}" for p in table.group_by if p not in table.key]
    match += [f"{op} <> 'R'"]
    if table.partition_by and len(touched) <= _MAX_PRUNED_PARTITIONS:
        match.append(_is_member_sql("t", table, layout, touched))
    as_expected = f"{diff.row_hash(layout.columns, 't')} = s.{OLD_HASH}"
    first = quoted(layout.names[0])
    stop = f"raise_error({literal(ROW_MISMATCH)})"
    names = ", ".join(quoted(n) for n in layout.names)
    values = ", ".join(f"s.{quoted(n)}" for n in layout.names)
    update = ", ".join(f"t.{quoted(n)} = s.{quoted(n)}" for n in layout.names)
    return f"""
        MERGE INTO {delta.at_path(location)} AS t USING {quoted(view)} AS s
        ON {" AND ".join(match)}
        WHEN MATCHED AND {op} = 'X' THEN DELETE
        WHEN MATCHED AND {op} = 'D' AND {as_expected} THEN DELETE
        WHEN MATCHED AND {op} = 'U' AND {as_expected} THEN UPDATE SET {update}
        WHEN MATCHED THEN UPDATE SET t.{first} = {stop}
        WHEN NOT MATCHED AND {op} IN ('I', 'R') THEN INSERT ({names}) VALUES ({values})
        WHEN NOT MATCHED THEN INSERT ({first}) VALUES ({stop})
    """


def _recorded_changes(spark: SparkSession, table: RefreshableTable, chunk: RecordedChunk) -> tuple[DataFrame, bool]:
    """Return a chunk's changes, still what was recorded, and whether one of them is for a row without a key."""
    assert chunk.path is not None
    changes = staging.read_sealed(spark, table.name, chunk.path, 0)
    with translated(table.name):
        has_null = F.coalesce(F.bool_or(_any_null(table.key)), F.lit(False)).alias("has_null")
        found = changes.agg(*_digest(), has_null).collect()[0]
    if (found.num_rows, found.digest) != (chunk.num_rows, chunk.digest):
        raise SealBrokenError(table.name, f"the corrections at {chunk.path} are not what was recorded.")
    return changes, found.has_null


def _digest() -> tuple[Column, Column]:
    """Count rows, and sum up what each of them does."""
    hashed = F.xxhash64(OP, F.coalesce(OLD_HASH, F.lit(0)), F.coalesce(NEW_HASH, F.lit(0)))
    return F.count(F.lit(1)).alias("num_rows"), F.coalesce(F.bit_xor(hashed), F.lit(0)).alias("digest")


def _members(
    main: delta.Main, table: RefreshableTable, seal: Seal, chunk: Chunk, base_version: int
) -> tuple[str, ...] | None:
    """Return the chunk's partitions; those of the rest are what main has and the seal has not."""
    if not chunk.is_rest:
        return chunk.partitions
    sealed = {p.partition for p in seal.partitions}
    names = [F.col(quoted(p)).cast("string") for p in table.partition_by]
    rows = delta.read(main.spark, main.location, base_version).select(*names).distinct().collect()
    return tuple(sorted({partition_name(list(row)) for row in rows} - sealed))


def _verify(desired: DataFrame, table: RefreshableTable, sealed: Sequence[SealedPartition]) -> None:
    found = {p.partition: p for p in staging.measure(desired, table)}
    for part in sealed:
        if found.get(part.partition, SealedPartition(part.partition, 0, 0)) != part:
            raise SealBrokenError(table.name, f"partition {part.partition} no longer has the rows that were sealed.")


def _restricted(rows: DataFrame, table: RefreshableTable, members: Sequence[str] | None) -> DataFrame:
    return rows if members is None else rows.where(_is_member(rows, table, members))


def _is_member(rows: DataFrame, table: RefreshableTable, members: Sequence[str]) -> Column:
    """Return the condition that a row lies in one of `members`, with typed literals so that files can be skipped."""
    types = {f.name: f.dataType for f in rows.schema.fields}

    def equals(column: str, value: str | None) -> Column:
        return F.col(quoted(column)).eqNullSafe(F.lit(value).cast(types[column]))

    if len(table.partition_by) == 1:
        (column,) = table.partition_by
        values = [partition_values(m)[0] for m in members]
        present = [F.lit(v).cast(types[column]) for v in values if v is not None]
        found = F.col(quoted(column)).isin(present) if present else F.lit(False)
        return found | F.col(quoted(column)).isNull() if None in values else found
    each = (
        reduce(
            Column.__and__,
            (equals(c, v) for c, v in zip(table.partition_by, partition_values(m), strict=True)),
        )
        for m in members
    )
    return reduce(Column.__or__, each, F.lit(False))


def _is_member_sql(alias: str, table: RefreshableTable, layout: Layout, members: Sequence[str]) -> str:
    types = {c.name: c.type for c in layout.columns}
    sql_names = {"long": "bigint", "integer": "int", "short": "smallint", "byte": "tinyint"}

    def equals(column: str, value: str | None) -> str:
        if value is None:
            return f"{alias}.{quoted(column)} IS NULL"
        kind = str(types[column])
        return f"{alias}.{quoted(column)} = CAST({literal(value)} AS {sql_names.get(kind, kind)})"

    each = (
        "(" + " AND ".join(equals(c, v) for c, v in zip(table.partition_by, partition_values(m), strict=True)) + ")"
        for m in members
    )
    return f"({' OR '.join(each) or 'false'})"


def _counted(
    found: DataFrame, table: RefreshableTable, sealed: Sequence[SealedPartition], *, is_empty: bool = False
) -> tuple[int, tuple[PartitionCounts, ...]]:
    """Count corrections per partition; rows that are the same on both sides follow from what was sealed."""
    desired = {p.partition: p.num_rows for p in sealed}
    none = [PartitionCounts(name, Counts(desired=n, main=n)) for name, n in desired.items()]
    if is_empty:
        return 0, tuple(none)
    names = [F.col(quoted(p)).cast("string") for p in table.partition_by]
    op, copies = F.col(OP), F.col(COPIES)
    rows = (
        found.groupBy(*names)
        .agg(
            F.count(F.lit(1)).alias("n"),
            F.count_if(op.isin("I", "R")).alias("inserted"),
            F.count_if(op == "U").alias("updated"),
            F.coalesce(F.sum(F.when(op.isin("D", "X"), copies)), F.lit(0)).alias("deleted"),
            F.max(F.struct(*_columns(table.key))).alias("last"),
        )
        .withColumn("position", F.to_json("last", {"ignoreNullFields": "false"}))
        .collect()
    )
    by_name = {p.partition: p for p in none}
    for row in rows:
        name = partition_name(list(row)[: len(names)]) if names else WHOLE_TABLE
        want = desired.get(name, 0)
        have = want - row.inserted + row.deleted
        counts = Counts(want, have, row.inserted, row.updated, row.deleted)
        if counts.changes:
            by_name[name] = PartitionCounts(name, counts, row.position)
    return sum(row.n for row in rows), tuple(by_name[name] for name in sorted(by_name))


def _any_null(key: Sequence[str]) -> Column:
    return reduce(Column.__or__, (F.col(quoted(name)).isNull() for name in key))


def _columns(names: Sequence[str]) -> list[Column]:
    return [F.col(quoted(name)) for name in names]
