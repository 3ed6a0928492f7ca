"""How tables are addressed and where files may lie: paths are confined to roots, and this package's own are marked.

    <warehouse>/gold/orders            main of table gold.orders
    <warehouse>/gold/orders__errors    its error table, if it has one
    <warehouse>/gold/orders__history   the versions of its rows, if it keeps them
    <warehouse>/_mv/<table uuid>/<refresh id>/staging-<epoch>
    <warehouse>/_mv/<table uuid>/<refresh id>/changes-<epoch>, and others, see `What`
    <warehouse>/_mv/<table uuid>/kept/<refresh id>/<epoch>-fingerprints    of main's rows, kept while needed
    <warehouse>/_mv/<table uuid>/kept/<refresh id>/<epoch>-files           totals of the source's rows by file

Everything here is lexical; `sources` has access to the file system and resolves symbolic links.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Literal
from urllib.parse import unquote

from airflow_mv_provider.core.definition.identifier import ERRORS_SUFFIX, HISTORY_SUFFIX, check_table_name, quoted
from airflow_mv_provider.core.secret import check_no_password
from airflow_mv_provider.exceptions import UnsafeLocationError

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")
ALLOWED_SCHEMES = frozenset({"file", "hdfs", "abfs", "abfss", "gs", "s3", "s3a"})
MARKER = "_mv"
_KEPT = "kept"
# What an attempt writes in its workspace: a copy of the source's rows; the rows of the source that may differ from
# main's; the keys that do; corrections; the rows of new files, or those that came or changed; the last event of each
# key of a log whose table has an error table; the records that cannot be rows of main; what happens to versions.
What = Literal["staging", "candidates", "differing", "changes", "new", "events", "errors", "history"]
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\Z")
_REFRESH_ID = re.compile(r"[0-9a-f]{32}\Z")
_KEPT_NAME = re.compile(r"[0-9]+-(fingerprints|files)(-[0-9]+)?\Z")


@dataclass(frozen=True, slots=True)
class TableRef:
    """The address of a Delta table, which need not exist: main, an error table, or a table that a source reads.

    Every table is addressed by its path. A name of a catalog is resolved to it first (`spark/catalog`), because a name
    can be given to another table between two statements. `spark/delta` is the only module that opens tables.

    location : the absolute directory of its files and its log
    """

    location: str

    def __str__(self) -> str:
        """Return what messages call the table."""
        return self.location

    @property
    def sql(self) -> str:
        """What stands for the table in a SQL statement."""
        return f"delta.{quoted(self.location)}"

    @property
    def errors(self) -> TableRef:
        """The error table of the main at this address."""
        return TableRef(errors_location(self.location))

    @property
    def history(self) -> TableRef:
        """The history of the rows of the main at this address."""
        return TableRef(history_location(self.location))


@dataclass(frozen=True, slots=True)
class Workspace:
    """The two directories of one refresh. Except for a drop, this package deletes files only in these."""

    warehouse: str
    table_uuid: str
    refresh_id: str

    def __post_init__(self) -> None:
        if not _UUID.match(self.table_uuid) or not _REFRESH_ID.match(self.refresh_id):
            raise UnsafeLocationError(
                "staging", f"{self.table_uuid!r}/{self.refresh_id!r} is not the workspace of a refresh.", hint=""
            )

    @property
    def root(self) -> str:
        return f"{table_workspaces(self.warehouse, self.table_uuid)}/{self.refresh_id}"

    @property
    def kept_root(self) -> str:
        return f"{table_workspaces(self.warehouse, self.table_uuid)}/{_KEPT}/{self.refresh_id}"

    def kept(self, name: str) -> str:
        """Return where files lie that are kept for the next refresh, by their name.

        raises : UnsafeLocationError
        """
        if not _KEPT_NAME.match(name):
            raise UnsafeLocationError("staging", f"{name!r} names no files of a refresh.")
        return f"{self.kept_root}/{name}"

    def at(self, what: What, epoch: int) -> str:
        """Return where the attempt `epoch` writes something; removed when the refresh ends."""
        return f"{self.root}/{what}-{epoch}"

    def without_deletes(self, epoch: int, merge_round: int, chunk: int) -> str:
        """Return where the attempt `epoch` writes the corrections of `chunk` again, without their deletes."""
        return f"{self.root}/kept-{epoch}-{merge_round}-{chunk}"


@dataclass(frozen=True, slots=True)
class MainPlace:
    """Main of a registered table as a drop may delete it: only at the path that follows from its name."""

    warehouse: str
    name: str
    location: str

    def __post_init__(self) -> None:
        if self.location != main_location(self.warehouse, self.name):
            raise UnsafeLocationError(
                self.name,
                f"{self.location!r} is not where a table of this name lies.",
                hint="Remove the folder by hand.",
            )

    @property
    def errors(self) -> str:
        """The path of its error table."""
        return errors_location(self.location)

    @property
    def history(self) -> str:
        """The path of its history."""
        return history_location(self.location)


def is_table_uuid(text: str) -> bool:
    """True if `text` can be a table's identity."""
    return _UUID.match(text) is not None


def table_workspaces(warehouse: str, table_uuid: str) -> str:
    """Return the directory that holds the workspaces of one table's refreshes."""
    return f"{warehouse.rstrip('/')}/{MARKER}/{table_uuid}"


def refresh_id_of(path: str, table_uuid: str) -> str | None:
    """Return the refresh whose workspace holds `path`, or None if it lies in none."""
    _, found, rest = path.partition(f"/{MARKER}/{table_uuid}/")
    first = rest.removeprefix(f"{_KEPT}/").split("/", 1)[0]
    return first if found and _REFRESH_ID.match(first) else None


def is_kept(path: str, table_uuid: str) -> bool:
    """True if `path` lies among what a table's refreshes keep for the next one."""
    return f"/{MARKER}/{table_uuid}/{_KEPT}/" in path


def main_location(warehouse: str, name: str) -> str:
    """Return where main of table `name` lies: its parts as directories under the warehouse."""
    return "/".join([warehouse.rstrip("/"), *check_table_name(name).split(".")])


def errors_location(main: str) -> str:
    """Return where the error table of the table with this main lies: beside it."""
    return f"{main}{ERRORS_SUFFIX}"


def history_location(main: str) -> str:
    """Return where the history of the table with this main lies: beside it."""
    return f"{main}{HISTORY_SUFFIX}"


def absolute_root(path: str) -> str:
    """Return a warehouse or source root in one spelling: a URI with a scheme as it is, a local path as a plain path.

    raises : UnsafeLocationError, for a relative path or a scheme that is not allowed
    """
    _check_scheme("root", path)
    plain = _plain(path)
    if not plain.startswith("/") and "://" not in plain:
        raise UnsafeLocationError("root", f"{path!r} is not absolute.", hint="Give an absolute path.")
    return _normalised(plain)  # sources are normalised too, and compared with it by name


def source_location(path: str, warehouse: str, roots: Sequence[str] = ()) -> str:
    """Return the absolute form of a source's `path`, relative ones under the warehouse.

    roots  : further roots a source may lie under
    raises : UnsafeLocationError, when it lies outside all of them, or in the staging area
    """
    absolute = absolute_source(path, warehouse)
    if not any(is_inside(absolute, root) for root in (warehouse, *roots)):
        raise UnsafeLocationError("source", f"{path!r} is outside the warehouse and the source roots.")
    if _may_meet(f"{warehouse.rstrip('/')}/{MARKER}", absolute):
        raise UnsafeLocationError("source", f"{path!r} is in the staging area.", hint="Choose another path.")
    return absolute


def absolute_source(path: str, warehouse: str) -> str:
    """Return the absolute form of a source's `path`, under any root.

    raises : UnsafeLocationError, when it is no plain path
    """
    _check_scheme("source", path)
    if any(ord(char) < 32 for char in path) or not path.strip():
        raise UnsafeLocationError("source", f"{path!r} is empty or has control characters.", hint="Correct the path.")
    plain = _plain(path)
    decoded = unquote(unquote(plain))
    # Hadoop expands {../a,b} before it looks at segments, and drops the backslash of an escaped dot.
    if any(".." in re.split(r"[/\\{},]", text) for text in (decoded, decoded.replace("\\", ""))):
        raise UnsafeLocationError("source", f"{path!r} leads out of its root.", hint="Write the path without `..`.")
    absolute = plain if plain.startswith("/") or "://" in plain else f"{warehouse.rstrip('/')}/{plain}"
    return _normalised(absolute)


def check_apart(main: str, source: str) -> None:
    """Refuse a main that equals its source, or lies inside or around it; for a glob, any path that it may match.

    raises : UnsafeLocationError
    """
    if _may_meet(main, source):
        raise UnsafeLocationError(
            "source",
            f"{source!r} and the table {main!r} share a directory.",
            hint="Keep the source and the table in separate directories.",
        )


def one_spelling(location: str) -> str:
    """Return a location so that two texts for one place are equal: file: URIs as paths, without slashes at the end."""
    return _normalised(_plain(location))


def moved_path(path: str, old: str, new: str) -> str:
    """Return a path inside one warehouse at the same place inside another one; any other path as it is."""
    return new.rstrip("/") + path[len(old.rstrip("/")) :] if is_inside(path, old) else path


def is_inside(path: str, root: str) -> bool:
    """True if `path` is `root` or lies below it, by name alone."""
    root = root.rstrip("/")
    return path == root or path.startswith(root + "/")


def _may_meet(place: str, pattern: str) -> bool:
    """True if a path that a glob matches may equal `place`, lie in it or contain it; judged segment by segment."""
    for piece, name in zip(pattern.rstrip("/").split("/"), place.split("/"), strict=False):
        if piece.count("{") != piece.count("}"):
            return True  # alternatives with slashes in them: what follows may be anything
        if not any(fnmatchcase(name, one.replace("[^", "[!").replace("\\", "")) for one in _alternatives(piece)):
            return False
    return True


def _alternatives(piece: str) -> Iterator[str]:
    found = re.search(r"\{([^{}]*)\}", piece)
    if found is None:
        yield piece
        return
    for one in found.group(1).split(","):
        yield from _alternatives(piece[: found.start()] + one + piece[found.end() :])


def _check_scheme(where: str, path: str) -> None:
    found = _SCHEME.match(unquote(path))
    if found and found.group(1).lower() not in ALLOWED_SCHEMES:
        # Only the scheme is shown: the rest of a JDBC address, for example, contains a user and a password.
        hint = f"Use one of these schemes: {', '.join(sorted(ALLOWED_SCHEMES))}."
        raise UnsafeLocationError(where, f"the scheme of '{found.group(1)[:40]}:...' is not allowed.", hint=hint)
    check_no_password(where, path)


def _plain(path: str) -> str:
    """Return a file: URI as a plain path, so that one place has one name."""
    found = re.match(r"file:(?://(?=/))?(/.*)\Z", path)
    return found.group(1) if found else path


def _normalised(path: str) -> str:
    scheme, found, rest = path.partition("://")
    return f"{scheme}://{posixpath.normpath(rest)}" if found else posixpath.normpath(path)
