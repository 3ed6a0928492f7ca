"""Derive the changes of a Delta source since the last publish from its log, without reading a row.

An operation that this module does not list may have changed any number of rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from airflow_mv_provider.core.fence import KEEPS_DATA
from airflow_mv_provider.core.strategy import SourceChanges

FEED_PROPERTY = "delta.enableChangeDataFeed"

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
_REWRITES_FILES = ("OPTIMIZE", "REORG")


@dataclass(frozen=True, slots=True)
class Entry:
    """One commit of the source."""

    version: int
    operation: str
    parameters: Mapping[str, str]
    metrics: Mapping[str, str]


def changes_in(entries: Iterable[Entry], since: int, until: int, *, has_feed: bool) -> SourceChanges:
    """Return what a source's log shows of the changes between two of its versions.

    entries  : its log; entries outside of the two versions are ignored
    since    : the version that main has, exclusive
    until    : the version that main will have, inclusive
    has_feed : True if the source keeps a change data feed now
    returns  : with `in_new_files` where no feed reaches back, but every row that came or changed is in a new file
    """
    found = {entry.version: entry for entry in entries if since < entry.version <= until}
    if len(found) < until - since:
        return SourceChanges(None, "its log no longer reaches back to the last publish")
    counts = [_changed(entry) for entry in found.values()]
    at_most = None if None in counts else sum(count or 0 for count in counts)
    for entry in found.values():
        # This includes an overwrite and a RESTORE: the feed holds each row of them twice, so a full read costs less.
        if _changed(entry) is None:
            return SourceChanges(at_most, f"its log holds {entry.operation} of unknown extent")
    reaches_back = not any(FEED_PROPERTY in str(entry.parameters.get("properties")) for entry in found.values())
    if has_feed and reaches_back:
        return SourceChanges(at_most, None)
    for entry in found.values():
        if entry.operation in _REWRITES_FILES:
            no_feed = "its change data feed does not reach back" if has_feed else "it keeps no change data feed"
            return SourceChanges(at_most, f"{no_feed}, and {entry.operation} has written its files anew")
    copied = sum(int(entry.metrics.get(name, 0)) for entry in found.values() for name in _COPIED)
    return SourceChanges(at_most, None, in_new_files=(at_most or 0) + copied)


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
