"""The digests of main that a publish keeps for the next refresh, and the number of their buckets."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from airflow_mv_provider.core.definition.schema import fingerprint
from airflow_mv_provider.core.progress.layers import Layer, all_paths, layers_from_json
from airflow_mv_provider.core.progress.partition import WHOLE_TABLE
from airflow_mv_provider.core.progress.seal import Seal, SealedPartition

_ROWS_PER_BUCKET = 8
_MIN_BUCKETS, _MAX_BUCKETS = 1 << 6, 1 << 23


@dataclass(frozen=True, slots=True)
class PublishedDigests:
    """The digests of main that a publish left behind, per bucket of keys; valid until another writer changes main.

    refresh_id       : the refresh that published; its workspace holds the highest layer of them, at `path`
    path             : None if no digests are written: the next comparison reads main's rows (`core.progress.joined`)
    num_rows, digest, mixed : the required totals, as in the seal; digests with other totals are not used
    columns          : the fingerprint of the columns that the digests cover; other columns are not in them
    kept_bytes       : size of the copies of the source's rows that are kept by file, see `core.progress.file_rows`
    below            : the layers below the highest one, the lowest first
    """

    refresh_id: str
    path: str | None
    num_buckets: int
    num_rows: int
    digest: int
    mixed: int
    columns: str
    kept_bytes: int = 0
    below: tuple[Layer, ...] = ()

    @classmethod
    def from_json(cls, stored: dict[str, Any]) -> PublishedDigests:
        """Return the digests that the database describes."""
        return cls(**stored | {"below": layers_from_json(stored.get("below"))})

    @property
    def layers(self) -> tuple[Layer, ...]:
        """All layers, the lowest first."""
        return () if self.path is None else (*self.below, Layer(self.refresh_id, self.path))

    @property
    def paths(self) -> tuple[str, ...]:
        """Where all layers lie."""
        return all_paths(self.below, self.path)

    @property
    def sums(self) -> tuple[int, int, int]:
        """Count, xor and mixed sum: equal for equal rows, and different for others unless a collision was crafted."""
        return self.num_rows, self.digest, self.mixed

    def rewritten(self, path: str, sums: tuple[int, int, int]) -> PublishedDigests:
        """Return the digests after changes of main, written anew elsewhere, and without a list of files beside them."""
        num_rows, digest, mixed = sums
        return replace(self, path=path, num_rows=num_rows, digest=digest, mixed=mixed, kept_bytes=0, below=())


def with_changes(before: Iterable[SealedPartition], added: Iterable[SealedPartition]) -> tuple[SealedPartition, ...]:
    """Return the partitions of main with what a layer of digests adds to them, without those that lose all rows."""
    found = {part.partition: part for part in before}
    for part in added:
        was = found.get(part.partition, SealedPartition(part.partition, 0, 0))
        num_rows, digest = was.num_rows + part.num_rows, was.digest ^ part.digest
        found[part.partition] = SealedPartition(part.partition, num_rows, digest)
    remaining = (part for part in found.values() if part.num_rows or part.partition == WHOLE_TABLE)
    return tuple(sorted(remaining, key=lambda part: part.partition))


def bucket_count(most_rows: int, at_least: int = 1) -> int:
    """Return the number of key buckets in each partition: a power of two, four to eight rows per bucket.

    most_rows : rows of the largest partition. More buckets leave fewer rows to compare, and cost more to compute.
    at_least  : number of hash partitions, which are runs of buckets
    """
    fewest = max(_MIN_BUCKETS, 1 << (at_least - 1).bit_length())
    return max(fewest, min(_MAX_BUCKETS, 1 << (most_rows // _ROWS_PER_BUCKET).bit_length()))


def digests_to_keep(seal: Seal, refresh_id: str) -> PublishedDigests | None:
    """Return the digests for the next refresh, or None if their bucket count is wrong by more than a factor of 4."""
    ideal = bucket_count(max((p.num_rows for p in seal.partitions), default=0))
    if not ideal // 4 <= seal.num_buckets <= ideal * 4:
        return None
    columns = fingerprint(seal.columns)
    return PublishedDigests(
        refresh_id, seal.digests, seal.num_buckets, *seal.sums, columns, seal.kept_bytes, seal.below
    )
