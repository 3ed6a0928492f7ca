"""What a refresh has changed, looked at long after it: main as it left it against main as it found it."""

from __future__ import annotations

import pytest

from airflow_mv_provider.exceptions import ArgumentError, VersionGoneError
from airflow_mv_provider.report_text.difference_text import difference_text
from tests.engine.test_audit import remove_files

pytestmark = pytest.mark.slow


@pytest.fixture
def past(lake):
    """A refresh that inserted, updated and deleted, without kept rows, and others after it."""
    lake.write("SELECT id, id % 2 AS p, 'a' AS v FROM range(6)")
    lake.apply(partition_by=["p"])
    lake.refresh()
    lake.sql("DELETE FROM {t} WHERE id = 0", path="raw/orders")
    lake.sql("UPDATE {t} SET v = 'b' WHERE id = 3", path="raw/orders")
    lake.sql("INSERT INTO {t} VALUES (8, 0, 'new')", path="raw/orders")
    report = lake.refresh()
    lake.sql("UPDATE {t} SET v = 'mine' WHERE id = 5")  # of another program
    lake.sql("UPDATE {t} SET v = 'c' WHERE id = 4", path="raw/orders")
    lake.refresh()
    return report


def look(lake, report):
    return lake.refresher().past_difference("orders", report.refresh_id, lake.caller())


@pytest.mark.in_test_all
def test_rows_of_a_past_refresh_are_found_again_and_kept_with_it(lake, past):
    before = lake.rows(), lake.versions(), lake.workspaces()

    found = look(lake, past)

    assert [(row.operation, row.key, row.before, row.after) for row in found.rows] == [
        ("delete", {"id": 0}, {"id": 0, "p": 0, "v": "a"}, None),
        ("update", {"id": 3}, {"id": 3, "p": 1, "v": "a"}, {"id": 3, "p": 1, "v": "b"}),
        ("insert", {"id": 8}, None, {"id": 8, "p": 0, "v": "new"}),
    ]
    assert (found.refresh_id, found.columns) == (past.refresh_id, {"v": 1})
    assert "published" in difference_text(found).splitlines()[0]
    assert (lake.rows(), lake.versions(), lake.workspaces()) == before
    num_refreshes = len(lake.store.history(1))
    assert look(lake, past) == found
    assert len(lake.store.history(1)) == num_refreshes, "it is not compared again"
    assert lake.store.sample(past.refresh_id).rows == found.rows, "the page shows them"


@pytest.mark.in_test_all
def test_versions_that_cannot_be_read_any_more_are_named(lake, past):
    remove_files(lake.root / "orders", past.main_version)

    with pytest.raises(VersionGoneError, match=f"at version {past.main_version}"):
        look(lake, past)
    assert lake.store.sample(past.refresh_id) is None


@pytest.mark.in_test_all
def test_columns_that_came_since_are_no_change_of_a_past_refresh(lake, past):
    lake.write("SELECT id, id % 2 AS p, 'a' AS v, 1 AS extra FROM range(6)")
    lake.apply(partition_by=["p"], schema_policy="add")
    added = lake.refresh()

    with pytest.raises(VersionGoneError, match="the columns were different then"):
        look(lake, past)
    found = look(lake, added)
    rows = {row.key["id"]: (row.before, row.after) for row in found.rows}
    assert rows[5] == ({"id": 5, "p": 1, "v": "a", "extra": None}, {"id": 5, "p": 1, "v": "a", "extra": 1})


@pytest.mark.in_test_all
def test_the_first_load_has_inserted_all_rows(lake, past):
    first = lake.store.history(1)[-1]

    found = look(lake, first)

    assert [(row.operation, row.after["v"]) for row in found.rows] == [("insert", "a")] * 6


@pytest.mark.in_test_all
def test_columns_that_are_sensitive_by_now_are_hashed(lake, past):
    lake.apply(partition_by=["p"], sensitive=["v"])

    found = look(lake, past)

    assert {str(row.after["v"])[:7] for row in found.rows if row.after} == {"sha256:"}
    with pytest.raises(ArgumentError, match="names no refreshes"):
        lake.refresher().past_difference("orders", "0123456789", lake.caller())
