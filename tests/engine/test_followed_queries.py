"""A query that filters one Delta table and computes columns follows the table's changes; any other is compared."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from airflow_mv_provider import Query
from airflow_mv_provider.core.outcome import Outcome
from airflow_mv_provider.exceptions import DuplicateKeyError
from tests.conftest import Crash
from tests.engine.feeding import change, feed_off, with_feed

pytestmark = pytest.mark.slow

FILTER = "SELECT id, p, upper(v) AS v FROM o WHERE p <> 2"
OTHERS = {
    "a window over all rows": "SELECT id, row_number() OVER (ORDER BY id) AS n FROM o",
    "a limit": "SELECT id, v FROM o ORDER BY id LIMIT 50",
    "a value of all rows": "SELECT id, v FROM o WHERE id > (SELECT avg(id) - 1000 FROM o)",
}
_ID, _PART, _TEXT = st.integers(60, 70), st.integers(0, 3), st.sampled_from("abc")
_STATEMENTS = st.one_of(
    st.builds("INSERT INTO {{t}} VALUES ({}, {}, '{}')".format, _ID, _PART, _TEXT),
    st.builds("UPDATE {{t}} SET v = '{}', p = {} WHERE id % 7 = {}".format, _TEXT, _PART, st.integers(0, 6)),
    st.builds("DELETE FROM {{t}} WHERE id % 11 = {}".format, st.integers(0, 10)),
)


def of(lake: Any, sql: str, **more: Any) -> None:
    with_feed(lake)
    lake.apply(source=Query(sql, inputs={"o": "raw/orders"}), guards={"max_deleted_fraction": 1.0}, **more)
    lake.refresh()


def is_the_query(lake: Any, sql: str) -> None:
    """Compare main with what the query returns now, as multisets."""
    lake.spark.sql(f"SELECT * FROM delta.`{lake.root}/raw/orders`").createOrReplaceTempView("o")
    assert Counter(lake.rows("orders")) == Counter(tuple(row) for row in lake.spark.sql(sql).collect())
    lake.spark.catalog.dropTempView("o")


@pytest.mark.in_test_all
def test_filter_follows_the_changes_of_its_input(lake):
    of(lake, FILTER)
    change(
        lake,
        "UPDATE {t} SET v = 'new' WHERE id = 3",
        "UPDATE {t} SET p = 2 WHERE id = 4",  # leaves the result
        "UPDATE {t} SET p = 0 WHERE id = 5",  # comes into it
        "UPDATE {t} SET v = 'unseen' WHERE id = 8",  # never in it
        "DELETE FROM {t} WHERE id = 6",
        "INSERT INTO {t} VALUES (1000, 1, 'more'), (1001, 2, 'unseen')",
    )

    report = lake.refresh()

    assert (report.strategy, report.outcome) == ("incremental", Outcome.PUBLISHED)
    assert (report.rows_inserted, report.rows_updated, report.rows_deleted) == (2, 1, 2)
    is_the_query(lake, FILTER)
    assert lake.spark.catalog.listTables() == []  # no view is left
    kept = lake.published()
    again = lake.refresh(force=True)
    assert again.rows_inserted + again.rows_updated + again.rows_deleted == 0
    assert lake.published() == kept


@pytest.mark.in_test_all
@pytest.mark.parametrize("why", OTHERS)
def test_query_whose_rows_depend_on_all_others_is_compared(lake, why):
    of(lake, OTHERS[why])
    change(lake)

    report = lake.refresh(strategy="incremental")

    assert report.strategy != "incremental"
    assert "not incremental: " in (report.reason or "")
    is_the_query(lake, OTHERS[why])


@pytest.mark.in_test_all
def test_filter_without_a_feed_follows_the_files_of_its_input(lake):
    of(lake, FILTER)
    feed_off(lake)
    lake.refresh()
    change(lake)

    report = lake.refresh(strategy="incremental")

    assert report.strategy == "incremental", report.reason
    is_the_query(lake, FILTER)
    again = lake.refresh(force=True, strategy="corrections")
    assert again.rows_inserted + again.rows_updated + again.rows_deleted == 0


@pytest.mark.in_test_all
def test_key_that_a_filter_lets_in_twice_is_found(lake):
    of(lake, "SELECT id % 50 AS id, v FROM o WHERE p <> 7 AND id < 50")
    change(lake, "INSERT INTO {t} VALUES (3, 1, 'again')")

    with pytest.raises(DuplicateKeyError):
        lake.refresh()

    change(lake, "DELETE FROM {t} WHERE v = 'again'")
    lake.refresh()
    is_the_query(lake, "SELECT id % 50 AS id, v FROM o WHERE p <> 7 AND id < 50")


@pytest.mark.in_test_all
@pytest.mark.parametrize("point", ["staging.after", "seal.after", "publish.after"])
def test_followed_query_killed_anywhere_comes_out_right(lake, crash_at, point):
    of(lake, FILTER)
    change(lake)
    crash_at(point)
    with pytest.raises(Crash):
        lake.refresh()
    lake.clock.pass_ms(lake.settings.lease_ms + 1)
    change(lake, "UPDATE {t} SET v = 'since' WHERE id = 10")

    lake.refresh()

    lake.refresh()
    is_the_query(lake, FILTER)
    assert lake.workspaces() == []


@pytest.mark.in_test_all
@settings(max_examples=4, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
@given(history=st.lists(st.lists(_STATEMENTS, min_size=1, max_size=3), min_size=2, max_size=3))
def test_any_history_of_the_input_leaves_what_a_comparison_would(lake_factory, history):
    lake = lake_factory()
    of(lake, FILTER, strategy="incremental")
    for step in history:
        for statement in step:
            if statement.startswith("INSERT"):
                change(lake, f"DELETE FROM {{t}} WHERE id = {statement.split('(')[1].split(',')[0]}")  # each key once
            change(lake, statement)

        report = lake.refresh()

        assert report.outcome is Outcome.NOTHING_TO_DO or report.strategy == "incremental"
        is_the_query(lake, FILTER)
    found = lake.refresh(force=True)
    assert found.rows_inserted + found.rows_updated + found.rows_deleted == 0
