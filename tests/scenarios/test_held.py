"""A refresh that waits for a decision dies at every durable write: of who holds it, who decides, and who publishes."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import pytest

from airflow_mv_provider.core.approval.hold import Decision
from airflow_mv_provider.core.outcome import Outcome
from airflow_mv_provider.exceptions import RefreshHeldError
from airflow_mv_provider.runner import crash_points
from tests.conftest import Crash, dying_at
from tests.scenarios.conftest import MODES, build_published, change_source, check_invariants, publishes
from tests.scenarios.owners import Job, Owner
from tests.scenarios.points import DECIDED, HELD_UNTIL_DECIDED, points_of

pytestmark = [pytest.mark.slow, pytest.mark.victim("held refresh")]


@pytest.fixture
def table(prepared: Callable[..., Any]) -> Any:
    """A table that was published once and whose every change needs a decision; its source has changed since."""

    return changed_table(prepared)


def changed_table(prepared: Callable[..., Any]) -> Any:
    def build(lake: Any) -> None:
        build_published(lake)
        lake.apply(**MODES["atomic"], approval="always")
        change_source(lake)

    return with_rows(prepared("four-partitions-held", build))


def with_rows(lake: Any) -> Any:
    """Tell what main has before, and what each decision makes of it, as multisets of rows."""
    before, source = lake.rows("orders"), lake.rows("raw/orders")
    kept = [row for row in before if row[0] not in {row[0] for row in source}]
    wanted = {
        Decision.APPROVED: source,
        Decision.WITHOUT_DELETES: [*source, *kept],
        Decision.REJECTED: before,
    }
    lake.before, lake.wanted = Counter(before), {decision: Counter(rows) for decision, rows in wanted.items()}
    return lake


def main_of(lake: Any) -> Counter[Any]:
    return Counter(lake.rows("orders"))


def decide(lake: Any, decision: Decision) -> Any:
    return lake.refresher().decide("orders", decision, lake.caller(user="ann"), "I have looked")


def next_owner(lake: Any) -> None:
    """Go on with a refresh whose owner is dead, as a schedule does; one that is held is left alone."""
    lake.clock.pass_ms(lake.settings.lease_ms + 1)
    lake.refresher().recover(lake.caller())


def is_in_main(point: str) -> bool:
    return DECIDED.index(point) >= DECIDED.index("publish.after")


def check_decided(lake: Any, decision: Decision, num_before: int) -> None:
    """What was decided is in main, once; then the refresh that follows finds what is left, and needs a decision."""
    [report, *_] = lake.store.history(lake.store.table("orders").id, 1)
    assert report.outcome is (Outcome.PUBLISHED if decision.is_approval else Outcome.CANCELLED)
    assert (lake.phase(), lake.workspaces()) == ("NORMAL", [])
    assert main_of(lake) == lake.wanted[decision]
    assert publishes(lake) - num_before == (1 if decision.is_approval else 0), "committed twice, or not at all"
    if decision is not Decision.APPROVED:
        with pytest.raises(RefreshHeldError):
            lake.refresh()
        decide(lake, Decision.APPROVED)
    assert lake.refresh().outcome is Outcome.NOTHING_TO_DO
    check_invariants(lake)


def test_held_refresh_whose_owners_die_at_each_of_its_own_durable_writes_is_published_as_decided(table):
    die_at(table, points_of("hold"), points_of("keep", "publish"))


@pytest.mark.in_test_all
def test_held_refresh_whose_owners_die_at_every_durable_write_is_published_as_decided(table):
    passed = die_at(table, HELD_UNTIL_DECIDED, DECIDED)

    assert passed == {*HELD_UNTIL_DECIDED, "decide.before", "decide.after", *DECIDED}, "a write at which nobody died"


def die_at(table: Any, until_held: Sequence[str], until_the_end: Sequence[str]) -> set[str]:
    """Let an owner die at each of these points; then see that the decision was carried out once. Return all points."""
    num_before, passed = publishes(table), set[str]()
    for point in until_held:
        with dying_at(point, passed):
            table.refresh()
        assert main_of(table) == table.before
        table.clock.pass_ms(table.settings.lease_ms + 1)
    for point in ("decide.before", "decide.after"):
        with dying_at(point, passed):
            decide(table, Decision.WITHOUT_DELETES)
        assert main_of(table) == table.before
    for point in until_the_end:
        with dying_at(point, passed):
            next_owner(table)
        assert main_of(table) == (table.wanted[Decision.WITHOUT_DELETES] if is_in_main(point) else table.before)

    next_owner(table)
    check_decided(table, Decision.WITHOUT_DELETES, num_before)
    return passed


@pytest.mark.in_test_all
@pytest.mark.parametrize("decision", [Decision.APPROVED, Decision.WITHOUT_DELETES, Decision.REJECTED])
@pytest.mark.parametrize("point", ["hold.before", "hold.after", "decide.before", "decide.after", *DECIDED])
def test_next_owner_mends_a_crash(table, point, decision):
    num_before = publishes(table)
    is_reached = False

    def reach(reached: str) -> None:
        nonlocal is_reached
        if reached == point and not is_reached and (is_decided or point.startswith(("hold", "decide"))):
            is_reached = True
            raise Crash(point)

    is_decided = False
    crash_points.arm(reach)
    with suppress(Crash, RefreshHeldError):
        table.refresh()
    next_owner(table)
    assert main_of(table) == table.before
    is_decided = True
    for _ in range(2):
        if table.store.state(1).is_held:
            with suppress(Crash):
                decide(table, decision)
        next_owner_or_dies(table)
    crash_points.arm(None)

    is_passed = decision.is_approval or point.partition(".")[0] not in ("publish", "published", "keep")
    is_passed = is_passed and (decision is Decision.WITHOUT_DELETES or not point.startswith("keep"))
    assert is_reached == is_passed
    check_decided(table, decision, num_before)


def next_owner_or_dies(lake: Any) -> None:
    with suppress(Crash):
        next_owner(lake)


@pytest.mark.in_test_all
@pytest.mark.in_process
def test_process_is_killed_while_a_refresh_is_held_and_another_while_it_publishes_what_was_approved(table, prepared):
    """Both in one driver, whose JVM dies with them: SIGKILL knows no handler, so nothing is written on the way."""
    approved = changed_table(prepared)
    with pytest.raises(RefreshHeldError):
        approved.refresh()
    num_before = publishes(table)

    def job(lake: Any, point: str, decision: Decision | None = None) -> Job:
        return Job(lake.settings.database_url, lake.settings.warehouse, point, decision)

    with Owner([job(table, "hold.after"), job(approved, "publish.inside", Decision.WITHOUT_DELETES)]) as driver:
        driver.wait_until_all_stand()
        driver.kill()

    assert driver.exit_code == -signal.SIGKILL
    assert table.store.state(1).is_held, "no process works on it, and it is decided as before"
    assert (main_of(table), main_of(approved)) == (table.before, approved.before)
    decide(table, Decision.APPROVED)
    check_decided(table, Decision.APPROVED, num_before)
    approved.clock.pass_ms(3_600_000 + 1)
    approved.refresher().recover(approved.caller())
    check_decided(approved, Decision.WITHOUT_DELETES, num_before)
