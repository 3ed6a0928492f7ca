"""Some of a difference's rows, stored with its refresh: bounded in number and size, sensitive values hashed.

    rows of the difference ──masked──▶ sensitive values are hashed ──sampled──▶ long values and large samples are cut

The sample outlives the refresh's files, so that the page can show it without Spark, and so that a person can see later
what was decided, or what a guard has refused.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from airflow_mv_provider.core.approval.difference import RowChange

ROWS_OF_A_KIND = 20
MAX_BYTES = 64 << 10
_MAX_VALUE = 500  # characters of a value as JSON


@dataclass(frozen=True, slots=True)
class Sample:
    """Some rows of a difference.

    merge_round : the round whose corrections they are of
    rows        : up to 20 inserts, updates and deletes each, in the key's order
    columns     : for each column the number of updates that change it; None if they were not counted
    """

    merge_round: int
    rows: tuple[RowChange, ...]
    columns: Mapping[str, int] | None = None

    def to_json(self) -> dict[str, Any]:
        """Return what `from_json` reads."""
        rows = [[row.operation, row.key, row.before, row.after] for row in self.rows]
        return {"rows": rows, "columns": None if self.columns is None else dict(self.columns)}


def from_json(merge_round: int, stored: Mapping[str, Any]) -> Sample:
    """Return a sample as it was stored."""
    return Sample(merge_round, tuple(RowChange(*row) for row in stored["rows"]), stored["columns"])


def sampled(merge_round: int, rows: Sequence[RowChange], columns: Mapping[str, int] | None) -> Sample:
    """Return a sample that takes at most 64 KiB as JSON; the last rows of the most frequent kind are left out first."""
    chosen = [_shortened(row) for row in rows]
    sizes = [len(json.dumps([row.key, row.before, row.after]).encode()) for row in chosen]
    while chosen and sum(sizes) > MAX_BYTES:
        most = Counter(row.operation for row in chosen).most_common(1)[0][0]
        last = max(i for i, row in enumerate(chosen) if row.operation == most)
        del chosen[last], sizes[last]
    return Sample(merge_round, tuple(chosen), columns)


def masked(rows: Sequence[RowChange], sensitive: Collection[str], salt: str) -> list[RowChange]:
    """Return the rows with the values of these columns hashed: equal values of a table stay equal, NULL stays NULL.

    salt : differs between tables. A reader who knows it can guess a value that has few possibilities
    """

    def mask(values: dict[str, Any] | None) -> dict[str, Any] | None:
        if values is None:
            return None
        return {name: _hashed(value, salt) if name in sensitive else value for name, value in values.items()}

    return [replace(row, key=mask(row.key) or {}, before=mask(row.before), after=mask(row.after)) for row in rows]


def _hashed(value: Any, salt: str) -> str | None:
    if value is None:
        return None
    return f"sha256:{hashlib.sha256(f'{salt}{json.dumps(value)}'.encode()).hexdigest()[:12]}"


def _shortened(row: RowChange) -> RowChange:
    return replace(row, key=_cut(row.key) or {}, before=_cut(row.before), after=_cut(row.after))


def _cut(values: dict[str, Any] | None) -> dict[str, Any] | None:
    return None if values is None else {name: _cut_value(value) for name, value in values.items()}


def _cut_value(value: Any) -> Any:
    """Return a value that takes at most some 500 characters; of two that differ, what is left differs too."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    if len(text) <= _MAX_VALUE:
        return value
    return f"{text[:_MAX_VALUE]}… ({len(text):,} characters, {_hashed(text, '')})"
