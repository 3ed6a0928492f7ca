"""What the history says of intervals and of freshness, on both databases."""

from __future__ import annotations

import pytest

from airflow_mv_provider.core.outcome import Outcome
from airflow_mv_provider.core.phase import Phase
from airflow_mv_provider.core.scope.scope import Scope
from tests.metadata.rows import a_caller, a_refresh, acquired, registered, walk

pytestmark = pytest.mark.slow

FIRST, SECOND = Scope(start="2026-01-01", end="2026-01-02"), Scope(start="2026-01-02", end="2026-01-03")


def recorded(store, table, refresh_id, outcome, **changes):
    store.record(a_refresh(table, id=refresh_id * 32, **changes), a_caller(), outcome)


def test_the_ledger_is_what_the_refreshes_of_a_table_covered(store, clock):
    table, other = registered(store), registered(store, "others")
    recorded(store, table, "a", Outcome.NOTHING_TO_DO, scope=FIRST)
    clock.pass_ms(10)
    recorded(store, table, "b", Outcome.FAILED, scope=SECOND)
    clock.pass_ms(10)
    recorded(store, table, "c", Outcome.DIFFERENCES, scope=SECOND)  # read-only: it covers nothing
    recorded(store, other, "d", Outcome.NOTHING_TO_DO)

    found = store.ledger(table.id, "2026-01-01", "2026-01-04")

    assert [(e.start, str(e.state), e.refresh_id) for e in found] == [
        ("2026-01-01", "done", "a" * 32),
        ("2026-01-02", "failed", "b" * 32),
        ("2026-01-03", "missing", None),
    ]


def test_a_table_is_as_old_as_its_last_successful_look_at_everything(store, clock):
    table = registered(store)
    assert store.age_s(table.id) is None
    recorded(store, table, "a", Outcome.NOTHING_TO_DO)
    clock.pass_ms(5_000)
    recorded(store, table, "b", Outcome.FAILED)
    recorded(store, table, "c", Outcome.NOTHING_TO_DO, scope=FIRST)
    recorded(store, table, "d", Outcome.DIFFERENCES)
    clock.pass_ms(5_000)

    old = store.age_s(table.id)
    recorded(store, table, "e", Outcome.NOTHING_TO_DO, scope=Scope(without=(FIRST,)))

    assert 10 <= old < 40
    assert store.age_s(table.id) < 5


def test_a_note_and_the_guards_set_aside_are_in_the_report(store):
    table = registered(store)
    own = acquired(store, table, note="cleaned up", overrides=("allow_empty",))

    report = store.report(own.refresh_id)

    assert (report.note, report.overrides) == ("cleaned up", ("allow_empty",))
    assert store.refresh(own.refresh_id).overrides == ("allow_empty",)


def test_a_refresh_under_way_is_running_in_the_ledger_and_then_done(store):
    table = registered(store)
    own = acquired(store, table, scope=FIRST)
    during = store.ledger(table.id)
    walk(store, own, Phase.NORMAL)

    assert [str(e.state) for e in during] == ["running"]
    assert [str(e.state) for e in store.ledger(table.id)] == ["done"]
