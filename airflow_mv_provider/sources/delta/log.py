"""What a Delta source's own log says of the time since the last publish, before a row is read.

Only what is known is believed: an operation that this file does not name may have changed anything.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from airflow_mv_provider.core.fence import KEEPS_DATA
from airflow_mv_provider.core.strategy import SourceChanges

FEED_PROPERTY = "delta.enableChangeDataFeed"

# The metrics of an operation whose sum is at least the number of rows that it changed.
_COUNTED: Mapping[str, tuple[str, ...]] = {
    "WRITE": ("numOutputRows",),
    "STREAMING UPDATE": ("numOutputRows",),
    "UPDATE": ("numUpdatedRows",),
    "DELETE": ("numDeletedRows",),
    "MERGE": ("numTargetRowsInserted", "numTargetRowsUpdated", "numTargetRowsDeleted"),
}


@dataclass(frozen=True, slots=True)
class Entry:
    """One commit of the source."""

    version: int
    operation: str
    parameters: Mapping[str, str]
    metrics: Mapping[str, str]


def changes_in(entries: Iterable[Entry], since: int, until: int, *, has_feed: bool) -> SourceChanges:
    """Say what happened to a source between two of its versions.

    entries  : its log; more of it than asked for does no harm
    since    : the version that main has, exclusive
    until    : the version that main is to have, inclusive
    has_feed : it keeps a change data feed now
    """
    found = {entry.version: entry for entry in entries if since < entry.version <= until}
    if len(found) < until - since:
        return SourceChanges(None, "its log no longer reaches back to the last publish")
    counts = [_changed(entry) for entry in found.values()]
    at_most = None if None in counts else sum(count or 0 for count in counts)
    if not has_feed:
        return SourceChanges(at_most, f"it keeps no change data feed ({FEED_PROPERTY})")
    for entry in found.values():
        if FEED_PROPERTY in str(entry.parameters.get("properties")):
            return SourceChanges(at_most, "its change data feed does not reach back to the last publish")
        # Also an overwrite or RESTORE, of which the feed holds every row twice: reading everything costs less.
        if _changed(entry) is None:
            return SourceChanges(at_most, f"its log holds {entry.operation} of unknown extent")
    return SourceChanges(at_most, None)


def _changed(entry: Entry) -> int | None:
    """Return the most rows that a commit may have changed; None where it does not say."""
    if entry.operation in KEEPS_DATA:
        return 0
    names = _COUNTED.get(entry.operation)
    is_overwrite = entry.parameters.get("mode", "Append") != "Append" or (
        "outputMode" in entry.parameters and (entry.parameters["outputMode"] != "Append")
    )
    if names is None or is_overwrite or not any(name in entry.metrics for name in names):
        return None
    return sum(int(entry.metrics.get(name, 0)) for name in names)
