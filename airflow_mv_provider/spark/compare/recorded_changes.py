"""Corrections as they were written: measured, verified, and written again without their deletes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from airflow_mv_provider.core.progress.recorded import KeptRows, RecordedChunk
from airflow_mv_provider.core.progress.totals import Totals, total
from airflow_mv_provider.exceptions import AdoptionError, SealBrokenError
from airflow_mv_provider.spark import delta, partitions, storage
from airflow_mv_provider.spark.compare import keys, totals
from airflow_mv_provider.spark.compare.corrections import CHANGE_COLUMNS, COPIES, NEW_HASH, OLD_HASH, OP, brings_row
from airflow_mv_provider.spark.errors import translated
from airflow_mv_provider.spark.key_ranges import KeyRange, extremes, key_ranges
from airflow_mv_provider.spark.layout import Layout, any_null, columns, struct_type


@dataclass(frozen=True, slots=True)
class WrittenPart:
    """The corrections of one partition.

    num_rows, digest : of the corrections, as `measure` computes them
    added            : what I, U and D add to the totals of main's rows
    twice, null_keys : corrections "?", and those that would bring a NULL key into main
    """

    num_rows: int
    digest: int
    added: Totals
    inserted: int
    updated: int
    deleted: int
    twice: int
    null_keys: int


@dataclass(frozen=True, slots=True)
class Written:
    """The corrections at a path, by partition; those without any are left out."""

    path: str
    partitions: Mapping[str, WrittenPart]

    @property
    def added(self) -> dict[str, Totals]:
        """What they add to the totals of each partition."""
        return {name: part.added for name, part in self.partitions.items()}

    @property
    def total(self) -> Totals:
        """What they add to the totals of main."""
        return total(part.added for part in self.partitions.values())

    @property
    def num_rows(self) -> int:
        return sum(part.num_rows for part in self.partitions.values())

    @property
    def num_inserted(self) -> int:
        return sum(part.inserted for part in self.partitions.values())


def measured(spark: SparkSession, layout: Layout, path: str) -> Written:
    """Return the corrections at `path` as they read back.

    cost : a scan of them
    """
    table, op, none = layout.table, F.col(OP), F.lit(0)
    names = partitions.names(table)
    counts = (
        *measure(),
        *totals.added(),
        F.count_if(op.isin("I", "R")),
        F.count_if(op == "U"),
        F.coalesce(F.sum(F.when(op.isin("D", "X"), F.col(COPIES))), none),
        F.count_if(op == "?"),
        F.count_if(any_null(table.key) & brings_row()),
    )
    with translated(table.name):
        found = read(spark, layout, path).groupBy(*names).agg(*counts).collect()
    parts: dict[str, WrittenPart] = {}
    for row in found:
        num_rows, digest, rows, xor, mixed, *others = row[len(names) :]
        if num_rows:
            added = Totals(rows, xor, mixed)
            parts[partitions.name(row[: len(names)])] = WrittenPart(num_rows, digest, added, *others)
    return Written(path, dict(sorted(parts.items())))


@dataclass(frozen=True, slots=True)
class Corrections:
    """The verified changes of some chunks.

    rows         : (op, hashes, copies, *columns); lazy
    has_null_key : one of them concerns a row with a NULL in its key
    ranges       : which keys they have
    """

    rows: DataFrame
    has_null_key: bool
    ranges: tuple[KeyRange, ...]


def verified(spark: SparkSession, layout: Layout, chunks: Sequence[RecordedChunk]) -> Corrections:
    """Return the verified changes of all chunks.

    cost   : a scan of them
    raises : SealBrokenError, when a chunk no longer reads back as recorded
    """
    table = layout.table
    written = [chunk for chunk in chunks if chunk.path]
    if not written:
        return Corrections(delta.no_rows(spark, struct_type([*CHANGE_COLUMNS, *layout.columns])), False, ())
    by_number = {chunk.number: _of_chunk(spark, layout, chunk) for chunk in written}
    numbered = (rows.withColumn("_mv_chunk", F.lit(number)) for number, rows in by_number.items())
    has_null = F.coalesce(F.bool_or(any_null(table.key)), F.lit(False))
    with translated(table.name):
        by_chunk = reduce(DataFrame.unionAll, numbered).groupBy("_mv_chunk")
        found = by_chunk.agg(*measure(), has_null, *extremes(layout)).collect()
    facts = {number: (rows, digest) for number, rows, digest, *_ in found}
    for chunk in written:
        if facts.get(chunk.number) != (chunk.num_rows, chunk.digest):
            raise SealBrokenError(table.name, f"the corrections at {chunk.path} are not what was recorded.")
    ranges = key_ranges(layout, [row[4:] for row in found])
    return Corrections(reduce(DataFrame.unionAll, by_number.values()), any(row[3] for row in found), ranges)


def _of_chunk(spark: SparkSession, layout: Layout, chunk: RecordedChunk) -> DataFrame:
    """Return the corrections of one chunk; those of others may lie at the same path."""
    assert chunk.path is not None
    rows = read(spark, layout, chunk.path)
    if chunk.is_whole:
        return rows
    members = [part.partition for part in chunk.partitions if part.counts.changes]
    return rows.where(partitions.is_member(rows, layout.table, members))


def new_rows(spark: SparkSession, layout: Layout, path: str) -> DataFrame:
    """Return the rows that written corrections insert or update, as the source has them: (*columns); lazy."""
    return read(spark, layout, path).where(brings_row()).select(*columns(layout.names))


def present_keys(main: delta.Main, layout: Layout, chunks: Sequence[RecordedChunk]) -> DataFrame | None:
    """Return the keys that main keeps, or gets, in another partition than one from which they are deleted.

    Such a row is no row that the source has lost: it has moved, or another writer has copied it to a second partition.

    chunks  : all of the refresh: a row may leave the partitions of one and come to those of another
    returns : None if no row can move to another partition
    cost    : lazy; a scan of main's keys and partition columns, joined with the deleted keys
    """
    table = layout.table
    if not table.may_move:
        return None
    found = verified(main.spark, layout, chunks).rows
    gone, key = found.where(_is_gone()), columns(table.key)
    base_version = max(chunk.base_version for chunk in chunks)
    rows = delta.read(main.spark, main.ref, base_version).select(*columns(table.group_by))
    staying = keys.missing(rows.join(gone.select(*key).distinct(), list(table.key), "left_semi"), gone, table)
    return found.where(brings_row()).select(*key).unionAll(staying.select(*key))


def check_adoptable(spark: SparkSession, layout: Layout, written: Written) -> None:
    """Refuse to adopt a main with a duplicate or NULL key.

    written : what turns it into the source
    raises  : AdoptionError
    """
    table = layout.table
    with translated(table.name):
        bad = read(spark, layout, written.path).where((F.col(OP) == "X") | any_null(table.key))
        if samples := keys.samples(bad, table.key):
            raise AdoptionError(
                table.name, f"the table has a key twice or NULL: {', '.join(samples)}.", samples=samples
            )


def check_unmoved(spark: SparkSession, layout: Layout, written: Written, main: DataFrame) -> None:
    """As `keys.check_unmoved`, for the rows that corrections insert."""
    if written.num_inserted:
        keys.check_unmoved(read(spark, layout, written.path).where(F.col(OP) == "I"), main, layout.table)


def added_by(spark: SparkSession, layout: Layout, chunks: Sequence[RecordedChunk]) -> dict[str, Totals] | None:
    """Return what recorded corrections add to the totals of each partition; None if main had one of the keys twice."""
    rows, names = verified(spark, layout, chunks).rows, partitions.names(layout.table)
    with translated(layout.table.name):
        found = rows.groupBy(*names).agg(*totals.added(), F.count_if(~F.col(OP).isin("I", "U", "D"))).collect()
    if any(row[-1] for row in found):
        return None
    return {partitions.name(row[: len(names)]): Totals(*(v or 0 for v in row[len(names) : -1])) for row in found}


def _is_gone() -> Column:
    return F.col(OP).isin("D", "X") & F.col(NEW_HASH).isNull()  # an X with a new hash makes room for its R


def without_deletes(
    spark: SparkSession, layout: Layout, chunk: RecordedChunk, path: str, present: DataFrame | None = None
) -> KeptRows | None:
    """Write a chunk's corrections again without those of keys that the source no longer has.

    path        : where they are written, if any is left
    present     : keys that main has in another partition too: the row here is deleted, or main would have two
    returns     : None if the chunk deletes no such key
    cost        : two scans of the chunk's corrections, and of `present` if rows can move; a write of what is left of
                  them
    raises      : SealBrokenError, when the chunk no longer reads back as recorded
    """
    table = layout.table
    found = verified(spark, layout, [chunk]).rows
    gone, left = found.where(_is_gone()), found.where(~_is_gone())
    if present is not None:
        left = left.unionByName(gone.join(present, list(table.key), "left_semi"))
        gone = gone.join(present, list(table.key), "left_anti")
    values = partitions.names(table)
    with translated(table.name):
        rows = gone.groupBy(*values).agg(F.sum(COPIES).alias("kept")).collect()
        deletes = {partitions.name(row[: len(values)]): row.kept for row in rows if row.kept}
        if not deletes:
            return None
        storage.write(left, path)
        num_rows, digest = read(spark, layout, path).agg(*measure()).collect()[0]
    if not num_rows:
        return KeptRows(chunk.number, None, 0, 0, 0, deletes)
    return KeptRows(chunk.number, path, num_rows, digest, storage.num_bytes(spark, path), deletes)


def read(spark: SparkSession, layout: Layout, path: str) -> DataFrame:
    """Return the corrections at `path`, unverified: (op, hashes, copies, *columns); lazy."""
    return storage.read(spark, layout.table.name, path, [*CHANGE_COLUMNS, *layout.columns])


def measure() -> tuple[Column, Column]:
    """Return the aggregates of corrections: their number, and the xor of a hash over each one's op and hashes."""
    hashed = F.xxhash64(OP, F.coalesce(OLD_HASH, F.lit(0)), F.coalesce(NEW_HASH, F.lit(0)))
    return F.count(F.lit(1)).alias("num_rows"), F.coalesce(F.bit_xor(hashed), F.lit(0)).alias("digest")
