"""What a table's refreshes have recorded, by slots of time: one query, on both databases."""

from __future__ import annotations

import pytest
from sqlalchemy import event, update

from airflow_mv_provider.core.guard import Counts
from airflow_mv_provider.core.outcome import Outcome
from airflow_mv_provider.core.phase import Phase
from airflow_mv_provider.core.scope.scope import Scope
from airflow_mv_provider.exceptions import TableNotFoundError
from airflow_mv_provider.metadata.history.slots import STEPS_MS, TimeRange
from airflow_mv_provider.metadata.models import RefreshRow
from tests.metadata.reading import num_read, repeat
from tests.metadata.rows import ERROR, P1, a_caller, a_refresh, acquired, publish, registered, walk

MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS
DAY_MS = 24 * HOUR_MS


@pytest.fixture
def table(store, clock):
    """A table without refreshes; it is one minute past midnight, so that tests know in which slot a moment lies."""
    clock.ahead_ms += DAY_MS - store.now_ms() % DAY_MS + MINUTE_MS
    return registered(store, freshness={"target": 3600})


def published(store, table, clock, took_ms: int = 0, **changes):
    own = acquired(store, table, **changes)
    walk(store, own, Phase.MERGING)
    clock.pass_ms(took_ms)
    publish(store, own)
    store.finish(own, {"CLEANUP": 0.25})


def test_what_refreshes_record_is_in_the_slot_in_which_they_end(store, clock, table):
    published(store, table, clock, took_ms=40 * MINUTE_MS)
    store.abandon(acquired(store, table), Outcome.FAILED, ERROR, {})
    clock.pass_ms(HOUR_MS)
    store.abandon(acquired(store, table), Outcome.CANCELLED, None, {})
    store.record(a_refresh(table, batch=None), a_caller(), Outcome.NOTHING_TO_DO)

    found = store.over_time("orders", TimeRange.DAY)

    assert (found.table, found.slot_ms, found.target_s, len(found.slots)) == ("orders", 30 * MINUTE_MS, 3600, 49)
    assert found.slots[-1].start_ms <= found.now_ms < found.slots[-1].start_ms + found.slot_ms
    assert [slot.recorded is not None for slot in found.slots] == [*[False] * 46, True, False, True]
    first, last = found.slots[-3].recorded, found.slots[-1].recorded
    assert (first.published, first.failed, first.stopped, first.idle) == (1, 1, 0, 0)
    assert (last.published, last.failed, last.stopped, last.idle) == (0, 0, 1, 1)
    assert (first.rows_inserted, first.rows_updated, first.rows_deleted, first.num_rows) == (32, 1, 5, 60)
    assert (last.rows_inserted, last.num_rows, last.longest_ms) == (0, None, None)
    assert first.bytes_main == 500
    seconds = dict(first.phase_seconds)
    assert seconds.pop("WAITING") == pytest.approx(40 * 60 - 3.75, abs=30)
    assert seconds == {"REFRESHING": 1.5, "MERGING": 2.0, "CLEANUP": 0.25}
    assert first.longest_ms == pytest.approx(40 * MINUTE_MS, abs=30_000)


def test_lag_is_the_age_of_main_since_a_good_refresh_of_everything_began(store, clock, table):
    published(store, table, clock, took_ms=20 * MINUTE_MS)
    clock.pass_ms(100 * MINUTE_MS)  # 2:01
    store.record(a_refresh(table, scope=Scope((P1,))), a_caller(), Outcome.NOTHING_TO_DO)
    store.abandon(acquired(store, table), Outcome.FAILED, ERROR, {})
    clock.pass_ms(HOUR_MS)  # 3:01
    store.record(a_refresh(table, batch=None), a_caller(), Outcome.NOTHING_TO_DO)

    found = store.over_time("orders", TimeRange.DAY).slots

    minutes = [slot.lag_ms and round(slot.lag_ms / MINUTE_MS) for slot in found]
    assert minutes == [*[None] * 42, 29, 59, 89, 119, 149, 179, 180]
    assert found[-1].fresh_ms > found[-2].fresh_ms


def test_lag_counts_from_the_sources_state_if_the_definition_says_so(store, clock, table):
    table = registered(store, "by_source", freshness={"target": 3600, "measured_from": "source"})
    state_ms = store.now_ms() - 2 * HOUR_MS
    published(store, table, clock, source_ms=state_ms)
    clock.pass_ms(HOUR_MS)
    store.record(a_refresh(table, batch=None, source_ms=state_ms), a_caller(), Outcome.NOTHING_TO_DO)  # no news
    clock.pass_ms(HOUR_MS)
    published(store, table, clock, source_ms=store.now_ms() - MINUTE_MS)

    found = store.over_time("by_source", TimeRange.DAY)

    hours = [None if slot.lag_ms is None else slot.lag_ms / HOUR_MS for slot in found.slots[-5:]]
    assert hours == pytest.approx([2.5, 3.0, 3.5, 4.0, 4.02], abs=0.1)
    assert found.slots[-1].fresh_ms == pytest.approx(found.now_ms - MINUTE_MS, abs=30_000)


def test_a_publish_of_rows_from_elsewhere_makes_the_lag_unknown(store, clock, table):
    published(store, table, clock)
    clock.pass_ms(HOUR_MS)
    published(store, table, clock, is_of_source=False)
    clock.pass_ms(HOUR_MS)

    found = store.over_time("orders", TimeRange.DAY).slots

    assert [slot.lag_ms and round(slot.lag_ms / MINUTE_MS) for slot in found[-5:]] == [29, 59, 60, None, None]
    assert found[-3].recorded.num_rows == 60, "main has these rows, wherever they are from"


def test_what_came_before_the_range_tells_the_lag_at_its_begin(store, clock, table):
    published(store, table, clock)
    clock.pass_ms(HOUR_MS)
    published(store, table, clock)
    clock.pass_ms(25 * HOUR_MS)

    found = store.over_time("orders", TimeRange.DAY).slots

    assert {slot.recorded for slot in found} == {None}
    assert [round(slot.lag_ms / MINUTE_MS) for slot in found] == [89 + 30 * n for n in range(48)] + [1500]


def test_a_refresh_that_began_before_the_range_and_ended_in_it_counts_there(store, clock, table):
    published(store, table, clock)
    clock.pass_ms(HOUR_MS)  # 1:01
    published(store, table, clock, took_ms=2 * HOUR_MS)  # until 3:01
    clock.pass_ms(23 * HOUR_MS)  # 2:01 of the next day

    found = store.over_time("orders", TimeRange.DAY).slots

    assert [slot.recorded and slot.recorded.published for slot in found[:4]] == [None, None, 1, None]
    assert [round(slot.lag_ms / MINUTE_MS) for slot in found[:4]] == [149, 179, 180, 179]


def test_rows_of_a_part_are_no_total_and_a_look_changes_nothing(store, clock, table):
    published(store, table, clock, scope=Scope((P1,)))
    preview = a_refresh(table, batch=None)
    store.record(preview, a_caller("look"), Outcome.RUNNING, is_read_only=True)
    store.end_preview(preview.id, Outcome.DIFFERENCES, "compared", Counts(9, 0, 9, 0, 0), ())
    acquired(store, table)  # is under way

    last = store.over_time("orders", TimeRange.DAY).slots[-1]

    assert (last.recorded.published, last.recorded.rows_inserted, last.recorded.num_rows) == (1, 32, None)
    assert last.lag_ms is None


def test_partitions_that_a_stopped_refresh_has_published_have_changed(store, clock, table):
    own = acquired(store, table)
    store.abandon(own, Outcome.CANCELLED, None, {})
    is_this = RefreshRow.id == own.refresh_id
    with store.engine.begin() as db:
        db.execute(update(RefreshRow).where(is_this).values(rows_updated=7, has_committed=False))
    before = store.over_time("orders", TimeRange.DAY).slots[-1].recorded
    with store.engine.begin() as db:
        db.execute(update(RefreshRow).where(is_this).values(has_committed=True))

    after = store.over_time("orders", TimeRange.DAY).slots[-1].recorded

    assert (before.stopped, before.rows_updated, after.rows_updated) == (1, 0, 7)


def test_the_last_total_of_a_slot_stands_for_it(store, clock, table):
    published(store, table, clock)
    own = acquired(store, table)
    walk(store, own, Phase.MERGING)
    publish(store, own, counts=Counts(61, 60, 1, 0, 0))
    store.finish(own, {})

    last = store.over_time("orders", TimeRange.DAY).slots[-1].recorded

    assert (last.published, last.num_rows, last.rows_inserted) == (2, 61, 33)


@pytest.mark.parametrize(
    ("days", "slot_ms"), [(0, STEPS_MS[0]), (2, STEPS_MS[1]), (29, DAY_MS // 2), (89, 2 * DAY_MS), (2000, 91 * DAY_MS)]
)
def test_all_that_is_recorded_fits_into_sixty_slots(store, clock, table, days, slot_ms):
    published(store, table, clock)
    clock.pass_ms(days * DAY_MS)

    found = store.over_time("orders", TimeRange.ALL)

    assert found.slot_ms == slot_ms
    assert len(found.slots) <= 61
    assert found.slots[0].recorded.published == 1


def test_a_table_that_was_never_refreshed_has_no_figure_and_one_that_is_not_there_is_an_error(store, table):
    for asked in TimeRange:
        found = store.over_time("orders", asked)
        assert {(slot.recorded, slot.lag_ms) for slot in found.slots} == {(None, None)}
    with pytest.raises(TableNotFoundError):
        store.over_time("not_there", TimeRange.ALL)


@pytest.mark.in_test_all
def test_ten_thousand_refreshes_are_one_query_and_few_rows(store, clock, table):
    published(store, table, clock)
    [only] = store.history(table.id)
    clock.pass_ms(MINUTE_MS)
    repeat(store, clock, only.refresh_id, 10_000)
    minute = (RefreshRow.number - 5_000) * 5 * MINUTE_MS
    times = {name: getattr(RefreshRow, name) + minute for name in ("started_ms", "finished_ms")}
    with store.engine.begin() as db:
        db.execute(update(RefreshRow).values(**times))
    clock.pass_ms(5_001 * 5 * MINUTE_MS)
    asked = []
    event.listen(store.engine, "before_cursor_execute", lambda *found: asked.append(found[2]))

    found = store.over_time("orders", TimeRange.ALL)

    assert len([each for each in asked if "refreshable_table" in each]) == 1
    assert len(found.slots) <= 61
    assert sum(slot.recorded.published for slot in found.slots if slot.recorded) == 10_001


def test_a_range_reads_what_is_in_it_and_not_what_came_before(store, clock, table):
    published(store, table, clock)
    [only] = store.history(table.id)

    def asked() -> None:
        store.over_time("orders", TimeRange.DAY)

    repeat(store, clock, only.refresh_id, 50)
    clock.pass_ms(10 * DAY_MS)
    published(store, table, clock)
    before = num_read(store.engine, asked)
    clock.ahead_ms -= 5 * DAY_MS
    repeat(store, clock, only.refresh_id, 400)
    clock.ahead_ms += 5 * DAY_MS

    assert num_read(store.engine, asked) <= before * 1.2
