"""Whichever way a refresh takes, main is the source, row for row; and it says which way it took, and why."""

from __future__ import annotations

import logging
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from airflow_mv_provider.core import strategy
from airflow_mv_provider.core.outcome import Outcome
from airflow_mv_provider.core.scope.request import Request
from airflow_mv_provider.exceptions import (
    DuplicateKeyError,
    GuardRefusedError,
    NullKeyError,
    SealBrokenError,
    SourceChangedError,
    StrategyError,
)
from airflow_mv_provider.report_text import plan_text
from airflow_mv_provider.spark.compare import buckets, large_buckets
from airflow_mv_provider.spark.compare import digests as digest_tables
from tests.conftest import Crash

# One group for all that has no group of its own: each of them refreshes several times.
pytestmark = pytest.mark.slow

FEED = "ALTER TABLE {t} SET TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true')"
ROWS = "SELECT id, CAST(id % 3 AS INT) AS p, concat('v', id) AS v FROM range(60)"

RAW = {"type": "delta", "path": "raw/orders"}


def with_feed(lake: Any) -> None:
    lake.write(ROWS)
    lake.sql(FEED, path="raw/orders")


@pytest.fixture
def table(prepared):
    """Published once, from a source that keeps a change data feed."""

    def build(lake):
        with_feed(lake)
        lake.apply(guards={"max_deleted_fraction": 1.0})
        lake.refresh()

    return prepared("with feed", build)


def change(table, *statements):
    for statement in statements or (
        "UPDATE {t} SET v = 'late' WHERE id IN (3, 4)",
        "DELETE FROM {t} WHERE id = 9",
        "INSERT INTO {t} VALUES (1000, 7, 'new'), (1001, 7, 'gone again')",
        "DELETE FROM {t} WHERE id = 1001",
        "UPDATE {t} SET v = 'later' WHERE id = 3",
    ):
        table.sql(statement, path="raw/orders")


def test_changes_alone_are_read_where_the_source_lists_them(table):
    change(table)

    report = table.refresh()

    assert (report.strategy, report.outcome) == ("incremental", Outcome.PUBLISHED)
    assert (report.rows_inserted, report.rows_updated, report.rows_deleted, report.rows_unchanged) == (1, 2, 1, 57)
    assert table.rows("orders") == table.rows("raw/orders")
    kept = table.digests()
    again = table.refresh(force=True)
    assert (again.strategy, again.rows_inserted + again.rows_updated + again.rows_deleted) == ("corrections", 0)
    assert table.digests() == kept
    assert table.workspaces() == []


@pytest.mark.in_test_all
def test_every_way_is_judged_and_says_why(table):
    change(table)

    chosen, *others = table.refresh().estimates

    assert (chosen.strategy, chosen.why) == ("incremental", "chosen")
    assert {each.strategy for each in others} == {"corrections", "replace"}
    assert all(each.seconds is not None and each.why for each in others)


def test_commits_without_changes_of_rows_are_nothing_to_do(table):
    before = table.versions()
    change(table, "OPTIMIZE {t}", "ALTER TABLE {t} SET TBLPROPERTIES ('note' = 'x')")

    report = table.refresh()

    assert (report.outcome, report.strategy) == (Outcome.NOTHING_TO_DO, "skip")
    assert "has the rows that main has" in report.reason
    assert table.versions() == before


@pytest.mark.in_test_all
def test_source_of_which_the_published_version_is_gone_is_read(table):
    """Nobody knows any more whether its columns are what they were."""
    change(table, *(f"ALTER TABLE {{t}} SET TBLPROPERTIES ('delta.checkpointInterval' = '{n}')" for n in (1, 2)))
    log_of_source = table.root / "raw/orders/_delta_log"
    for version in (0, 1):  # with the feed's property: what was published
        (log_of_source / f"{version:020}.json").unlink()

    report = table.refresh()

    assert (report.outcome, report.rows_unchanged) == (Outcome.PUBLISHED, 60)
    assert table.rows("orders") == table.rows("raw/orders")


def test_plan_says_what_a_refresh_would_do_and_writes_nothing(table):
    before = table.versions()
    assert table.refresher().plan("orders").strategy == "skip"
    change(table)

    plan = table.refresher().plan("orders")
    forced = table.refresher().plan("orders", Request(force=True, strategy="replace"))

    assert (plan.strategy, plan.scope, plan.under_way) == ("incremental", None, None)
    assert forced.strategy == "replace"
    assert (table.versions(), len(table.store.history(table.store.table("orders").id))) == (before, 1)
    assert table.refresh().estimates == plan.estimates
    text = plan_text(plan).splitlines()
    assert text[0] == "orders: incremental"
    assert [line.split()[0] for line in text[-3:]] == ["incremental", "corrections", "replace"]


@pytest.mark.in_test_all
def test_a_row_may_move_to_another_partition(lake):
    with_feed(lake)
    lake.apply(partition_by=["p"])
    lake.refresh()
    change(lake, "UPDATE {t} SET p = 2 WHERE id IN (0, 3)", "INSERT INTO {t} VALUES (99, 5, 'new partition')")

    report = lake.refresh()

    assert report.strategy == "incremental"
    assert lake.rows("orders") == lake.rows("raw/orders")
    kept = lake.digests()
    lake.refresh(force=True)
    assert lake.digests() == kept


@pytest.mark.in_test_all
def test_a_projection_is_applied_to_changes_too(lake):
    with_feed(lake)
    lake.apply(source=RAW | {"select": ["id + 1 AS id", "upper(v) AS v"]})
    lake.refresh()
    change(lake)

    assert lake.refresh().strategy == "incremental"

    expected = lake.sql("SELECT id + 1 AS id, upper(v) AS v FROM {t}", path="raw/orders")
    assert Counter(lake.rows("orders")) == Counter((row.id, row.v) for row in expected)


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    ("definition", "statements", "why"),
    [
        pytest.param(
            {"source": RAW | {"select": ["id", "row_number() OVER (ORDER BY id) AS n"]}},
            (), "more than one row at a time", id="window",
        ),
        pytest.param({"on_conflict": "overwrite", "order_by": ["v"]}, (), "on_conflict", id="conflicts"),
        pytest.param({"errors": {}}, (), "error table", id="errors"),
        pytest.param({"key": ["id", "p"], "partition_by": ["p"], "publish": "progressive"}, (), "part by part",
                     id="progressive"),
        pytest.param({}, ("ALTER TABLE {t} ADD COLUMN x INT",), "ADD COLUMNS", id="new column"),
        pytest.param(
            {}, ("ALTER TABLE {t} UNSET TBLPROPERTIES ('delta.enableChangeDataFeed')", "DELETE FROM {t} WHERE id = 1"),
            "keeps no change data feed", id="no feed",
        ),
        pytest.param(
            {}, ("ALTER TABLE {t} SET TBLPROPERTIES ('delta.enableChangeDataFeed' = 'false')",
                 "DELETE FROM {t} WHERE id = 1", FEED),
            "does not reach back", id="feed with a gap",
        ),
    ],
)  # fmt: skip
def test_everything_is_read_where_changes_alone_do_not_tell(lake, definition, statements, why):
    with_feed(lake)
    lake.apply(schema_policy="ignore", **definition)
    lake.refresh()
    change(lake, *(statements or ("UPDATE {t} SET v = 'late' WHERE id = 3",)))

    report = lake.refresh()

    (judged,) = (each for each in report.estimates if each.strategy == "incremental")
    assert (report.strategy, judged.seconds) == ("corrections", None)
    assert why in judged.why
    again = lake.refresh(force=True)
    assert again.rows_inserted + again.rows_updated + again.rows_deleted == 0


@pytest.mark.in_test_all
def test_feed_that_was_removed_is_replaced_by_reading_everything(table, caplog):
    change(table)
    shutil.rmtree(table.root / "raw/orders/_change_data")

    with caplog.at_level(logging.WARNING):
        report = table.refresh()

    assert (report.strategy, report.outcome) == ("corrections", Outcome.PUBLISHED)
    assert "cannot be read" in report.reason
    assert "cannot be read" in caplog.text
    assert table.rows("orders") == table.rows("raw/orders")
    assert table.workspaces() == []


@pytest.mark.in_test_all
def test_strict_table_fails_instead_until_somebody_forces_it(table):
    before = table.rows("orders")
    table.apply(strategy="incremental", strict=True)
    change(table)
    shutil.rmtree(table.root / "raw/orders/_change_data")

    with pytest.raises(StrategyError):
        table.refresh()

    assert (table.rows("orders"), table.phase()) == (before, "NORMAL")
    with pytest.raises(StrategyError, match="failed"):
        table.refresh()
    assert table.refresh(force=True).outcome is Outcome.PUBLISHED
    assert table.rows("orders") == table.rows("raw/orders")


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    ("statement", "error"),
    [
        ("INSERT INTO {t} VALUES (3, 0, 'twice')", DuplicateKeyError),
        ("INSERT INTO {t} VALUES (99, 0, 'a'), (99, 0, 'b')", DuplicateKeyError),
        ("INSERT INTO {t} VALUES (99, 0, 'a'), (99, 0, 'a')", DuplicateKeyError),
        ("UPDATE {t} SET id = 4 WHERE id = 3", DuplicateKeyError),
        ("UPDATE {t} SET id = NULL WHERE id = 3", NullKeyError),
    ],
)
@pytest.mark.parametrize("partition_by", [[], ["p"]], ids=["flat", "partitioned"])
def test_bad_keys_among_the_changes_are_found(lake, statement, error, partition_by):
    with_feed(lake)
    lake.apply(partition_by=partition_by)
    lake.refresh()
    before = lake.rows("orders")
    change(lake, statement)

    with pytest.raises(error):
        lake.refresh()

    assert lake.store.history(lake.store.table("orders").id, 1)[0].strategy == "incremental"
    assert (lake.rows("orders"), lake.phase()) == (before, "NORMAL")


@pytest.mark.in_test_all
def test_row_with_a_key_in_two_partitions_is_found(lake):
    with_feed(lake)
    lake.apply(partition_by=["p"])
    lake.refresh()
    change(lake, "INSERT INTO {t} VALUES (99, 0, 'a'), (99, 1, 'b')")

    with pytest.raises(DuplicateKeyError):
        lake.refresh()


@pytest.mark.sample(1)
@pytest.mark.parametrize("point", ["staging.after", "seal.before", "seal.after", "progress.after", "publish.after",
                                   "published.after"])  # fmt: skip
@pytest.mark.victim("refresh crashed")
def test_incremental_refresh_killed_anywhere_comes_out_right(table, crash_at, point):
    change(table)
    crash_at(point)
    with pytest.raises(Crash):
        table.refresh()
    table.clock.pass_ms(table.settings.lease_ms + 1)

    table.refresh()

    assert table.rows("orders") == table.rows("raw/orders")
    again = table.refresh(force=True)
    assert again.rows_inserted + again.rows_updated + again.rows_deleted == 0
    assert table.workspaces() == []


@pytest.mark.in_test_all
@pytest.mark.parametrize("point", ["seal.after", "progress.after", "publish.before"])
def test_foreign_write_beside_an_incremental_refresh_is_corrected(table, at_point, point):
    change(table)
    at_point(point, lambda: table.sql("INSERT INTO {t} VALUES (777, 77, 'foreign')"))

    report = table.refresh()

    assert report.outcome is Outcome.PUBLISHED
    assert table.rows("orders") == table.rows("raw/orders")


# -- replace ---------------------------------------------------------------------------------------------------------


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

    assert (report.strategy, report.rows_inserted, report.rows_deleted) == ("replace", 60, 60)
    assert table.versions() == before + 2  # the fence, and one commit
    assert table.rows("orders") == table.rows("raw/orders")
    assert table.refresh().outcome is Outcome.NOTHING_TO_DO
    again = table.refresh(force=True)
    assert again.rows_inserted + again.rows_updated + again.rows_deleted == 0


@pytest.mark.in_test_all
def test_replacing_a_main_that_is_right_writes_nothing(table):
    before = table.versions()

    report = table.refresh(strategy="replace", force=True)

    assert (report.rows_inserted, report.rows_deleted, report.rows_unchanged) == (0, 0, 60)
    assert table.versions() == before + 1  # the fence


@pytest.mark.in_test_all
def test_guards_judge_a_replacement_by_its_keys(lake):
    with_feed(lake)
    lake.apply(strategy="replace")
    lake.refresh()
    before = lake.rows("orders")
    change(lake, "DELETE FROM {t} WHERE id < 40")

    with pytest.raises(GuardRefusedError, match="40 of main's 60 rows"):
        lake.refresh()

    assert (lake.rows("orders"), lake.phase()) == (before, "NORMAL")
    change(lake, "INSERT INTO {t} SELECT id, 1, 'new' FROM range(10, 40)")
    assert lake.refresh().strategy == "replace"
    assert lake.rows("orders") == lake.rows("raw/orders")


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    "point", ["seal.after", "progress.after", "publish.before", "publish.after", "published.after"]
)
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


# -- laws ------------------------------------------------------------------------------------------------------------

_OPS = st.one_of(
    st.tuples(st.just("INSERT INTO {{t}} VALUES ({0}, {1}, '{2}')"), st.integers(60, 70), st.integers(0, 3),
              st.sampled_from("abc")),
    st.tuples(st.just("UPDATE {{t}} SET v = '{2}', p = {1} WHERE id % 7 = {0}"), st.integers(0, 6), st.integers(0, 3),
              st.sampled_from("abc")),
    st.tuples(st.just("DELETE FROM {{t}} WHERE id % 11 = {0}"), st.integers(0, 10), st.just(0), st.just("")),
    st.tuples(st.just("OPTIMIZE {{t}}"), st.just(0), st.just(0), st.just("")),
)  # fmt: skip


@settings(max_examples=2, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
@given(history=st.lists(st.lists(_OPS, max_size=3), min_size=2, max_size=3), is_partitioned=st.booleans())
def test_incremental_refreshes_leave_what_a_full_one_would(
    lake_factory: Any, history: Any, is_partitioned: bool
) -> None:
    lake = lake_factory()
    with_feed(lake)
    lake.apply(
        partition_by=["p"] if is_partitioned else [], guards={"max_deleted_fraction": 1.0}, strategy="incremental"
    )
    lake.refresh()
    for step in history:
        for template, number, part, letter in step:
            statement = template.format(number, part, letter)
            if statement.startswith("INSERT"):
                change(lake, f"DELETE FROM {{t}} WHERE id = {number}")  # each key once
            change(lake, statement)

        report = lake.refresh()

        assert report.outcome is Outcome.NOTHING_TO_DO or report.strategy == "incremental"
        assert lake.rows("orders") == lake.rows("raw/orders")
    kept = lake.digests()
    full = lake.refresh(force=True)
    assert (full.strategy, full.rows_inserted, full.rows_updated, full.rows_deleted) == ("corrections", 0, 0, 0)
    assert lake.digests() == kept


# -- large buckets first ---------------------------------------------------------------------------------------------


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


@pytest.mark.in_test_all
def test_changes_of_many_commits_are_read_alone(table):
    for number in range(15):
        change(table, f"UPDATE {{t}} SET v = 'late' WHERE id = {number}")

    report = table.refresh()

    assert (report.strategy, report.rows_updated) == ("incremental", 15)
    assert table.rows("orders") == table.rows("raw/orders")
