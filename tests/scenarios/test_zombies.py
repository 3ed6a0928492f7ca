"""An owner that was stopped, replaced, and goes on: it fails, and what its successor wrote stays as it is."""

from __future__ import annotations

import pytest

from airflow_mv_provider.core.outcome import Outcome
from airflow_mv_provider.exceptions import EngineError, LeaseLostError, MvError, RefreshInProgressError
from airflow_mv_provider.runner import crash_points
from tests.scenarios.conftest import change_source, check_invariants
from tests.scenarios.held import held_commit

pytestmark = [pytest.mark.slow, pytest.mark.victim("owner stopped, taken over, continued")]

POINTS = [
    *("acquire.after", "fence.before", "fence.after", "staging.after", "seal.before", "seal.after"),
    *("publish.before", "publish.after", "published.before", "published.after"),
    *("staging_delete.before", "staging_delete.after"),
]


@pytest.mark.in_test_all
@pytest.mark.parametrize("point", POINTS)
def test_stopped_owner_is_taken_over_and_fails_when_it_goes_on(table, at_point, point):
    change_source(table, point)

    def successor() -> None:
        table.clock.pass_ms(table.settings.lease_ms + 1)
        table.refresh()

    at_point(point, successor)

    with pytest.raises(LeaseLostError):
        table.refresh()

    table.refresher().recover(table.caller())
    check_invariants(table, published=2)


@pytest.mark.in_test_all
@pytest.mark.sample(1)
@pytest.mark.parametrize(
    "point", ["fence.before", "seal.after", "publish.before", "publish.after", "staging_delete.after"]
)
def test_twin_of_the_same_task_does_the_same_work_once(table, at_point, point):
    change_source(table, point)
    caller = table.caller("dag:run:0")
    at_point(point, lambda: table.refresh(caller=caller))

    with pytest.raises(LeaseLostError):
        table.refresh(caller=caller)

    table.refresher().recover(table.caller())
    check_invariants(table, published=2)


@pytest.mark.in_process
def test_zombie_held_in_the_middle_of_the_publish_is_fenced_and_fails(table, at_point):
    change_source(table)

    with held_commit(table, at_point) as zombie:
        zombie.wait_until_prepared()
        table.clock.pass_ms(table.settings.lease_ms + 1)
        report = table.refresh()
        after = table.rows("orders")
        error = zombie.release()

    assert report.outcome is Outcome.PUBLISHED
    assert isinstance(error, LeaseLostError)
    assert table.rows("orders") == after
    check_invariants(table, published=2)


@pytest.mark.in_test_all
@pytest.mark.in_process
def test_zombie_that_was_given_up_in_the_middle_of_its_publish_commits_nothing(table, at_point):
    before = table.rows("orders")
    change_source(table)

    with held_commit(table, at_point) as zombie:
        zombie.wait_until_prepared()
        table.clock.pass_ms(table.settings.lease_ms + 1)
        report = table.refresher().abandon("orders", table.caller())
        error = zombie.release()

    assert report.outcome is Outcome.ABANDONED
    assert isinstance(error, LeaseLostError)
    assert (table.rows("orders"), table.phase()) == (before, "NORMAL")
    table.refresh()
    check_invariants(table, published=2)


@pytest.mark.in_process
@pytest.mark.in_test_all
def test_nobody_is_given_up_whose_commit_may_still_come(table, at_point):
    """However often the fence fails: the sixth epoch is the last one that would resume the refresh."""
    change_source(table)
    table_id = table.store.table("orders").id

    def fail(point: str) -> None:
        if point == "fence.before":
            raise EngineError("orders", "Spark failed: there is no fence today.")

    with held_commit(table, at_point) as zombie:
        zombie.wait_until_prepared()
        refresh_id = table.store.state(table_id).refresh_id
        crash_points.arm(fail)
        for _ in range(6):
            table.clock.pass_ms(table.settings.lease_ms + 1)
            table.refresher().recover(table.caller())
        assert table.store.merging_attempts(refresh_id) > 5
        assert table.phase() == "MERGING"
        crash_points.arm(None)
        error = zombie.release()

    assert isinstance(error, LeaseLostError)
    table.clock.pass_ms(table.settings.lease_ms + 1)
    (report,) = table.refresher().recover(table.caller())
    assert (report.refresh_id, report.outcome) == (refresh_id, Outcome.PUBLISHED)
    check_invariants(table, published=2)


@pytest.mark.in_test_all
@pytest.mark.in_process
def test_foreign_append_during_the_commit_is_seen_and_corrected(table, at_point):
    change_source(table)

    with held_commit(table, at_point) as owner:
        owner.wait_until_prepared()
        table.sql("INSERT INTO {t} VALUES (777, 77, 'foreign')")
        error = owner.release()

    assert error is None
    check_invariants(table)


@pytest.mark.in_test_all
def test_two_callers_race_and_exactly_one_wins(table, at_point):
    change_source(table)
    met: list[MvError] = []

    def rival() -> None:
        with pytest.raises(RefreshInProgressError) as caught:
            table.refresh()
        met.append(caught.value)

    at_point("staging.before", rival)

    report = table.refresh()

    assert report.outcome is Outcome.PUBLISHED
    assert met[0].facts["epoch"] == report.epoch
    check_invariants(table, published=2)
