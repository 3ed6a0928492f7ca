"""Each way to find and to publish a difference, killed at each of its durable writes, under the default settings.

`test_crashes` does the same to a MERGE of several chunks, atomic and progressive, `test_held` to one that is held.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from airflow_mv_provider import Files
from airflow_mv_provider.core.outcome import Outcome
from airflow_mv_provider.runner import crash_points
from tests.conftest import dying_at, large_tables
from tests.engine.versioned import of_main, versions
from tests.scenarios.conftest import check_invariants, log_of

pytestmark = [pytest.mark.slow, pytest.mark.victim("refresh crashed")]
IN_TEST_ALL = pytest.mark.in_test_all
# Each kind of commit in `make test`; the others differ from these in how they find the difference.
SHOWN = {
    *("merge without inserts", "overwrite of a small table", "merge into a large table"),
    *("replacement", "with an error table", "with a history"),
}

_PARTITIONED = {"partition_by": ["p"], "chunk_rows": 20}


def _write(columns: str, first: str, end: str) -> Callable[[Any, int], None]:
    """Return what overwrites the source in a round: rows from `first` to `end`; {n} stands for the round."""

    def write(lake: Any, n: int) -> None:
        rows = f"SELECT id, CAST(id % 4 AS INT) AS p, {columns} AS v FROM range({first}, {end})"
        lake.write(rows.format(n=n))

    return write


def _change_by_commits(lake: Any, n: int) -> None:
    """Let the source list its changes: an update and an insert in its change data feed."""
    if n == 0:
        lake.write("SELECT id, CAST(id % 4 AS INT) AS p, concat('v', id) AS v FROM range(40)")
        lake.sql("ALTER TABLE {t} SET TBLPROPERTIES (delta.enableChangeDataFeed = true)", path="raw/orders")
    else:
        lake.sql(f"UPDATE {{t}} SET v = 'round {n}' WHERE id = {n % 40}", path="raw/orders")
        lake.sql(f"INSERT INTO {{t}} VALUES ({1000 + n}, 1, 'new')", path="raw/orders")


def _change_inputs(lake: Any, n: int) -> None:
    """Let both inputs of a view list their changes; the view's rows are those of raw/orders."""
    _change_by_commits(lake, n)
    if n == 0:
        lake.write("SELECT id % 30 AS id, id AS line FROM range(60)", "raw/lines")
        lake.sql("ALTER TABLE {t} SET TBLPROPERTIES (delta.enableChangeDataFeed = true)", path="raw/lines")
    else:
        lake.sql(f"DELETE FROM {{t}} WHERE id = {n % 30}", path="raw/lines")
        lake.sql(f"INSERT INTO {{t}} VALUES ({1000 + n}, {n}), ({2 * n % 40}, {n})", path="raw/lines")


def _write_records(lake: Any, n: int) -> None:
    """Write a file of good records, one of which is new, and a broken one."""
    place = lake.root / "raw/orders"
    place.mkdir(parents=True, exist_ok=True)
    lines = [json.dumps({"id": id_, "p": id_ % 4, "v": f"v{id_ // 5 * n}"}) for id_ in range(40 + n)]
    (place / "1.json").write_text("\n".join([*lines, f'{{"id": {n}']) + "\n")


_VIEW = {
    "type": "query",
    "sql": "SELECT o.id, o.p, max(o.v) AS v FROM orders o LEFT JOIN lines l ON l.id = o.id GROUP BY o.id, o.p",
    "inputs": {"orders": "raw/orders", "lines": "raw/lines"},
}
_SOME, _SAME, _ALL = "if(id % 10 = {n} % 10, 'round {n}', concat('v', id))", "concat('v', id)", "concat('r{n} ', id)"


@dataclass(frozen=True)
class Way:
    """How a table is defined and its source changes so that a refresh takes this way.

    Attributes:
        operation: The commit that publishes it, in main's log.
        is_kept: A takeover after the seal goes on in the same way; otherwise it merges.
        is_large: The table is handled as one of many rows.
    """

    change: Callable[[Any, int], None]
    operation: str
    definition: dict[str, Any]
    is_kept: bool = True
    is_large: bool = False


WAYS = {
    "merge without inserts": Way(_write(_SOME, "{n}", "100"), "MERGE", _PARTITIONED),
    "merge of inserts alone": Way(_write(_SAME, "0", "40 + {n}"), "MERGE", {}),
    "overwrite of a small table": Way(_write(_SOME, "{n}", "{n} + 40"), "WRITE", {}, is_kept=False),
    "merge into a large table": Way(_write(_SOME, "{n}", "{n} + 40"), "MERGE", {}, is_large=True),
    "replacement": Way(_write(_ALL, "{n}", "{n} + 40"), "WRITE", {"strategy": "replace"}),
    "replacement of partitions": Way(_write(_ALL, "{n}", "{n} + 40"), "WRITE", _PARTITIONED | {"strategy": "replace"}),
    "changes that the source lists": Way(_change_by_commits, "MERGE", _PARTITIONED),
    "units of a view": Way(
        _change_inputs, "MERGE", _PARTITIONED | {"source": _VIEW, "strategy": "incremental", "strict": True}
    ),
    "with a history": Way(_write(_SOME, "{n}", "{n} + 40"), "MERGE", _PARTITIONED | {"history": {"deletes": "mark"}}),
    "replacement with a history": Way(
        _write(_ALL, "{n}", "{n} + 40"), "WRITE", {"strategy": "replace", "history": True}
    ),
    "with an error table": Way(
        _write_records,
        "MERGE",
        _PARTITIONED
        | {"source": Files("raw/orders", format="json", schema="id BIGINT, p INT, v STRING"), "errors": {}},
    ),
}


@pytest.fixture
def how(lake, way):
    with large_tables(lake, is_large=WAYS[way].is_large):
        yield WAYS[way]


@pytest.mark.parametrize("when", ["after", pytest.param("before", marks=IN_TEST_ALL)])
@pytest.mark.parametrize("way", [each if each in SHOWN else pytest.param(each, marks=IN_TEST_ALL) for each in WAYS])
def test_refresh_that_dies_at_each_of_its_durable_writes_comes_out_right(lake, how, when):
    """In what a takeover would publish in another way, each owner after the seal dies in a refresh of its own."""
    number = 0
    how.change(lake, number)
    lake.apply(**how.definition)
    lake.refresh()
    number += 1
    how.change(lake, number)
    points = [point for point in points_on_the_way(lake) if point.endswith(when)]
    assert last_publish(lake) == how.operation
    assert bool(lake.store.state(lake.store.table("orders").id).published_totals.fingerprints) is how.is_large
    died: set[str] = set()

    for group in [points] if how.is_kept else in_groups(points):
        number += 1
        how.change(lake, number)
        for point in group:
            with dying_at(point, died):
                lake.refresh()
            lake.clock.pass_ms(lake.settings.lease_ms + 1)
        number += 1
        how.change(lake, number)
        assert lake.refresh().outcome is Outcome.PUBLISHED
        check(lake, how)

    assert set(points) <= died
    assert lake.refresh().outcome is Outcome.NOTHING_TO_DO
    again = lake.refresh(force=True, strategy="corrections")
    assert again.rows_inserted + again.rows_updated + again.rows_deleted == 0


def points_on_the_way(lake: Any) -> list[str]:
    """Refresh undisturbed, and return the points that this passes, each once, in their order."""
    passed: dict[str, None] = {}
    crash_points.arm(passed.setdefault)
    try:
        assert lake.refresh().outcome is Outcome.PUBLISHED
    finally:
        crash_points.arm(None)
    return list(passed)


def in_groups(points: list[str]) -> list[list[str]]:
    """Divide the points into those before the seal, each one after it, and those after the publish."""
    names = [point.partition(".")[0] for point in points]
    sealed, published = names.index("seal"), names.index("published")
    return [points[:sealed], *([point] for point in points[sealed:published]), points[published:]]


def last_publish(lake: Any) -> str:
    table = lake.store.table("orders")
    commits = [commit for commit in log_of(lake, "commitInfo") if '"publish"' in commit.get("userMetadata", "")]
    assert table.uuid in commits[-1]["userMetadata"]
    return str(commits[-1]["operation"])


def check(lake: Any, how: Way) -> None:
    if (history := how.definition.get("history")) is not None:
        deletes = "close" if history is True else history["deletes"]
        assert versions(lake) == of_main(lake, deletes=deletes)
    if "errors" not in how.definition:
        check_invariants(lake)
        return
    lines = [json.loads(line) for line in (lake.root / "raw/orders/1.json").read_text().splitlines()[:-1]]
    broken = (lake.root / "raw/orders/1.json").read_text().splitlines()[-1]
    assert lake.rows() == sorted(((each["id"], each["p"], each["v"]) for each in lines), key=repr)
    assert [row.record for row in lake.sql("SELECT * FROM {t}", path="orders__errors")] == [broken]
    assert (lake.phase(), lake.workspaces()) == ("NORMAL", [])
