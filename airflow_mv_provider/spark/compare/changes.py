"""Compute main's corrections chunk by chunk, and write them once.

    digests of the seal ──┐
                          ├─▶ buckets that differ ──▶ desired and main's rows in them ──▶ changes-<epoch>-…
    digests of main ──────┘

Changes are whole rows to insert and update, and keys to delete, each with main's old hash. The recorded counts and
digests are those of the files as they read back.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import xor

from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F

from airflow_mv_provider.core.definition.table import RefreshableTable
from airflow_mv_provider.core.guard import Counts
from airflow_mv_provider.core.progress.chunk import Chunk, Slice
from airflow_mv_provider.core.progress.digests import PublishedDigests
from airflow_mv_provider.core.progress.recorded import PartitionCounts
from airflow_mv_provider.core.progress.seal import Seal, SealedPartition
from airflow_mv_provider.exceptions import AdoptionError, SealBrokenError
from airflow_mv_provider.spark import delta, partitions, storage
from airflow_mv_provider.spark.compare import corrections, digest_algebra, digests, hashing, keys, recorded_changes
from airflow_mv_provider.spark.compare.buckets import BucketCounts, Buckets, compared, sliced
from airflow_mv_provider.spark.compare.corrections import COPIES, OP
from airflow_mv_provider.spark.compare.hashing import HASH
from airflow_mv_provider.spark.errors import translated
from airflow_mv_provider.spark.layout import Layout, any_null, columns
from airflow_mv_provider.spark.partitions import in_scope


@dataclass(frozen=True, slots=True)
class Changes:
    """The result of comparing one chunk.

    path   : None if the chunk needs no correction
    adding : what the corrections I, U and D add to the totals of main: rows, xor and mixed sum of hashes
    """

    path: str | None
    num_rows: int
    digest: int
    num_bytes: int
    partitions: tuple[PartitionCounts, ...]
    adding: tuple[int, int, int] = (0, 0, 0)


@dataclass(frozen=True, slots=True)
class ChunkFilter:
    """The part of both sides that one chunk compares; `members` None means all partitions."""

    members: Sequence[str] | None
    slice: Slice | None
    num_buckets: int

    def of(self, rows: DataFrame, table: RefreshableTable) -> DataFrame:
        """Return the rows of one side that lie in this part."""
        bucket = digest_algebra.bucket(table, self.num_buckets)
        if self.members is not None:
            rows = rows.where(partitions.is_in(rows, table, self.members, bucket, self.num_buckets))
        if self.slice is not None:
            rows = rows.where(partitions.is_in_slice(bucket, self.slice, self.num_buckets))
        return rows


def differing_buckets(
    main: delta.Main,
    layout: Layout,
    seal: Seal,
    read_source: Callable[[], DataFrame],
    published: PublishedDigests | None,
    base_version: int,
) -> Buckets:
    """Return the buckets in which the seal and main at `base_version` differ.

    read_source : called if nothing was copied and no digests were written
    published   : main's digests, which are known to match main's present rows
    cost        : a scan of the digests, or of the sealed rows where none were written; a scan of main if no digests are
                  published, or with another number of buckets
    """
    table = layout.table
    if seal.digests is None:
        rows = hashing.aligned(storage.desired_rows(main.spark, seal, read_source, layout), layout)
        mine = digest_algebra.digested(rows.select(*columns(table.group_by), HASH), table, seal.num_buckets)
    else:
        mine = digests.read(main.spark, layout, *seal.digest_paths)
    if published and published.num_buckets != seal.num_buckets:
        published = None
    if published and (found := digests.compared_with_published(mine, published, layout)):
        return found
    with translated(table.name):
        existing = hashing.aligned(_existing(main, layout, base_version), layout)
        theirs = digest_algebra.digested(existing.select(*columns(table.group_by), HASH), table, seal.num_buckets)
        return compared(mine, theirs, table, seal.num_buckets)


def compare(
    main: delta.Main,
    layout: Layout,
    seal: Seal,
    read_source: Callable[[], DataFrame],
    chunk: Chunk,
    buckets: Buckets,
    base_version: int,
    path: str,
) -> Changes:
    """Compare one chunk of the sealed rows with main at `base_version`, and write the corrections at `path`.

    read_source : called if nothing was copied and a bucket differs
    buckets : where the two sides differ
    cost    : nothing if no bucket differs; otherwise a scan of both, and a shuffle of the rows in buckets that differ
    raises  : SealBrokenError, when the rows read now are not the sealed rows
    """
    table, sealed = layout.table, _sealed_in(seal, chunk)
    members = buckets.differing_in(chunk)
    if members and chunk.slice is not None:
        buckets = sliced(buckets, table, chunk)
        members = buckets.differing_in(chunk)
    if not members:
        return nothing(seal, chunk)
    names = [p.sealed.partition for p in members]
    only = ChunkFilter(
        None if len(members) == len(buckets.partitions) and chunk.slice is None else names,
        chunk.slice,
        buckets.num_buckets,
    )
    is_chosen = buckets.is_worth_choosing(members)
    rows = storage.desired_rows(main.spark, seal, read_source, layout)
    wanted = _wanted(members, is_chosen=is_chosen)
    seen = Observation()
    with translated(table.name):
        # Rows are filtered before they are hashed, because hashing is most of a scan's cost.
        desired = only.of(rows, table)
        if is_chosen:
            desired = digest_algebra.within(desired, buckets.differing, table, buckets.num_buckets)
        desired = hashing.aligned(desired, layout)
        # If no row is expected, none is read: there would be no digest to verify it with.
        desired = desired.observe(seen, *hashing.measure()) if wanted[0] else desired.where(F.lit(False))
        if any(p.main_rows for p in members):
            actual = only.of(_existing(main, layout, base_version), table)
            if is_chosen:
                actual = digest_algebra.within(actual, buckets.differing, table, buckets.num_buckets)
            actual = hashing.aligned(actual, layout).select(*columns(table.group_by), HASH)
            found = corrections.between(desired, actual, layout)
        else:
            found = corrections.insertions(desired, layout)
        storage.write(found, path)
    if wanted[0]:
        _check_read(table, seen, wanted)
    return _read_back(main.spark, layout, path, sealed, buckets.num_buckets)


def nothing(seal: Seal, chunk: Chunk) -> Changes:
    """Return the result for a chunk without any difference."""
    return Changes(None, 0, 0, 0, tuple(_unchanged(part) for part in _sealed_in(seal, chunk)))


def staged(spark: SparkSession, layout: Layout, seal: Seal, published: PublishedDigests) -> Changes:
    """Return the corrections that staging has already written, counted as they read back.

    published : the totals of the rows that they correct
    raises    : SealBrokenError, when both do not add up to the sealed rows
    """
    assert seal.changes is not None
    found = _read_back(spark, layout, seal.changes, seal.partitions, seal.num_buckets)
    (num_rows, digest, mixed), before = found.adding, published
    if (before.num_rows + num_rows, before.digest ^ digest, before.mixed + mixed) != seal.sums:
        raise SealBrokenError(layout.table.name, f"the corrections at {seal.changes} are not what was sealed.")
    return found


def replacement(seal: Seal, buckets: Buckets | None) -> Changes:
    """Return the counts of an overwrite per partition: all of main's rows are deleted, all sealed rows inserted.

    buckets : where the two sides differ; None for a main without rows
    """
    held = {name: part.main_rows for name, part in buckets.partitions.items()} if buckets else {}
    sealed = {part.partition: part.num_rows for part in seal.partitions}
    if buckets and not buckets.num_differing:
        return Changes(None, 0, 0, 0, tuple(_unchanged(part) for part in seal.partitions))
    parts = tuple(
        PartitionCounts(name, Counts(sealed.get(name, 0), held.get(name, 0), sealed.get(name, 0), 0, held.get(name, 0)))
        for name in sorted({*sealed, *held})
    )
    return Changes(None, seal.num_rows, seal.digest, 0, parts)


def deleted_and_updated(
    main: delta.Main,
    layout: Layout,
    seal: Seal,
    read_source: Callable[[], DataFrame],
    buckets: Buckets,
    base_version: int,
    *,
    with_updates: bool,
) -> tuple[int, int]:
    """Return how many of main's rows at `base_version` would be deleted, and how many updated.

    A row is deleted if its key is not in the seal, and updated if the seal has other values for its key.

    with_updates : count the updated rows too; otherwise their number is 0
    cost         : a scan of the keys in buckets whose keys differ, on both sides, and a shuffle of them; for updates
                   also a scan of the rows in buckets that differ, and a shuffle of their keys and hashes
    """
    table, by = layout.table, columns(layout.table.group_by)

    def within(rows: DataFrame, chosen: DataFrame) -> DataFrame:
        return digest_algebra.within(rows, chosen, table, buckets.num_buckets)

    with translated(table.name):
        sides = storage.desired_rows(main.spark, seal, read_source, layout), _existing(main, layout, base_version)
        desired, existing = (within(rows.select(*by), buckets.new_keys) for rows in sides)
        num_deleted = keys.missing(existing, desired, table).count()
        if not with_updates:
            return num_deleted, 0
        desired, existing = (hashing.aligned(within(rows, buckets.differing), layout) for rows in sides)
        found = corrections.between(desired, existing.select(*by, HASH), layout)
        return num_deleted, found.where(F.col(OP) == "U").count()


def check_adoptable(spark: SparkSession, layout: Layout, found: Changes) -> None:
    """Refuse to adopt a main with a duplicate or NULL key.

    raises : AdoptionError
    """
    if found.path is None:
        return
    table = layout.table
    with translated(table.name):
        bad = recorded_changes.read(spark, layout, found.path).where((F.col(OP) == "X") | any_null(table.key))
        if samples := keys.samples(bad, table.key):
            raise AdoptionError(
                table.name, f"the table has a key twice or NULL: {', '.join(samples)}.", samples=samples
            )


def _sealed_in(seal: Seal, chunk: Chunk) -> list[SealedPartition]:
    sealed = [p for p in seal.partitions if chunk.partitions is None or p.partition in set(chunk.partitions)]
    if chunk.slice is not None and chunk.slice.index:  # both sides' row counts are reported with the first slice
        sealed = [SealedPartition(p.partition, 0, 0) for p in sealed]
    return sealed


def _read_back(
    spark: SparkSession, layout: Layout, path: str, sealed: Sequence[SealedPartition], num_buckets: int
) -> Changes:
    """Count the written corrections per partition; the number of unchanged rows follows from the sealed counts."""
    table = layout.table
    values = partitions.names(table, digest_algebra.bucket(table, num_buckets), num_buckets)
    op = F.col(OP)
    last = F.to_json(F.max(F.struct(*columns(table.key))), {"ignoreNullFields": "false"})
    counts = (
        *recorded_changes.measure(),
        *digest_algebra.hash_changes(),
        F.count_if(op.isin("I", "R")),
        F.count_if(op == "U"),
        F.coalesce(F.sum(F.when(op.isin("D", "X"), F.col(COPIES))), F.lit(0)),
        last,
    )
    with translated(table.name):
        rows = recorded_changes.read(spark, layout, path).groupBy(*values).agg(*counts).collect()
    desired = {p.partition: p.num_rows for p in sealed}
    by_name = {p.partition: _unchanged(p) for p in sealed}
    num_rows = digest = gained = hashes = mixed = 0
    for row in rows:
        name = partitions.name(table, list(row)[: len(values)])
        n, part_digest, part_hashes, part_mixed, inserted, updated, deleted, position = row[len(values) :]
        want = desired.get(name, 0)
        if n:
            found = Counts(want, want - inserted + deleted, inserted, updated, deleted)
            by_name[name] = PartitionCounts(name, found, position)
        num_rows, digest = num_rows + n, digest ^ part_digest
        gained, hashes, mixed = gained + inserted - deleted, hashes ^ (part_hashes or 0), mixed + (part_mixed or 0)
    parts = tuple(by_name[name] for name in sorted(by_name))
    if not num_rows:
        return Changes(None, 0, 0, 0, parts)
    return Changes(path, num_rows, digest, storage.num_bytes(spark, path), parts, (gained, hashes, mixed))


def _wanted(members: Sequence[BucketCounts], *, is_chosen: bool) -> tuple[int, int]:
    """Return the number and the xor digest of the desired rows that should be read."""
    if is_chosen:
        wanted = [(p.differing_rows, p.differing_digest) for p in members]
    else:
        wanted = [(p.sealed.num_rows, p.sealed.digest) for p in members]
    return sum(n for n, _ in wanted), reduce(xor, (d for _, d in wanted), 0)


def _check_read(table: RefreshableTable, seen: Observation, wanted: tuple[int, int]) -> None:
    """Check that the rows just read are the sealed rows."""
    if hashing.measured(seen)[:2] != wanted:
        raise SealBrokenError(table.name, "the source no longer has the rows that were sealed.")


def _unchanged(part: SealedPartition) -> PartitionCounts:
    return PartitionCounts(part.partition, Counts(desired=part.num_rows, main=part.num_rows))


def _existing(main: delta.Main, layout: Layout, base_version: int) -> DataFrame:
    """Return the rows of main that the refresh compares."""
    return layout.shaped(in_scope(delta.read(main.spark, main.ref, base_version), layout))
