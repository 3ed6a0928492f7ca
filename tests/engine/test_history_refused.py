"""Histories that cannot be kept, are gone, or are another table: a named error, and the table is unchanged."""

from __future__ import annotations

import shutil

import pytest

from airflow_mv_provider.core.outcome import Outcome
from airflow_mv_provider.exceptions import (
    HistoryError,
    UnsafeLocationError,
)
from tests.conftest import a_table
from tests.engine.versioned import GUARDS, STATES, of_main, put, raw, rows, versions

pytestmark = pytest.mark.slow


@pytest.mark.sample(1)
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


@pytest.mark.in_test_all
@pytest.mark.parametrize("harm", ["dropped", "another table", "files", "other columns"])
def test_a_history_that_is_gone_or_another_one_is_an_error(kept, harm):
    place = kept.root / "orders__history"
    if harm != "other columns":
        shutil.rmtree(place)
    if harm == "another table":
        kept.write("SELECT 1 AS id", "orders__history")
    if harm == "files":
        place.mkdir()
        (place / "a.txt").write_text("mine")
    if harm == "other columns":
        kept.apply(history={"valid_from": "since"}, guards=GUARDS)
    put(kept, STATES[1])
    before = kept.rows()

    with pytest.raises(HistoryError):
        kept.refresh()

    assert kept.rows() == before
    assert kept.phase() == "NORMAL"
    shutil.rmtree(place, ignore_errors=True)
    kept.apply(guards=GUARDS)
    kept.refresh()
    kept.apply(history=True, guards=GUARDS)
    kept.refresh()
    assert versions(kept) == of_main(kept)


@pytest.mark.in_test_all
def test_a_column_that_comes_back_with_another_type_is_named(kept):
    policy = {"history": True, "guards": GUARDS, "schema_policy": "evolve", "on_lost_column": "drop"}
    kept.apply(**policy)
    kept.write("SELECT id, v FROM VALUES (1, 'a') AS t(id, v)")
    kept.refresh()
    kept.write("SELECT id, v, 'x' AS n FROM VALUES (1, 'a') AS t(id, v)")
    before = kept.rows()

    with pytest.raises(HistoryError, match="'n' is string, in its history integer"):
        kept.refresh()

    assert (kept.rows(), kept.phase()) == (before, "NORMAL")


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
@pytest.mark.parametrize("by", ["rollback", "definition"])
def test_a_history_that_is_gone_is_not_begun_again_in_silence(kept, by):
    put(kept, STATES[1])
    kept.refresh()
    shutil.rmtree(kept.root / "orders__history")

    with pytest.raises(HistoryError, match="is gone"):
        if by == "rollback":
            kept.refresher().roll_back("orders", "2", kept.caller(), "wrong rows")
        else:
            kept.apply(history=True, guards=GUARDS, schema_policy="add")
            kept.refresh()

    assert kept.phase() == "NORMAL"


@pytest.mark.in_test_all
def test_a_dropped_table_takes_its_history_along(kept):
    kept.refresher().drop("orders", kept.caller(), delete_main=True)

    assert not (kept.root / "orders__history").exists()


@pytest.mark.in_test_all
def test_a_history_that_another_table_is_made_of_is_not_dropped(kept):
    kept.refresher().apply(a_table(name="report", source={"type": "delta", "path": "orders__history"}))
    before = raw(kept)

    with pytest.raises(UnsafeLocationError):
        kept.refresher().drop("orders", kept.caller(), delete_main=True)

    assert raw(kept) == before


@pytest.mark.in_test_all
def test_a_history_that_refuses_its_write_is_named_and_caught_up_later(kept):
    """Main has its commit by then: the refresh ends by what main's log shows, and the table is not stuck."""
    kept.sql("ALTER TABLE {t} ADD CONSTRAINT small CHECK (n < 2)", path="orders__history")
    put(kept, STATES[1])

    with pytest.raises(HistoryError):
        kept.refresh()

    assert rows(kept) == [
        {"id": 1, "n": 1, "v": "a"},
        {"id": 2, "n": 1, "v": "B"},
        {"id": 4, "n": 2, "v": "d"},
        {"id": 5, "n": 1, "v": "e"},
    ]
    assert kept.phase() == "NORMAL"
    kept.sql("ALTER TABLE {t} DROP CONSTRAINT small", path="orders__history")
    kept.refresh(force=True)
    assert versions(kept) == of_main(kept)
