"""What a person reads of the past: newest first, previews told from refreshes, and nothing begun is called ended."""

from __future__ import annotations

from airflow_mv_provider.core.guard import Counts
from airflow_mv_provider.core.outcome import Outcome, PartitionReport, RefreshReport
from airflow_mv_provider.core.phase import Phase
from airflow_mv_provider.core.progress.recorded import PartitionCounts
from airflow_mv_provider.core.strategy import Choice
from airflow_mv_provider.sources.delta.frontier import DeltaFrontier
from tests.metadata.rows import (
    ERROR,
    LEASE_MS,
    P1,
    P2,
    a_caller,
    a_refresh,
    acquired,
    dump,
    handed_over,
    registered,
    walk,
)

DAY_MS = 86_400_000


def test_history_is_newest_first_and_the_tables_own(store, table, clock):
    other = registered(store, "other")
    walk(store, acquired(store, other), Phase.NORMAL)
    ids = []
    for outcome in (Outcome.FAILED, Outcome.CANCELLED, Outcome.ABANDONED):
        clock.pass_ms(1000)
        own = acquired(store, table)
        store.abandon(own, outcome, ERROR, {})
        ids.append(own.refresh_id)

    history = store.history(table.id)

    assert [r.refresh_id for r in history] == ids[::-1]
    assert [r.outcome for r in history] == [Outcome.ABANDONED, Outcome.CANCELLED, Outcome.FAILED]
    assert {r.table for r in history} == {"orders"}
    assert [r.refresh_id for r in store.history(table.id, limit=2)] == ids[:0:-1]


def test_history_goes_by_what_began_later_though_the_clock_was_set_back(store, table, clock):
    early = acquired(store, table)
    walk(store, early, Phase.NORMAL)
    clock.pass_ms(-DAY_MS)
    failed = acquired(store, table)
    store.abandon(failed, Outcome.FAILED, ERROR, {})
    idle = a_refresh(table, batch=None)
    store.record(idle, a_caller(), Outcome.NOTHING_TO_DO, main_version=6)

    ids = [idle.id, failed.refresh_id, early.refresh_id]
    assert [report.refresh_id for report in store.history(table.id)] == ids
    assert [report.refresh_id for report in store.costs(table.id)] == ids[1:]
    assert store.worked_on("one") == idle.id
    assert store.overview().lines[0].last.refresh_id == idle.id == store.status(table).last.refresh_id
    clock.pass_ms(90_000)
    assert 90 <= store.age_s(table.id) < 150, "since the last look, and none is to come"
    assert [entry.refresh_id for entry in store.ledger(table.id)] == [idle.id]


def test_what_failed_last_is_what_began_last_though_the_clock_was_set_back(store, table, clock):
    walk(store, acquired(store, table), Phase.NORMAL)
    clock.pass_ms(-DAY_MS)
    store.abandon(acquired(store, table), Outcome.FAILED, ERROR, {})

    assert store.last_error_code(table.id) == ERROR.code


def test_takeover_under_a_later_epoch_is_the_newer_one_though_the_clock_was_set_back(store, table, clock):
    for _ in range(2):
        own = acquired(store, table)
        clock.pass_ms(LEASE_MS + 1)
        newer = handed_over(store, own, "two")
        store.abandon(newer, Outcome.ABANDONED, ERROR, {})
        clock.pass_ms(-DAY_MS)

    assert store.worked_on("two") == newer.refresh_id


def test_retention_keeps_what_ended_last_though_the_clock_was_set_back(store, table, clock):
    published = acquired(store, table)
    walk(store, published, Phase.NORMAL)
    clock.pass_ms(-DAY_MS)
    failed = acquired(store, table)
    store.abandon(failed, Outcome.FAILED, ERROR, {})
    clock.pass_ms(3 * DAY_MS)

    store.forget_history(table.id, older_than_ms=DAY_MS)

    assert [each.refresh_id for each in store.history(table.id)] == [failed.refresh_id, published.refresh_id]


def test_refreshes_before_another_and_of_some_outcomes_are_found(store, table):
    ids = [record_nothing(store, table) for _ in range(3)]
    store.abandon(failed := acquired(store, table), Outcome.FAILED, ERROR, {})
    elsewhere = registered(store, "elsewhere")
    other = record_nothing(store, elsewhere)

    def found(**asked):
        return [each.refresh_id for each in store.history(table.id, **asked)]

    assert found() == [failed.refresh_id, *reversed(ids)]
    assert found(before=failed.refresh_id, limit=2) == [ids[2], ids[1]]
    assert found(before=ids[0]) == found(before="unknown") == found(before=other) == []
    assert found(outcomes={Outcome.FAILED, Outcome.REFUSED}) == [failed.refresh_id]
    assert found(outcomes={Outcome.NOTHING_TO_DO}, before=ids[2]) == [ids[1], ids[0]]


def record_nothing(store, table) -> str:
    refresh = a_refresh(table, batch=None, choice=Choice("skip", "unchanged"))
    store.record(refresh, a_caller(), Outcome.NOTHING_TO_DO)
    return refresh.id


def test_nothing_to_do_leaves_a_row_and_no_lease(store, table):
    refresh = a_refresh(table, batch=None, frontier=DeltaFrontier("source", 7), choice=Choice("skip", "unchanged"))
    before = dump(store.engine)

    store.record(refresh, a_caller(user="ann"), Outcome.NOTHING_TO_DO, main_version=6)

    after = dump(store.engine)
    assert {**after, "refresh": [], "refresh_definition": []} == before
    report = store.report(refresh.id)
    assert report == RefreshReport(
        table="orders",
        refresh_id=refresh.id,
        outcome=Outcome.NOTHING_TO_DO,
        strategy="skip",
        reason="unchanged",
        trigger="command line",
        user="ann",
        source="Delta version 7",
        main_version=6,
        checked_at=report.started_at,
        started_at=report.started_at,
        finished_at=report.finished_at,
    )
    assert store.refresh(refresh.id).is_ended


def test_preview_is_open_until_it_has_found_something(store, table):
    refresh = a_refresh(table, batch=None)
    store.record(refresh, a_caller(), Outcome.RUNNING, is_read_only=True)
    assert store.report(refresh.id).outcome is Outcome.RUNNING
    found = (PartitionCounts(P1, Counts(5, 4, 2, 1, 1)), PartitionCounts(P2, Counts(3, 3, 0, 0, 0)))

    store.end_preview(refresh.id, Outcome.DIFFERENCES, "read-only", Counts(8, 7, 2, 1, 1), found)

    report = store.report(refresh.id)
    assert (report.outcome, report.reason, report.error) == (Outcome.DIFFERENCES, "read-only", None)
    assert (report.rows_inserted, report.rows_updated, report.rows_deleted, report.rows_unchanged) == (2, 1, 1, 5)
    assert report.partitions == (PartitionReport(P1, 2, 1, 1, 2), PartitionReport(P2, 0, 0, 0, 3))


def test_preview_lives_as_long_as_it_renews_and_is_ended_soon_after_it_died(store, table, clock):
    own = store.begin_preview(a_refresh(table, batch=None), a_caller(), lease_ms=LEASE_MS)
    for _ in range(200):
        clock.pass_ms(LEASE_MS - 1000)
        assert store.renew_preview(own, lease_ms=LEASE_MS).is_owner
    store.end_stale_previews(table.id)
    assert not store.refresh(own.refresh_id).is_ended

    clock.pass_ms(LEASE_MS + 1)
    store.end_stale_previews(table.id)

    assert store.report(own.refresh_id).outcome is Outcome.ABANDONED
    assert not store.renew_preview(own, lease_ms=LEASE_MS).is_owner
    store.end_preview(own.refresh_id, Outcome.DIFFERENCES, "read-only", Counts(), ())
    assert store.report(own.refresh_id).outcome is Outcome.ABANDONED, "what it compared was removed under it"


def test_preview_whose_lease_is_from_the_future_is_dead(store, table, clock):
    own = store.begin_preview(a_refresh(table, batch=None), a_caller(), lease_ms=LEASE_MS)

    clock.pass_ms(-86_400_000)
    store.end_stale_previews(table.id)

    assert store.refresh(own.refresh_id).is_ended


def test_preview_that_failed_says_why(store, table):
    refresh = a_refresh(table, batch=None)
    store.record(refresh, a_caller(), Outcome.RUNNING, is_read_only=True)

    store.end_preview(refresh.id, Outcome.FAILED, "read-only", Counts(), (), ERROR)

    report = store.report(refresh.id)
    assert (report.outcome, report.error, report.partitions) == (Outcome.FAILED, ERROR, ())


def test_preview_does_not_disturb_a_refresh_under_way(store, table):
    own = acquired(store, table)
    walk(store, own, Phase.MERGING)
    before = dump(store.engine)
    refresh = a_refresh(table, batch=None)

    store.record(refresh, a_caller("two"), Outcome.RUNNING, is_read_only=True)
    store.end_preview(refresh.id, Outcome.DIFFERENCES, "read-only", Counts(), ())

    after = dump(store.engine)
    assert [row for row in after["refresh"] if row[0] != refresh.id] == before["refresh"]
    assert {**after, "refresh": []} == {**before, "refresh": []}


def test_preview_that_still_runs_has_no_end(store, table):
    refresh = a_refresh(table, batch=None)

    store.record(refresh, a_caller(), Outcome.RUNNING, is_read_only=True)

    assert store.report(refresh.id).finished_at is None


def test_status_shows_the_last_ended_one_however_many_run_beside_it(store, table, clock):
    own = acquired(store, table)
    walk(store, own, Phase.NORMAL)
    for _ in range(3):
        clock.pass_ms(1000)
        store.record(a_refresh(table, batch=None), a_caller(), Outcome.RUNNING, is_read_only=True)
    acquired(store, table)

    assert store.status(table).last == store.report(own.refresh_id)


def test_unknown_refresh_is_none(store, table):
    assert store.refresh("f" * 32) is None
    assert store.chunks("f" * 32) == ((), ())
    assert store.merging_attempts("f" * 32) == 0
