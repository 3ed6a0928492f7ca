"""The versions of a table's rows: what a history has after any changes, how it begins, and how it goes on."""

from __future__ import annotations

import shutil
from contextlib import suppress
from typing import Any

import pytest

from airflow_mv_provider.core.outcome import Outcome
from airflow_mv_provider.exceptions import ArgumentError, HistoryError, MvError, NotPublishedError
from airflow_mv_provider.report_text.row_history_text import row_versions_text
from airflow_mv_provider.runner import crash_points
from tests.conftest import dying_at, large_tables
from tests.engine.versioned import Log, of_main, raw, versions, writes

pytestmark = pytest.mark.slow

# What the source has after each change: inserts, updates, deletes, a row that returns, and one that is as before.
STATES = (
    "VALUES (1, 'a', 1), (2, 'b', 1), (3, 'c', 1), (4, 'd', 1)",
    "VALUES (1, 'a', 1), (2, 'B', 1), (4, 'd', 2), (5, 'e', 1)",
    "VALUES (1, 'A', 1), (2, 'b', 1), (3, 'c', 1), (4, 'd', 2)",
    "VALUES (1, 'A', 1), (2, 'b', 1), (3, 'c', 1), (4, 'd', 3), (5, 'e', 1)",
)
GUARDS = {"max_deleted_fraction": 1.0}


def put(lake: Any, state: str, **more: Any) -> None:
    lake.write(f"SELECT * FROM {state} AS t(id, v, n)", **more)


def rows(lake: Any) -> list[dict[str, Any]]:
    return [dict(zip(("id", "n", "v"), row, strict=True)) for row in lake.rows()]


def check(lake: Any, log: Log) -> None:
    log.publish(rows(lake))
    assert versions(lake) == log.all


@pytest.fixture
def table(lake: Any) -> Any:
    """A table with a history, published once."""
    put(lake, STATES[0])
    lake.apply(history=True, guards=GUARDS)
    lake.refresh()
    return lake


@pytest.mark.parametrize("deletes", ["close", "mark", "keep"])
@pytest.mark.parametrize("is_large", [False, True])
def test_every_version_of_every_row(lake, deletes, is_large):
    log = Log(deletes)
    lake.apply(history={"deletes": deletes}, guards=GUARDS)

    with large_tables(lake, is_large=is_large):
        for state in STATES:
            put(lake, state)
            lake.refresh()
            check(lake, log)

    assert lake.phase() == "NORMAL"
    assert lake.workspaces() == []


def test_columns_that_begin_no_version_change_in_the_current_one(lake):
    lake.apply(history={"exclude": ["n"]}, guards=GUARDS)
    log = Log(excluded=("n",))

    for state in STATES:
        put(lake, state)
        lake.refresh()
        check(lake, log)


@pytest.mark.parametrize("strategy", ["corrections", "replace", "incremental"])
def test_each_strategy_writes_the_rows_that_changed(lake, strategy):
    lake.apply(history=True, guards=GUARDS, strategy=strategy)
    log = Log()

    for number, state in enumerate(STATES):
        put(lake, state)
        if not number:
            lake.sql("ALTER TABLE {t} SET TBLPROPERTIES (delta.enableChangeDataFeed = true)", path="raw/orders")
        lake.refresh()
        check(lake, log)


def test_parts_that_are_published_one_after_the_other_are_one_write(lake):
    lake.write("SELECT id, id % 3 AS n, 'a' AS v FROM range(9)")
    lake.apply(history=True, partition_by=["n"], key=["id", "n"], publish="progressive", chunk_rows=1)
    lake.refresh()
    log = Log()
    check(lake, log)
    lake.write("SELECT id, id % 3 AS n, IF(id < 5, 'b', 'a') AS v FROM range(11)")

    lake.refresh()

    check(lake, log)
    assert len(writes(lake)) == 2


def test_a_row_that_moves_to_another_partition_has_changed(lake):
    lake.write("SELECT id, id % 3 AS n, 'a' AS v FROM range(9)")
    lake.apply(history=True, partition_by=["n"])
    lake.refresh()
    log = Log()
    check(lake, log)
    lake.write("SELECT id, IF(id = 4, 7, id % 3) AS n, 'a' AS v FROM range(9)")

    lake.refresh()

    check(lake, log)


def test_a_history_that_is_switched_on_begins_with_the_rows_that_are_there(lake):
    put(lake, STATES[0])
    lake.apply(guards=GUARDS)
    lake.refresh()
    lake.apply(history=True, guards=GUARDS)

    lake.refresh()

    check(lake, Log())


def test_what_happened_while_it_was_off_is_one_change_and_the_report_says_so(table):
    log = Log()
    log.publish(rows(table))
    table.apply(guards=GUARDS)
    for state in STATES[1:3]:
        put(table, state)
        table.refresh()
    table.apply(history=True, guards=GUARDS)

    report = table.refresh()

    check(table, log)
    assert "it has no versions of its own for" in report.reason


def test_rows_that_others_change_and_the_refresh_mends(table):
    log = Log()
    log.publish(rows(table))
    table.sql("DELETE FROM {t} WHERE id = 1")
    table.sql("INSERT INTO {t} SELECT * FROM {t} WHERE id = 2")
    put(table, STATES[1])

    table.refresh()

    check(table, log)


def test_a_history_that_others_change_is_compared(table):
    log = Log()
    log.publish(rows(table))
    table.sql("UPDATE {t} SET v = 'x' WHERE id = 4", path="orders__history")
    put(table, STATES[0].replace("(1, 'a', 1)", "(1, 'z', 1)"))

    report = table.refresh()

    assert "another program has changed it" in report.reason
    current = [{name: row[name] for name in ("id", "n", "v")} for row in raw(table) if row["is_current"]]
    assert sorted(current, key=str) == sorted(rows(table), key=str)


def test_nothing_is_written_where_nothing_changes(table):
    before = table.versions("orders__history")

    table.refresh()
    table.refresh(force=True)

    assert len(raw(table)) == 4
    assert len(writes(table)) <= 2
    assert table.versions("orders__history") <= before + 1


def test_a_rollback_adds_versions_and_rewrites_none(table):
    log = Log()
    log.publish(rows(table))
    put(table, STATES[1])
    first = table.store.state(table.store.table("orders").id).published_version
    table.refresh()
    check(table, log)

    table.refresher().roll_back("orders", str(first), table.caller(), "wrong rows")

    check(table, log)


def test_columns_come_and_go(table):
    table.apply(history=True, guards=GUARDS, schema_policy="evolve", on_lost_column="drop")
    table.refresh()
    table.write("SELECT id, v, CAST(n AS BIGINT) AS n, id * 2 AS m FROM VALUES (1, 'a', 1), (2, 'b', 5) AS t(id, v, n)")
    table.refresh()
    table.write("SELECT id, v, id * 3 AS m FROM VALUES (1, 'a'), (2, 'b') AS t(id, v)")

    table.refresh()

    found = table.sql("SELECT * FROM {t}", path="orders__history")  # delta-rs cannot read a type that was widened
    current = {row["id"]: row for row in found if row["is_current"]}
    assert [(key, current[key]["v"], current[key]["n"], current[key]["m"]) for key in sorted(current)] == [
        (1, "a", None, 3),
        (2, "b", None, 6),
    ]
    former = [(row["n"], row["m"]) for row in found if row["id"] == 2 and not row["is_current"]]
    assert sorted(former) == [(1, None), (5, 4)]


@pytest.mark.parametrize("point", ["fence_history", "history"])
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("state", [STATES[1], "VALUES (1, 'a', 1), (2, 'b', 1), (3, 'c', 1), (4, 'd', 1), (9, 'z', 1)"])
def test_an_owner_that_is_overtaken_while_it_writes_adds_nothing(table, point, when, state):
    """It goes on after another process has taken over and ended its refresh. A takeover is itself overtaken, too."""
    put(table, state)
    reached: list[str] = []

    def take_over_once(here: str) -> None:
        if here == f"{point}.{when}" and not reached:
            reached.append(here)
            crash_points.arm(None)
            table.clock.pass_ms(table.settings.lease_ms + 1)
            table.refresh()

    if point == "fence_history":  # only a takeover comes there
        with dying_at("publish.after"):
            table.refresh()
        table.clock.pass_ms(table.settings.lease_ms + 1)
    crash_points.arm(take_over_once)
    try:
        with suppress(MvError):
            table.refresh()
    finally:
        crash_points.arm(None)
    table.refresh()

    assert reached
    assert versions(table) == of_main(table)
    assert table.phase() == "NORMAL"


@pytest.mark.parametrize("time", ["updated_at", "source", "refresh"])
def test_from_when_a_version_is_valid(lake, time):
    times = ("TIMESTAMP'2024-01-01 10:00'", "TIMESTAMP'2024-01-02 10:00'", "TIMESTAMP'2024-01-01 09:00'")
    lake.apply(history={"time": time, "valid_to_current": "9999-12-31"})
    reports = []

    for number, at in enumerate(times):
        lake.write(f"SELECT 1 AS id, {number} AS v, {at} AS updated_at")
        reports.append(lake.refresh())

    found = sorted(raw(lake), key=lambda row: row["v"])
    begun, ended = ([str(row[each])[:26] for row in found] for each in ("valid_from", "valid_to"))
    assert ended == [*begun[1:], "9999-12-31 00:00:00+00:00"[:26]]
    assert begun == sorted(set(begun))
    if time == "updated_at":
        assert begun == ["2024-01-01 10:00:00+00:00", "2024-01-02 10:00:00+00:00", "2024-01-02 10:00:00.000001"]
        assert "1 versions have a time before" in reports[-1].reason
    else:
        assert begun[0] > "2026"


@pytest.mark.parametrize(
    ("history", "change", "problem"),
    [
        ({"time": "v"}, "id, 'b' AS v", "is no time"),
        ({"time": "at"}, "id, 'b' AS v", "no column 'at'"),
        ({"exclude": ["id"]}, "id, 'b' AS v", "part of the key"),
        (True, "id, 'b' AS v, 1 AS Operation", "has a column 'Operation'"),
        ({"time": "at"}, "id, 'b' AS v, CAST(NULL AS TIMESTAMP) AS at", "3 rows have no time"),
        ({"time": "at"}, "id, 'b' AS v, TIMESTAMP'2999-01-01' AS at", "still to come"),
    ],
)
def test_a_history_that_cannot_be_kept_leaves_the_table_alone(lake, history, change, problem):
    lake.apply(schema_policy="add")
    lake.write("SELECT id, 'a' AS v FROM range(2)")
    lake.refresh()
    before = lake.rows()
    lake.write(f"SELECT {change} FROM range(3)")
    lake.apply(history=history, schema_policy="add")

    with pytest.raises(HistoryError, match=problem):
        lake.refresh()

    assert lake.rows() == before
    assert lake.phase() == "NORMAL"
    lake.apply(schema_policy="add")
    assert lake.refresh().outcome is Outcome.PUBLISHED


@pytest.mark.parametrize("harm", ["dropped", "another table", "files", "other columns"])
def test_a_history_that_is_gone_or_another_one_is_an_error(table, harm):
    place = table.root / "orders__history"
    if harm != "other columns":
        shutil.rmtree(place)
    if harm == "another table":
        table.write("SELECT 1 AS id", "orders__history")
    if harm == "files":
        place.mkdir()
        (place / "a.txt").write_text("mine")
    if harm == "other columns":
        table.apply(history={"valid_from": "since"}, guards=GUARDS)
    put(table, STATES[1])
    before = table.rows()

    with pytest.raises(HistoryError):
        table.refresh()

    assert table.rows() == before
    assert table.phase() == "NORMAL"
    shutil.rmtree(place, ignore_errors=True)
    table.apply(guards=GUARDS)
    table.refresh()
    table.apply(history=True, guards=GUARDS)
    table.refresh()
    assert versions(table) == of_main(table)


def test_a_dropped_table_takes_its_history_along(table):
    table.refresher().drop("orders", table.caller(), delete_main=True)

    assert not (table.root / "orders__history").exists()


def test_the_versions_of_one_row(table):
    put(table, STATES[1])
    table.refresh()

    found = table.refresher().row_versions("orders", ["id=2"])
    why = table.refresher().row_history("orders", ["id=2"])

    assert [(v.operation, v.row, v.is_current) for v in found.versions] == [
        ("insert", {"id": 2, "v": "b", "n": 1}, False),
        ("update", {"id": 2, "v": "B", "n": 1}, True),
    ]
    assert found.versions[0].valid_to == found.versions[1].valid_from
    assert why.versions == found.versions
    assert "update by refresh" in row_versions_text(found)
    assert [v.operation for v in table.refresher().row_versions("orders", ["ID=3"]).versions] == ["insert"]
    with pytest.raises(ArgumentError, match="amv history-of orders id=VALUE"):
        table.refresher().row_versions("orders", ["v=a"])
    table.apply(guards=GUARDS)
    with pytest.raises(NotPublishedError, match="history: true"):
        table.refresher().row_versions("orders", ["id=2"])


def test_sensitive_values_are_hashed_in_versions_that_are_shown(table):
    table.apply(history=True, guards=GUARDS, sensitive=["v", "id"])

    [found] = table.refresher().row_versions("orders", ["id=2"]).versions

    assert (found.row["n"], found.row["v"] == "b", found.row["id"] == 2) == (1, False, False)


@pytest.mark.parametrize("harm", ["update", "delete", "insert", "overlap", "table"])
def test_an_audit_compares_the_history_and_its_repair_mends_current_versions(table, harm):
    put(table, STATES[1])
    table.refresh()
    history = [side for side in table.refresher().audit("orders", table.caller()).sides if side.against == "history"]
    assert [side.finding for side in history] == ["same"]
    assert history[0].rows_same == 4
    harms = {
        "update": "UPDATE {t} SET v = 'x' WHERE id = 1 AND is_current",
        "delete": "DELETE FROM {t} WHERE id = 1 AND is_current",
        "insert": "INSERT INTO {t} SELECT 7, v, n, valid_from, NULL, true, operation, 'x' FROM {t} WHERE id = 1",
        "overlap": "UPDATE {t} SET valid_to = valid_to + INTERVAL 1 DAY WHERE id = 2 AND NOT is_current",
    }
    if harm == "table":
        shutil.rmtree(table.root / "orders__history")
    else:
        table.sql(harms[harm], path="orders__history")

    found = table.refresher().audit("orders", table.caller())

    reasons = {side.against: side.reason for side in found.sides if side.finding == "drift"}
    expected = {
        "update": "1 rows different",
        "delete": "1 rows missing",
        "insert": "1 rows extra",
        "overlap": "1 versions overlap",
        "table": "is gone",
    }
    assert set(reasons) == {"history"}
    assert expected[harm] in reasons["history"]
    if harm in ("update", "delete", "insert"):
        table.refresher().repair(found, table.caller())
        assert not table.refresher().audit("orders", table.caller()).is_drift


def test_versions_that_ended_long_ago_are_shed(table):
    table.apply(history={"keep": "30d"}, guards=GUARDS)
    for state in STATES[1:3]:
        put(table, state)
        table.refresh()
    kept = [version for version in versions(table) if version[2] is None]
    said: list[str] = []

    table.refresher().recover(table.caller(), said.append)
    assert len(versions(table)) > len(kept)
    table.clock.pass_ms(31 * 24 * 3600 * 1000)
    table.refresher().recover(table.caller(), said.append)

    assert versions(table) == kept
    assert [text for text in said if "old versions" in text] == ["orders: removed 6 old versions from its history."]
    put(table, STATES[3])
    report = table.refresh()
    assert "history" not in report.reason
    assert len(versions(table)) == len(kept) + 2
