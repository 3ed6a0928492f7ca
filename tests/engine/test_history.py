"""The versions of a table's rows: what a history has after any changes, how it begins, and how it goes on."""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

import pytest
from deltalake import DeltaTable

from airflow_mv_provider import Files
from airflow_mv_provider.core.outcome import Outcome
from airflow_mv_provider.exceptions import (
    ArgumentError,
    HistoryError,
    MvError,
    NotPublishedError,
    UnsafeLocationError,
)
from airflow_mv_provider.report_text.row_history_text import row_versions_text
from airflow_mv_provider.runner import crash_points
from tests.conftest import a_table, dying_at, large_tables
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


@pytest.mark.sample(2)
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


@pytest.mark.in_test_all
def test_columns_that_begin_no_version_change_in_the_current_one(lake):
    lake.apply(history={"exclude": ["n"]}, guards=GUARDS)
    log = Log(excluded=("n",))

    for state in STATES:
        put(lake, state)
        lake.refresh()
        check(lake, log)


@pytest.mark.sample(1)
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


@pytest.mark.in_test_all
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


@pytest.mark.in_test_all
def test_a_history_that_others_change_is_compared(table):
    log = Log()
    log.publish(rows(table))
    table.sql("UPDATE {t} SET v = 'x' WHERE id = 4", path="orders__history")
    put(table, STATES[0].replace("(1, 'a', 1)", "(1, 'z', 1)"))

    report = table.refresh()

    assert "another program has changed it" in report.reason
    current = [{name: row[name] for name in ("id", "n", "v")} for row in raw(table) if row["is_current"]]
    assert sorted(current, key=str) == sorted(rows(table), key=str)


@pytest.mark.in_test_all
def test_nothing_is_written_where_nothing_changes(table):
    before = table.versions("orders__history")

    table.refresh()
    assert table.versions("orders__history") == before
    table.refresh(force=True)  # compares the history, too, and leaves the note that it did

    assert len(raw(table)) == 4
    assert len(writes(table)) == 2


@pytest.mark.in_test_all
def test_a_rollback_adds_versions_and_rewrites_none(table):
    log = Log()
    log.publish(rows(table))
    put(table, STATES[1])
    first = table.store.state(table.store.table("orders").id).published_version
    table.refresh()
    check(table, log)

    table.refresher().roll_back("orders", str(first), table.caller(), "wrong rows")

    check(table, log)


@pytest.mark.in_test_all
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


@pytest.mark.sample(2)
@pytest.mark.parametrize("point", ["fence_history", "history"])
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("state", [STATES[1], "VALUES (1, 'a', 1), (2, 'b', 1), (3, 'c', 1), (4, 'd', 1), (9, 'z', 1)"])
@pytest.mark.parametrize("deletes", ["close", "mark"])
def test_an_owner_that_is_overtaken_while_it_writes_adds_nothing(table, point, when, state, deletes):
    """It goes on after another process has taken over and ended its refresh. A takeover is itself overtaken, too."""
    table.apply(history={"deletes": deletes}, guards=GUARDS)
    table.refresh()
    num_before = len(writes(table))
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
    assert versions(table) == of_main(table, deletes=deletes)
    assert len(writes(table)) == num_before + 1
    assert table.phase() == "NORMAL"


@pytest.mark.sample(2)
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
        changed = {str(row["valid_from"])[:19] for row in raw(lake)}
        log = DeltaTable(str(lake.root / ("raw/orders" if time == "source" else "orders"))).history()
        committed = {str(datetime.fromtimestamp(each["timestamp"] / 1000, UTC))[:19] for each in log}
        assert changed <= committed


@pytest.mark.sample(2)
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


@pytest.mark.sample(1)
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


@pytest.mark.in_test_all
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


@pytest.mark.in_test_all
def test_sensitive_values_are_hashed_in_versions_that_are_shown(table):
    table.apply(history=True, guards=GUARDS, sensitive=["v", "id"])

    [found] = table.refresher().row_versions("orders", ["id=2"]).versions

    assert (found.row["n"], found.row["v"] == "b", found.row["id"] == 2) == (1, False, False)


@pytest.mark.sample(1)
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


RULES = ["close", "keep", "mark"]


@pytest.mark.sample(1)
@pytest.mark.parametrize(("before", "after"), [(a, b) for a in RULES for b in RULES if a != b])
def test_the_rule_for_deletes_may_change(lake, before, after):
    """What is current and deleted by then follows the new rule; each row has one current version at most."""
    put(lake, STATES[0])
    lake.apply(history={"deletes": before}, guards=GUARDS)
    lake.refresh()
    put(lake, STATES[1])
    lake.refresh()

    lake.apply(history={"deletes": after}, guards=GUARDS)
    lake.refresh()
    put(lake, STATES[2])
    lake.refresh()

    current = [row for row in raw(lake) if row["is_current"]]
    by_key = {row["id"]: row for row in current}
    assert len(by_key) == len(current)
    there = {key: row for key, row in by_key.items() if row["operation"] != "delete"}
    for row in rows(lake):
        assert {name: there[row["id"]][name] for name in row} == row
    assert (5 in there) == (after == "keep")
    assert not any(side.finding == "drift" for side in lake.refresher().audit("orders", lake.caller()).sides)


@pytest.mark.in_test_all
def test_current_versions_that_others_have_doubled_become_one(table):
    table.sql("INSERT INTO {t} SELECT * FROM {t} WHERE id < 3", path="orders__history")
    assert table.refresher().audit("orders", table.caller()).is_drift

    table.refresh(force=True)

    current = [row["id"] for row in raw(table) if row["is_current"]]
    assert sorted(current) == [1, 2, 3, 4]


@pytest.mark.in_test_all
def test_rows_that_others_double_in_frozen_partitions_have_one_version(lake):
    lake.write("SELECT id, id % 2 AS p, 'a' AS v FROM range(8)")
    lake.apply(history=True, partition_by=["p"], key=["id", "p"])
    lake.refresh()
    lake.apply(history=True, partition_by=["p"], key=["id", "p"], frozen_before="1")
    lake.refresh()
    lake.sql("INSERT INTO {t} VALUES (2, 0, 'x'), (8, 0, 'new'), (8, 0, 'new')")
    lake.write("SELECT id, id % 2 AS p, IF(id = 3, 'b', 'a') AS v FROM range(8)")

    lake.refresh()

    current = sorted(row["id"] for row in raw(lake) if row["is_current"])
    assert current == [*range(9)]
    assert lake.refresh().outcome is Outcome.NOTHING_TO_DO


@pytest.mark.in_test_all
def test_a_coarser_key_keeps_one_current_version_of_each_row(lake):
    lake.write("SELECT * FROM VALUES (1, 'a', 1), (1, 'b', 1), (2, 'a', 1) AS t(id, v, n)")
    lake.apply(key=["id", "v"], history=True, guards=GUARDS)
    lake.refresh()
    lake.write("SELECT * FROM VALUES (1, 'a', 1), (2, 'a', 1) AS t(id, v, n)")
    lake.apply(key=["id"], history=True, guards=GUARDS)

    lake.refresh()

    assert sorted(row["id"] for row in raw(lake) if row["is_current"]) == [1, 2]


@pytest.mark.in_test_all
def test_a_wider_type_begins_no_version(table):
    table.apply(history=True, guards=GUARDS, schema_policy="evolve")
    table.refresh()
    table.write(f"SELECT id, v, CAST(n AS BIGINT) AS n FROM {STATES[0]} AS t(id, v, n)")

    table.refresh()
    assert not table.refresher().audit("orders", table.caller()).is_drift
    table.refresh(force=True)

    assert len(table.sql("SELECT * FROM {t}", path="orders__history")) == 4


@pytest.mark.in_test_all
def test_a_column_that_comes_back_with_another_type_is_named(table):
    policy = {"history": True, "guards": GUARDS, "schema_policy": "evolve", "on_lost_column": "drop"}
    table.apply(**policy)
    table.write("SELECT id, v FROM VALUES (1, 'a') AS t(id, v)")
    table.refresh()
    table.write("SELECT id, v, 'x' AS n FROM VALUES (1, 'a') AS t(id, v)")
    before = table.rows()

    with pytest.raises(HistoryError, match="'n' is string, in its history integer"):
        table.refresh()

    assert (table.rows(), table.phase()) == (before, "NORMAL")


@pytest.mark.in_test_all
def test_the_time_of_a_source_that_is_ahead_of_the_clock_is_the_commits(lake):
    place = lake.root / "raw/orders"
    place.mkdir(parents=True)
    (place / "1.csv").write_text("id,v\n1,a\n")
    os.utime(place / "1.csv", (32_472_144_000, 32_472_144_000))  # in the year 2999
    lake.apply(source=Files("raw/orders", format="csv", schema="id INT, v STRING"), history={"time": "source"})

    lake.refresh()

    assert raw(lake)[0]["valid_from"].year < 2900


@pytest.mark.in_test_all
def test_times_are_checked_where_a_history_begins_and_nothing_changes(lake):
    lake.write("SELECT id, CAST(NULL AS TIMESTAMP) AS at FROM range(2)")
    lake.apply()
    lake.refresh()
    lake.apply(history={"time": "at"})

    with pytest.raises(HistoryError, match="2 rows have no time"):
        lake.refresh()

    assert lake.phase() == "NORMAL"


@pytest.mark.in_test_all
def test_another_program_s_table_is_not_shed(table):
    shutil.rmtree(table.root / "orders__history")
    table.write(
        "SELECT 1 AS id, TIMESTAMP'2020-01-01' AS valid_from, TIMESTAMP'2020-02-01' AS valid_to, false AS is_current",
        "orders__history",
    )
    table.apply(history={"keep": "1d"}, guards=GUARDS)

    table.refresher().recover(table.caller(), lambda text: None)

    assert len(raw(table)) == 1
    assert table.refresher().row_history("orders", ["id=2"]).versions == ()


@pytest.mark.in_test_all
@pytest.mark.parametrize("by", ["rollback", "definition"])
def test_a_history_that_is_gone_is_not_begun_again_in_silence(table, by):
    put(table, STATES[1])
    table.refresh()
    shutil.rmtree(table.root / "orders__history")

    with pytest.raises(HistoryError, match="is gone"):
        if by == "rollback":
            table.refresher().roll_back("orders", "2", table.caller(), "wrong rows")
        else:
            table.apply(history=True, guards=GUARDS, schema_policy="add")
            table.refresh()

    assert table.phase() == "NORMAL"


@pytest.mark.in_test_all
def test_a_history_that_another_table_is_made_of_is_not_dropped(table):
    table.refresher().apply(a_table(name="report", source={"type": "delta", "path": "orders__history"}))

    with pytest.raises(UnsafeLocationError):
        table.refresher().drop("orders", table.caller(), delete_main=True)

    assert len(raw(table)) == 4
