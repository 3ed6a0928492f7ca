"""The state of a source, and the counter that stands for it.

A `Frontier` identifies a source's state: a table id and a version for Delta, a listing with sizes and times for files,
the frontiers of its inputs for a query. A function has none.
A `Binding` maps one value of this package's counter to one frontier; it is durable before anything is read at it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, assert_never


@dataclass(frozen=True, slots=True)
class SourceFile:
    """One file of a listing. `path` is a URI; equal size, time and, if present, checksum count as equal content."""

    path: str
    num_bytes: int
    modified_ms: int
    checksum: str | None = None


@dataclass(frozen=True, slots=True)
class DeltaFrontier:
    """A Delta table at a version (inclusive, as Delta counts). The id detects a table dropped and recreated."""

    table_id: str
    version: int

    def describe(self) -> str:
        """Return the frontier in words."""
        return f"Delta version {self.version}"


@dataclass(frozen=True, slots=True)
class FilesFrontier:
    """A listing of files, sorted by path."""

    files: tuple[SourceFile, ...]

    def describe(self) -> str:
        """Return the frontier in words."""
        return f"{len(self.files)} files, {sum(f.num_bytes for f in self.files):,} bytes"


@dataclass(frozen=True, slots=True)
class QueryFrontier:
    """The inputs of a query, each at its own frontier, sorted by name."""

    inputs: tuple[tuple[str, DeltaFrontier], ...]

    def describe(self) -> str:
        """Return the frontier in words."""
        return ", ".join(f"{name} at {at.describe()}" for name, at in self.inputs)


@dataclass(frozen=True, slots=True)
class NoFrontier:
    """A source without versions: its rows may differ at each read."""

    def describe(self) -> str:
        """Return the frontier in words."""
        return "a source without versions"


Frontier = DeltaFrontier | FilesFrontier | QueryFrontier | NoFrontier


@dataclass(frozen=True, slots=True)
class Binding:
    """This package's version `upper` of a source stands for the source at `frontier`."""

    upper: int
    frontier: Frontier


def added_files(since: FilesFrontier, until: FilesFrontier) -> tuple[SourceFile, ...] | None:
    """Return the files that `until` has in addition to `since`; None if a file of `since` is gone or changed."""
    old, new = set(since.files), set(until.files)
    return tuple(sorted(new - old, key=lambda f: f.path)) if old <= new else None


def desired_upper(newest: Binding | None, frontier: Frontier, persisted: int, *, must_compare: bool) -> int:
    """Return the exclusive upper bound that stands for `frontier`.

    newest       : the binding with the greatest upper, published or not
    persisted    : upper of the last published batch
    must_compare : main is not trusted, the definition changed, or a person forces it: an unchanged source then gets
                   a new number
    """
    if newest is None:
        return persisted + 1
    if newest.frontier != frontier or isinstance(frontier, NoFrontier):
        return newest.upper + 1
    if must_compare and newest.upper <= persisted:
        return newest.upper + 1
    return newest.upper  # the binding of an abandoned batch stays: the same frontier keeps its number


def to_json(frontier: Frontier) -> dict[str, Any]:
    """Return the stored form of a frontier; `from_json` reverses it."""
    match frontier:
        case DeltaFrontier(table_id, version):
            return {"type": "delta", "table_id": table_id, "version": version}
        case FilesFrontier(files):
            return {"type": "files", "files": [_stored(file) for file in files]}
        case QueryFrontier(inputs):
            return {"type": "query", "inputs": [[name, to_json(at)] for name, at in inputs]}
        case NoFrontier():
            return {"type": "none"}
        case _:
            assert_never(frontier)


def from_json(stored: dict[str, Any]) -> Frontier:
    """Return the frontier that `to_json` stored."""
    match stored["type"]:
        case "delta":
            return _delta(stored)
        case "files":
            return FilesFrontier(tuple(SourceFile(*file) for file in stored["files"]))
        case "query":
            return QueryFrontier(tuple((name, _delta(at)) for name, at in stored["inputs"]))
        case "none":
            return NoFrontier()
        case other:
            raise ValueError(f"no frontier is of type {other!r}")


def _stored(file: SourceFile) -> list[str | int]:
    facts: list[str | int] = [file.path, file.num_bytes, file.modified_ms]
    return facts if file.checksum is None else [*facts, file.checksum]


def _delta(stored: dict[str, Any]) -> DeltaFrontier:
    return DeltaFrontier(stored["table_id"], int(stored["version"]))


def listing(files: Sequence[tuple[str, int, datetime]]) -> FilesFrontier:
    """Build a frontier from (path, bytes, UTC time) in any order."""
    found = (SourceFile(path, size, round(time.timestamp() * 1000)) for path, size, time in files)
    return FilesFrontier(tuple(sorted(found, key=lambda f: f.path)))


def fingerprint(frontier: Frontier) -> str:
    """Return 16 hex digits that differ for different frontiers; short enough for a commit's metadata."""
    return hashlib.sha256(json.dumps(to_json(frontier), sort_keys=True).encode()).hexdigest()[:16]
