"""Derive from the actions in a Delta table's log which rows of which data files differ between two of its versions.

    commits after `since`, up to `until` ──▶ data files before and after ──▶ parts of them: rows that are gone, or came

A data file is never changed. A row goes with its file, or by a new deletion vector beside the file; no vector is ever
changed either. So the parts have exactly the rows that the two versions do not share, and rows that were written again
as they were, once among those that are gone and once among those that came.

source : Delta protocol, "Add File and Remove File", "Deletion Vectors", "Action Reconciliation"
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

from airflow_mv_provider.core.fence import KEEPS_DATA

REWRITES_FILES = frozenset({"OPTIMIZE", "REORG"})
# Of other operations it is not known that each file they add was not there before, or that it has the same columns.
# Statistics, for one, are added by naming a file again; RESTORE brings back what columns and partitions were.
MOVES_ROWS = frozenset({"WRITE", "STREAMING UPDATE", "UPDATE", "DELETE", "MERGE", "TRUNCATE"})


@dataclass(frozen=True, slots=True)
class VectorPlace:
    """Where a deletion vector is stored, as the log has it.

    storage     : u, in a file named by a UUID; p, in a file at an absolute path; i, in `text`
    offset      : where it begins in that file
    num_bytes   : its size
    num_deleted : the rows that it deletes
    """

    storage: str
    text: str
    offset: int
    num_bytes: int
    num_deleted: int


@dataclass(frozen=True, slots=True)
class DataFile:
    """One data file of a table, and the rows of it that are deleted.

    path   : as the log has it: a URI, or a part of one that is relative to the table
    values : of the table's partition columns, as text
    """

    path: str
    values: tuple[tuple[str, str | None], ...] = ()
    vector: VectorPlace | None = None

    @property
    def name(self) -> str:
        """The file's own name on the disk."""
        return unquote(self.path).rpartition("/")[2]

    def location(self, table: str) -> str:
        """Return where the file is; `table` is the table's location."""
        is_absolute = bool(urlsplit(self.path).scheme) or self.path.startswith("/")
        return unquote(self.path) if is_absolute else f"{table}/{unquote(self.path)}"


@dataclass(frozen=True, slots=True)
class Action:
    """What one commit did to one data file; it removes files before it adds any."""

    version: int
    operation: str
    is_added: bool
    file: DataFile


@dataclass(frozen=True, slots=True)
class Part:
    """Rows of one data file that only one of two versions has.

    sign    : -1 for the older one, +1 for the newer one
    deleted : deletes rows of the file that neither has; None if there are none
    only    : if given, the part has none but the rows that this vector deletes
    """

    file: DataFile
    sign: int
    deleted: VectorPlace | None = None
    only: VectorPlace | None = None


def unfollowed(operations: Iterable[str]) -> str | None:
    """Return the first operation whose files do not show which rows it changed; None if there is none."""
    followed = MOVES_ROWS | KEEPS_DATA
    return next((each for each in operations if each not in followed), None)


def parts_between(actions: Iterable[Action]) -> Iterator[Part]:
    """Yield the rows in which two versions differ, part by part.

    actions : of all commits after the older version, up to the newer one, in any order
    """
    before: dict[str, DataFile | None] = {}
    after: dict[str, DataFile | None] = {}
    for action in sorted(actions, key=lambda each: (each.version, each.is_added)):
        if action.operation in KEEPS_DATA - REWRITES_FILES:
            continue  # it names files again that are there
        before.setdefault(action.file.path, None if action.is_added else action.file)
        after[action.file.path] = action.file if action.is_added else None
    for path, file in before.items():
        yield from _parts(file, after[path])


def _parts(before: DataFile | None, after: DataFile | None) -> Iterator[Part]:
    if before is None or after is None:
        if before is not None:
            yield Part(before, -1, before.vector)
        if after is not None:
            yield Part(after, 1, after.vector)
    elif before.vector != after.vector:
        if after.vector is not None:
            yield Part(before, -1, before.vector, after.vector)
        if before.vector is not None:
            yield Part(after, 1, after.vector, before.vector)


def partition_values(values: Mapping[str, str | None] | None) -> tuple[tuple[str, str | None], ...]:
    """Return a file's partition values; an empty text stands for NULL."""
    return tuple(sorted((name, value or None) for name, value in (values or {}).items()))
