"""A source's folder is put back from a backup and written again: the same version number, other rows."""

from __future__ import annotations

import shutil
from collections import Counter

import pytest

from airflow_mv_provider.core.outcome import Outcome
from airflow_mv_provider.exceptions import SourceChangedError
from tests.engine.feeding import FEED, ROWS

pytestmark = pytest.mark.slow

SOURCES = {
    "delta": {},
    "query": {"source": {"type": "query", "sql": "SELECT * FROM raw", "inputs": {"raw": "raw/orders"}}},
}


def backed_up(lake):
    """Write a source and keep a copy of its folder."""
    lake.write(ROWS)
    lake.sql(FEED, path="raw/orders")
    shutil.copytree(lake.root / "raw/orders", lake.root / "backup")


def put_back(lake):
    shutil.rmtree(lake.root / "raw/orders")
    shutil.copytree(lake.root / "backup", lake.root / "raw/orders")


def why_all_is_read(report):
    (judged,) = (each for each in report.estimates if each.strategy == "incremental")
    return judged.why


def is_the_source(lake):
    assert Counter(lake.rows("orders")) == Counter(lake.rows("raw/orders"))


@pytest.mark.parametrize("kind", ["delta", pytest.param("query", marks=pytest.mark.in_test_all)])
@pytest.mark.parametrize("more", [pytest.param(0, marks=pytest.mark.in_test_all), 1], ids=["same version", "one more"])
def test_another_commit_of_the_same_version_is_noticed(lake, kind, more):
    backed_up(lake)
    lake.apply(**SOURCES[kind])
    lake.sql("INSERT INTO {t} VALUES (100, 1, 'lost with the backup')", path="raw/orders")
    lake.refresh()
    version = lake.versions("raw/orders")
    put_back(lake)
    lake.sql("UPDATE {t} SET v = 'other' WHERE id < 12", path="raw/orders")
    assert lake.versions("raw/orders") == version
    for number in range(more):
        lake.sql(f"INSERT INTO {{t}} VALUES ({200 + number}, 1, 'new')", path="raw/orders")

    report = lake.refresh()

    assert report.outcome is Outcome.PUBLISHED
    assert "is not the one that was read" in why_all_is_read(report)
    is_the_source(lake)
    assert lake.refresh().outcome is Outcome.NOTHING_TO_DO


@pytest.mark.in_test_all
def test_backup_that_has_the_version_as_it_was_read_changes_nothing(lake):
    backed_up(lake)
    lake.apply()
    lake.refresh()
    put_back(lake)

    assert lake.refresh().outcome is Outcome.NOTHING_TO_DO

    lake.sql("INSERT INTO {t} VALUES (100, 1, 'new')", path="raw/orders")
    assert lake.refresh().rows_inserted == 1
    is_the_source(lake)


def test_source_that_is_put_back_between_pin_and_seal_is_not_published(lake, at_point):
    backed_up(lake)
    lake.apply()
    lake.sql("INSERT INTO {t} VALUES (100, 1, 'lost with the backup')", path="raw/orders")

    def another() -> None:
        put_back(lake)
        lake.sql("UPDATE {t} SET v = 'other' WHERE id < 12", path="raw/orders")

    at_point("staging.before", another)

    with pytest.raises(SourceChangedError):
        lake.refresh()

    assert lake.refresh().outcome is Outcome.PUBLISHED
    is_the_source(lake)


@pytest.mark.in_test_all
def test_everything_is_read_where_the_log_was_cleaned_up_to_the_last_version_that_was_read(lake):
    backed_up(lake)
    lake.apply()
    lake.refresh()
    read = lake.versions("raw/orders")
    for number in range(12):  # a checkpoint after ten, on which the version is built then
        lake.sql(f"INSERT INTO {{t}} VALUES ({200 + number}, 1, 'new')", path="raw/orders")
    (lake.root / f"raw/orders/_delta_log/{read:020}.json").unlink()

    report = lake.refresh()

    assert "no longer has version" in why_all_is_read(report)
    is_the_source(lake)
