"""A refresh makes main equal to its source, and only what differs is written."""

from __future__ import annotations

import json

import pytest
from deltalake import DeltaTable

from airflow_mv_provider.core.outcome import Outcome

pytestmark = pytest.mark.slow


def test_first_refresh_creates_main_equal_to_the_source(lake):
    lake.write("SELECT id, concat('v', id) AS v FROM range(50)")
    lake.apply()

    report = lake.refresh()

    assert report.outcome is Outcome.PUBLISHED
    assert (report.rows_inserted, report.rows_updated, report.rows_deleted) == (50, 0, 0)
    assert lake.rows("orders") == lake.rows("raw/orders")


def test_unchanged_source_is_not_read_again(lake):
    lake.write("SELECT id FROM range(5)")
    lake.apply()
    lake.refresh()
    before = lake.versions()

    report = lake.refresh()

    assert report.outcome is Outcome.NOTHING_TO_DO
    assert lake.versions() == before


def test_only_the_differences_are_written(lake):
    lake.write("SELECT id, id % 3 AS p, concat('v', id) AS v FROM range(100)")
    lake.apply(partition_by=["p"])
    lake.refresh()
    lake.sql("UPDATE {t} SET v = 'late' WHERE id IN (3, 6)", path="raw/orders")
    lake.sql("DELETE FROM {t} WHERE id = 9", path="raw/orders")
    lake.sql("INSERT INTO {t} VALUES (1000, 0, 'new')", path="raw/orders")

    report = lake.refresh()

    assert (report.rows_inserted, report.rows_updated, report.rows_deleted, report.rows_unchanged) == (1, 2, 1, 97)
    assert lake.rows("orders") == lake.rows("raw/orders")
    assert lake.workspaces() == []


@pytest.mark.in_test_all
def test_refresh_right_after_the_last_publish_is_one_commit(lake):
    """And one that publishes nothing, or that comes after another commit, leaves a fence."""
    lake.write("SELECT id, 0 AS v FROM range(5)")
    lake.apply()
    lake.refresh()
    main = str(lake.root / "orders")

    def steps() -> list[str]:
        commits = DeltaTable(main).history()[::-1]
        return [json.loads(c["userMetadata"])["mv"]["step"] for c in commits if "userMetadata" in c]

    def refreshed(n: int, **request: bool) -> list[str]:
        lake.sql(f"UPDATE {{t}} SET v = {n} WHERE id < 2", path="raw/orders")
        assert lake.refresh(**request).outcome is Outcome.PUBLISHED
        assert lake.rows("orders") == lake.rows("raw/orders")
        return steps()[2:]

    assert steps() == ["fence", "publish"]
    assert refreshed(1) == ["publish"]
    assert refreshed(1, force=True) == ["publish", "fence"]
    assert refreshed(2) == ["publish", "fence", "publish"]
    lake.sql("ALTER TABLE {t} SET TBLPROPERTIES ('team' = 'x')")
    assert refreshed(3) == ["publish", "fence", "publish", "fence", "publish"]


@pytest.mark.in_test_all
def test_log_tells_the_story_of_a_refresh_by_its_id(lake, caplog):
    lake.write("SELECT id FROM range(5)")
    lake.apply()

    with caplog.at_level("DEBUG", "airflow_mv_provider"):
        report = lake.refresh()

    told = [record.getMessage() for record in caplog.records if f"refresh {report.refresh_id}" in record.getMessage()]
    story = (
        "minted",
        "no earlier process can still change",
        "reading and comparing the source",
        "publishing the changes",
        "main since",
        "looking in the table's log",
        "removing working files",
    )
    at = 0
    for part in story:
        at = next(n for n, line in enumerate(told) if n >= at and part in line) + 1


@pytest.mark.in_test_all
@pytest.mark.parametrize("publish", ["atomic", "progressive"])
def test_the_size_of_main_is_known_after_each_publish_whoever_has_written_in_between(lake, publish):
    """Counted from the log alone: Delta's own count of all files takes half a second."""
    lake.write("SELECT id, id % 3 AS p, concat('v', id) AS v FROM range(100)")
    any_change = {"allow_empty": True, "max_deleted_fraction": 1.0}
    lake.apply(key=["id", "p"], partition_by=["p"], publish=publish, guards=any_change)
    main, asked = lake.root / "orders", []

    def sizes(*statements: str, **request: object) -> tuple[int, int]:
        for statement in statements:
            lake.sql(statement, path="orders" if "-- main" in statement else "raw/orders")
        assert lake.refresh(**request).outcome is Outcome.PUBLISHED
        files = DeltaTable(str(main)).get_add_actions(flatten=True)["size_bytes"].to_pylist()
        asked.append(sum(files))
        return sum(files), lake.store.overview("orders").lines[0].num_bytes

    late = "UPDATE {t} SET v = 'late' WHERE id IN (3, 6)"
    for found in (
        sizes(),
        sizes(late),
        sizes("OPTIMIZE {t} -- main", "DELETE FROM {t} WHERE id = 9"),
        sizes("DELETE FROM {t} WHERE id < 5 -- main", "UPDATE {t} SET v = 'x' WHERE id = 50 -- main"),
        sizes("INSERT INTO {t} VALUES (7, 7, 'y') -- main", "ALTER TABLE {t} SET TBLPROPERTIES ('a' = 'b') -- main"),
        sizes("RESTORE TABLE {t} TO VERSION AS OF 3 -- main"),
        sizes("UPDATE {t} SET v = 'z'", **({} if publish == "progressive" else {"strategy": "replace"})),
    ):
        assert found[0] == found[1]
    assert len(set(asked)) > (4 if publish == "atomic" else 3), "it did change"
