"""A refresh that waits for a decision: published exactly as it was shown, or not at all."""

from __future__ import annotations

from contextlib import suppress

import pytest
from pydantic import ValidationError

from airflow_mv_provider.core.approval.hold import Decision
from airflow_mv_provider.core.outcome import Outcome
from airflow_mv_provider.exceptions import (
    ArgumentError,
    GuardRefusedError,
    HoldExpiredError,
    NotHeldError,
    RefreshHeldError,
    RefreshInProgressError,
)
from airflow_mv_provider.report_text.difference_text import difference_text
from airflow_mv_provider.report_text.refresh_text import refresh_text
from airflow_mv_provider.report_text.status_text import status_text
from tests.engine.holding import GUARDED, decide, held, lose_rows

pytestmark = pytest.mark.slow


@pytest.fixture
def table(prepared):
    """Main has ten rows; the source has lost four of them and changed one."""
    lake = prepared("lost-rows", lose_rows)
    lake.before, lake.wanted = lake.rows(), lake.rows("raw/orders")
    return lake


def test_an_approved_refresh_publishes_what_was_shown_and_not_what_came_since(table):
    error = held(table)
    table.sql("DELETE FROM {t}", path="raw/orders")
    assert "max_deleted_fraction" in error.problem
    assert table.rows() == table.before

    report = decide(table, Decision.APPROVED, hold_id=error.facts["hold"])

    assert (report.outcome, report.rows_deleted, report.rows_updated) == (Outcome.PUBLISHED, 4, 1)
    assert table.rows() == table.wanted
    assert (table.phase(), table.workspaces()) == ("NORMAL", [])


@pytest.mark.in_test_all
def test_a_rejected_refresh_changes_nothing_and_the_next_one_is_judged_anew(table):
    held(table)

    report = decide(table, Decision.REJECTED)

    assert (report.outcome, report.error.code) == (Outcome.CANCELLED, "MV-CANCELLED")
    assert "rejected by ann: I have looked" in report.error.message
    assert table.rows() == table.before
    assert (table.phase(), table.workspaces()) == ("NORMAL", [])
    held(table)


def test_nobody_else_refreshes_meanwhile_and_waiting_takes_no_epoch(table):
    caller = table.caller("the task")
    held(table, caller=caller)
    epoch = table.store.state(1).epoch

    for again in (caller, table.caller()):
        with pytest.raises(RefreshInProgressError) as caught:
            table.refresh(caller=again)
        assert caught.value.code == "MV-HELD"
        assert "amv approve" in caught.value.advice

    assert table.refresher().recover(table.caller()) == ()
    assert (table.store.state(1).epoch, table.phase()) == (epoch, "MERGING")


def test_nobody_decides_in_time(table):
    held(table)
    table.clock.pass_ms(24 * 3600 * 1000 + 1)

    [report] = table.refresher().recover(table.caller())

    assert (report.outcome, report.error.code) == (Outcome.ABANDONED, HoldExpiredError.code)
    assert table.rows() == table.before
    assert (table.phase(), table.workspaces()) == ("NORMAL", [])


@pytest.mark.in_test_all
def test_another_writer_s_change_is_shown_before_it_is_overwritten(table):
    first = held(table)
    table.sql("INSERT INTO {t} VALUES (100, 0, 'foreign')")

    with pytest.raises(RefreshHeldError) as caught:
        decide(table, Decision.APPROVED)

    assert "another writer has changed the table since it was approved" in caught.value.problem
    assert caught.value.facts["hold"] != first.facts["hold"]
    with pytest.raises(NotHeldError, match="another difference"):
        decide(table, Decision.APPROVED, hold_id=first.facts["hold"])
    report = decide(table, Decision.APPROVED)
    assert (report.outcome, report.rows_deleted) == (Outcome.PUBLISHED, 5)
    assert table.rows() == table.wanted


@pytest.mark.in_test_all
@pytest.mark.sample(1)
@pytest.mark.parametrize("strategy", ["corrections", "replace"])
def test_a_request_holds_whatever_the_guards_say(lake, strategy):
    lake.write("SELECT id, 'a' AS v FROM range(10)")
    lake.apply()
    lake.refresh()
    lake.sql("INSERT INTO {t} VALUES (10, 'new')", path="raw/orders")

    error = held(lake, hold=True, strategy=strategy)

    assert "its caller asked for a decision" in error.problem
    assert len(lake.rows()) == 10
    assert decide(lake, Decision.APPROVED).outcome is Outcome.PUBLISHED
    assert lake.rows() == lake.rows("raw/orders")


@pytest.mark.in_test_all
def test_every_change_of_a_table_is_held_its_first_load_too_and_nothing_else(lake):
    lake.write("SELECT id, 'a' AS v FROM range(10)")
    lake.apply(approval="always")

    held(lake)
    assert decide(lake, Decision.APPROVED).outcome is Outcome.PUBLISHED
    assert lake.rows() == lake.rows("raw/orders")
    assert lake.refresh(force=True).outcome is Outcome.PUBLISHED, "nothing differs, so there is nothing to decide"


@pytest.mark.in_test_all
def test_new_columns_are_held(lake):
    lake.write("SELECT id, 'a' AS v FROM range(10)")
    lake.apply(approval="schema", schema_policy="add")
    lake.refresh()
    lake.sql("INSERT INTO {t} VALUES (10, 'more')", path="raw/orders")
    assert lake.refresh().outcome is Outcome.PUBLISHED, "rows alone need no decision"
    lake.write("SELECT id, 'a' AS v, CAST(NULL AS INT) AS w FROM range(11)")

    assert "changes the table's columns" in held(lake).problem

    decide(lake, Decision.APPROVED)
    assert lake.rows() == lake.rows("raw/orders")


@pytest.mark.in_test_all
def test_without_approval_a_guard_refuses_as_ever(table):
    table.apply(guards=GUARDED["guards"])

    with pytest.raises(GuardRefusedError):
        table.refresh()


@pytest.mark.in_test_all
def test_an_override_needs_no_decision(table):
    assert table.refresh(overrides=["max_deleted_fraction"]).outcome is Outcome.PUBLISHED


@pytest.mark.in_test_all
def test_a_progressive_table_cannot_be_held(lake):
    lake.write("SELECT id, id % 2 AS p, 'a' AS v FROM range(10)")
    lake.apply(publish="progressive", partition_by=["p"])

    with pytest.raises(ArgumentError, match="progressive"):
        lake.refresh(hold=True)
    with pytest.raises(ValidationError, match="atomic"):
        lake.apply(publish="progressive", partition_by=["p"], approval="always")


@pytest.mark.in_test_all
@pytest.mark.parametrize("point", ["hold.before", "hold.after", "decide.before", "decide.after"])
def test_killed_around_a_hold_it_is_decided_all_the_same(table, at_point, point):
    def die() -> None:
        raise KeyboardInterrupt

    at_point(point, die)
    with pytest.raises(KeyboardInterrupt):
        with suppress(RefreshHeldError):
            table.refresh()
        decide(table, Decision.APPROVED)
    assert table.rows() == table.before
    table.clock.pass_ms(table.settings.lease_ms + 1)

    if point == "hold.before":
        held(table)
    if point != "decide.after":
        decide(table, Decision.APPROVED)
    else:
        table.refresher().recover(table.caller())

    assert table.rows() == table.wanted
    assert (table.phase(), table.workspaces()) == ("NORMAL", [])


@pytest.mark.in_test_all
@pytest.mark.parametrize(
    "point", ["hand_over.after", "fence.after", "publish.before", "publish.after", "published.after"]
)
def test_an_approved_refresh_killed_anywhere_is_published_as_approved(table, at_point, point):
    held(table)
    table.sql("DELETE FROM {t}", path="raw/orders")

    def die() -> None:
        raise KeyboardInterrupt

    at_point(point, die)
    with pytest.raises(KeyboardInterrupt):
        decide(table, Decision.APPROVED)
    table.clock.pass_ms(table.settings.lease_ms + 1)
    table.refresher().recover(table.caller())

    assert table.rows() == table.wanted
    assert (table.phase(), table.workspaces()) == ("NORMAL", [])


@pytest.mark.in_test_all
def test_what_cannot_be_read_any_more_is_not_needed_for_a_decision(table):
    held(table)
    (table.root / "raw").rename(table.root / "away")

    assert decide(table, Decision.APPROVED).outcome is Outcome.PUBLISHED
    assert table.rows() == table.wanted


@pytest.mark.in_test_all
def test_the_difference_shows_exactly_what_an_approval_publishes(table):
    error = held(table)
    table.sql("DELETE FROM {t}", path="raw/orders")

    found = table.refresher().difference("orders")

    assert (found.rows_inserted, found.rows_updated, found.rows_deleted, found.rows_unchanged) == (0, 1, 4, 5)
    assert (found.hold.id, found.is_overwritten) == (error.facts["hold"], False)
    deleted = [(row.key, row.before, row.after) for row in found.rows if row.operation == "delete"]
    assert deleted == [({"id": n}, {"id": n, "p": n % 2, "v": "a"}, None) for n in range(4)]
    [updated] = [row for row in found.rows if row.operation == "update"]
    assert (updated.key, updated.before["v"], updated.after["v"], updated.changed) == ({"id": 5}, "a", "b", ("v",))
    text = difference_text(found)
    for line in ('v: "a" -> "b"', "delete  id=0, p=0", f"amv approve orders --hold {found.hold.id}"):
        assert line in text
    few = table.refresher().difference("orders", 2)
    assert [row.operation for row in few.rows] == ["delete", "delete", "update"]
    assert found.columns == {"v": 1}
    kept = table.refresher().past_difference("orders", found.refresh_id, table.caller())
    assert (kept.rows, kept.columns) == (found.rows, found.columns), "what the page shows, without Spark"


@pytest.mark.in_test_all
def test_what_a_guard_refuses_and_what_is_only_compared_can_be_looked_at_later(table):
    table.apply(guards=GUARDED["guards"], sensitive=["v"])
    with pytest.raises(GuardRefusedError) as caught:
        table.refresh()
    report = table.refresh(read_only=True)
    assert f"amv diff orders --refresh {table.store.history(1, 2)[-1].refresh_id[:8]}" in caught.value.advice

    refused, only_read = (
        table.refresher().past_difference("orders", each.refresh_id[:8], table.caller())
        for each in table.store.history(1, 2)[::-1]
    )

    assert only_read.refresh_id == report.refresh_id
    assert refused.rows == only_read.rows
    assert [(row.operation, row.key["id"]) for row in refused.rows] == [("delete", n) for n in range(4)] + [
        ("update", 5)
    ]
    assert refused.rows[-1].changed == ("v",)
    assert {row.before["v"] for row in refused.rows} == {refused.rows[0].before["v"]}
    assert refused.rows[0].before["v"].startswith("sha256:")
    assert "refused" in difference_text(refused).splitlines()[0]
    assert table.rows() == table.before


@pytest.mark.in_test_all
def test_changed_rows_of_every_refresh_are_kept_if_the_table_says_so(lake):
    lake.write("SELECT id, 'a' AS v FROM range(3)")
    lake.apply(samples="always")
    lake.refresh()
    lake.sql("UPDATE {t} SET v = 'b' WHERE id = 1", path="raw/orders")

    found = lake.refresher().past_difference("orders", lake.refresh().refresh_id, lake.caller())

    assert [(row.key, row.before, row.after) for row in found.rows] == [
        ({"id": 1}, {"id": 1, "v": "a"}, {"id": 1, "v": "b"})
    ]
    assert "1 updated" in difference_text(found)
    with pytest.raises(ArgumentError, match="'nothing' names no refreshes"):
        lake.refresher().past_difference("orders", "nothing", lake.caller())


@pytest.mark.in_test_all
def test_rows_of_every_type_are_shown_and_a_hostile_one_is_harmless(lake):
    columns = "id, CAST(1.10 AS DECIMAL(38, 20)) AS d, X'00ff' AS b, array(1, NULL) AS a, DATE'2026-01-02' AS day"
    lake.write(f"SELECT {columns}, 'x' AS v FROM range(3)")
    lake.apply(approval="always")
    held(lake)
    decide(lake, Decision.APPROVED)
    lake.write(f"SELECT {columns}, '\x1b[31m\n</script>' AS v FROM range(1, 4)")

    held(lake)
    found = lake.refresher().difference("orders")

    assert [row.operation for row in found.rows] == ["delete", "update", "update", "insert"]
    assert found.rows[-1].after["d"] == "1.10000000000000000000"
    text = difference_text(found)
    assert "\x1b" not in text
    assert all("</script>" not in line or "\\n" in line for line in text.splitlines())


@pytest.mark.in_test_all
def test_there_is_no_difference_where_nothing_is_held(table):
    with pytest.raises(NotHeldError):
        table.refresher().difference("orders")
    with pytest.raises(NotHeldError, match="no refresh of it awaits approval"):
        decide(table, Decision.REJECTED)


@pytest.mark.in_test_all
def test_an_overwrite_is_compared_so_that_its_rows_can_be_seen(lake):
    lake.write("SELECT id, 'a' AS v FROM range(10)")
    lake.apply(strategy="replace")
    lake.refresh()
    lake.write("SELECT id, 'b' AS v FROM range(5)")

    held(lake, hold=True, overrides=["max_deleted_fraction"])
    found = lake.refresher().difference("orders")

    assert [row.operation for row in found.rows] == ["delete"] * 5 + ["update"] * 5
    assert decide(lake, Decision.APPROVED).outcome is Outcome.PUBLISHED
    assert lake.rows() == lake.rows("raw/orders")
    kept = lake.published()
    lake.refresh(force=True, strategy="corrections")
    assert lake.published() == kept


@pytest.mark.in_test_all
def test_an_overwrite_that_drops_a_column_is_counted_and_not_listed(lake):
    lake.write("SELECT id, 'a' AS v, 1 AS w FROM range(10)")
    lake.apply(schema_policy="add", on_lost_column="drop")
    lake.refresh()
    lake.write("SELECT id, 'a' AS v FROM range(5)")

    held(lake, hold=True, overrides=["max_deleted_fraction"])
    found = lake.refresher().difference("orders")

    assert (found.is_overwritten, found.rows) == (True, ())
    assert "amv approve" in difference_text(found)
    with pytest.raises(NotHeldError, match="cannot leave out the deletes"):
        decide(lake, Decision.WITHOUT_DELETES)
    assert decide(lake, Decision.APPROVED).outcome is Outcome.PUBLISHED
    assert lake.rows() == lake.rows("raw/orders")


@pytest.mark.in_test_all
def test_status_and_history_say_what_is_decided_and_by_whom(table):
    held(table)
    registered = table.store.table("orders")
    status = status_text(table.store.status(registered))
    assert "waits for `amv approve`" in status
    assert "max_deleted_fraction" in status

    report = decide(table, Decision.APPROVED)

    assert "approved by ann" in refresh_text(report)
    assert report.hold.note == "I have looked"
    assert table.store.history(registered.id, 1)[0].hold == report.hold
