"""All tables at once: phase, last result and freshness, without a query for each of them."""

from __future__ import annotations

import pytest
from sqlalchemy import event, update

from airflow_mv_provider.core.definition.freshness import MeasuredFrom
from airflow_mv_provider.core.guard import Counts
from airflow_mv_provider.core.health.health import HealthStatus
from airflow_mv_provider.core.outcome import Outcome
from airflow_mv_provider.core.phase import Phase
from airflow_mv_provider.core.scope.scope import asked_scope
from airflow_mv_provider.metadata.database import open_engine, transaction
from airflow_mv_provider.metadata.history.slots import TimeRange
from airflow_mv_provider.metadata.models import RefreshableTableRow, RefreshStateRow
from airflow_mv_provider.metadata.overview import Compared
from airflow_mv_provider.metadata.reader import Reader
from airflow_mv_provider.metadata.rows import iso
from airflow_mv_provider.report_text.figures import time_text
from airflow_mv_provider.report_text.status_text import status_text, statuses_text
from tests.metadata.rows import ERROR, FIRST, LEASE_MS, a_caller, a_refresh, acquired, registered, walk

HOURLY = {"freshness": {"target": 3600}}


def the_line(store):
    [line] = store.overview().lines
    return line


def test_a_table_that_was_never_refreshed_is_at_rest_and_has_no_freshness(store, table):
    line = the_line(store)

    assert (line.table, line.phase, line.is_under_way, line.is_left) == ("orders", Phase.NORMAL, False, False)
    assert (line.fresh_ms, line.last, line.is_paused, line.is_dropping) == (None, None, False, False)


def test_tables_are_listed_by_name(store):
    for name in ("b", "a.x", "c"):
        registered(store, name)

    assert [line.table for line in store.overview().lines] == ["a.x", "b", "c"]


def test_a_refresh_under_way_is_counted_by_partitions_and_is_left_when_its_lease_runs_out(store, table, clock):
    own = acquired(store, table)
    begun = the_line(store).compared
    walk(store, own, Phase.MERGING)
    store.merging.record_chunk(own, FIRST)

    line = the_line(store)
    assert (line.phase, line.refresh_id, line.is_left) == (Phase.MERGING, own.refresh_id, False)
    assert (begun, line.compared) == (None, Compared(2, 3))
    clock.pass_ms(LEASE_MS + 1)
    assert the_line(store).is_left


def test_what_people_asked_for_is_in_the_line(store, table):
    acquired(store, table)
    store.pause(table.id, "ann")
    store.request_cancel(table.id, "ann")

    line = the_line(store)

    assert (line.is_paused, line.is_cancel_requested) == (True, True)


def test_a_good_refresh_is_the_last_one_and_makes_fresh_as_of_its_start(store, table, clock):
    own = acquired(store, table)
    clock.pass_ms(5_000)
    walk(store, own, Phase.NORMAL)

    line = the_line(store)

    assert (line.last.refresh_id, line.last.outcome) == (own.refresh_id, Outcome.PUBLISHED)
    assert (line.last.rows_inserted, line.last.rows_updated, line.last.rows_deleted) == (32, 1, 5)
    assert line.fresh_ms == line.last.started_ms <= line.last.finished_ms - 5_000
    assert store.overview().now_ms >= line.last.finished_ms


def test_table_is_late_by_its_own_target_in_the_list_and_in_its_status(store, clock):
    timed, free = (registered(store, name, **more) for name, more in (("a", {"freshness": {"target": 60}}), ("b", {})))

    def late():
        lines = [line.is_late for line in store.overview().lines]
        assert lines == [store.status(each).is_late for each in (timed, free)]
        return lines

    assert late() == [True, False]
    for table in (timed, free):
        walk(store, acquired(store, table), Phase.NORMAL)
    assert late() == [False, False]
    clock.pass_ms(61_000)
    assert late() == [True, False]
    assert "late, its target is 0:01:00" in status_text(store.status(timed))
    assert "fresh " not in status_text(store.status(free))
    assert "NORMAL, late" in statuses_text([store.status(each) for each in (timed, free)]).splitlines()[1]


def test_age_of_a_table_counts_from_the_sources_state_if_its_definition_says_so(store, clock):
    by_source = {"freshness": {"target": 3600, "measured_from": "source"}}
    tables = [registered(store, name, **more) for name, more in (("check", HOURLY), ("source", by_source))]
    state_ms = store.now_ms() - 3_500_000
    for table in tables:
        walk(store, acquired(store, table, source_ms=state_ms), Phase.NORMAL)

    def seen():
        lines = {line.table: line for line in store.overview().lines}
        status = [store.status(table) for table in tables]
        assert [lines[name].is_late for name in ("check", "source")] == [each.is_late for each in status]
        assert {line.last_check.source_ms for line in lines.values()} == {state_ms}
        assert lines["source"].fresh_ms == state_ms < lines["check"].fresh_ms
        assert store.age_s(tables[1].id, MeasuredFrom.SOURCE) > 3_400 + store.age_s(tables[1].id)
        return [each.is_late for each in status]

    assert seen() == [False, False]
    clock.pass_ms(120_000)
    assert seen() == [False, True]
    for table in tables:  # it was looked at again, and its source stands still
        store.record(a_refresh(table, source_ms=state_ms), a_caller(), Outcome.NOTHING_TO_DO)
    assert seen() == [False, True]
    assert store.report(store.overview().lines[0].last.refresh_id).source_at == iso(state_ms)
    late = f"its source's state is of {time_text(iso(state_ms))}; late, its target is 1:00:00, from the source's state"
    assert late in status_text(store.status(tables[1]))
    assert f"late at {time_text(store.status(tables[0]).late_at)}; a refresh usually takes " in (
        status_text(store.status(tables[0]))
    )


@pytest.mark.parametrize("phase", [Phase.CLEANUP, Phase.NORMAL])
def test_age_of_a_table_counts_from_the_time_at_which_the_state_of_its_source_was_fixed(store, table, clock, phase):
    """A run of an ingestion fixes it for all tables, and begins their refreshes one after the other."""
    fixed_ms = store.now_ms()
    clock.pass_ms(60_000)
    own = acquired(store, table, checked_ms=fixed_ms)
    walk(store, own, phase)

    def seen():
        slots = store.over_time(table.name, TimeRange.DAY).slots
        look, _ = store.last_check(table.id)
        return look.checked_ms, the_line(store).fresh_ms, store.status(table).fresh_as_of, slots[-1].fresh_ms

    report = store.report(own.refresh_id)
    assert seen()[:3] == (fixed_ms, fixed_ms, iso(fixed_ms))
    assert report.checked_at == iso(fixed_ms) < report.started_at
    if phase is Phase.NORMAL:
        assert seen()[3] == fixed_ms
        clock.pass_ms(60_000)
        store.record(a_refresh(table, checked_ms=fixed_ms + 50_000), a_caller(), Outcome.NOTHING_TO_DO)
        assert seen() == (fixed_ms + 50_000, fixed_ms + 50_000, iso(fixed_ms + 50_000), fixed_ms + 50_000)


def test_a_source_whose_states_have_no_time_is_as_old_as_the_look_at_it(store, clock):
    table = registered(store, freshness={"target": 60, "measured_from": "source"})
    walk(store, acquired(store, table), Phase.NORMAL)
    clock.pass_ms(61_000)
    assert the_line(store).is_late

    store.record(a_refresh(table), a_caller(), Outcome.NOTHING_TO_DO)

    assert not the_line(store).is_late
    assert store.status(table).source_as_of is None


def test_a_definition_of_an_older_version_counts_from_the_check(store, table):
    older = table.definition.to_json() | {"freshness": {"target": 60}}
    with store.engine.begin() as db:
        db.execute(update(RefreshableTableRow).values(definition=older))

    walk(store, acquired(store, table, source_ms=1), Phase.NORMAL)

    assert (the_line(store).is_late, the_line(store).measured_from) == (False, MeasuredFrom.CHECK)
    assert store.over_time(table.name, TimeRange.DAY).measured_from == MeasuredFrom.CHECK


@pytest.mark.parametrize("phase", [Phase.CLEANUP, Phase.NORMAL])
def test_after_a_rollback_or_a_load_freshness_is_unknown_until_a_refresh_reads_the_source(store, table, phase):
    walk(store, acquired(store, table), Phase.NORMAL)
    walk(store, acquired(store, table, is_of_source=False), phase)

    line = the_line(store)
    assert (line.fresh_ms, line.num_rows) == (None, 60)
    assert (store.age_s(table.id), store.status(table).fresh_as_of) == (None, None)
    if phase is Phase.NORMAL:
        walk(store, own := acquired(store, table), Phase.NORMAL)
        assert the_line(store).fresh_ms == the_line(store).last.started_ms
        assert the_line(store).last.refresh_id == own.refresh_id
        assert store.age_s(table.id) is not None


def test_nothing_to_do_makes_a_table_fresh_again(store, table, clock):
    walk(store, acquired(store, table), Phase.NORMAL)
    clock.pass_ms(60_000)
    before = the_line(store).fresh_ms

    store.record(a_refresh(table), a_caller(), Outcome.NOTHING_TO_DO)

    assert the_line(store).fresh_ms >= before + 60_000


def test_a_failure_and_a_refresh_of_some_partitions_leave_freshness_as_it_was(store, table, clock):
    walk(store, acquired(store, table), Phase.NORMAL)
    before = the_line(store).fresh_ms

    clock.pass_ms(1_000)
    walk(store, acquired(store, table, scope=asked_scope(["1"], None, None)), Phase.NORMAL)
    clock.pass_ms(1_000)
    store.abandon(acquired(store, table), Outcome.FAILED, ERROR, {})
    assert (the_line(store).last.outcome, the_line(store).last.error_code) == (Outcome.FAILED, ERROR.code)
    clock.pass_ms(1_000)
    preview = a_refresh(table)
    store.record(preview, a_caller(), Outcome.RUNNING)
    store.end_preview(preview.id, Outcome.DIFFERENCES, "asked for", Counts(), ())

    line = the_line(store)
    assert (line.last.outcome, line.fresh_ms) == (Outcome.FAILED, before), "a look hides no failure"


def test_a_cancelled_refresh_hides_no_failure_before_it(store, table):
    walk(store, acquired(store, table), Phase.NORMAL)
    cancelled_only = _cancelled(store, table).health.status
    store.abandon(acquired(store, table), Outcome.REFUSED, ERROR, {})
    line = _cancelled(store, table)
    walk(store, acquired(store, table), Phase.NORMAL)

    assert cancelled_only is HealthStatus.RUNNING
    assert (line.last.outcome, line.health.status, line.health.problem) == (
        Outcome.CANCELLED,
        HealthStatus.STALLED,
        ERROR,
    )
    assert the_line(store).health.status is HealthStatus.RUNNING


def _cancelled(store, table):
    store.abandon(acquired(store, table), Outcome.CANCELLED, ERROR, {})
    return the_line(store)


def test_any_number_of_tables_takes_one_query(store):
    for number in range(20):
        walk(store, acquired(store, registered(store, f"t{number:02}")), Phase.MERGING)
    statements = []
    event.listen(store.engine, "before_cursor_execute", lambda *call: statements.append(call[2]))

    lines = store.overview().lines

    assert len([s for s in statements if s.startswith("SELECT")]) == 1
    assert [line.compared for line in lines] == [Compared(0, 3)] * 20


def test_a_reader_waits_for_no_writer(store, table, address):
    reading = open_engine(address, reads_only=True)

    with transaction(store.engine) as db:
        db.execute(update(RefreshStateRow).values(epoch=7))
        line = Reader(reading).overview().lines[0]  # on SQLite a writer's lock would hold this up for half a minute

    assert (line.table, store.state(table.id).epoch) == ("orders", 7)
    reading.dispose()
