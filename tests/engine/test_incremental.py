"""The source's changes alone are read where they tell all; main is the source, row for row."""

from __future__ import annotations

import shutil
from collections import Counter

import pytest

from airflow_mv_provider.core.outcome import Outcome
from airflow_mv_provider.core.scope.request import Request
from airflow_mv_provider.exceptions import DuplicateKeyError, NullKeyError, PartitionValueError, StrategyError
from airflow_mv_provider.report_text.plan_text import plan_text
from tests.conftest import Crash
from tests.engine.feeding import FEED, RAW, change, followed, published_with_a_feed, with_feed

# One group for all that has no group of its own: each of them refreshes several times.
pytestmark = pytest.mark.slow


@pytest.fixture
def table(prepared):
    return published_with_a_feed(prepared)


def test_changes_alone_are_read_where_the_source_lists_them(table):
    followed(table)


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
    assert "no row changed up to" in report.reason
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


@pytest.mark.in_test_all
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
    kept = lake.published()
    lake.refresh(force=True)
    assert lake.published() == kept


@pytest.mark.in_test_all
def test_a_projection_is_applied_to_changes_too(lake):
    with_feed(lake)
    lake.apply(source=RAW | {"select": ["id + 1 AS id", "upper(v) AS v"]})
    lake.refresh()
    change(lake)

    assert lake.refresh().strategy == "incremental"

    expected = lake.sql("SELECT id + 1 AS id, upper(v) AS v FROM {t}", path="raw/orders")
    assert Counter(lake.rows("orders")) == Counter((row.id, row.v) for row in expected)


@pytest.mark.in_test_all
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
            "does not list its changes", id="no feed",
        ),
        pytest.param(
            {}, ("ALTER TABLE {t} SET TBLPROPERTIES ('delta.enableChangeDataFeed' = 'false')",
                 "DELETE FROM {t} WHERE id = 1", FEED),
            "does not list its changes", id="feed with a gap",
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


@pytest.mark.in_test_all
@pytest.mark.parametrize("point", ["staging.after", "seal.before", "seal.after", "publish.after",
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
@pytest.mark.parametrize("point", ["seal.after", "publish.before"])
def test_foreign_write_beside_an_incremental_refresh_is_corrected(table, at_point, point):
    change(table)
    at_point(point, lambda: table.sql("INSERT INTO {t} VALUES (777, 77, 'foreign')"))

    report = table.refresh()

    assert report.outcome is Outcome.PUBLISHED
    assert table.rows("orders") == table.rows("raw/orders")


@pytest.mark.in_test_all
def test_changes_of_many_commits_are_read_alone(table):
    for number in range(15):
        change(table, f"UPDATE {{t}} SET v = 'late' WHERE id = {number}")

    report = table.refresh()

    assert (report.strategy, report.rows_updated) == ("incremental", 15)
    assert table.rows("orders") == table.rows("raw/orders")


@pytest.mark.parametrize("value", ["''", pytest.param("'__HIVE_DEFAULT_PARTITION__'", marks=pytest.mark.in_test_all)])
@pytest.mark.parametrize("has_feed", [True, pytest.param(False, marks=pytest.mark.in_test_all)])
def test_partition_value_among_the_changes_that_delta_cannot_keep_is_refused(lake, value, has_feed):
    lake.write("SELECT id, 'a' AS p, 'v' AS v FROM range(5)")
    if has_feed:
        lake.sql("ALTER TABLE {t} SET TBLPROPERTIES (delta.enableChangeDataFeed = true)", path="raw/orders")
    lake.apply(partition_by=["p"], strategy="incremental", guards={"max_deleted_fraction": 1.0})
    lake.refresh()
    before = lake.rows()
    lake.sql(f"INSERT INTO {{t}} VALUES (100, {value}, 'v')", path="raw/orders")

    with pytest.raises(PartitionValueError):
        lake.refresh()

    assert lake.rows() == before


@pytest.mark.in_test_all
def test_changes_that_cancel_out_are_checked_as_no_rows(lake):
    """The rows of the table have been checked before, and may be many."""
    lake.write("SELECT id, 'a' AS v, id AS n FROM range(5)")
    lake.sql("ALTER TABLE {t} SET TBLPROPERTIES (delta.enableChangeDataFeed = true)", path="raw/orders")
    lake.apply(strategy="incremental", checks=[{"name": "small", "expression": "n < 4", "severity": "warn"}])
    lake.refresh()
    lake.sql("UPDATE {t} SET v = 'b' WHERE id = 1", path="raw/orders")
    lake.sql("UPDATE {t} SET v = 'a' WHERE id = 1", path="raw/orders")

    report = lake.refresh()

    assert (report.strategy, [each.num_failed for each in report.checks]) == ("incremental", [0])
