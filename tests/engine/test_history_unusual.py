"""What a history makes of unusual rows, columns and keys, and of errors at an unusual moment."""

from __future__ import annotations

import json
import os
import shutil
from itertools import pairwise
from typing import Any

import pytest

from airflow_mv_provider import Files
from airflow_mv_provider.core.outcome import Outcome
from airflow_mv_provider.exceptions import EngineError, GuardRefusedError, HistoryError
from tests.conftest import dying_at
from tests.engine.versioned import GUARDS, STATES, of_main, put, raw, versions

pytestmark = pytest.mark.slow

POLICY = {"guards": GUARDS, "schema_policy": "add", "on_lost_column": "drop"}


def has_drift(lake: Any) -> bool:
    return bool(lake.refresher().audit("orders", lake.caller()).is_drift)


@pytest.mark.parametrize(
    "deletes", [pytest.param("mark", marks=pytest.mark.in_test_all), pytest.param("close", id="close")]
)
def test_a_row_that_comes_back_with_its_old_time_was_not_valid_while_it_was_gone(lake, deletes):
    whole = "SELECT id, 'a' AS v, TIMESTAMP'2024-01-01' AS at FROM range(3)"
    lake.write(whole)
    lake.apply(history={"time": "at", "deletes": deletes}, guards=GUARDS)
    lake.refresh()
    lake.write(f"{whole} WHERE id < 2")
    lake.refresh()
    lake.write(whole)

    report = lake.refresh()

    found = sorted((row for row in raw(lake) if row["id"] == 2), key=lambda row: row["valid_from"])
    assert [row["operation"] for row in found] == ["insert", *(["delete"] if deletes == "mark" else []), "insert"]
    assert all(before["valid_to"] <= after["valid_from"] for before, after in pairwise(found))
    assert [row["is_current"] for row in found][-1]
    assert "1 versions have a time before the one that they follow" in report.reason
    assert not has_drift(lake)


@pytest.mark.in_test_all
def test_a_column_that_comes_back_is_compared_with_what_versions_have(lake):
    lake.write("SELECT id, 'a' AS v, 1 AS n FROM range(3)")
    lake.apply(history=True, **POLICY)
    lake.refresh()
    lake.write("SELECT id, 'a' AS v FROM range(3)")
    lake.refresh()
    lake.write("SELECT id, 'a' AS v, IF(id = 1, 1, NULL) AS n FROM range(3)")

    lake.refresh()

    current = {row["id"]: row["n"] for row in raw(lake) if row["is_current"]}
    assert current == {0: None, 1: 1, 2: None}
    assert not has_drift(lake)


@pytest.mark.in_test_all
def test_a_key_that_the_history_lacks_is_named_and_a_new_history_begins(lake):
    lake.write("SELECT id, 'a' AS v FROM range(3)")
    lake.apply(history=True, **POLICY)
    lake.refresh()
    before = lake.rows()
    lake.write("SELECT id AS order_id, 'a' AS v FROM range(3)")
    lake.apply(key=["order_id"], history=True, **POLICY)

    with pytest.raises(HistoryError, match="no key column 'order_id'") as caught:
        lake.refresh()

    assert (lake.rows(), lake.phase()) == (before, "NORMAL")
    assert "leave `history` out" in str(caught.value)
    lake.apply(key=["order_id"], **POLICY)
    lake.refresh()
    shutil.move(lake.root / "orders__history", lake.root / "former")
    lake.apply(key=["order_id"], history=True, **POLICY)
    lake.refresh()
    assert sorted(row["order_id"] for row in raw(lake) if row["is_current"]) == [0, 1, 2]


@pytest.mark.in_test_all
def test_a_key_of_another_type_ends_no_version(lake):
    """Main is made anew with the other type, as its owner wants, and its history is still there."""
    lake.write("SELECT CAST(id AS INT) AS id, 'a' AS v FROM range(3)")
    lake.apply(history=True, guards=GUARDS)
    lake.refresh()
    before = raw(lake)
    shutil.rmtree(lake.root / "orders")
    lake.write("SELECT id, 'a' AS v FROM range(3)")

    with pytest.raises(HistoryError, match="'id' is long, in its history integer"):
        lake.refresh(force=True)

    assert raw(lake) == before


@pytest.mark.in_test_all
def test_a_column_of_the_table_alone_that_cannot_be_compared_has_no_versions(kept):
    kept.apply(history=True, guards=GUARDS, schema_policy="ignore")
    kept.sql("ALTER TABLE {t} ADD COLUMN m MAP<STRING, STRING>")
    put(kept, STATES[1])

    assert kept.refresh().outcome is Outcome.PUBLISHED

    current = sorted((row["id"], row["v"], row["n"]) for row in raw(kept) if row["is_current"])
    assert current == [(1, "a", 1), (2, "B", 1), (4, "d", 2), (5, "e", 1)]
    assert not has_drift(kept)


@pytest.mark.in_test_all
def test_a_row_whose_copy_in_another_partition_is_mended_keeps_its_version(lake):
    lake.write("SELECT id, id % 3 AS p, 'a' AS v FROM range(9)")
    lake.apply(history=True, partition_by=["p"], guards=GUARDS)
    lake.refresh()
    lake.sql("INSERT INTO {t} SELECT id, 2 AS p, v FROM {t} WHERE id = 1")
    lake.write("SELECT id, id % 3 AS p, IF(id = 3, 'b', 'a') AS v FROM range(9)")
    lake.refresh(partitions=[["0"]])

    lake.refresh(force=True)

    current = sorted((row["id"], row["p"], row["v"]) for row in raw(lake) if row["is_current"])
    assert current == lake.rows()
    assert not has_drift(lake)


@pytest.mark.in_test_all
def test_a_fence_whose_answer_is_lost_keeps_nobody_from_publishing(kept, at_point):
    put(kept, STATES[1])
    with dying_at("publish.after"):
        kept.refresh()
    kept.clock.pass_ms(kept.settings.lease_ms + 1)

    def lose() -> None:
        raise EngineError("orders", "the connection was reset")

    at_point("fence_history.after", lose)

    assert kept.refresh().outcome is Outcome.PUBLISHED
    assert versions(kept) == of_main(kept)


@pytest.mark.in_test_all
def test_a_history_that_has_not_begun_is_no_drift(lake):
    put(lake, STATES[0])
    lake.apply(guards=GUARDS)
    lake.refresh()
    lake.apply(history=True, guards=GUARDS)

    assert not has_drift(lake)


@pytest.mark.in_test_all
def test_the_ends_of_a_wide_table_s_versions_have_statistics(lake):
    wide = ", ".join(f"id AS c{number}" for number in range(40))
    lake.write(f"SELECT id, 'a' AS v, {wide} FROM range(3)")
    lake.apply(history=True, guards=GUARDS)
    lake.refresh()
    lake.write(f"SELECT id, IF(id = 1, 'b', 'a') AS v, {wide} FROM range(3)")
    lake.refresh()

    texts = [file.read_text() for file in sorted((lake.root / "orders__history/_delta_log").glob("*.json"))]
    added = [json.loads(line)["add"] for text in texts for line in text.splitlines() if '"add"' in line]
    ended = [json.loads(each["stats"]) for each in added if each["partitionValues"]["is_current"] == "false"]
    assert ended
    assert all({"id", "valid_from", "valid_to"} <= set(each["maxValues"]) for each in ended)


@pytest.mark.in_test_all
@pytest.mark.parametrize("x", ["", "1.5D AS x, "], ids=["gone", "of another type"])
def test_a_history_that_was_created_for_a_refused_refresh_begins_with_the_columns_that_come(lake, x):
    wide = ", ".join(f"id AS c{number}" for number in range(40))
    lake.write(f"SELECT id, {wide} FROM range(9)")
    lake.apply(schema_policy="add")
    lake.refresh()
    lake.write(f"SELECT id, 'x' AS x, {wide} FROM range(1)")
    lake.apply(schema_policy="add", history=True)
    with pytest.raises(GuardRefusedError):
        lake.refresh()
    lake.write(f"SELECT id, {x}{wide} FROM range(10)")

    lake.refresh()

    assert versions(lake) == of_main(lake)
    assert {row.get("x") for row in raw(lake)} == {1.5 if x else None}


@pytest.mark.in_test_all
def test_a_file_from_before_1970_is_no_reason_to_end(lake):
    place = lake.root / "raw/orders"
    place.mkdir(parents=True)
    (place / "1.csv").write_text("id,v\n1,a\n")
    os.utime(place / "1.csv", (-86_400, -86_400))
    lake.apply(source=Files("raw/orders", format="csv", schema="id INT, v STRING"), history={"time": "source"})

    assert lake.refresh().outcome is Outcome.PUBLISHED
    assert [row["valid_from"].year for row in raw(lake)] == [1970]


@pytest.mark.in_test_all
@pytest.mark.parametrize("gone", ["orders", "orders__history", None])
def test_a_drop_removes_what_is_left(kept, gone):
    """A drop that was killed, or a person, has removed one of the tables."""
    if gone is not None:
        shutil.rmtree(kept.root / gone)

    kept.refresher().drop("orders", kept.caller(), delete_main=True)

    assert not any((kept.root / each).exists() for each in ("orders", "orders__history"))
