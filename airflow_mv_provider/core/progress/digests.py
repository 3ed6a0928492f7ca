"""The digests of main that a publish keeps for the next refresh, and the number of their buckets."""

from __future__ import annotations

from dataclasses import dataclass, replace

from airflow_mv_provider.core.definition.schema import fingerprint
from airflow_mv_provider.core.progress.seal import Seal

_ROWS_PER_BUCKET = 8
_MIN_BUCKETS, _MAX_BUCKETS = 1 << 6, 1 << 23


@dataclass(frozen=True, slots=True)
class PublishedDigests:
    """The digests of main that a publish left behind, per bucket of keys; valid until another writer changes main.

    refresh_id       : the refresh that published; its workspace holds them
    num_rows, digest, mixed : the required totals, as in the seal; digests with other totals are not used
    columns          : the fingerprint of the columns that the digests cover; other columns are not in them
    kept_bytes       : size of the copies of the source's rows that are kept by file, see `core.progress.file_rows`
    """

    refresh_id: str
    path: str
    num_buckets: int
    num_rows: int
    digest: int
    mixed: int
    columns: str
    kept_bytes: int = 0

    @property
    def sums(self) -> tuple[int, int, int]:
        """Count, xor and mixed sum: equal for equal rows, and different for others unless a collision was crafted."""
        return self.num_rows, self.digest, self.mixed

    def rewritten(self, path: str, sums: tuple[int, int, int]) -> PublishedDigests:
        """Return these digests after changes of main, written at another path; no list of files lies beside them."""
        num_rows, digest, mixed = sums
        return replace(self, path=path, num_rows=num_rows, digest=digest, mixed=mixed, kept_bytes=0)


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
    sums = (seal.num_rows, seal.digest, seal.mixed)
    columns = fingerprint(seal.columns)
    return PublishedDigests(refresh_id, seal.digests, seal.num_buckets, *sums, columns, seal.kept_bytes)
