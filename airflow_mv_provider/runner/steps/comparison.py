"""The corrections of one round: the difference between the seal and one version of main, computed per chunk."""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import DataFrame

from airflow_mv_provider.core.guard import Counts
from airflow_mv_provider.core.location import Workspace
from airflow_mv_provider.core.progress.chunk import Chunk
from airflow_mv_provider.core.progress.digests import PublishedDigests
from airflow_mv_provider.core.progress.recorded import RecordedChunk
from airflow_mv_provider.core.progress.seal import Seal
from airflow_mv_provider.exceptions import MvError
from airflow_mv_provider.runner.crash_points import Write, durable
from airflow_mv_provider.spark.compare import changes
from airflow_mv_provider.spark.compare.buckets import Buckets
from airflow_mv_provider.spark.delta import Main
from airflow_mv_provider.spark.layout import Layout


class Comparison:
    """The comparison of the seal with main at version `base`.

    read_source : returns the source's rows at the pinned frontier; called only if nothing was copied and rows differ
    published   : digests that are known to be those of main at `base`; None if there are none
    buckets     : the buckets in which the two differ, if known already; closed by `close`
    """

    def __init__(
        self,
        main: Main,
        layout: Layout,
        seal: Seal,
        read_source: Callable[[], DataFrame],
        workspace: Workspace,
        epoch: int,
        base: int,
        published: PublishedDigests | None,
        *,
        is_adopting: bool = False,
        buckets: Buckets | None = None,
    ) -> None:
        self._main = main
        self._layout = layout
        self._seal = seal
        self._read_source = read_source
        self._workspace = workspace
        self._epoch = epoch
        self._base = base
        self._published = published
        self._is_adopting = is_adopting
        self._buckets = buckets

    def compare(self, chunk: Chunk, merge_round: int = 0) -> RecordedChunk:
        """Compare one chunk, write its corrections if it needs any, and return the record of the chunk.

        raises : SealBrokenError, AdoptionError
        """
        buckets = self.buckets
        if chunk.slice is not None and not buckets.can_be_sliced and buckets.differing_in(chunk):
            self.close()  # computed again below, all small buckets and cached, so that slices can be counted
            buckets = self.buckets
        path = self._workspace.changes(self._epoch, merge_round, chunk.number)
        with durable(Write.CHANGES):
            found = changes.compare(
                self._main, self._layout, self._seal, self._read_source, chunk, buckets, self._base, path
            )
        if self._is_adopting:
            changes.check_adoptable(self._main.spark, self._layout, found)
        return recorded_chunk(chunk, found, epoch=self._epoch, merge_round=merge_round, base_version=self._base)

    def at_most(self) -> Counts:
        """Return the row counts of both sides and upper bounds of main's deleted and updated rows; read no row."""
        buckets = self.buckets
        updated = min(sum(part.differing_rows for part in buckets.partitions.values()), buckets.main_rows)
        return Counts(self._seal.num_rows, buckets.main_rows, updated=updated, deleted=buckets.rows_with_other_keys)

    @property
    def num_partitions(self) -> int:
        """The number of partitions in which the two sides differ."""
        return sum(part.differing > 0 for part in self.buckets.partitions.values())

    def counted(self, *, with_updates: bool) -> Counts:
        """Return the row counts of both sides and the exact counts of main's deleted and updated rows.

        with_updates : count the updated rows too; otherwise `updated` is 0
        cost         : a scan and a shuffle, on both sides, of the keys in buckets whose keys differ; for updates also
                       of the rows in all buckets that differ
        """
        sides = (self._main, self._layout, self._seal, self._read_source, self.buckets, self._base)
        deleted, updated = changes.deleted_and_updated(*sides, with_updates=with_updates)
        return Counts(self._seal.num_rows, self.buckets.main_rows, updated=updated, deleted=deleted)

    def close(self) -> None:
        """Release the buckets that Spark caches."""
        if self._buckets is not None:
            self._buckets.close()
            self._buckets = None

    @property
    def buckets(self) -> Buckets:
        """The buckets in which the seal and main differ; computed once.

        raises : SealBrokenError
        """
        if self._buckets is None:
            found = changes.differing_buckets(
                self._main, self._layout, self._seal, self._read_source, self._published, self._base
            )
            try:
                found.check_sealed(self._layout.table.name, self._seal)
            except MvError:
                found.close()
                raise
            self._buckets = found
        return self._buckets


def recorded_chunk(
    chunk: Chunk, found: changes.Changes, *, epoch: int, merge_round: int, base_version: int
) -> RecordedChunk:
    """Return the record of a compared chunk, as the database stores it."""
    return RecordedChunk(
        number=chunk.number,
        epoch=epoch,
        merge_round=merge_round,
        base_version=base_version,
        path=found.path,
        num_rows=found.num_rows,
        digest=found.digest,
        num_bytes=found.num_bytes,
        partitions=found.partitions,
    )
