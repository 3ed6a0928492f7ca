"""The versions of a table's rows: what a history has after any changes, how it begins, and how it goes on."""

from __future__ import annotations

import os
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

import pytest
from deltalake import DeltaTable

from airflow_mv_provider import Files
from airflow_mv_provider.core.outcome import Outcome, RefreshReport
from airflow_mv_provider.core.progress import history
from airflow_mv_provider.exceptions import MvError
from airflow_mv_provider.runner import crash_points
from tests.conftest import dying_at, large_tables
from tests.engine.versioned import GUARDS, STATES, Log, check, of_main, put, raw, rows, versions, writes

pytestmark = pytest.mark.slow

RULES = ["close", "keep", "mark"]


@pytest.mark.sample(1)
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


@pytest.mark.in_test_all
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


@pytest.mark.in_test_all
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


@pytest.mark.in_test_all
def test_what_happened_while_it_was_off_is_one_change_and_the_report_says_so(kept):
    log = Log()
    log.publish(rows(kept))
    kept.apply(guards=GUARDS)
    for state in STATES[1:3]:
        put(kept, state)
        kept.refresh()
    kept.apply(history=True, guards=GUARDS)

    report = kept.refresh()

    check(kept, log)
    assert "it has no versions of its own for" in report.reason


@pytest.mark.in_test_all
def test_whoever_takes_over_says_what_was_missed_too(kept):
    kept.apply(guards=GUARDS)
    put(kept, STATES[1])
    kept.refresh()
    kept.apply(history=True, guards=GUARDS)
    with dying_at("history.after"):
        kept.refresh()
    kept.clock.pass_ms(kept.settings.lease_ms + 1)

    report = kept.refresh()

    assert "it has no versions of its own for" in report.reason
    assert versions(kept) == of_main(kept)


@pytest.mark.in_test_all
def test_rows_that_others_change_and_the_refresh_mends(kept):
    log = Log()
    log.publish(rows(kept))
    kept.sql("DELETE FROM {t} WHERE id = 1")
    kept.sql("INSERT INTO {t} SELECT * FROM {t} WHERE id = 2")
    put(kept, STATES[1])

    kept.refresh()

    check(kept, log)


@pytest.mark.in_test_all
def test_a_history_that_others_change_is_compared(kept):
    log = Log()
    log.publish(rows(kept))
    kept.sql("UPDATE {t} SET v = 'x' WHERE id = 4", path="orders__history")
    put(kept, STATES[0].replace("(1, 'a', 1)", "(1, 'z', 1)"))

    report = kept.refresh()

    assert "another program has changed it" in report.reason
    current = [{name: row[name] for name in ("id", "n", "v")} for row in raw(kept) if row["is_current"]]
    assert sorted(current, key=str) == sorted(rows(kept), key=str)


@pytest.mark.in_test_all
def test_nothing_is_written_where_nothing_changes(kept):
    before, found = kept.versions("orders__history"), versions(kept)

    kept.refresh()
    assert kept.versions("orders__history") == before
    kept.refresh(force=True)  # compares the history, too, and leaves the note that it did

    assert versions(kept) == found
    assert len(writes(kept)) == 2


@pytest.mark.in_test_all
def test_a_history_that_lacks_nothing_says_so_before_main_s_log_is_long(kept, monkeypatch):
    """Else each refresh would read main's log back to the last one that changed a row."""
    monkeypatch.setattr(history, "_LONG_LOG", 2)
    found = versions(kept)

    for _ in range(3):  # each is written anew, and has the same rows
        put(kept, STATES[0])
        kept.refresh()

    assert versions(kept) == found
    assert writes(kept)[-1]["reached"] > writes(kept)[0]["reached"]
    put(kept, STATES[1])
    assert "history" not in kept.refresh().reason
    assert versions(kept) == of_main(kept)


@pytest.mark.in_test_all
def test_a_rollback_adds_versions_and_rewrites_none(kept):
    log = Log()
    log.publish(rows(kept))
    put(kept, STATES[1])
    first = kept.store.state(kept.store.table("orders").id).published_version
    kept.refresh()
    check(kept, log)

    kept.refresher().roll_back("orders", str(first), kept.caller(), "wrong rows")

    check(kept, log)


@pytest.mark.in_test_all
def test_columns_come_and_go(kept):
    kept.apply(history=True, guards=GUARDS, schema_policy="evolve", on_lost_column="drop")
    kept.refresh()
    kept.write("SELECT id, v, CAST(n AS BIGINT) AS n, id * 2 AS m FROM VALUES (1, 'a', 1), (2, 'b', 5) AS t(id, v, n)")
    kept.refresh()
    kept.write("SELECT id, v, id * 3 AS m FROM VALUES (1, 'a'), (2, 'b') AS t(id, v)")

    kept.refresh()

    found = kept.sql("SELECT * FROM {t}", path="orders__history")  # delta-rs cannot read a type that was widened
    current = {row["id"]: row for row in found if row["is_current"]}
    assert [(key, current[key]["v"], current[key]["n"], current[key]["m"]) for key in sorted(current)] == [
        (1, "a", None, 3),
        (2, "b", None, 6),
    ]
    former = [(row["n"], row["m"]) for row in found if row["id"] == 2 and not row["is_current"]]
    assert sorted(former) == [(1, None), (5, 4)]


@pytest.mark.sample(1)
@pytest.mark.parametrize("point", ["fence_history", "history"])
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("state", [STATES[1], "VALUES (1, 'a', 1), (2, 'b', 1), (3, 'c', 1), (4, 'd', 1), (9, 'z', 1)"])
@pytest.mark.parametrize("deletes", ["close", "mark"])
def test_an_owner_that_is_overtaken_while_it_writes_adds_nothing(kept, point, when, state, deletes):
    """It goes on after another process has taken over and ended its refresh. A takeover is itself overtaken, too."""
    kept.apply(history={"deletes": deletes}, guards=GUARDS)
    kept.refresh()
    num_before = len(writes(kept))
    put(kept, state)
    reached: list[str] = []

    def take_over_once(here: str) -> None:
        if here == f"{point}.{when}" and not reached:
            reached.append(here)
            crash_points.arm(None)
            kept.clock.pass_ms(kept.settings.lease_ms + 1)
            kept.refresh()

    if point == "fence_history":  # only a takeover comes there
        with dying_at("publish.after"):
            kept.refresh()
        kept.clock.pass_ms(kept.settings.lease_ms + 1)
    crash_points.arm(take_over_once)
    try:
        with suppress(MvError):
            kept.refresh()
    finally:
        crash_points.arm(None)
    kept.refresh()

    assert reached
    assert versions(kept) == of_main(kept, deletes=deletes)
    assert len(writes(kept)) == num_before + 1
    assert kept.phase() == "NORMAL"


@pytest.mark.in_test_all
@pytest.mark.sample(1)
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


@pytest.mark.in_test_all
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
def test_current_versions_that_others_have_doubled_become_one(kept):
    kept.sql("INSERT INTO {t} SELECT * FROM {t} WHERE id < 3", path="orders__history")
    assert kept.refresher().audit("orders", kept.caller()).is_drift

    kept.refresh(force=True)

    current = [row["id"] for row in raw(kept) if row["is_current"]]
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
def test_a_wider_type_begins_no_version(kept):
    kept.apply(history=True, guards=GUARDS, schema_policy="evolve")
    kept.refresh()
    kept.write(f"SELECT id, v, CAST(n AS BIGINT) AS n FROM {STATES[0]} AS t(id, v, n)")

    def found() -> list[Any]:  # delta-rs cannot read a type that was widened
        return sorted(kept.sql("SELECT id, v, n, valid_from, is_current FROM {t}", path="orders__history"))

    before = found()
    kept.refresh()
    assert not kept.refresher().audit("orders", kept.caller()).is_drift
    kept.refresh(force=True)

    assert found() == before


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
def test_the_time_of_a_source_that_goes_back_is_the_next_moment_and_said(lake):
    place = lake.root / "raw/orders"
    place.mkdir(parents=True)
    lake.apply(source=Files("raw/orders", format="csv", schema="id INT, v STRING"), history={"time": "source"})

    def put_at(text: str, seconds: int) -> RefreshReport:
        (place / "1.csv").write_text(text)
        os.utime(place / "1.csv", (seconds, seconds))
        return lake.refresh()

    first = put_at("id,v\n1,a\n", 1_700_000_000)
    second = put_at("id,v\n1,bb\n", 1_600_000_000)

    begun = sorted((row["v"], row["valid_from"].timestamp()) for row in raw(lake))
    assert begun == [("a", 1_700_000_000), ("bb", 1_700_000_000.001)]
    assert "the source's time" not in (first.reason or "")
    assert "the source's time is not after that of the newest versions" in second.reason
