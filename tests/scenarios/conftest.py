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


@pytest.fixture
def table(prepared: Callable[..., Any]) -> Any:
    """A lake whose table `orders` was published once, in four partitions, two to a chunk."""

    def build(lake: Any) -> None:
        lake.write(FIRST)
        lake.apply(partition_by=["p"], chunk_rows=20)
        lake.refresh()

    return prepared("four-partitions", build)


def change_source(lake: Any) -> None:
    """Insert, update, delete, and move a row to another partition; one partition comes, one goes."""
    lake.write(
        """
        SELECT id, CAST(CASE WHEN id = 1 THEN 2 WHEN id >= 40 THEN 9 ELSE id % 4 END AS INT) AS p,
               CASE WHEN id % 10 = 5 THEN 'late' ELSE concat('v', id) END AS v
        FROM range(43) WHERE id % 4 <> 3 AND id <> 8
        """
    )


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


def snapshots(lake: Any) -> list[list[tuple[Any, ...]]]:
    """Every version of main that a reader could have seen, as sorted rows."""
    return [read_independently(lake.root / "orders", version) for version in range(1, lake.versions() + 1)]
