"""Degraded surroundings: a disk that is full, a table that cannot be looked after; `recover` mends, and says what."""

from __future__ import annotations

import os
import uuid
from typing import Any

import pytest
from pyspark.errors.exceptions.connect import SparkConnectException

from airflow_mv_provider.core.outcome import Outcome
from airflow_mv_provider.exceptions import EngineError, InterruptedRefreshError, MainUnsupportedError, TransientError
from airflow_mv_provider.runner import crash_points
from tests.conftest import Crash
from tests.full_disk import full_disk
from tests.scenarios.conftest import MODES, NUM_CHANGES, change_source, changes_since_the_first, check_invariants
from tests.scenarios.points import POINTS

pytestmark = pytest.mark.slow

DISK_WRITES = [
    pytest.param(mode, point, id=f"{mode}-{point}")
    for mode in MODES
    for point in POINTS[mode]
    if point.endswith(".before") and not point.startswith("staging_delete")
]


@pytest.mark.sample("atomic-publish.before")
@pytest.mark.in_process
@pytest.mark.victim("disk full")
@pytest.mark.parametrize(("mode", "point"), DISK_WRITES)
def test_disk_that_is_full_from_a_write_on_leaves_a_table_that_goes_on(table_in, at_point, mode, point):
    table = table_in(mode)
    before = table.rows()
    change_source(table, point)
    jvm = table.spark._jvm.java.lang.ProcessHandle.current().pid()
    full = full_disk(jvm, os.getpid())
    at_point(point, full.__enter__)

    try:
        with pytest.raises(TransientError):
            table.refresh()
    finally:
        crash_points.arm(None)
        full.__exit__(None, None, None)

    if mode == "atomic":
        assert table.rows() in (before, table.rows("raw/orders"))
    mend(table, mode)


@pytest.mark.in_test_all
@pytest.mark.in_process
def test_fence_that_the_disk_has_no_room_for_is_told_as_that(table, at_point):
    """The database has room: it is on another disk."""
    change_source(table, "fence")
    full = full_disk(table.spark._jvm.java.lang.ProcessHandle.current().pid())
    at_point("fence.before", full.__enter__)

    try:
        with pytest.raises(EngineError):
            table.refresh()
    finally:
        crash_points.arm(None)
        full.__exit__(None, None, None)

    mend(table, "atomic")


@pytest.mark.in_test_all
def test_recover_says_what_it_did_and_what_it_left(table, crash_at):
    change_source(table)
    crash_at("staging.after")
    with pytest.raises(Crash):
        table.refresh()
    died_on = table.store.state(table.store.table("orders").id).owner_process
    told: list[str] = []

    table.refresher().recover(table.caller(), told.append)
    table.clock.pass_ms(table.settings.lease_ms + 1)
    crash_at("staging_delete.before")
    with pytest.raises(Crash):
        table.refresher().recover(table.caller(), told.append)
    table.refresher().recover(table.caller(), told.append)

    (died, _) = table.store.history(table.store.table("orders").id)
    assert told == [
        f"orders: {died_on} may be at work in REFRESHING: its lease has not expired.",
        f"orders: removed the files of refresh {died.refresh_id}.",
    ]
    assert (died.outcome, table.phase(), table.workspaces()) == (Outcome.ABANDONED, "NORMAL", [])


@pytest.mark.in_test_all
def test_table_that_cannot_be_looked_after_keeps_no_other_from_being_mended(table, crash_at):
    table.apply(name="another")
    table.refresh("another")
    unknown = table.root / "_mv" / table.store.table("another").uuid / uuid.uuid4().hex / "staging-1" / "a.parquet"
    unknown.parent.mkdir(parents=True)
    unknown.write_text("old")
    os.utime(unknown, (0, 0))
    newest = max((table.root / "another/_delta_log").glob("*.json"))
    newest.write_text("main's log has to be asked, and cannot be read")
    newest.with_name(f".{newest.name}.crc").unlink(missing_ok=True)
    change_source(table)
    crash_at("seal.after")
    with pytest.raises(Crash):
        table.refresh("orders")
    table.clock.pass_ms(table.settings.lease_ms + 1)
    told: list[str] = []

    with pytest.raises(MainUnsupportedError) as caught:
        table.refresher().recover(table.caller(), told.append)

    assert caught.value.where == str(table.root / "another")
    assert f"its Delta log is damaged: {newest} " in caught.value.problem
    assert any(line.startswith("another: not recovered. [MV-MAIN-UNSUPPORTED]") for line in told)
    assert any(line.startswith("orders: refresh ") and line.endswith("was ended: published.") for line in told)
    assert table.phase("orders") == "NORMAL"
    assert table.rows() == table.rows("raw/orders")


@pytest.mark.in_test_all
def test_job_that_somebody_cancels_in_spark_keeps_no_other_table_from_being_mended(table, crash_at, at_point):
    """It is no word to this process to stop."""
    lake = table
    lake.apply(name="another", partition_by=["p"])
    change_source(lake)
    for name in ("another", "orders"):
        crash_at("seal.after")
        with pytest.raises(Crash):
            lake.refresh(name)
    lake.clock.pass_ms(lake.settings.lease_ms + 1)
    told: list[str] = []

    def cancel() -> None:
        raise InterruptedRefreshError("another", "its Spark job was cancelled: [SPARK_JOB_CANCELLED].")

    at_point("seal.before", cancel)
    lake.refresher().recover(lake.caller(), told.append)

    assert any(line.startswith("orders: refresh ") and line.endswith("was ended: published.") for line in told)
    assert lake.rows() == lake.rows("raw/orders")
    lake.clock.pass_ms(lake.settings.lease_ms + 1)
    lake.refresh("another")
    assert lake.rows("another") == lake.rows("raw/orders")


def mend(lake: Any, mode: str) -> None:
    lake.clock.pass_ms(lake.settings.lease_ms + 1)
    lake.refresher().recover(lake.caller())
    assert lake.phase() == "NORMAL"
    lake.refresh()
    check_invariants(lake)
    assert changes_since_the_first(lake) == NUM_CHANGES
    assert lake.refresh().outcome is Outcome.NOTHING_TO_DO


@pytest.mark.in_test_all
@pytest.mark.sample(1)
@pytest.mark.parametrize("point", ["acquire.before", "fence.after", "seal.before", "published.before"])
def test_engine_that_is_gone_between_two_calls_is_an_error_that_a_retry_may_mend(table_in, at_point, point):
    """A Connect client whose server died has no session, and may notice so where nobody expects Spark to fail."""
    table = table_in("atomic")
    change_source(table, point)

    def lose() -> None:
        raise SparkConnectException("[NO_ACTIVE_SESSION] No active Spark session found.")

    at_point(point, lose)
    with pytest.raises(EngineError, match="NO_ACTIVE_SESSION"):
        table.refresh()
    table.clock.pass_ms(table.settings.lease_ms + 1)

    table.refresh()

    check_invariants(table)
    assert changes_since_the_first(table) == NUM_CHANGES
