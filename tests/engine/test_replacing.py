"""Main is overwritten where most of it differs; it is the source, row for row."""

from __future__ import annotations

import pytest

from airflow_mv_provider.core.outcome import Outcome
from airflow_mv_provider.exceptions import GuardRefusedError, SealBrokenError
from tests.conftest import Crash
from tests.engine.feeding import change, published_with_a_feed, with_feed

# One group for all that has no group of its own: each of them refreshes several times.
pytestmark = pytest.mark.slow


@pytest.fixture
def table(prepared):
    return published_with_a_feed(prepared)


@pytest.mark.in_test_all
def test_first_refresh_writes_main_without_comparing(table):
    (report,) = table.store.history(table.store.table("orders").id)

    assert (report.strategy, report.rows_inserted, report.rows_deleted) == ("replace", 60, 0)
    assert report.bytes_main > 0


@pytest.mark.in_test_all
def test_main_is_replaced_where_it_is_asked_for(table):
    before = table.versions()
    change(table, "UPDATE {t} SET v = 'all new'")

    report = table.refresh(strategy="replace")

    assert (report.strategy, report.rows_inserted, report.rows_updated, report.rows_deleted) == ("replace", 0, 60, 0)
    assert table.versions() == before + 1
    assert table.rows("orders") == table.rows("raw/orders")
    assert table.refresh().outcome is Outcome.NOTHING_TO_DO
    again = table.refresh(force=True)
    assert again.rows_inserted + again.rows_updated + again.rows_deleted == 0


@pytest.mark.in_test_all
def test_replacing_a_main_that_is_right_writes_nothing(table):
    before = table.versions()

    report = table.refresh(strategy="replace", force=True)

    assert (report.rows_inserted, report.rows_deleted, report.rows_unchanged) == (0, 0, 60)
    assert table.versions() == before + 1  # the fence of a refresh without another commit


@pytest.mark.in_test_all
def test_guards_judge_a_replacement_by_its_keys(lake):
    with_feed(lake)
    lake.apply(strategy="replace")
    lake.refresh()
    before = lake.rows("orders")
    change(lake, "DELETE FROM {t} WHERE id < 40")

    with pytest.raises(GuardRefusedError, match="40 of the table's 60 rows"):
        lake.refresh()

    assert (lake.rows("orders"), lake.phase()) == (before, "NORMAL")
    change(lake, "INSERT INTO {t} SELECT id, 1, 'new' FROM range(10, 40)")
    assert lake.refresh().strategy == "replace"
    assert lake.rows("orders") == lake.rows("raw/orders")


@pytest.mark.in_test_all
@pytest.mark.parametrize("point", ["seal.after", "publish.before", "publish.after", "published.after"])
@pytest.mark.parametrize("is_first", [True, False], ids=["first", "later"])
@pytest.mark.victim("refresh crashed")
def test_replacement_killed_anywhere_comes_out_right(lake, crash_at, point, is_first):
    with_feed(lake)
    lake.apply(strategy="replace")
    if not is_first:
        lake.refresh()
        change(lake, "UPDATE {t} SET v = 'all new'")
    crash_at(point)
    with pytest.raises(Crash):
        lake.refresh()
    lake.clock.pass_ms(lake.settings.lease_ms + 1)

    lake.refresh()

    assert lake.rows("orders") == lake.rows("raw/orders")
    again = lake.refresh(force=True, strategy="corrections")
    assert again.rows_inserted + again.rows_updated + again.rows_deleted == 0
    assert lake.workspaces() == []


@pytest.mark.in_test_all
@pytest.mark.sample(1)
@pytest.mark.parametrize("point", ["seal.after", "publish.before"])
@pytest.mark.parametrize("is_first", [True, False], ids=["first", "later"])
def test_foreign_write_beside_a_replacement_is_corrected(lake, at_point, point, is_first):
    with_feed(lake)
    lake.apply(strategy="replace", guards={"max_deleted_fraction": 1.0})
    if not is_first:
        lake.refresh()
        change(lake, "UPDATE {t} SET v = 'all new'")
    at_point(point, lambda: lake.sql("INSERT INTO {t} VALUES (777, 77, 'foreign')"))

    report = lake.refresh()

    assert report.outcome is Outcome.PUBLISHED
    assert lake.rows("orders") == lake.rows("raw/orders")


@pytest.mark.in_test_all
def test_copy_that_lost_rows_does_not_replace_main(lake, at_point):
    place = lake.root / "raw/orders"
    place.mkdir(parents=True)
    (place / "a.csv").write_text("id,v\n1,a\n2,b\n3,c\n")
    source = {"type": "files", "path": "raw/orders/*.csv", "format": "csv", "schema": "id INT, v STRING"}
    lake.apply(source=source | {"options": {"header": "true"}})

    def truncate() -> None:
        copy = next((lake.root / "_mv").glob("*/*/staging-*"))
        for file in copy.glob("*.parquet"):
            file.unlink()

    at_point("seal.after", truncate)

    with pytest.raises(SealBrokenError):
        lake.refresh()

    assert (lake.rows("orders"), lake.phase()) == ([], "NORMAL")
    lake.refresh()
    assert lake.rows("orders") == [(1, "a"), (2, "b"), (3, "c")]
