"""What a history should have: a log of type 2 in a few lines of Python, and the real one as another reader sees it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from deltalake import DeltaTable, QueryBuilder

from tests.conftest import plain

OWN = ("valid_from", "valid_to", "is_current", "operation", "refresh_id")


# What the source has after each change: inserts, updates, deletes, a row that returns, and one that is as before.
STATES = (
    "VALUES (1, 'a', 1), (2, 'b', 1), (3, 'c', 1), (4, 'd', 1)",
    "VALUES (1, 'a', 1), (2, 'B', 1), (4, 'd', 2), (5, 'e', 1)",
    "VALUES (1, 'A', 1), (2, 'b', 1), (3, 'c', 1), (4, 'd', 2)",
    "VALUES (1, 'A', 1), (2, 'b', 1), (3, 'c', 1), (4, 'd', 3), (5, 'e', 1)",
)
GUARDS = {"max_deleted_fraction": 1.0}


def put(lake: Any, state: str, **more: Any) -> None:
    lake.write(f"SELECT * FROM {state} AS t(id, v, n)", **more)


@dataclass
class Log:
    """Versions by the number of the publish that began and ended them: (values, from, to, operation)."""

    deletes: str = "close"
    key: tuple[str, ...] = ("id",)
    excluded: tuple[str, ...] = ()
    versions: list[list[Any]] = field(default_factory=list)
    number: int = 0

    def publish(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """All rows of the table after one more publish."""
        now = {self._key(row): dict(row) for row in rows}
        open_ones = {self._key(each[0]): each for each in self.versions if each[2] is None}
        for key in {*now, *open_ones}:
            new, old = now.get(key), open_ones.get(key)
            is_marked = old is not None and old[3] == "delete"
            if new is not None and (old is None or is_marked):
                self._end(old)
                self.versions.append([new, self.number, None, "insert"])
            elif new is not None and old is not None and self._tracked(new) != self._tracked(old[0]):
                self._end(old)
                self.versions.append([new, self.number, None, "update"])
            elif new is not None and old is not None:
                old[0] = new
            elif old is not None and not is_marked and self.deletes != "keep":
                self._end(old)
                if self.deletes == "mark":
                    self.versions.append([old[0], self.number, None, "delete"])
        self.number += 1

    def _end(self, version: list[Any] | None) -> None:
        if version is not None:
            version[2] = self.number

    def _key(self, row: Mapping[str, Any]) -> tuple[Any, ...]:
        return tuple(row[name] for name in self.key)

    def _tracked(self, row: Mapping[str, Any]) -> dict[str, Any]:
        return {name: value for name, value in row.items() if name not in self.excluded}

    @property
    def all(self) -> list[tuple[Any, ...]]:
        found = ((tuple(sorted(v.items())), since, until, how) for v, since, until, how in self.versions)
        return sorted(found, key=repr)


class Place(NamedTuple):
    """Where the tables lie that the functions below read."""

    root: Path


def raw(lake: Any, name: str = "orders__history") -> list[dict[str, Any]]:
    """All rows of a history, read without Spark."""
    return _rows(DeltaTable(str(lake.root / name)))


def writes(lake: Any, name: str = "orders__history") -> list[dict[str, Any]]:
    """The notes of all commits that brought the history further, oldest first."""
    notes = [json.loads(each.get("userMetadata") or "{}") for each in DeltaTable(str(lake.root / name)).history()]
    return [note["mv"] for note in reversed(notes) if note.get("mv", {}).get("step") == "history"]


def versions(lake: Any, name: str = "orders__history") -> list[tuple[Any, ...]]:
    """The history as `Log.all` shows its own: times as the number of the write that they belong to."""
    numbers = {datetime.fromtimestamp(n["valid_ms"] / 1000, UTC): i for i, n in enumerate(writes(lake, name))}
    found = []
    for row in raw(lake, name):
        values = {key: value for key, value in row.items() if key not in OWN}
        since, until = (row[each] if row[each] is None else numbers[_utc(row[each])] for each in OWN[:2])
        assert row["is_current"] == (until is None)
        found.append((tuple(sorted(values.items())), since, until, row["operation"]))
    return sorted(found, key=repr)


def of_main(lake: Any, name: str = "orders", **options: Any) -> list[tuple[Any, ...]]:
    """The versions that follow from main's own: its rows at each version that the history says it has reached."""
    log = Log(**options)
    for note in writes(lake, f"{name}__history"):
        log.publish(rows_at(lake.root / name, note["reached"]))
    return log.all


def rows_at(main: Path, version: int) -> list[dict[str, Any]]:
    """The rows of a version of main, read without Spark."""
    return _rows(DeltaTable(str(main), version=version))


def _rows(table: DeltaTable) -> list[dict[str, Any]]:
    found = QueryBuilder().register("t", table).execute("SELECT * FROM t").read_all()
    columns = [found.column(name).to_pylist() for name in found.schema.names]
    return [dict(zip(found.schema.names, map(plain, row), strict=True)) for row in zip(*columns, strict=True)]


def _utc(time: datetime) -> datetime:
    return time if time.tzinfo else time.replace(tzinfo=UTC)


def rows(lake: Any) -> list[dict[str, Any]]:
    return [dict(zip(("id", "n", "v"), row, strict=True)) for row in lake.rows()]


def check(lake: Any, log: Log) -> None:
    log.publish(rows(lake))
    assert versions(lake) == log.all
