"""Histories that Hypothesis draws, and every pair of crash points, on the simulated Delta and the real `Store`.

After each pair, and after one history of twelve, the table is left alone: it comes to rest by itself, main is the
source row for row, what the history says of each refresh is what main's log says, and nothing is left in a workspace.
After every history main's log is looked at.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test

from airflow_mv_provider.core.approval.hold import Decision
from airflow_mv_provider.core.outcome import Outcome
from airflow_mv_provider.core.state import Caller
from tests.model.lake import HANDOVER_MS, LEASE_MS, World
from tests.model.simulation import Process
from tests.model.site import (
    PARTITIONS,
    POINTS,
    SOURCES,
    Site,
    check_log,
    check_rest,
    close_sites,
    crash,
    decide,
    the_site,
)


@pytest.fixture(scope="module")
def site_of() -> Iterator[Callable[[str], Site]]:
    yield the_site
    close_sites()


# -- every pair of crash points ----------------------------------------------------------------------------------------

PAIRS = tuple(itertools.product(POINTS, POINTS))


def test_there_are_enough_pairs():
    assert len(PAIRS) >= 1024


@pytest.mark.in_test_all
@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_every_pair_of_crashes_is_mended(site_of):
    """The whole matrix, of the way that most tables are published."""
    for first in POINTS:
        mend_after(site_of("atomic"), first, is_disturbed=False)


@pytest.mark.in_test_all
@pytest.mark.slow
@pytest.mark.sample(1, by=lambda case: case.rpartition("-")[0])
@pytest.mark.parametrize("first", POINTS)
@pytest.mark.parametrize("is_disturbed", [False, True], ids=["undisturbed", "others write"])
@pytest.mark.parametrize("publish", ["atomic", "progressive"])
def test_pair_of_crashes_is_mended(site_of, publish, is_disturbed, first):
    mend_after(site_of(publish), first, is_disturbed=is_disturbed)


def mend_after(site: Site, first: str, *, is_disturbed: bool, points: tuple[str, ...] = POINTS) -> None:
    """Crash at `first`, then whoever comes next at each of the points, and see that the third mends it."""
    world = site.restore(site.start)
    crash(world, first, is_disturbed=is_disturbed)
    crashed = site.save(world)
    for second in points:
        world = site.restore(crashed)
        site.clock.pass_ms(HANDOVER_MS + 1)
        crash(world, second, is_disturbed=False)
        try:
            check_rest(world, site.clock)
        except AssertionError as error:
            raise AssertionError(f"a crash at {first}, then one at {second}: {error}") from error


# -- a history beside main ---------------------------------------------------------------------------------------------

KEPT_POINTS = tuple(
    f"{write}.{when}"
    for write in ("create_history", "publish", "fence_history", "history", "published")
    for when in ("before", "after")
)
FIRST_POINTS = tuple(point for point in KEPT_POINTS if not point.startswith("fence_history"))  # which a successor needs


@pytest.mark.sample(1, by=lambda case: case.partition("-")[0])
@pytest.mark.parametrize("first", FIRST_POINTS)
@pytest.mark.parametrize("is_disturbed", [False, True], ids=["undisturbed", "others write"])
@pytest.mark.parametrize("publish", ["begins", "kept", "kept progressive"])
def test_pair_of_crashes_is_mended_where_a_history_is_kept(site_of, publish, is_disturbed, first):
    mend_after(site_of(publish), first, is_disturbed=is_disturbed, points=KEPT_POINTS)


# -- a decision --------------------------------------------------------------------------------------------------------

HELD_POINTS = ("seal.after", "hold.before", "hold.after")
AFTER_DECISION = tuple(
    f"{write}.{when}"
    for write in ("hand_over", "fence", "keep", "publish", "published", "staging_delete", "normal")
    for when in ("before", "after")
)


@pytest.mark.sample(2, by=lambda case: case.rpartition("-")[2])
@pytest.mark.parametrize("decision", [Decision.APPROVED, Decision.WITHOUT_DELETES, Decision.REJECTED])
@pytest.mark.parametrize("first", HELD_POINTS)
def test_held_refresh_whose_owners_die_is_decided_once(site_of, first, decision):
    """Whoever holds dies at `first`, a person decides, whoever publishes or ends it dies; then it is mended."""
    site = site_of("held")
    world = site.restore(site.start)
    crash(world, first, is_disturbed=False)
    site.clock.pass_ms(HANDOVER_MS + 1)
    if first != "hold.after":
        holder = Process(world, Caller("holds", "host"))
        holder.finish()
        assert holder.error is not None
        assert holder.error.code == "MV-HELD"
    before, refresh_id = world.delta.rows(), world.refreshes[-1]
    assert decide(world, decision)
    decided = site.save(world)
    for second in AFTER_DECISION:
        world = site.restore(decided)
        crash(world, second, is_disturbed=False)
        site.clock.pass_ms(HANDOVER_MS + 1)
        Process(world, Caller("mends", "host")).finish()
        report = world.store.report(refresh_id)
        assert report.outcome is (Outcome.PUBLISHED if decision.is_approval else Outcome.CANCELLED), second
        ours = [
            v for v in world.delta.versions if v.note and (v.note.refresh_id, v.note.step) == (refresh_id, "publish")
        ]
        gone = [row for row in before if row[:2] not in {row[:2] for row in world.source[-1]}]
        kept = gone if decision is Decision.WITHOUT_DELETES else []
        assert [v.rows for v in ours] == ([tuple(sorted((*world.source[-1], *kept)))] if decision.is_approval else [])
        check_rest(world, site.clock)


# -- a database that is put back ---------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.sample("progressive-1-cancelled")
@pytest.mark.parametrize("is_cancelled", [False, True], ids=["", "cancelled"])
@pytest.mark.parametrize("num_later", [0, 1, 2])
@pytest.mark.parametrize("publish", ["atomic", "progressive"])
def test_database_that_is_put_back_to_any_moment_is_mended(site_of, publish, num_later, is_cancelled):
    site = site_of(publish)
    for nth in range(100):
        world = site.restore(site.start)
        process = Process(world, Caller("in the backup", "host"))
        for _ in range(nth):
            process.advance()
        backup, point = site.save(world), process.at
        if point is None:
            break
        process.finish()
        for rows in SOURCES[3 : 3 + num_later]:
            world.source.append(rows)
            later = Process(world, Caller("lost", "host"))
            later.finish()
            assert later.outcome is Outcome.PUBLISHED
        site.put_back(backup)
        if is_cancelled:
            world.store.request_cancel(world.table.id, "somebody")
        try:
            check_rest(world, site.clock, is_put_back=True)
        except AssertionError as error:
            raise AssertionError(f"put back to {point}, {num_later} later: {error}") from error
    else:
        raise AssertionError("no end of it")
    assert nth >= 16, "before and after eight writes"


# -- histories ---------------------------------------------------------------------------------------------------------

NUM_STEPS = 7
# Most begin with what a process left that has died: that is a file's copy, not ten transactions.
BEGINNINGS = (
    *(("dead", point) for point in POINTS if point.startswith(("seal", "progress", "publish.", "published"))),
    *(("alive", point) for point in ("acquire.before", "staging.before", "seal.before", "publish.held")),
)


class History(RuleBasedStateMachine):
    """One history of a table: processes of two callers, and everything that may happen to them."""

    publish = "atomic"
    num_examples = 250
    beginnings = BEGINNINGS

    @initialize(
        begins=st.runner().flatmap(lambda self: st.sampled_from(self.beginnings)),
        is_left_alone=st.integers(0, 11).map(lambda n: n == 11),
    )
    def begin(self, begins: tuple[str, str], is_left_alone: bool) -> None:
        self.site, self.is_left_alone = the_site(self.publish), is_left_alone
        self.processes, self.num_others = [], 0
        self.backup: tuple[bytes, World, int] | None = None
        self.is_put_back = False
        what, point = begins
        if what == "alive":
            self.world = self.site.restore(self.site.start)
            self.starts("a")
            self.processes[0].until(point)
        else:
            self.world = self.site.restore(self.site.crashed_at(point, None if what == "dead" else Decision(what)))

    @precondition(lambda self: len(self.processes) < 3)
    @rule(key=st.sampled_from("ab"))
    def starts(self, key: str) -> None:
        self.processes.append(Process(self.world, Caller(key, key, will_retry=key == "a")))

    @precondition(lambda self: self.processes)
    @rule(who=st.integers(0, 2), steps=st.integers(1, 8))
    def goes_on(self, who: int, steps: int) -> None:
        process = self.process(who)
        for _ in range(steps):
            if process.advance() is None:
                break
        self.forget_ended()

    @precondition(lambda self: self.processes)
    @rule(who=st.integers(0, 2))
    def dies(self, who: int) -> None:
        self.process(who).die()
        self.forget_ended()

    @precondition(lambda self: any(p.at != "begin" for p in self.processes))
    @rule(who=st.integers(0, 2))
    def loses_an_answer(self, who: int) -> None:
        started = [p for p in self.processes if p.at != "begin"]
        started[who % len(started)].lose()
        self.forget_ended()

    @precondition(lambda self: self.world.orphans)
    @rule()
    def merge_goes_on(self) -> None:
        orphan = self.world.orphans.pop(0)
        try:
            self.world.go_on(orphan)
        except Exception as error:
            assert type(error).__name__ in ("FencedError", "MainMovedError")

    @rule()
    def lease_runs_out(self) -> None:
        self.site.clock.pass_ms(LEASE_MS + 1)

    @rule()
    def clock_is_set_back(self) -> None:
        """By a day: whoever holds a lease now has one from the future, and is taken for dead."""
        self.site.clock.pass_ms(-86_400_000)

    @precondition(lambda self: not self.site.is_down)
    @rule()
    def cancel(self) -> None:
        self.world.store.request_cancel(self.world.table.id, "somebody")

    @precondition(lambda self: not self.site.is_down and self.backup is None)
    @rule()
    def backup_is_taken(self) -> None:
        self.backup = self.site.save(self.world)

    @precondition(lambda self: self.backup is not None and not self.is_put_back)
    @rule()
    def backup_is_put_back(self) -> None:
        for process in self.processes:
            process.die()
        self.forget_ended()
        assert self.backup is not None
        self.site.is_down, self.is_put_back = False, True
        self.site.put_back(self.backup)

    @precondition(lambda self: self.num_others < 3)
    @rule(what=st.sampled_from(["append", "delete", "optimize", "restore"]), partition=st.sampled_from(PARTITIONS))
    def others_write(self, what: str, partition: int) -> None:
        delta = self.world.delta
        self.num_others += 1
        match what:
            case "append":
                delta.append(((9 + self.num_others, partition, "foreign"),))
            case "delete":
                delta.delete(partition)
            case "optimize":
                delta.optimize()
            case "restore":
                delta.restore(delta.latest // 2)

    @precondition(lambda self: len(self.world.source) < len(SOURCES))
    @rule()
    def source_changes(self) -> None:
        self.world.source.append(SOURCES[len(self.world.source)])

    @rule()
    def database_goes_down_or_comes_up(self) -> None:
        self.site.is_down = not self.site.is_down

    def teardown(self) -> None:
        if not hasattr(self, "world"):
            return
        self.site.is_down = False
        check_log(self.world)
        if self.is_left_alone:
            check_rest(self.world, self.site.clock, is_put_back=self.is_put_back)

    def process(self, who: int) -> Process:
        return self.processes[who % len(self.processes)]

    def forget_ended(self) -> None:
        self.processes = [p for p in self.processes if p.at is not None]


class ProgressiveHistory(History):
    publish = "progressive"
    num_examples = 125


class KeptHistory(History):
    """The table keeps a history of its rows, which is begun here."""

    publish = "begins"
    num_examples = 125
    beginnings = (*BEGINNINGS, *(("dead", point) for point in FIRST_POINTS), ("alive", "history.held"))


class HeldHistory(History):
    """Every refresh waits for a decision: of a person who looks, and decides about it then or much later."""

    publish = "held"
    num_examples = 125
    looked: str | None = None
    beginnings = (
        *(("alive", point) for point in ("acquire.before", "fence.before", "seal.before", "hold.before")),
        *(("dead", point) for point in ("seal.after", "progress.after", "hold.before", "hold.after")),
        *((what, point) for point in AFTER_DECISION[:10] for what in (Decision.APPROVED, Decision.WITHOUT_DELETES)),
    )

    @precondition(lambda self: not self.site.is_down)
    @rule()
    def person_looks(self) -> None:
        state = self.world.store.state(self.world.table.id)
        if state.is_held and state.refresh_id is not None:
            last = self.world.store.last_hold(state.refresh_id)
            assert last is not None
            self.looked = last.id

    @precondition(lambda self: not self.site.is_down and self.looked is not None)
    @rule(decision=st.sampled_from([Decision.APPROVED, Decision.WITHOUT_DELETES, Decision.REJECTED]))
    def person_decides(self, decision: Decision) -> None:
        decide(self.world, decision, self.looked)


@pytest.mark.slow
@pytest.mark.timeout(1800)  # minutes on a machine that is not shared
@pytest.mark.parametrize(
    "history",
    [
        History,
        *(pytest.param(each, marks=pytest.mark.in_test_all) for each in (ProgressiveHistory, HeldHistory, KeptHistory)),
    ],
)
def test_any_history_comes_to_rest(history, pytestconfig):
    run_state_machine_as_test(
        history,
        settings=settings(
            max_examples=history.num_examples * (20 if pytestconfig.getoption("--every-case") else 1),
            stateful_step_count=NUM_STEPS,
            deadline=None,
            database=None,
            derandomize=True,
            suppress_health_check=list(HealthCheck),
        ),
    )
