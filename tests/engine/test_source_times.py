"""The time of the source's state that main has, of its newest commit or file, recorded at publish and at skip."""

from __future__ import annotations

import os
from datetime import datetime

import pytest

from airflow_mv_provider.core.definition.freshness import MeasuredFrom
from airflow_mv_provider.core.outcome import Outcome

pytestmark = pytest.mark.slow


def seconds(iso):
    return None if iso is None else datetime.fromisoformat(iso).timestamp()


def commit_time(lake, path="raw/orders"):
    return lake.sql("DESCRIBE HISTORY {t} LIMIT 1", path=path)[0].timestamp.timestamp()


def test_a_refresh_records_when_its_source_came_to_its_state_also_if_nothing_is_new(lake):
    lake.write("SELECT id, 'a' AS v FROM range(3)")
    for file in (lake.root / "raw/orders/_delta_log").glob("*.json"):
        os.utime(file, (file.stat().st_mtime - 7200,) * 2)  # what Delta takes for the time of the commit
    lake.apply(freshness={"target": 3600, "measured_from": "source"})
    first, again = lake.refresh(), lake.refresh()
    table = lake.store.table("orders")

    assert (first.outcome, again.outcome) == (Outcome.PUBLISHED, Outcome.NOTHING_TO_DO)
    assert seconds(first.source_at) == seconds(again.source_at) == pytest.approx(commit_time(lake), abs=0.002)
    assert lake.store.status(table).is_late
    assert lake.store.age_s(table.id) < 600
    assert lake.store.age_s(table.id, MeasuredFrom.SOURCE) > 7000


@pytest.mark.in_test_all
def test_files_are_as_old_as_the_newest_of_them(lake):
    folder = lake.root / "raw/files"
    folder.mkdir(parents=True)
    for number, age_s in ((1, 900_000), (2, 90_000)):
        file = folder / f"{number}.csv"
        file.write_text(f"id,v\n{number},a\n")
        os.utime(file, (1_700_000_000 - age_s, 1_700_000_000 - age_s))
    source = {"type": "files", "path": "raw/files/*.csv", "format": "csv", "schema": "id BIGINT, v STRING"}
    lake.apply(source=source, guards={"max_deleted_fraction": 1.0})

    assert seconds(lake.refresh().source_at) == 1_700_000_000 - 90_000
    (folder / "2.csv").unlink()
    assert seconds(lake.refresh().source_at) == 1_700_000_000 - 900_000


@pytest.mark.in_test_all
def test_a_query_is_as_old_as_the_newest_commit_among_its_inputs(lake):
    lake.write("SELECT id, 'a' AS v FROM range(5)")
    lake.write("SELECT id, 'x' AS w FROM range(5)", path="raw/others")
    inputs = {"o": "raw/orders", "p": "raw/others"}
    lake.apply(source={"type": "query", "sql": "SELECT o.id, p.w AS v FROM o JOIN p ON o.id = p.id", "inputs": inputs})

    assert seconds(lake.refresh().source_at) == pytest.approx(
        max(commit_time(lake), commit_time(lake, "raw/others")), abs=0.002
    )


@pytest.mark.in_test_all
def test_main_after_a_rollback_has_no_time_of_its_source(lake):
    lake.write("SELECT id, 'a' AS v FROM range(3)")
    lake.apply()
    lake.refresh()
    version = lake.versions()
    lake.sql("UPDATE {t} SET v = 'b'", path="raw/orders")
    lake.refresh()
    lake.refresher().roll_back("orders", str(version), lake.caller(user="bob"), "was right")
    table = lake.store.table("orders")

    assert lake.store.history(table.id)[0].source_at is None
    assert lake.store.status(table).source_as_of is None
