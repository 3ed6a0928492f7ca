"""Large buckets first, digests that are kept, damaged or lost."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from airflow_mv_provider.core import strategy
from airflow_mv_provider.core.outcome import Outcome
from airflow_mv_provider.exceptions import SourceChangedError
from airflow_mv_provider.spark.compare import buckets, large_buckets
from airflow_mv_provider.spark.compare import digests as digest_tables
from tests.conftest import Crash
from tests.engine.feeding import ROWS, change, published_with_a_feed, with_feed

# One group for all that has no group of its own: each of them refreshes several times.
pytestmark = [pytest.mark.slow, pytest.mark.large_tables]


@pytest.fixture
def table(prepared):
    return published_with_a_feed(prepared)


@pytest.fixture
def large_first(monkeypatch):
    """Take the ways of large tables, with large buckets that are few enough to be seen to be the same."""
    monkeypatch.setattr(buckets, "MIN_ROWS_TO_CHOOSE", 0)
    monkeypatch.setattr(large_buckets, "_IN_TABLE", 16)


@pytest.fixture
def small_alone(monkeypatch):
    """Take the way of large tables of which many rows are expected to differ."""
    monkeypatch.setattr(buckets, "MIN_ROWS_TO_CHOOSE", 0)
    monkeypatch.setattr(strategy, "is_large_first", lambda *_: False)


def written(table) -> set[str]:
    return {path.parent.name for path in (table.root / "_mv").glob("*/digests/*/*")}


@pytest.mark.in_test_all
def test_digests_of_the_last_publish_stay_where_no_row_is_another(table, large_first):
    before, kept = written(table), table.digests()

    report = table.refresh(force=True)

    assert (report.outcome, report.rows_unchanged, report.bytes_staging) == (Outcome.PUBLISHED, 60, 0)
    assert (written(table), table.digests()) == (before, kept)
    change(table, "UPDATE {t} SET v = 'x' WHERE id = 5")
    assert table.refresh(strategy="corrections").rows_updated == 1
    assert written(table).isdisjoint(before)


@pytest.mark.in_test_all
@pytest.mark.parametrize(
    "layout",
    [{}, {"partition_by": ["p"]}, {"partition_by": ["p"], "chunk_rows": 4}, {"hash_partitions": 4}],
    ids=["flat", "partitioned", "sliced", "hash partitions"],
)
def test_only_large_buckets_that_differ_are_summed_up_by_small_ones(lake, large_first, layout, monkeypatch):
    lake.write(ROWS)
    lake.apply(strategy="corrections", **layout)
    lake.refresh()
    lake.refresh(force=True)  # nothing is expected to change then
    found = "SELECT id, p, if(id = 5, 'x', v) AS v"
    lake.write(f"{found} FROM ({ROWS}) WHERE id <> 6 UNION ALL SELECT 99, 2, 'n'")  # its log does not say how much
    for each in ("write", "write_beside"):  # which sum up everything by small ones
        monkeypatch.delattr(digest_tables, each)

    report = lake.refresh()

    assert (report.rows_inserted, report.rows_updated, report.rows_deleted) == (1, 1, 1)
    assert lake.rows("orders") == lake.rows("raw/orders")
    kept = lake.digests()
    monkeypatch.undo()
    lake.sql("INSERT INTO {t} VALUES (-1, 0, 'foreign')")  # so that all of main and of the source are summed up
    again = lake.refresh()
    assert (again.rows_inserted, again.rows_updated, again.rows_deleted) == (0, 0, 1)
    assert lake.digests() == kept


@pytest.mark.in_test_all
@pytest.mark.parametrize("point", ["seal.after", "progress.after", "published.before"])
def test_refresh_that_keeps_the_old_digests_may_be_killed(table, large_first, crash_at, point):
    kept = table.digests()
    crash_at(point)
    with pytest.raises(Crash):
        table.refresh(force=True)
    table.clock.pass_ms(table.settings.lease_ms + 1)

    table.refresh()

    assert table.digests() == kept
    assert table.rows("orders") == table.rows("raw/orders")


@pytest.mark.in_test_all
def test_foreign_write_beside_a_refresh_that_keeps_the_old_digests(table, large_first, at_point):
    kept = table.digests()
    at_point("seal.after", lambda: table.sql("INSERT INTO {t} VALUES (777, 77, 'foreign')"))

    assert table.refresh(force=True).rows_deleted == 1

    assert table.rows("orders") == table.rows("raw/orders")
    assert table.digests() == kept


@pytest.mark.in_test_all
@pytest.mark.in_process
def test_nothing_is_kept_in_memory_of_a_refresh_that_fails_before_its_seal(table, large_first, at_point, spark):
    spark.catalog.clearCache()  # of what other tests have left
    at_point("staging.after", lambda: (shutil.rmtree(table.root / "raw/orders"), with_feed(table)))

    with pytest.raises(SourceChangedError):
        table.refresh(force=True)

    assert spark._jsparkSession.sharedState().cacheManager().isEmpty()


STRATEGIES = pytest.mark.parametrize("way", ["large_first", "small_alone", "small table"])


@pytest.fixture
def small_or_large(way, request):
    """Take the way of large tables, or the one that a table of this size takes anyway."""
    if way != "small table":
        request.getfixturevalue(way)


@pytest.mark.in_test_all
@pytest.mark.sample(1)
@pytest.mark.parametrize(
    "content", [None, b"", b"no Parquet", b"PAR1 garbage PAR1", "twice"], ids=["gone", "empty", "text", "bad", "twice"]
)
@STRATEGIES
def test_damaged_digests_are_not_believed_at_first_sight(table, content, way, small_or_large):
    kept = table.digests()
    published = table.store.state(table.store.table("orders").id).published_digests
    for file in list(Path(published.path).glob("*.parquet")):
        if content == "twice":
            shutil.copy(file, file.with_name(f"part-again-{file.name}"))
            continue
        file.unlink()
        if content is not None:
            file.write_bytes(content)

    assert table.refresh(force=True).rows_unchanged == 60
    if way != "large_first":  # there no row was another, and nobody has looked at them
        assert table.digests() == kept
    change(table)
    table.refresh()
    assert table.rows("orders") == table.rows("raw/orders")
    kept = table.digests()
    table.sql("INSERT INTO {t} VALUES (777, 77, 'foreign')")
    assert table.refresh().rows_deleted == 1
    assert table.digests() == kept  # summed up anew


@pytest.mark.in_test_all
@pytest.mark.parametrize("point", ["seal.after", "published.before"])
def test_refresh_that_is_killed_is_not_held_up_by_digests_that_are_lost(table, large_first, crash_at, point):
    shutil.rmtree(table.store.state(table.store.table("orders").id).published_digests.path)
    crash_at(point)
    with pytest.raises(Crash):
        table.refresh(force=True)
    table.clock.pass_ms(table.settings.lease_ms + 1)

    table.refresh()

    assert table.rows("orders") == table.rows("raw/orders")
    assert (table.phase(), table.workspaces()) == ("NORMAL", [])


@pytest.mark.in_test_all
@STRATEGIES
def test_digests_that_are_lost_after_the_seal_are_not_needed(table, small_or_large, at_point):
    change(table)
    at_point("seal.after", lambda: [shutil.rmtree(each) for each in (table.root / "_mv").glob("*/digests/*")])

    report = table.refresh(strategy="corrections")

    assert (report.rows_inserted, report.rows_updated, report.rows_deleted) == (1, 2, 1)
    assert table.rows("orders") == table.rows("raw/orders")
    change(table, "UPDATE {t} SET v = 'once more' WHERE id = 30")
    table.refresh()
    assert table.rows("orders") == table.rows("raw/orders")
