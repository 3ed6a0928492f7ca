"""The state of a folder of files: a listing with sizes and times."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Self

from airflow_mv_provider.core.frontier import Frontier, fingerprint


@dataclass(frozen=True, slots=True)
class SourceFile:
    """One file of a listing. `path` is a URI; equal size, time and, if present, checksum count as equal content."""

    path: str
    num_bytes: int
    modified_ms: int
    checksum: str | None = None

    @property
    def identity(self) -> str:
        """Return all of this as one text."""
        return json.dumps(_stored(self))


@dataclass(frozen=True, slots=True)
class FilesFrontier(Frontier):
    """A listing of files, sorted by path."""

    type = "files"

    files: tuple[SourceFile, ...]

    @classmethod
    def of(cls, files: Iterable[tuple[str, int, datetime]]) -> Self:
        """Build a frontier from (path, bytes, UTC time) in any order."""
        found = (SourceFile(path, size, round(time.timestamp() * 1000)) for path, size, time in files)
        return cls(tuple(sorted(found, key=lambda f: f.path)))

    def versions(self) -> Mapping[str, str]:
        """See `Frontier`."""
        return {"": fingerprint(self)}

    def describe(self) -> str:
        """See `Frontier`."""
        files = "1 file" if len(self.files) == 1 else f"{len(self.files):,} files"
        return f"{files}, {sum(f.num_bytes for f in self.files):,} bytes"

    def since(self, earlier: Frontier) -> str:
        """See `Frontier`; a folder of one file is described by that alone."""
        before = {f.path: f for f in earlier.files} if isinstance(earlier, FilesFrontier) else {}
        now = {f.path: f for f in self.files}
        if not before or (before.keys() | now.keys() == now.keys() and len(now) == 1):
            return self.describe()
        counts = (
            (sum(path in before and before[path] != file for path, file in now.items()), "changed"),
            (len(now.keys() - before.keys()), "new"),
            (len(before.keys() - now.keys()), "gone"),
        )
        return f"{', '.join(f'{count:,} {word}' for count, word in counts if count) or 'none'} of {self.describe()}"

    def to_json(self) -> dict[str, Any]:
        """See `Frontier`."""
        return {"type": self.type, "files": [_stored(file) for file in self.files]}

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> Self:
        """See `Frontier`."""
        return cls(tuple(SourceFile(*file) for file in stored["files"]))


def added_files(since: FilesFrontier, until: FilesFrontier) -> tuple[SourceFile, ...] | None:
    """Return the files that `until` has in addition to `since`; None if a file of `since` is gone or changed."""
    old, new = set(since.files), set(until.files)
    return tuple(sorted(new - old, key=lambda f: f.path)) if old <= new else None


def _stored(file: SourceFile) -> list[str | int]:
    facts: list[str | int] = [file.path, file.num_bytes, file.modified_ms]
    return facts if file.checksum is None else [*facts, file.checksum]
