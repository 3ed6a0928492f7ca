"""Find the commits of a Delta table that changed its data, from its log's own files, without Spark.

    _delta_log/00000000000000000007.json     one action per line: commitInfo, metaData, add, remove, ...

An `add` or `remove` with `dataChange: true` changes rows; OPTIMIZE moves them with `dataChange: false`, and a commit
of properties has neither. A commit that cannot be parsed this way counts as a change.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

LOG = "_delta_log"
FEED_PROPERTY = "delta.enableChangeDataFeed"
UNNAMED = "unknown"  # the operation of a commit that does not name it: a commit's info is optional in Delta's protocol
_COMMIT = re.compile(r"(\d{20})\.json\Z")


@dataclass(frozen=True, slots=True)
class NewCommits:
    """The result of reading a log.

    version   : the newest commit in it
    changed   : the commits since the last read that changed data, oldest first
    is_gap    : commits since then have been cleaned away, or the table was recreated: data may have changed
    """

    version: int
    changed: tuple[int, ...] = ()
    operations: tuple[str, ...] = ()
    is_gap: bool = False

    @property
    def has_data(self) -> bool:
        return bool(self.changed) or self.is_gap


def commit_of(name: str) -> int | None:
    """Return the version of a commit file in the log; None for any other file."""
    found = _COMMIT.match(name)
    return int(found[1]) if found else None


def commit_name(version: int) -> str:
    """Return the name of a commit's file."""
    return f"{version:020}.json"


def new_commits(versions: Iterable[int], since: int | None, read: Callable[[int], str]) -> NewCommits | None:
    """Return what is new in a log; None if there is no table.

    versions : the commits whose files exist
    since    : the newest commit at the last read; None at the first read, which finds no changes
    read     : returns a commit's text
    """
    found = sorted(set(versions))
    if not found:
        return None
    newest = found[-1]
    if since is None or newest == since:
        return NewCommits(newest)
    if newest < since:
        return NewCommits(newest, is_gap=True)  # the log is another table's now
    unseen = [version for version in found if version > since]
    looked = [(version, _actions(read(version))) for version in unseen]
    changed = [(version, actions) for version, actions in looked if _changes_data(actions)]
    operations = tuple(dict.fromkeys(_operation(actions) for _, actions in changed))
    return NewCommits(newest, tuple(version for version, _ in changed), operations, len(unseen) < newest - since)


def _actions(text: str) -> list[dict[str, Any]] | None:
    try:
        found = [json.loads(line) for line in text.splitlines() if line.strip()]
    except ValueError:
        return None
    return found if all(isinstance(action, dict) for action in found) else None


def _changes_data(actions: list[dict[str, Any]] | None) -> bool:
    if actions is None:
        return True
    files = [action.get(kind) for action in actions for kind in ("add", "remove") if kind in action]
    return any(not isinstance(file, dict) or file.get("dataChange", True) for file in files)


def _operation(actions: list[dict[str, Any]] | None) -> str:
    infos = [action["commitInfo"] for action in actions or () if isinstance(action.get("commitInfo"), dict)]
    return str(infos[0].get("operation", UNNAMED)) if infos else UNNAMED
