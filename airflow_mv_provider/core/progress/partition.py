"""Partitions of main: their names, and the values that Delta can store.

A partition is named by the JSON list of its values as strings (`["2013-01-01"]`, `[null]`; `[]` for a table
without partitions).
"""

from __future__ import annotations

import json
from collections.abc import Sequence

WHOLE_TABLE = "[]"
_DELTA_NULL = "__HIVE_DEFAULT_PARTITION__"
_MAX_DIRECTORY_BYTES = 255


def partition_name(values: Sequence[str | None]) -> str:
    """Return the name of the partition with these values, each cast to a string."""
    return json.dumps(list(values), ensure_ascii=False, separators=(",", ":"))


def partition_values(name: str) -> tuple[str | None, ...]:
    """Return the values in a partition's name."""
    return tuple(json.loads(name))


def unstorable(name: str, columns: Sequence[str]) -> str | None:
    """Return the problem with a partition's values, or None if Delta stores them unchanged.

    Delta silently turns the empty string and Hive's default marker into NULL: the row would be read back as another.
    """
    for column, value in zip(columns, partition_values(name), strict=True):
        if value is None:
            continue
        if value in ("", _DELTA_NULL):
            return f"column {column!r} holds {value!r}, which Delta stores as NULL."
        if "\0" in value:
            return f"column {column!r} holds {value[:80]!r}: no file system allows a NUL character in a name."
        if len(_escaped(column)) + 1 + len(_escaped(value)) > _MAX_DIRECTORY_BYTES:
            return f"column {column!r} holds a value of {len(value)} characters, too long for a directory's name."
    return None


def _escaped(value: str) -> bytes:
    """Return approximately the directory name that Spark derives from a value: special bytes become %XX."""
    special = b"\"#%'*/:=?\\\x7f{[]^"
    return b"".join(b"%%%02X" % b if b < 32 or b in special else bytes([b]) for b in value.encode())
