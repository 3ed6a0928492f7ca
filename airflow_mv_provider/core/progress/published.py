"""What a publish leaves for the next refresh: the totals of main's rows, and where their fingerprints lie.

Fingerprints are 32 bits of each row's hash: by them most rows of a source are recognised as rows that main has, without
main being read. A refresh of few changed rows writes only a layer, of what it adds to them and removes. They are a hint
and the totals are the proof: with wrong fingerprints, or none, a refresh takes longer and does the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from airflow_mv_provider.core.progress.totals import Totals

_ROWS_PER_SHARD = 32  # 32 to 64 of them: more make fingerprints hardly smaller, and a row is looked up in longer lists
_MAX_SHARDS = 1 << 30
_MAX_LAYERS = 6  # each is a few more small files to read
_MAX_GROWTH = 16
_ROWS_PER_CHANGE = 16  # above it, fingerprints are written anew
_BYTES_PER_ROW, _BYTES_PER_SHARD = 4, 80  # of a list of them in Spark's hash table


@dataclass(frozen=True, slots=True)
class Kept:
    """Files that are kept beyond their refresh.

    name : their place among what that refresh keeps, see `core.location.Workspace`; relative, so it survives a move
    """

    refresh_id: str
    name: str


@dataclass(frozen=True, slots=True)
class Published:
    """What is known of main's rows since the last publish; valid until another writer changes main.

    refresh_id   : the refresh that published
    totals       : of all rows of main
    columns      : the fingerprint of the columns that the hashes cover; other columns are not in them
    fingerprints : their layers, the lowest first; none if there are none
    num_shards   : of the fingerprints, in each partition
    files        : the totals of the source's rows by file, if its kind identifies files
    """

    refresh_id: str
    totals: Totals
    columns: str
    fingerprints: tuple[Kept, ...] = ()
    num_shards: int = 0
    files: Kept | None = None

    @classmethod
    def from_json(cls, stored: dict[str, Any]) -> Published:
        """Return what the database describes."""
        return cls(
            stored["refresh_id"],
            Totals(**stored["totals"]),
            stored["columns"],
            kept_from_json(stored["fingerprints"]),
            stored["num_shards"],
            None if stored["files"] is None else Kept(**stored["files"]),
        )

    @property
    def num_rows(self) -> int:
        return self.totals.num_rows

    @property
    def kept(self) -> tuple[Kept, ...]:
        """All files that are kept for the next refresh."""
        return self.fingerprints if self.files is None else (*self.fingerprints, self.files)


def kept_from_json(stored: Iterable[dict[str, str]]) -> tuple[Kept, ...]:
    """Return kept files from what the database has of them."""
    return tuple(Kept(**each) for each in stored)


def shard_count(most_rows: int) -> int:
    """Return the number of shards of each partition: a power of two.

    most_rows : rows of the largest partition
    """
    return min(_MAX_SHARDS, 1 << max(0, (most_rows // _ROWS_PER_SHARD).bit_length() - 1))


def bytes_in_memory(num_rows: Iterable[int], num_shards: int) -> int:
    """Return about how many bytes the fingerprints of some partitions take in memory.

    num_rows : of each partition; a small one has a list of its own for nearly each row, if another one is large
    """
    return sum(_BYTES_PER_ROW * rows + _BYTES_PER_SHARD * min(rows, num_shards) for rows in num_rows)


def is_outgrown(most_rows: int, num_shards: int) -> bool:
    """True if a partition has many times as many rows as its shards are for: each is looked up in a long list."""
    return most_rows > _MAX_GROWTH * _ROWS_PER_SHARD * num_shards


def layers_below(published: Sequence[Kept], num_rows: int, num_changes: int) -> tuple[Kept, ...]:
    """Return the layers on which a refresh places its own; none if fingerprints are to be written anew.

    num_rows    : of main
    num_changes : rows of main that are inserted, updated or deleted
    """
    is_worth = num_changes * _ROWS_PER_CHANGE <= num_rows
    return tuple(published) if is_worth and len(published) < _MAX_LAYERS else ()


def outdated(before: Published | None, after: Published | None) -> tuple[str, ...]:
    """Return the refreshes whose kept files nobody needs any more once `after` is known of main instead of `before`."""
    needed = {each.refresh_id for each in after.kept} if after else set[str]()
    former = before.kept if before else ()
    return tuple(dict.fromkeys(each.refresh_id for each in former if each.refresh_id not in needed))
