"""The simulation is held against what it simulates: the same operations on a real Delta table, the same faults of real
refreshes. What differs is a fault of the simulation, and everything that was found with it is in doubt."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import pytest

from airflow_mv_provider.core.approval.hold import Decision
from airflow_mv_provider.core.definition.schema import Column
from airflow_mv_provider.core.fence import CommitNote, fence_version
from airflow_mv_provider.core.location import TableRef
from airflow_mv_provider.core.outcome import Outcome
from airflow_mv_provider.exceptions import FencedError, MainMovedError, MvError
from airflow_mv_provider.runner import crash_points
from tests.conftest import Crash, a_table, read_independently
from tests.model.delta import Change, Row, SimulatedDelta, corrections
from tests.scenarios.held import HeldCommit

# Only the recorded changes of a large table are a write of their own, as in the model.
pytestmark = [pytest.mark.slow, pytest.mark.large_tables]

UUID, REFRESH = "6a1f6a7e-6d7a-4a0b-9f5e-0d6c1c5a3b11", "a" * 32
COLUMNS = (Column("id", "long"), Column("p", "integer"), Column("v", "string"))
VALUES = ("a", "b", "foreign")


def note(step: str, txn_version: int) -> CommitNote:
    return CommitNote(UUID, REFRESH, txn_version >> 20, step, txn_version)  # type: ignore[arg-type]


class RealDelta:
    """The operations of `SimulatedDelta` on a Delta table, by the package's own statements."""

    def __init__(self, spark: Any, location: Any) -> None:
        from airflow_mv_provider.spark.compare.hashing import row_hash
        from airflow_mv_provider.spark.delta import Main
        from airflow_mv_provider.spark.layout import Layout, struct_type
        from airflow_mv_provider.spark.session import isolated

        # Others have sessions of their own: the confs of a transaction are a session's.
        self.spark, self._apart = isolated(spark), isolated(spark)
        self.location = location
        self.main = Main(self.spark, TableRef(str(location)), UUID)
        self.layout = Layout(a_table(partition_by=["p"]), COLUMNS)
        self.main.create(struct_type(COLUMNS), ["p"])
        rows = self.spark.createDataFrame(list(product(range(8), (0, 1), VALUES)), struct_type(COLUMNS))
        hashed = rows.selectExpr("id", "p", "v", f"{row_hash(COLUMNS)} AS h").collect()
        self._hashes = {(row.id, row.p, row.v): row.h for row in hashed}

    def rows(self) -> list[Any]:
        return read_independently(self.location)

    def fence(self, of: CommitNote) -> None:
        from airflow_mv_provider.spark.delta import Main

        Main(self._apart, self.main.ref, UUID).fence(of)

    def merge(self, changes: tuple[Change, ...], of: CommitNote) -> None:
        """Run the MERGE that `spark/merge` writes."""
        from airflow_mv_provider.spark.compare.corrections import OLD_HASH, OP
        from airflow_mv_provider.spark.merge import merge_sql

        found = [(c.op, self._hashes.get(c.old), *c.row) for c in changes]  # type: ignore[arg-type]
        schema = f"{OP} STRING, {OLD_HASH} BIGINT, id BIGINT, p INT, v STRING"
        self.spark.createDataFrame(found, schema).createOrReplaceTempView("changes")
        touched = sorted({f'["{c.row[1]}"]' for c in changes})
        may_insert = any(c.op == "I" for c in changes)
        sql = merge_sql(self.main.ref, "changes", self.layout, touched, has_null_keys=False, may_insert=may_insert)
        with self.main.transaction(of):
            self.spark.sql(sql).collect()

    def append(self, rows: tuple[Row, ...]) -> None:
        self._sql(f"INSERT INTO {{t}} VALUES {', '.join(map(str, rows))}")

    def delete(self, partition: int) -> None:
        self._sql(f"DELETE FROM {{t}} WHERE p = {partition}")

    def optimize(self) -> None:
        self._sql("OPTIMIZE {t}")

    def restore(self, version: int) -> None:
        self._sql(f"RESTORE {{t}} TO VERSION AS OF {version}")

    def _sql(self, text: str) -> None:
        self._apart.sql(text.format(t=f"delta.`{self.location}`")).collect()


class Both:
    """The two tables, which are compared after every operation."""

    def __init__(self, real: RealDelta) -> None:
        self.real, self.simulated = real, SimulatedDelta()

    def fence(self, of: CommitNote) -> None:
        self.real.fence(of)
        self.simulated.fence(of)
        self.compare()

    def merge(self, changes: tuple[Change, ...], of: CommitNote) -> None:
        def simulate() -> None:
            begun = self.simulated.start(changes, of)
            if begun is not None:
                self.simulated.commit(begun)

        assert met(lambda: self.real.merge(changes, of)) is met(simulate)
        self.compare()

    def others(self, what: str, *arguments: Any) -> None:
        getattr(self.real, what)(*arguments)
        # Whether there is anything to rewrite is for the real one to say.
        if what != "optimize" or self.real.main.log()[0].version > self.simulated.latest:
            getattr(self.simulated, what)(*arguments)
        self.compare()

    def compare(self) -> None:
        mine, theirs = self.simulated.log()[:-1], self.real.main.log()[:-1]
        facts = [[(c.version, c.operation, c.read_version, c.note) for c in log] for log in (mine, theirs)]
        assert facts[0] == facts[1]
        assert list(self.simulated.rows()) == self.real.rows()


def met(work: Callable[[], None]) -> type[MvError] | None:
    """Return the error that comes of it."""
    try:
        work()
    except (FencedError, MainMovedError) as error:
        return type(error)
    return None


@pytest.fixture
def both(spark: Any, tmp_path: Any) -> Both:
    return Both(RealDelta(spark, tmp_path / "main"))


@pytest.mark.in_test_all
@pytest.mark.parametrize("seed", range(12))
def test_sequence_of_operations_comes_to_the_same(both, seed):
    drawn = random.Random(seed)
    epoch, txn_version = 1, fence_version(1)
    both.fence(note("fence", txn_version))
    for _ in range(8):
        held = both.simulated.rows()
        match drawn.choice(["fence", "merge", "merge", "stale merge", "wrong merge", "append", "optimize", "restore"]):
            case "fence":
                epoch += drawn.choice([0, 1])  # the same one twice is refused
                txn_version = max(txn_version, fence_version(epoch))
                both.fence(note("fence", fence_version(epoch)))
            case "merge":
                txn_version += 1
                both.merge(corrections(desired(drawn), held), note("publish", txn_version))
            case "stale merge":
                both.merge(corrections(desired(drawn), held), note("publish", drawn.choice([txn_version, 7])))
            case "wrong merge":
                wrong = Change("U", (1, 0, "b"), (1, 0, "foreign"))
                both.merge((wrong,), note("publish", txn_version + 1))
                if both.simulated.last_txn > txn_version:
                    txn_version += 1
            case "append":
                both.others("append", ((drawn.randrange(6, 8), drawn.choice((0, 1)), "foreign"),))
            case "optimize":
                both.others("optimize")
            case "restore":
                both.others("restore", drawn.randrange(both.simulated.latest))


def desired(drawn: random.Random) -> list[Row]:
    found = {}
    for each in range(5):
        row = (each, drawn.choice((0, 1)), drawn.choice("ab"))
        if drawn.random() < 0.7:
            found[each] = row
    return list(found.values())


BETWEEN: dict[str, Callable[[Both], None]] = {
    "a fence": lambda both: both.fence(note("fence", fence_version(2))),
    "rows in its partition": lambda both: both.others("append", ((7, 0, "foreign"),)),
    "rows in another partition": lambda both: both.others("append", ((7, 1, "foreign"),)),
    "its partition's rows gone": lambda both: both.others("delete", 0),
    "another partition's rows gone": lambda both: both.others("delete", 1),
    "optimize": lambda both: both.others("optimize"),
    "restore": lambda both: both.others("restore", 1),
}


class HeldMerge:
    """What `HeldCommit` takes for a lake: its refresh is one MERGE."""

    def __init__(self, real: RealDelta, changes: tuple[Change, ...], of: CommitNote) -> None:
        self.spark = real.spark
        self._merge = lambda: real.merge(changes, of)
        self.arm: Callable[[], None] = lambda: None

    def at_point(self, _point: str, action: Callable[[], None]) -> None:
        self.arm = action

    def refresh(self) -> None:
        self.arm()
        self._merge()


@pytest.mark.sample(1)
@pytest.mark.in_process
@pytest.mark.parametrize("between", list(BETWEEN))
def test_what_comes_in_the_middle_of_a_merge_does_the_same(both, between):
    both.fence(note("fence", fence_version(1)))
    for row in ((1, 0, "a"), (2, 0, "a"), (3, 1, "a"), (4, 1, "a")):
        both.others("append", (row,))
    changes = (Change("U", (1, 0, "b"), (1, 0, "a")), Change("I", (5, 0, "b"), None))
    merge = note("publish", fence_version(1) + 1)
    begun = both.simulated.start(changes, merge)
    held_merge = HeldMerge(both.real, changes, merge)
    held = HeldCommit(held_merge, held_merge.at_point)
    held.start()
    try:
        held.wait_until_prepared()
        BETWEEN[between](both)
    finally:
        error = held.release()

    met_here = met(lambda: both.simulated.commit(begun))
    assert (None if error is None else type(error)) is met_here
    both.compare()


# -- the order of durable writes -------------------------------------------------------------------------------------


@pytest.fixture
def published(prepared: Callable[..., Any]) -> Any:
    """A lake whose table was published once and whose source has changed since; all of it is one chunk."""

    def build(lake: Any) -> None:
        lake.write("SELECT id, CAST(0 AS INT) AS p, 'a' AS v FROM range(40)")
        lake.apply()
        lake.refresh()
        lake.write("SELECT id, CAST(0 AS INT) AS p, CASE WHEN id = 7 THEN 'b' ELSE 'a' END AS v FROM range(40)")

    return prepared("one-chunk", build)


@pytest.fixture
def published_with_a_history(published: Any) -> Any:
    """The same, and a history of its rows is to be kept from now on."""
    published.apply(history=True)
    return published


@pytest.fixture
def published_and_to_be_held(published: Any) -> Any:
    """The same, and every change needs a decision."""
    published.apply(approval="always")
    return published


def real_run(lake: Any, scenario: tuple[str, ...]) -> Iterator[str]:
    """Yield the durable writes of real refreshes, of which all but the last die."""
    for number, (crash_at, what) in enumerate(pairs(scenario)):
        passed: list[str] = []

        def reach(point: str, passed: list[str] = passed, crash_at: str = crash_at, what: str = what) -> None:
            passed.append(point)
            if point == crash_at and passed.count(point) == 1:
                happen(lake, what)
                if not what.startswith("others"):
                    raise Crash(point)

        crash_points.arm(reach)
        try:
            if what in DECISIONS:
                lake.refresher().decide("orders", Decision(what), lake.caller(f"number {number}"))
            else:
                lake.refresh(caller=lake.caller(f"number {number}"))
        except Crash:
            pass
        except MvError as error:
            passed.append(error.code)
        finally:
            crash_points.arm(None)
        yield from passed
        lake.clock.pass_ms(lake.settings.lease_ms + 1)


DECISIONS = {"approved", "rejected"}


def happen(lake: Any, what: str) -> None:
    if what == "a cancel":
        assert lake.store.request_cancel(lake.store.table("orders").id, "ann")
    if what == "others write":
        lake.sql("INSERT INTO {t} VALUES (77, 0, 'foreign')")


def pairs(scenario: tuple[str, ...]) -> list[tuple[str, str]]:
    return list(zip(scenario[::2], scenario[1::2], strict=True))


def simulated_run(scenario: tuple[str, ...], publish: str = "atomic") -> Iterator[str]:
    from airflow_mv_provider.core.state import Caller
    from tests.model.lake import LEASE_MS
    from tests.model.simulation import Process
    from tests.model.site import Site, decide

    site = Site("held" if DECISIONS & {*scenario} else publish, partitions=(0,))
    world = site.restore(site.start)
    for number, (crash_at, what) in enumerate(pairs(scenario)):
        process, passed = Process(world, Caller(f"number {number}", "host")), list[str]()
        if what in DECISIONS:
            yield "decide.before"  # a person's own process, which then goes on as any other
            assert decide(world, Decision(what))
            yield "decide.after"
        while process.advance() is not None:
            assert process.at is not None
            if process.at in ("publish.held", "history.held"):
                continue
            if what in DECISIONS and process.at == "acquire.before":
                break  # who decides ends that refresh, and begins no other
            passed.append(process.at)
            if process.at == crash_at and passed.count(process.at) == 1:
                if what == "a cancel":
                    assert site.store.request_cancel(world.table.id, "ann")
                if what == "others write":
                    world.delta.append(((9, 0, "foreign"),))
                else:
                    process.die()
        yield from passed
        if process.error is not None:
            yield process.error.code
        site.clock.pass_ms(LEASE_MS + 1)


SCENARIOS = [
    ("never", ""),
    ("publish.before", "others write"),
    ("publish.after", "others write"),
    ("staging.after", "a crash", "never", ""),
    ("publish.before", "others write", "progress.after", "a crash", "never", ""),
    ("publish.before", "a cancel", "never", ""),
    ("publish.after", "a cancel", "never", ""),
    ("seal.after", "a crash", "hand_over.after", "a cancel", "never", ""),
    ("published.after", "a crash", "never", ""),
]


@pytest.mark.sample(1)
@pytest.mark.parametrize("scenario", SCENARIOS, ids=[", ".join(filter(None, s)) for s in SCENARIOS])
def test_durable_writes_are_those_of_a_real_refresh(published, scenario):
    assert list(simulated_run(scenario)) == list(real_run(published, scenario))


KEPT_SCENARIOS = [
    ("never", ""),
    ("history.before", "a crash", "never", ""),
    ("history.after", "a crash", "never", ""),
    ("publish.after", "others write"),
    ("create_history.before", "a crash", "history.before", "a crash", "fence_history.after", "a crash", "never", ""),
]


@pytest.mark.sample(1)
@pytest.mark.parametrize("scenario", KEPT_SCENARIOS, ids=[", ".join(filter(None, s)) for s in KEPT_SCENARIOS])
def test_durable_writes_are_those_of_a_real_refresh_with_a_history(published_with_a_history, scenario):
    assert list(simulated_run(scenario, "begins")) == list(real_run(published_with_a_history, scenario))


HELD_SCENARIOS = [
    ("never", "", "never", "approved"),
    ("hold.after", "a crash", "fence.after", "approved", "never", ""),
    ("hold.before", "a crash", "never", "", "never", "rejected"),
]


@pytest.mark.in_test_all
@pytest.mark.parametrize("scenario", HELD_SCENARIOS, ids=[", ".join(filter(None, s)) for s in HELD_SCENARIOS])
def test_durable_writes_are_those_of_a_real_held_refresh(published_and_to_be_held, scenario):
    assert list(simulated_run(scenario)) == list(real_run(published_and_to_be_held, scenario))


@pytest.mark.in_test_all
def test_cancel_after_the_commit_comes_too_late(published, crash_at):
    crash_at("publish.after")
    with pytest.raises(Crash):
        published.refresh()
    assert published.store.request_cancel(published.store.table("orders").id, "ann")
    published.clock.pass_ms(published.settings.lease_ms + 1)

    ended = published.refresher().recover(published.caller())

    assert [report.outcome for report in ended] == [Outcome.PUBLISHED]
    assert published.rows("orders") == published.rows("raw/orders")
