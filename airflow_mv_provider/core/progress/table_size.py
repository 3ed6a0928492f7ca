"""How large main is, from its log: its size at the last publish, and what each commit since has added and removed.

Asking Delta costs half a second after each commit, because it counts all of main's files.
"""

from __future__ import annotations

from collections.abc import Iterable

from airflow_mv_provider.core.fence import Commit

_ADDED = ("numTargetBytesAdded", "numOutputBytes", "numAddedBytes")  # of a MERGE, of a write, of all others
_REMOVED = ("numTargetBytesRemoved", "numRemovedBytes")
_WITHOUT_FILES = frozenset(
    {
        *("CREATE TABLE", "SET TBLPROPERTIES", "UNSET TBLPROPERTIES", "UPGRADE PROTOCOL", "ADD FEATURE"),
        *("ADD CONSTRAINT", "DROP CONSTRAINT", "ADD COLUMNS", "CHANGE COLUMN", "VACUUM START", "VACUUM END"),
    }
)


def size_after(since: int | None, before: int | None, commits: Iterable[Commit], until: int) -> int | None:
    """Return how many bytes of data files main has at a version; None if its log does not show that.

    since   : the version at which it had `before` bytes; None if it was not there yet
    commits : of main, in any order, some perhaps twice
    """
    by_version = {commit.version: commit for commit in commits}
    size = 0 if since is None else before
    for version in range(0 if since is None else since + 1, until + 1):
        if (commit := by_version.get(version)) is None:
            return None
        size = _after(size, commit)
    return size


def _after(size: int | None, commit: Commit) -> int | None:
    metrics = commit.metrics
    if "tableSizeAfterRestore" in metrics:
        return int(metrics["tableSizeAfterRestore"])
    added, removed = (_bytes(commit, names) for names in (_ADDED, _REMOVED))
    if commit.operation == "WRITE":
        if commit.parameters.get("mode") == "Append":
            removed = 0
        elif commit.parameters.get("mode") == "Overwrite" and "predicate" not in commit.parameters:
            return added  # of everything
    if commit.operation in _WITHOUT_FILES:
        added, removed = added or 0, removed or 0
    return None if size is None or added is None or removed is None else size + added - removed


def _bytes(commit: Commit, names: Iterable[str]) -> int | None:
    found = [int(commit.metrics[name]) for name in names if name in commit.metrics]
    return sum(found) if found else None
