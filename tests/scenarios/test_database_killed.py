"""PostgreSQL is killed around every write of a refresh to it, and comes back: the table is mended, nothing is twice.

    before   it is away when the write begins
    inside   it dies between the statements and their COMMIT
    after    it has committed, and dies before it can say so
    again    it dies and is back before the write begins: nobody notices

The tables of one mode share a database and a warehouse; each case changes the source once more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from sqlalchemy import event

from airflow_mv_provider.core.outcome import Outcome
from airflow_mv_provider.exceptions import MetadataUnavailableError
from airflow_mv_provider.metadata import migrations
from airflow_mv_provider.metadata.database import open_engine
from airflow_mv_provider.metadata.store import Store
from airflow_mv_provider.runner import crash_points
from airflow_mv_provider.runner.settings import Settings
from tests.conftest import Clock, Crash, Lake
from tests.postgres import PostgresServer
from tests.scenarios.conftest import FIRST, LATER, MODES, check_invariants, check_snapshots, publishes

pytestmark = [pytest.mark.slow, pytest.mark.victim("PostgreSQL killed")]

_ATOMIC = ["acquire", "seal", "published", "normal"]
WRITES = {"atomic": _ATOMIC, "progressive": [*_ATOMIC[:-2], "committed", "committed:2", *_ATOMIC[-2:]]}
WHEN = ["before", "inside", "after", "again"]
CASES = [(mode, write, when) for mode, writes in WRITES.items() for write in writes for when in WHEN]
NUM_PUBLISHES = {"atomic": {1}, "progressive": {3}}


@pytest.fixture(scope="module")
def lake_of(
    spark: Any, postgres: PostgresServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[str], Lake]]:
    """Give a mode's lake, published once, its state in PostgreSQL."""
    made: dict[str, Lake] = {}

    def of(mode: str) -> Lake:
        if mode not in made:
            root, clock = tmp_path_factory.mktemp(mode), Clock()
            engine = open_engine(postgres.new_database())
            migrations.migrate(engine)
            settings = Settings("postgresql://", str(root), lease_ms=3_600_000)
            made[mode] = Lake(spark, root, Store(engine, clock.now), settings, clock)
            made[mode].write(FIRST)
            made[mode].apply(**MODES[mode], strategy="corrections")
            made[mode].refresh()
        return made[mode]

    yield of
    for lake in made.values():
        lake.store.engine.dispose()


@pytest.fixture
def change(lake_of: Callable[[str], Lake]) -> Callable[[str], Lake]:
    """Give a mode's lake with its source changed; the changes alternate, so that each is as large as the last."""

    def change(mode: str) -> Lake:
        lake = lake_of(mode)
        is_first = "late" not in {row[2] for row in lake.rows("raw/orders")}
        lake.write(LATER if is_first else FIRST)
        return lake

    return change


@pytest.fixture
def kill_at(postgres: PostgresServer) -> Iterator[Callable[[Any, str, str], None]]:
    """Kill the server once around a write; it is back when the test goes on, or at its end at the latest."""
    armed = []

    def arm(lake: Lake, write: str, when: str) -> None:
        name, _, nth = write.partition(":")
        left, engine = [int(nth or 1)], lake.store.engine

        def reach(reached: str) -> None:
            if reached != f"{name}.before":
                return
            left[0] -= 1
            if left[0]:
                return
            crash_points.arm(None)
            if when == "inside":
                event.listen(engine, "commit", lambda _: postgres.kill(), once=True)
            elif when == "after":
                armed.append((engine.dialect, engine.dialect.do_commit))
                engine.dialect.do_commit = commit_and_die  # type: ignore[method-assign]
            else:
                postgres.kill()
                if when == "again":
                    postgres.start()

        def commit_and_die(connection: Any) -> None:
            dialect, commit = armed.pop()
            dialect.do_commit = commit
            commit(connection)
            postgres.kill()
            connection.execute("SELECT 1")  # the driver's own error for an answer that never came

        crash_points.arm(reach)

    yield arm
    crash_points.arm(None)
    for dialect, commit in armed:
        dialect.do_commit = commit
    postgres.start()


def mend(lake: Lake) -> None:
    lake.clock.pass_ms(lake.settings.lease_ms + 1)
    lake.refresher().recover(lake.caller())
    assert lake.phase() == "NORMAL"
    lake.refresh()
    check_invariants(lake)
    assert lake.refresh().outcome is Outcome.NOTHING_TO_DO


@pytest.mark.sample("atomic-published-inside")
@pytest.mark.parametrize(("mode", "write", "when"), CASES)
def test_server_that_dies_around_a_write(change, kill_at, postgres, mode, write, when):
    lake = change(mode)
    before, since, num_before, num_refreshes = lake.rows(), lake.versions(), publishes(lake), len(refreshes(lake))
    kill_at(lake, write, when)

    if when == "again":
        assert lake.refresh().outcome is Outcome.PUBLISHED
    else:
        with pytest.raises(MetadataUnavailableError):
            lake.refresh()
        postgres.start()

    mend(lake)
    check_snapshots(lake, mode, before, lake.rows("raw/orders"), since=since)
    assert publishes(lake) - num_before in NUM_PUBLISHES[mode], "committed twice, or not at all"
    ended = refreshes(lake)[num_refreshes:]
    assert [r.outcome for r in ended if r.outcome is Outcome.PUBLISHED] == [Outcome.PUBLISHED]
    assert Outcome.RUNNING not in [r.outcome for r in ended]


@pytest.mark.in_test_all
@pytest.mark.sample(1)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("when", WHEN)
def test_server_that_dies_around_a_takeover(change, kill_at, crash_at, postgres, mode, when):
    lake = change(mode)
    num_before = publishes(lake)
    crash_at("seal.after")
    with pytest.raises(Crash):
        lake.refresh()
    lake.clock.pass_ms(lake.settings.lease_ms + 1)
    kill_at(lake, "hand_over", when)

    if when == "again":
        lake.refresher().recover(lake.caller())
    else:
        with pytest.raises(MetadataUnavailableError):
            lake.refresher().recover(lake.caller())
        postgres.start()

    mend(lake)
    assert publishes(lake) - num_before in NUM_PUBLISHES[mode]


def refreshes(lake: Lake) -> list[Any]:
    """All refreshes of the table, oldest first."""
    return list(reversed(lake.store.history(lake.store.table("orders").id, 1000)))
