"""A table with history, and what must be true after any fault."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from airflow_mv_provider.core.fence import app_id, parse_note
from tests.conftest import read_independently

FIRST = "SELECT id, CAST(id % 4 AS INT) AS p, concat('v', id) AS v FROM range(40)"
# Insert, update, delete, and move a row to another partition; one partition comes, one goes.
LATER = """
    SELECT id, CAST(CASE WHEN id = 1 THEN 2 WHEN id >= 40 THEN 9 ELSE id % 4 END AS INT) AS p,
           CASE WHEN id % 10 = 5 THEN 'late' ELSE concat('v', id) END AS v
    FROM range(43) WHERE id % 4 <> 3 AND id <> 8
"""
MODES = {
    "atomic": {"partition_by": ["p"], "chunk_rows": 20},
    # Its key holds the partition: each commit brings whole ones.
    "progressive": {
        **{"partition_by": ["p"], "chunk_rows": 20, "publish": "progressive", "key": ["id", "p"]},
        "guards": {"max_deleted_fraction": 0.5},
    },
}
# Of what brings LATER: commits; rows inserted, updated and deleted, a moved one as another.
NUM_PUBLISHES = {"atomic": 1, "progressive": 3}
NUM_CHANGES = (4, 2, 12)


def build_published(lake: Any, mode: str = "atomic") -> None:
    """Publish `orders` once, in four partitions, two to a chunk."""
    lake.write(FIRST)
    lake.apply(**MODES[mode])
    lake.refresh()


@pytest.fixture
def table_in(prepared: Callable[..., Any]) -> Callable[[str], Any]:
    """Give lakes whose table `orders` was published once, atomically or progressively."""
    return lambda mode: prepared(f"four-partitions-{mode}", lambda lake: build_published(lake, mode))


@pytest.fixture
def table(table_in: Callable[[str], Any]) -> Any:
    """A lake whose table `orders` was published once, in one commit."""
    return table_in("atomic")


def change_source(lake: Any, point: str = "") -> None:
    """Bring LATER to the source; before a test that dies at the fence, let main need one."""
    lake.write(LATER)
    if point.startswith("fence"):  # the last publish is a fence for the next epoch, unless another commit follows it
        lake.sql("ALTER TABLE {t} SET TBLPROPERTIES ('team' = 'x')")


def check_invariants(lake: Any, *, published: int | None = None) -> None:
    """Invariants 1, 3, 6, 8, 10 and 12 of a table that ought to be at rest.

    published : how many publish commits main's log may hold, where that is known
    """
    assert lake.phase() == "NORMAL"
    rows, wanted = lake.rows("orders"), lake.rows("raw/orders")
    assert Counter(rows) == Counter(wanted)
    keys = Counter(row[0] for row in rows)
    assert max(keys.values(), default=1) == 1
    assert None not in keys
    assert lake.workspaces() == []
    table = lake.store.table("orders")
    notes = [parse_note(c.get("userMetadata"), table.uuid) for c in log_of(lake, "commitInfo")]
    epochs = [note.epoch for note in notes if note]
    assert epochs == sorted(epochs), "a commit of an older epoch follows a later one's"
    assert our_app_ids(lake) == {app_id(table.uuid)}
    if published is not None:
        assert sum(1 for note in notes if note and note.step == "publish") == published


def our_app_ids(lake: Any) -> set[str]:
    return {txn["appId"] for txn in log_of(lake, "txn")}


def log_of(lake: Any, action: str) -> list[dict[str, Any]]:
    """Return the actions of one kind in main's log, oldest first, without Spark."""
    commits = sorted((lake.root / "orders/_delta_log").glob("*.json"))
    lines = (json.loads(line) for commit in commits for line in commit.read_text().splitlines())
    return [line[action] for line in lines if action in line]


def snapshots(lake: Any, since: int = 1) -> list[list[tuple[Any, ...]]]:
    """Every version of main that a reader could have seen, as sorted rows."""
    return [read_independently(lake.root / "orders", version) for version in range(since, lake.versions() + 1)]


def publishes(lake: Any) -> int:
    """Count the commits in main's log that brought rows."""
    table = lake.store.table("orders")
    notes = [parse_note(c.get("userMetadata"), table.uuid) for c in log_of(lake, "commitInfo")]
    return sum(1 for note in notes if note and note.step == "publish")


def changes_since_the_first(lake: Any) -> tuple[int, int, int]:
    """Add up what the history says of all refreshes but the first."""
    reports = lake.store.history(lake.store.table("orders").id, 100)[:-1]
    kinds = ("rows_inserted", "rows_updated", "rows_deleted")
    inserted, updated, deleted = (sum(getattr(report, kind) for report in reports) for kind in kinds)
    return inserted, updated, deleted


def check_snapshots(lake: Any, mode: str, *published: list[tuple[Any, ...]], since: int = 1) -> None:
    """Invariant 4: whatever a reader saw was published; progressively, each partition of it was."""
    allowed = [[], *published]
    if mode == "atomic":
        assert all(rows in allowed for rows in snapshots(lake, since)), "a reader saw something in between"
        return
    of_partitions = [by_partition(rows) for rows in allowed]
    for snapshot in snapshots(lake, since):
        for partition, rows in by_partition(snapshot).items():
            assert any(rows == each.get(partition) for each in of_partitions), f"{partition} was never published"


def by_partition(rows: list[tuple[Any, ...]]) -> dict[Any, list[tuple[Any, ...]]]:
    """Rows of a snapshot, in the columns' order by name (id, p, v), by their partition."""
    found: dict[Any, list[tuple[Any, ...]]] = {}
    for row in rows:
        found.setdefault(row[1], []).append(row)
    return found
