"""A table in a simulation whose database is put back in no time, and what must be true of it at the end."""

from __future__ import annotations

from copy import copy
from typing import Any

from sqlalchemy import event, exc

from airflow_mv_provider.core.approval.hold import Decision, Hold
from airflow_mv_provider.core.outcome import Outcome
from airflow_mv_provider.core.phase import Phase
from airflow_mv_provider.core.state import Caller
from airflow_mv_provider.metadata import migrations
from airflow_mv_provider.metadata.database import open_engine
from airflow_mv_provider.metadata.store import Store
from tests.conftest import Clock, a_table
from tests.model.beside import SimulatedHistory, check_history
from tests.model.delta import Rows, SimulatedDelta
from tests.model.lake import HANDOVER_MS, World
from tests.model.simulation import Process

PARTITIONS = (0, 1)
SOURCES: tuple[Rows, ...] = (
    (),
    ((1, 0, "a"), (2, 0, "a"), (3, 1, "a"), (4, 1, "a")),
    ((1, 0, "a"), (2, 0, "b"), (3, 1, "b"), (5, 1, "b")),  # an update, an insert, a delete
    ((1, 0, "a"), (2, 0, "b"), (3, 0, "c"), (5, 1, "b")),  # a row moves
    ((2, 0, "d"), (3, 0, "c")),  # a partition is gone
)
FOREIGN = ((9, 0, "foreign"),)


class Site:
    """One SQLite database in memory, put back to where it was in no time; it can be down.

    publish : "atomic", "progressive", or "held": atomic, and every refresh after the first waits for a decision; or
              "kept", "kept progressive", "begins": a history is kept from the first refresh on, or from the second
    """

    def __init__(self, publish: str, partitions: tuple[int, ...] = PARTITIONS) -> None:
        self.clock = Clock()
        self.engine = open_engine("sqlite://")
        migrations.migrate(self.engine)
        self.store = Store(self.engine, self.clock.now)
        self.is_down = False
        self._crashed: dict[str, tuple[bytes, World, int]] = {}
        event.listen(self.engine, "begin", self._begin)
        later: dict[str, Any] = {"approval": "always", "when_held": "supersede"} if publish == "held" else {}
        later |= {"history": True} if publish == "begins" else {}
        is_kept, publish = "kept" in publish, "progressive" if "progressive" in publish else "atomic"
        key = ["id"] if publish == "atomic" else ["id", "p"]
        definition = a_table(key=key, partition_by=["p"], publish=publish, history=is_kept)
        self.table = self.store.registry.register(definition, warehouse="/wh", location="/wh/orders")
        sources = [tuple(row for row in rows if row[1] in partitions) for rows in SOURCES]
        first = World(self.store, self.table, partitions, source=sources[:2])
        process = Process(first, Caller("first", "first"))
        process.finish()
        assert process.outcome is Outcome.PUBLISHED
        if later:
            then = a_table(key=key, partition_by=["p"], **later)
            first.table = self.table = self.store.registry.register(then, warehouse="/wh", location="/wh/orders")
        first.source.append(sources[2])
        self.start = self.save(first)

    def save(self, world: World) -> tuple[bytes, World, int]:
        return self._raw.serialize(), _copied(world), self.clock.ahead_ms

    def restore(self, saved: tuple[bytes, World, int]) -> World:
        database, world, self.clock.ahead_ms = saved
        self._raw.deserialize(database)
        self.is_down = False
        return _copied(world)

    def put_back(self, saved: tuple[bytes, World, int]) -> None:
        """Put the database back to an older state; main, files and processes stay what they are."""
        self._raw.deserialize(saved[0])

    def crashed_at(self, point: str, decision: Decision | None = None) -> tuple[bytes, World, int]:
        """Return what the second refresh has left when its process, one of caller a, has died at a point.

        decision : what was decided about it before
        """
        name = f"{decision} {point}"
        if name not in self._crashed:
            world = self.restore(self.start)
            if decision is not None:
                Process(world, Caller("a", "a")).finish()
                assert decide(world, decision)
            crash(world, point, is_disturbed=False, key="a")
            self._crashed[name] = self.save(world)
        return self._crashed[name]

    @property
    def _raw(self) -> Any:
        with self.engine.connect() as connection:
            return connection.connection.driver_connection

    def _begin(self, _connection: object) -> None:
        if self.is_down:
            raise exc.OperationalError("BEGIN", None, ConnectionError("the server is down"))


def _copied(world: World) -> World:
    found = copy(world)
    found.delta = SimulatedDelta(list(world.delta.versions))
    if world.history is not None:
        found.history = SimulatedHistory(list(world.history.commits), list(world.history.versions))
    found.source, found.files = list(world.source), dict(world.files)
    found.orphans, found.refreshes = list(world.orphans), list(world.refreshes)
    return found


_SITES: dict[str, Site] = {}


def the_site(publish: str) -> Site:
    """Return the site of tables that are published so; one for all tests."""
    if publish not in _SITES:
        _SITES[publish] = Site(publish)
    return _SITES[publish]


def close_sites() -> None:
    for site in _SITES.values():
        site.engine.dispose()
    _SITES.clear()


def check_log(world: World) -> None:
    """Invariants 4, 6 and 12 of main's log, and those of the history's, if there is one."""
    if world.history is not None:
        check_history(world.history, world.delta, is_at_rest=False)
    epochs = [v.note.epoch for v in world.delta.versions if v.note]
    assert epochs == sorted(epochs), "invariant 6"
    for version in world.delta.versions:
        if version.operation in ("DELETE", "RESTORE") or (version.operation == "WRITE" and version.note is None):
            return  # from here on main is others' as well
        if version.note is not None and version.note.keeps_rows:
            return  # from here on main has rows that the source had no longer
        if world.is_progressive:
            for partition in PARTITIONS:
                rows = {row for row in version.rows if row[1] == partition}
                assert any(rows == {r for r in s if r[1] == partition} for s in world.source), "invariant 4"
        else:
            assert any(set(version.rows) == set(s) for s in world.source), "invariant 4"


def decide(world: World, decision: Decision, hold_id: str | None = None) -> bool:
    """Decide about what is held, or was shown as `hold_id`; False if nothing is, or it may not be decided any more."""
    return isinstance(world.store.holds.decide(world.table.id, decision, "ann", "looked", hold_id), Hold)


def check_rest(world: World, clock: Clock, *, is_put_back: bool = False) -> None:
    """Invariants 1, 3, 8, 9 and 10: left alone, the table comes to rest, and everybody tells the same of it.

    is_put_back : the database has forgotten what main's log shows of some refreshes
    """
    for number in range(8):
        clock.pass_ms(HANDOVER_MS + 1)
        decide(world, Decision.APPROVED)
        process = Process(world, Caller(f"last {number}", "last"))
        process.finish()
        if process.outcome is Outcome.NOTHING_TO_DO:
            break
        is_ended = process.error is not None and process.error.code in ("MV-CANCELLED", "MV-HOLD-EXPIRED")
        assert process.error is None or process.error.is_transient or is_ended
    else:
        raise AssertionError("invariant 10: it does not come to rest")
    assert world.store.state(world.table.id).phase is Phase.NORMAL
    assert sorted(world.delta.rows()) == sorted(world.source[-1]), "invariant 1"
    world.sweep(knows_all=not is_put_back)
    assert not world.files, "invariant 8"
    check_log(world)
    if world.history is not None:
        check_history(world.history, world.delta, is_at_rest=True)
    published = {v.note.refresh_id for v in world.delta.versions if v.note and v.note.step == "publish"}
    for report in world.store.history(world.table.id, 100):
        assert report.outcome is not Outcome.RUNNING
        if report.outcome is not Outcome.PUBLISHED and not world.is_progressive and not is_put_back:
            found = world.store.refresh(report.refresh_id)
            assert report.refresh_id not in published or found.has_committed, "invariant 9"


WRITES = (
    *("acquire", "hand_over", "fence", "staging", "seal", "changes", "changes:2", "progress", "progress:2"),
    *("publish", "discard", "publish:2", "committed", "published", "staging_delete", "normal"),
)
POINTS = tuple(f"{write}.{when}" for write in WRITES for when in ("before", "after"))


def crash(world: World, point: str, *, is_disturbed: bool, key: str = "") -> None:
    """Kill a process at a point; if it is disturbed, others write to main as soon as it has compared."""
    process = Process(world, Caller(key or f"dies at {point}", "host", will_retry=bool(key)))
    passed = dict.fromkeys(POINTS, 0)
    write, when = point.split(".")
    write, _, nth = write.partition(":")
    while process.advance() is not None:
        assert process.at is not None
        passed[process.at] = passed.get(process.at, 0) + 1
        if process.at == "publish.before" and is_disturbed and passed[process.at] == 1:
            world.delta.append(FOREIGN)
        if process.at == f"{write}.{when}" and passed[process.at] == int(nth or 1):
            break
    process.die()
