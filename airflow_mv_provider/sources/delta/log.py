"""Derive the changes of a Delta source since the last publish from its log, without reading a row.

An operation that this module does not list may have changed any number of rows.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from airflow_mv_provider.core.changeset import SignedRows, Whole
from airflow_mv_provider.core.commits import FEED_PROPERTY
from airflow_mv_provider.core.fence import KEEPS_DATA
from airflow_mv_provider.sources.delta.file_actions import MOVES_ROWS, REWRITES_FILES, unfollowed

_MAPPING_PROPERTY = "delta.columnMapping.mode"

# Per operation, the metrics that add up to at least the number of rows that it changed.
_COUNTED: Mapping[str, tuple[str, ...]] = {
    "WRITE": ("numOutputRows",),
    "STREAMING UPDATE": ("numOutputRows",),
    "UPDATE": ("numUpdatedRows",),
    "DELETE": ("numDeletedRows",),
    "MERGE": ("numTargetRowsInserted", "numTargetRowsUpdated", "numTargetRowsDeleted"),
}
# The rows that it wrote again as they were: without deletion vectors, all others of a file with a changed row.
_COPIED = ("numCopiedRows", "numTargetRowsCopied")
# Bytes of the files that it added, and of those that it removed; each operation has its own names for them.
_ADDED = ("numAddedBytes", "numTargetBytesAdded", "numOutputBytes")
_REMOVED = ("numRemovedBytes", "numTargetBytesRemoved")


@dataclass(frozen=True, slots=True)
class Entry:
    """One commit of the source."""

    version: int
    operation: str
    parameters: Mapping[str, str]
    metrics: Mapping[str, str]


def changes_in(
    entries: Iterable[Entry], since: int, until: int, *, has_feed: bool, num_bytes: int = 0, is_mapped: bool = False
) -> SignedRows | Whole:
    """Return what a source's log shows of the changes between two of its versions.

    entries   : its log; entries outside of the two versions are ignored
    since     : the version that main has, exclusive
    until     : the version that main will have, inclusive
    has_feed  : True if the source keeps a change data feed now
    num_bytes : size of the source, as far as it is known
    is_mapped : True if its columns have other names in its files
    returns   : with `in_files` where no feed reaches back, and the files that came and went show the changes
    """
    found = {entry.version: entry for entry in entries if since < entry.version <= until}
    if len(found) < until - since:
        return Whole("its log no longer reaches back to the last publish")
    counts = [_changed(entry) for entry in found.values()]
    at_most = None if None in counts else sum(count or 0 for count in counts)
    if (operation := unfollowed(entry.operation for entry in found.values())) is not None:
        return Whole(f"its log holds {operation} of unknown extent", at_most)
    reaches_back = not any(FEED_PROPERTY in str(entry.parameters.get("properties")) for entry in found.values())
    # The feed holds each row of an overwrite twice, once for each sign; its files hold no more, and often less.
    if has_feed and reaches_back and at_most is not None:
        return SignedRows(at_most)
    if is_mapped:
        no_feed = "its change data feed does not reach back" if has_feed else "the source keeps no change data feed"
        return Whole(f"{no_feed}, and its columns have other names in its files", at_most)
    in_files = _in_files(found.values(), at_most, num_bytes)
    return SignedRows(at_most, in_files, is_counted=True)


def may_be_mapped(entries: Iterable[Entry], version: int, properties: Mapping[str, str]) -> bool:
    """True if columns may have had other names in the table's files than in the table at a version.

    entries    : its log
    properties : of its newest version
    """
    later = (entry.operation for entry in entries if entry.version > version)
    is_mapped = properties.get(_MAPPING_PROPERTY, "none").lower() != "none"
    return is_mapped or any(each not in MOVES_ROWS | REWRITES_FILES for each in later)


def _changed(entry: Entry) -> int | None:
    """Return an upper bound of the rows that a commit changed; None if its metrics do not give one."""
    if entry.operation in KEEPS_DATA:
        return 0
    names = _COUNTED.get(entry.operation)
    is_overwrite = entry.parameters.get("mode", "Append") != "Append" or (
        "outputMode" in entry.parameters and (entry.parameters["outputMode"] != "Append")
    )
    if names is None or is_overwrite or not any(name in entry.metrics for name in names):
        return None
    return sum(int(entry.metrics.get(name, 0)) for name in names)


def _in_files(entries: Collection[Entry], at_most: int | None, num_bytes: int) -> int | float:
    """Return how many rows are in the files that some commits added or removed, or which fraction of all bytes."""
    if at_most is not None and not any(entry.operation in REWRITES_FILES for entry in entries):
        return at_most + sum(int(entry.metrics.get(name, 0)) for entry in entries for name in _COPIED)
    moved = [_moved_bytes(entry) for entry in entries]
    return 1.0 if None in moved or not num_bytes else min(sum(each or 0 for each in moved) / num_bytes, 1.0)


def _moved_bytes(entry: Entry) -> int | None:
    if entry.operation in KEEPS_DATA - REWRITES_FILES:
        return 0
    added, removed = (
        next((int(entry.metrics[name]) for name in names if name in entry.metrics), None)
        for names in (_ADDED, _REMOVED)
    )
    return None if added is None and removed is None else max(added or 0, removed or 0)
