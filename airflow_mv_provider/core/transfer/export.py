"""An export: the rows of one version of main as Parquet files, and a manifest that names them.

    <to>/manifest/version=12/part-….json     one line: which table and version, its columns, and each file's size
    <to>/rows-12-<attempt>/part-….parquet    the rows; another attempt writes to another directory

The manifest is written last, in one file that appears whole. Rows that no manifest names are of an attempt that
died, or still works: nothing reads them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from airflow_mv_provider.core.location import MARKER, absolute_root, check_apart
from airflow_mv_provider.exceptions import ArgumentError, UnsafeLocationError

_MANIFESTS = "manifest"


@dataclass(frozen=True, slots=True)
class ExportedFile:
    """One file, by its path under the export's root."""

    path: str
    bytes: int


@dataclass(frozen=True, slots=True)
class Manifest:
    """Which rows an export has.

    uuid       : the table's identity
    refresh_id : of the refresh that published the version; None if it is not one of the known ones
    columns    : name and type of each, as Spark writes them
    """

    table: str
    uuid: str
    version: int
    refresh_id: str | None
    rows: int
    columns: tuple[tuple[str, str], ...]
    files: tuple[ExportedFile, ...]

    @property
    def num_bytes(self) -> int:
        """The size of all files."""
        return sum(file.bytes for file in self.files)

    def is_of(self, place: ExportPlace) -> bool:
        """True if it names the rows of this attempt."""
        return any(file.path.startswith(f"{place.name}/") for file in self.files)

    def to_text(self) -> str:
        """Return the manifest as one line of JSON."""
        return json.dumps(asdict(self) | {"columns": [{"name": n, "type": t} for n, t in self.columns]})


def manifest_of(text: str) -> Manifest:
    """Return the manifest that `Manifest.to_text` wrote.

    raises : ArgumentError, if it is none
    """
    try:
        found: Mapping[str, Any] = json.loads(text)
        return Manifest(
            *(str(found["table"]), str(found["uuid"]), int(found["version"]), found["refresh_id"], int(found["rows"])),
            tuple((str(each["name"]), str(each["type"])) for each in found["columns"]),
            tuple(ExportedFile(str(each["path"]), int(each["bytes"])) for each in found["files"]),
        )
    except (ValueError, KeyError, TypeError) as error:
        raise ArgumentError("export", f"{text[:60]!r} is not a manifest.", hint="Export to another path.") from error


@dataclass(frozen=True, slots=True)
class ExportPlace:
    """Where one attempt exports one version to.

    attempt : hexadecimal digits that no other attempt has
    """

    root: str
    version: int
    attempt: str

    @property
    def manifests(self) -> str:
        """The directory of the manifests of all versions."""
        return f"{self.root}/{_MANIFESTS}"

    @property
    def manifest(self) -> str:
        """The directory of this version's manifest."""
        return f"{self.manifests}/version={self.version}"

    @property
    def name(self) -> str:
        """The name of the directory of this attempt's rows."""
        return f"rows-{self.version}-{self.attempt}"

    @property
    def rows(self) -> str:
        """The directory of this attempt's rows."""
        return f"{self.root}/{self.name}"


def export_root(to: str, warehouse: str, mains: Iterable[str]) -> str:
    """Return the root of an export in one spelling.

    mains  : where the registered tables lie
    raises : UnsafeLocationError, for a relative path, an unknown scheme, a table's directory or the staging area
    """
    root = absolute_root(to)
    if any(char in root for char in "*?[]{}\\") or any(ord(char) < 32 for char in root):
        raise UnsafeLocationError("export", f"{to!r} has characters of a pattern.", hint="Choose another path.")
    for taken in (f"{warehouse.rstrip('/')}/{MARKER}", *mains):
        check_apart(taken, root)
    return root


def already_exported(found: Iterable[Manifest], uuid: str, version: int) -> Manifest | None:
    """Return the manifest of this table's version; None if there is none yet.

    found  : all manifests under the root
    raises : ArgumentError, if another table was exported there
    """
    known = list(found)
    if other := next((each for each in known if each.uuid != uuid), None):
        problem = f"version {other.version} of another table, {other.table}, was exported there."
        raise ArgumentError("export", problem, hint="Export each table to a path of its own.")
    return next((each for each in known if each.version == version), None)
