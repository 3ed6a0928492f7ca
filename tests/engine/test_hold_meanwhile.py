"""What else happens to a table while its refresh is held: other commands, other writers, another database."""

from __future__ import annotations

import sqlite3

import pytest

from airflow_mv_provider.core.approval.hold import Decision
from airflow_mv_provider.core.outcome import Outcome
from airflow_mv_provider.core.state import Cancelled
from airflow_mv_provider.exceptions import RefreshHeldError, RefreshInProgressError, RefreshPausedError
from tests.engine.holding import GUARDED, decide, held, lose_rows

pytestmark = pytest.mark.slow


@pytest.fixture
def table(prepared):
    """As in `test_hold`, and held."""

    def build(lake):
        lose_rows(lake)
        held(lake)

    lake = prepared("held", build)
    lake.before, lake.wanted = lake.rows(), lake.rows("raw/orders")
    return lake


def approve_until_published(lake):
    """Approve what is held, and what is held then: another writer may have made it necessary."""
    for _ in range(3):
        try:
            return decide(lake, Decision.APPROVED)
        except RefreshHeldError:
            continue
    raise AssertionError("it is held for ever")


def assert_at_rest(lake, rows):
    assert lake.rows() == rows
    assert (lake.phase(), lake.workspaces()) == ("NORMAL", [])


@pytest.mark.in_test_all
def test_files_are_compacted(table):
    table.sql("OPTIMIZE {t}")

    assert approve_until_published(table).outcome is Outcome.PUBLISHED
    assert_at_rest(table, table.wanted)


@pytest.mark.in_test_all
def test_the_table_is_paused(table):
    table.store.pause(1, "somebody")

    assert decide(table, Decision.APPROVED).outcome is Outcome.PUBLISHED
    assert_at_rest(table, table.wanted)


@pytest.mark.in_test_all
def test_it_is_cancelled(table):
    assert table.store.cancel(table.store.table("orders"), table.caller(user="ann")) is Cancelled.LEFT

    [report] = table.refresher().recover(table.caller())

    assert report.outcome is Outcome.CANCELLED
    assert_at_rest(table, table.before)


@pytest.mark.in_test_all
def test_it_is_not_abandoned_or_dropped_without_a_decision(table):
    for act in (lambda: table.refresher().abandon("orders", table.caller()), lambda: drop(table)):
        with pytest.raises(RefreshHeldError):
            act()
    assert table.rows() == table.before
    assert decide(table, Decision.REJECTED).outcome is Outcome.CANCELLED
    drop(table)
    assert table.rows() == table.before, "main stays"


def drop(lake):
    return lake.refresher().drop("orders", lake.caller())


@pytest.mark.in_test_all
def test_its_owner_is_declared_dead(table):
    table.refresher().declare_dead("orders", table.caller("a person"), "it hangs")
    table.refresher().recover(table.caller("a person"))
    assert table.store.state(1).is_held, "that decides nothing"

    assert decide(table, Decision.APPROVED).outcome is Outcome.PUBLISHED
    assert_at_rest(table, table.wanted)


@pytest.mark.in_test_all
@pytest.mark.sample(1)
@pytest.mark.parametrize("decision", list(Decision))
@pytest.mark.parametrize("first", [Decision.APPROVED, Decision.WITHOUT_DELETES])
def test_the_database_is_restored_from_before_the_decision(table, tmp_path, first, decision):
    copied = tmp_path / "copy.db"
    address = table.store.engine.url.database
    with sqlite3.connect(address) as source, sqlite3.connect(copied) as copy:
        source.backup(copy)
    decide(table, first)
    decided = table.rows()
    table.store.engine.dispose()
    with sqlite3.connect(copied) as copy, sqlite3.connect(address) as target:
        copy.backup(target)
    assert table.store.state(1).is_held

    report = decide(table, decision)

    assert report.outcome is Outcome.PUBLISHED, "main has it, whatever is decided now"
    assert_at_rest(table, decided)
    assert report.rows_kept == (4 if first is Decision.WITHOUT_DELETES else 0)
    assert (report.rows_deleted, report.rows_updated) == (4 - report.rows_kept, 1)


@pytest.mark.in_test_all
@pytest.mark.parametrize(
    "changes",
    [
        {"errors": {}},
        {"on_conflict": "ignore"},
        {"partition_by": ["p"], "chunk_rows": 2},
    ],
    ids=["errors", "ignore", "chunks"],
)
def test_every_kind_of_table_is_held_and_approved(lake, changes):
    lake.write("SELECT id, id % 2 AS p, 'a' AS v FROM range(10)")
    lake.apply(**GUARDED, **changes)
    lake.refresh()
    lake.sql("DELETE FROM {t} WHERE id < 4", path="raw/orders")
    before, wanted = lake.rows(), lake.rows("raw/orders")
    held(lake)
    assert lake.rows() == before
    assert lake.refresher().difference("orders").rows_deleted == 4

    decide(lake, Decision.APPROVED)

    assert_at_rest(lake, wanted)


@pytest.mark.in_test_all
@pytest.mark.parametrize("request_", [{"partitions": [["1"]]}, {"strategy": "incremental"}], ids=["part", "feed"])
def test_every_kind_of_refresh_is_held_and_approved(lake, request_):
    lake.write("SELECT id, id % 2 AS p, 'a' AS v FROM range(10)")
    lake.sql("ALTER TABLE {t} SET TBLPROPERTIES (delta.enableChangeDataFeed = true)", path="raw/orders")
    lake.apply(partition_by=["p"])
    lake.refresh()
    lake.sql("UPDATE {t} SET v = 'b'", path="raw/orders")
    expected = [row for row in lake.rows() if row[1] == 0] if "partitions" in request_ else []
    wanted = sorted(expected + [row for row in lake.rows("raw/orders") if row[1] == 1 or not expected])
    held(lake, hold=True, **request_)

    found = lake.refresher().difference("orders")
    assert {(row.before["v"], row.after["v"]) for row in found.rows} == {("a", "b")}
    decide(lake, Decision.APPROVED)

    assert sorted(lake.rows()) == wanted


@pytest.mark.in_test_all
def test_a_newer_refresh_supersedes_it_once_the_source_has_changed(table):
    table.apply(**GUARDED, when_held="supersede")
    waiting = table.store.state(1).refresh_id
    with pytest.raises(RefreshInProgressError):
        table.refresh()
    assert table.store.state(1).refresh_id == waiting, "the source is the same: it would be held for the same rows"
    table.sql("INSERT INTO {t} SELECT id, id % 2, 'a' FROM range(4)", path="raw/orders")

    report = table.refresh(caller=table.caller(user="bob"))

    assert (report.outcome, report.rows_updated, report.recovered) == (Outcome.PUBLISHED, 1, (waiting,))
    assert_at_rest(table, table.rows("raw/orders"))
    old = table.store.report(waiting)
    assert (old.outcome, old.hold.decision, old.hold.decided_by) == (Outcome.CANCELLED, "superseded", "bob")
    assert "superseded by a newer refresh of bob" in old.error.message


@pytest.mark.in_test_all
@pytest.mark.parametrize("is_paused", [True, False])
def test_nothing_is_superseded_by_its_own_caller_or_in_a_paused_table(lake, is_paused):
    lake.write("SELECT id, 'a' AS v FROM range(10)")
    lake.apply(approval="always", when_held="supersede")
    caller = lake.caller("the task")
    first = held(lake, caller=caller).facts["hold"]
    lake.write("SELECT id, 'a' AS v FROM range(11)")
    if is_paused:
        lake.store.pause(1, "somebody")

    with pytest.raises(RefreshPausedError if is_paused else RefreshInProgressError):
        lake.refresh(caller=lake.caller() if is_paused else caller)

    assert lake.store.state(1).is_held
    assert decide(lake, Decision.APPROVED, hold_id=first).rows_inserted == 10


@pytest.mark.in_test_all
@pytest.mark.sample(1)
@pytest.mark.parametrize("point", ["decide.before", "decide.after", "hand_over.after", "normal.before", "normal.after"])
def test_killed_while_it_is_superseded(table, at_point, point):
    table.apply(**GUARDED, when_held="supersede")
    table.sql("INSERT INTO {t} SELECT id, id % 2, 'a' FROM range(4)", path="raw/orders")

    def die() -> None:
        raise KeyboardInterrupt

    at_point(point, die)
    with pytest.raises(KeyboardInterrupt):
        table.refresh()
    assert table.rows() == table.before
    table.clock.pass_ms(table.settings.lease_ms + 1)

    table.refresh()
    table.refresher().recover(table.caller())
    assert_at_rest(table, table.rows("raw/orders"))
