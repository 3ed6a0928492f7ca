"""Killed at every durable write, just before and after it, a refresh is finished or undone by whoever comes next."""

from __future__ import annotations

import pytest

from airflow_mv_provider.core.outcome import Outcome
from airflow_mv_provider.exceptions import EngineError
from tests.conftest import Crash, dying_at
from tests.scenarios.conftest import (
    FIRST,
    MODES,
    NUM_CHANGES,
    NUM_PUBLISHES,
    change_source,
    changes_since_the_first,
    check_invariants,
    check_snapshots,
    publishes,
)
from tests.scenarios.points import CASES, IN_SUCCESSION, is_published_at, points_of

pytestmark = [pytest.mark.slow, pytest.mark.victim("refresh crashed")]


@pytest.mark.sample("atomic")
@pytest.mark.parametrize("mode", MODES)
def test_refresh_that_dies_at_every_durable_write_one_after_the_other_is_published_once(table_in, mode):
    """Each owner comes one write further than the last: before the seal it begins anew, after it it goes on."""
    table = table_in(mode)
    before, num_before = table.rows("orders"), publishes(table)
    change_source(table)
    passed: set[str] = set()

    for point in IN_SUCCESSION[mode]:
        with dying_at(point, passed):
            table.refresh()
        if mode == "atomic":
            assert table.rows("orders") == (table.rows("raw/orders") if is_published_at(point) else before)
        table.clock.pass_ms(table.settings.lease_ms + 1)

    assert passed == set(IN_SUCCESSION[mode]), "a durable write at which nobody has died"
    assert table.refresh().outcome is Outcome.NOTHING_TO_DO
    check_invariants(table)
    check_snapshots(table, mode, before, table.rows("raw/orders"))
    assert publishes(table) - num_before == NUM_PUBLISHES[mode], "committed twice, or not at all"
    assert changes_since_the_first(table) == NUM_CHANGES


@pytest.mark.in_test_all
@pytest.mark.parametrize(("mode", "point"), CASES)
def test_next_refresh_mends_a_crash(table_in, crash_at, mode, point):
    table = table_in(mode)
    before, num_before = table.rows("orders"), publishes(table)
    change_source(table, point)
    crash_at(point)
    with pytest.raises(Crash):
        table.refresh()
    if mode == "atomic":
        assert table.rows("orders") == (table.rows("raw/orders") if is_published_at(point) else before)
    table.clock.pass_ms(table.settings.lease_ms + 1)

    report = table.refresh()

    assert report.outcome in {Outcome.PUBLISHED, Outcome.NOTHING_TO_DO}
    check_invariants(table)
    check_snapshots(table, mode, before, table.rows("raw/orders"))
    assert publishes(table) - num_before == NUM_PUBLISHES[mode], "committed twice, or not at all"
    assert changes_since_the_first(table) == NUM_CHANGES
    assert table.refresh().outcome is Outcome.NOTHING_TO_DO


@pytest.mark.sample("publish.after-atomic")
@pytest.mark.victim("answer lost")
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("point", ["fence.before", "fence.after", "publish.before", "publish.after"])
def test_answer_of_a_commit_is_lost(table_in, at_point, mode, point):
    """Whether it failed or was done nobody says: main's log does, and the refresh goes on."""
    table = table_in(mode)
    num_before = publishes(table)
    change_source(table, point)

    def lose() -> None:
        raise EngineError("orders", "the connection was reset.")

    at_point(point, lose)

    assert table.refresh().outcome is Outcome.PUBLISHED

    check_invariants(table)
    assert publishes(table) - num_before == NUM_PUBLISHES[mode]
    assert changes_since_the_first(table) == NUM_CHANGES
    assert table.refresh().outcome is Outcome.NOTHING_TO_DO


@pytest.mark.in_test_all
@pytest.mark.sample(1)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("point", ["seal.after", "published.after"])
def test_workspace_is_half_deleted(table_in, crash_at, mode, point):
    """A removal that was killed on its way; before the publish, somebody's tidying up."""
    table = table_in(mode)
    change_source(table)
    crash_at(point)
    with pytest.raises(Crash):
        table.refresh()
    for file in [each for each in table.workspaces() if each.endswith(".parquet")][::2]:
        (table.root / "_mv" / file).unlink()
    table.clock.pass_ms(table.settings.lease_ms + 1)

    ended = table.refresher().recover(table.caller())

    assert [report.outcome for report in ended] == [Outcome.FAILED if point == "seal.after" else Outcome.PUBLISHED]
    assert (table.phase(), table.workspaces()) == ("NORMAL", [])
    table.refresh()
    check_invariants(table)
    assert table.refresh().outcome is Outcome.NOTHING_TO_DO


@pytest.mark.in_test_all
@pytest.mark.sample(1)
@pytest.mark.parametrize("point", ["seal.after", "publish.after", "published.after"])
def test_sweep_alone_mends_a_crash_in_merging_or_later(table, crash_at, point):
    change_source(table)
    crash_at(point)
    with pytest.raises(Crash):
        table.refresh()
    table.clock.pass_ms(table.settings.lease_ms + 1)

    ended = table.refresher().recover(table.caller())

    assert [report.outcome for report in ended] == [Outcome.PUBLISHED]
    check_invariants(table, published=2)
    first, second = ended[0].attempts
    assert (first.chunks, second.chunks) == (1, 0)
    assert (second.epoch, second.phase) == (ended[0].epoch, "CLEANUP" if point == "published.after" else "MERGING")


@pytest.mark.in_test_all
@pytest.mark.sample(1)
@pytest.mark.parametrize("point", ["acquire.after", "fence.after", "staging.after"])
def test_sweep_resets_a_crash_before_the_seal(table, crash_at, point):
    before = table.rows("orders")
    change_source(table, point)
    crash_at(point)
    with pytest.raises(Crash):
        table.refresh()
    table.clock.pass_ms(table.settings.lease_ms + 1)

    ended = table.refresher().recover(table.caller())

    assert [report.outcome for report in ended] == [Outcome.ABANDONED]
    assert (table.phase(), table.rows("orders"), table.workspaces()) == ("NORMAL", before, [])
    table.refresh()
    check_invariants(table, published=2)


@pytest.mark.in_test_all
@pytest.mark.sample(1)
@pytest.mark.parametrize("point", ["register.before", "register.after", "create_main.before", "create_main.after"])
def test_crash_before_main_is_there(lake, crash_at, point):
    lake.write(FIRST)
    crash_at(point)
    with pytest.raises(Crash):
        lake.apply(partition_by=["p"])
        lake.refresh()
    lake.clock.pass_ms(lake.settings.lease_ms + 1)

    lake.apply(partition_by=["p"])
    lake.refresh()

    check_invariants(lake, published=1)


@pytest.mark.in_test_all
@pytest.mark.sample(1)
@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("seal.after", "hand_over.before"),
        ("seal.after", "hand_over.after"),
        ("seal.after", "fence.after"),
        ("staging.after", "seal.before"),
        ("publish.before", "publish.after"),
        ("publish.after", "published.before"),
        ("published.after", "staging_delete.after"),
        ("staging.after", "normal.after"),
        ("staging.after", "staging_delete.before"),
    ],
)
def test_crash_of_the_takeover_too(table, crash_at, first, second):
    change_source(table)
    for point in (first, second):
        crash_at(point)
        with pytest.raises(Crash):
            table.refresh()
        table.clock.pass_ms(table.settings.lease_ms + 1)

    table.refresh()

    table.refresher().recover(table.caller())
    check_invariants(table, published=2)


@pytest.mark.in_test_all
def test_takeover_keeps_recorded_chunks(table, crash_at):
    change_source(table)
    crash_at("seal.after")
    with pytest.raises(Crash):
        table.refresh()
    state = table.store.state(table.store.table("orders").id)
    _, recorded = table.store.chunks(state.refresh_id)
    table.clock.pass_ms(table.settings.lease_ms + 1)
    crash_at("publish.before")

    with pytest.raises(Crash):
        table.refresh()

    _, resumed = table.store.chunks(state.refresh_id)
    assert len(recorded) == 1  # with the seal
    assert resumed == recorded


@pytest.mark.in_test_all
def test_source_that_changes_after_the_seal_is_not_read(table, crash_at):
    change_source(table)
    sealed = table.rows("raw/orders")
    crash_at("seal.after")
    with pytest.raises(Crash):
        table.refresh()
    table.sql("DELETE FROM {t} WHERE id < 20", path="raw/orders")
    table.clock.pass_ms(table.settings.lease_ms + 1)

    table.refresher().recover(table.caller())

    assert table.rows("orders") == sealed


@pytest.mark.in_test_all
def test_retry_before_the_seal_reads_the_recorded_pin(table, crash_at):
    change_source(table)
    pinned = table.rows("raw/orders")
    caller = table.caller("dag:run:0")
    crash_at("staging.before")
    with pytest.raises(Crash):
        table.refresh(caller=caller)
    table.sql("DELETE FROM {t} WHERE id < 20", path="raw/orders")

    report = table.refresh(caller=caller)

    assert report.outcome is Outcome.PUBLISHED
    assert table.rows("orders") == pinned


@pytest.mark.in_test_all
def test_copied_source_may_vanish_after_the_seal(lake, crash_at):
    import shutil

    from airflow_mv_provider import Files

    folder = lake.root / "raw/csv"
    folder.mkdir(parents=True)
    (folder / "a.csv").write_text("id,v\n1,a\n2,b\n")
    lake.apply(source=Files("raw/csv/*.csv", format="csv", schema="id BIGINT, v STRING"))
    crash_at("seal.after")
    with pytest.raises(Crash):
        lake.refresh()
    shutil.rmtree(folder)
    lake.clock.pass_ms(lake.settings.lease_ms + 1)

    ended = lake.refresher().recover(lake.caller())

    assert [report.outcome for report in ended] == [Outcome.PUBLISHED]
    assert lake.rows("orders") == [(1, "a"), (2, "b")]


@pytest.mark.in_test_all
@pytest.mark.sample(1)
@pytest.mark.parametrize("point", points_of("discard", "changes", "progress"))
def test_crash_between_two_rounds(table, crash_at, at_point, point):
    change_source(table)

    def disturb() -> None:
        table.sql("INSERT INTO {t} VALUES (777, 77, 'foreign')")
        crash_at(point)

    at_point("publish.after", disturb)
    with pytest.raises(Crash):
        table.refresh()
    table.clock.pass_ms(table.settings.lease_ms + 1)

    table.refresher().recover(table.caller())

    check_invariants(table)


@pytest.mark.in_test_all
@pytest.mark.sample(1)
@pytest.mark.parametrize("point", ["adopt.before", "adopt.after"])
def test_crash_of_an_adoption(lake, crash_at, point):
    lake.write(FIRST)
    lake.write("SELECT id, CAST(0 AS INT) AS p, 'theirs' AS v FROM range(3)")
    lake.write("SELECT id, CAST(0 AS INT) AS p, 'theirs' AS v FROM range(3)", "orders")
    lake.apply(adopt=True)
    crash_at(point)
    with pytest.raises(Crash):
        lake.refresh()

    lake.refresh()

    assert lake.rows("orders") == lake.rows("raw/orders")
