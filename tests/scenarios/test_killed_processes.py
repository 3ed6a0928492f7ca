"""Real processes, killed or stopped at every durable write by real signals; whoever comes next mends what they left.

    a driver    is killed with its JVM and all its refreshes         their tables are recovered by this process
    a task      is killed, and the driver that it has asked lives on  its statements may go on without it
    an owner    is stopped, taken over, and continued                 it fails, and changes nothing any more

The processes work on copies of a lake that was published once and whose source has changed since.
"""

from __future__ import annotations

import signal
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import pytest

from airflow_mv_provider.core.outcome import Outcome
from tests.conftest import read_independently
from tests.scenarios.conftest import (
    MODES,
    NUM_CHANGES,
    NUM_PUBLISHES,
    build_published,
    change_source,
    changes_since_the_first,
    check_invariants,
    check_snapshots,
    publishes,
)
from tests.scenarios.owners import Job, Owner
from tests.scenarios.points import groups

pytestmark = [pytest.mark.slow, pytest.mark.in_process]


def grouped(size: int, marks: Any = ()) -> list[Any]:
    """Divide the points of both modes into groups of at most `size`: so many die in one test."""
    return [
        pytest.param(mode, points, id=f"{mode}-{points[0] if size == 1 else number}", marks=marks)
        for mode in MODES
        for number, points in enumerate(groups(mode, size), 1)
    ]


INSIDE = [
    pytest.param("atomic", ["publish.inside"], id="atomic-inside"),
    pytest.param("progressive", ["publish.inside"], id="progressive-inside", marks=pytest.mark.in_test_all),
]
NUM_FIRST_PUBLISHES = {"atomic": 1, "progressive": 2}
# What becomes of an owner that goes on after its successor; all others have lost their lease.
ENDED = {"acquire.before": Outcome.NOTHING_TO_DO, "normal.after": Outcome.PUBLISHED}


@pytest.fixture
def changed(prepared) -> Callable[[str, str], Any]:
    """Give lakes that were published once, and whose source has changed since."""

    def build(lake: Any, mode: str) -> None:
        build_published(lake, mode)
        change_source(lake)

    def changed(mode: str, point: str) -> Any:
        lake = prepared(f"changed-{mode}", lambda lake: build(lake, mode))
        if point.startswith("fence"):
            change_source(lake, point)
        return lake

    return changed


def job(lake: Any, point: str) -> Job:
    return Job(lake.settings.database_url, lake.settings.warehouse, point)


def mend(lake: Any, mode: str) -> None:
    """Recover, refresh, and refresh again for nothing: a person or a schedule would do no more."""
    lake.clock.pass_ms(lake.settings.lease_ms + 1)
    lake.refresher().recover(lake.caller())
    assert lake.phase() == "NORMAL"
    lake.refresh()
    check_mended(lake, mode)
    assert lake.refresh().outcome is Outcome.NOTHING_TO_DO


def check_mended(lake: Any, mode: str) -> None:
    check_invariants(lake)
    assert publishes(lake) == NUM_FIRST_PUBLISHES[mode] + NUM_PUBLISHES[mode], "committed twice, or not at all"
    assert changes_since_the_first(lake) == NUM_CHANGES
    check_snapshots(lake, mode, read_independently(lake.root / "raw/orders", 0), lake.rows("raw/orders"))


@pytest.mark.victim("driver killed")
@pytest.mark.parametrize(("mode", "points"), [*grouped(3, marks=pytest.mark.in_test_all), *INSIDE])
def test_driver_is_killed_with_its_jvm_and_all_its_refreshes(changed, cases, mode, points):
    lakes = [changed(mode, point) for point in points]

    with Owner([job(*each) for each in zip(lakes, points, strict=True)]) as driver:
        driver.wait_until_all_stand()
        driver.kill()

    assert driver.exit_code == -signal.SIGKILL
    for lake, point in zip(lakes, points, strict=True):
        with cases(point):
            mend(lake, mode)


@pytest.mark.sample("atomic-publish.before")
@pytest.mark.victim("task killed, its driver lives on")
@pytest.mark.parametrize(("mode", "points"), grouped(1))
def test_tasks_are_killed_and_their_driver_lives_on(changed, cases, connect, mode, points):
    lakes = [changed(mode, point) for point in points]

    with ExitStack() as stack:
        tasks = [
            stack.enter_context(Owner([job(*each)], remote=connect.url)) for each in zip(lakes, points, strict=True)
        ]
        for task in tasks:
            task.wait_until_all_stand()
            task.kill()

    for lake, point, task in zip(lakes, points, tasks, strict=True):
        with cases(point):
            assert task.exit_code == -signal.SIGKILL
            mend(lake, mode)


@pytest.mark.sample("atomic-publish.before")
@pytest.mark.victim("owner stopped, taken over, continued")
@pytest.mark.parametrize(("mode", "points"), grouped(1))
def test_owners_are_stopped_taken_over_and_continued(changed, cases, connect, mode, points):
    lakes = [changed(mode, point) for point in points]

    with ExitStack() as stack:
        owners = [
            stack.enter_context(Owner([job(*each)], remote=connect.url)) for each in zip(lakes, points, strict=True)
        ]
        for owner in owners:
            owner.wait_until_all_stand()
            owner.stop()
        for lake, point, owner in zip(lakes, points, owners, strict=True):
            with cases(point):
                mend(lake, mode)
                assert owner.go_on() == [ENDED.get(point, "MV-LEASE-LOST")]
                lake.refresher().recover(lake.caller())  # sweeps what it wrote before it learned that it was overtaken
                check_mended(lake, mode)
                assert lake.refresh().outcome is Outcome.NOTHING_TO_DO
