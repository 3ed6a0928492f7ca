"""Queries and functions through whole refreshes, and what is true of every kind of source."""

from __future__ import annotations

import sys
from collections import Counter
from typing import Any

import pytest

from airflow_mv_provider import DeltaSource, Function, Query
from airflow_mv_provider.core.outcome import Outcome
from airflow_mv_provider.exceptions import MvError, SchemaMismatchError

pytestmark = pytest.mark.slow


def holds(lake: Any, expected: list[tuple[Any, ...]], path: str = "orders") -> None:
    """Compare main, read by delta-rs, with rows of (amount, id, v) as a multiset, whatever their order."""
    assert Counter(lake.rows(path)) == Counter(expected)


# -- queries -----------------------------------------------------------------------------------------------------------

INPUTS = {"orders": "raw/orders", "customers": "raw/customers"}
JOIN = "SELECT o.id, o.total, c.name FROM orders AS o LEFT JOIN customers AS c ON o.customer = c.id"


@pytest.fixture
def shop(lake: Any) -> Any:
    lake.write("SELECT id, id % 3 AS customer, id * 10 AS total FROM range(6)")
    lake.write("SELECT id, concat('c', id) AS name FROM range(2)", "raw/customers")
    return lake


def expected_join(names: dict[int, str], ids: range) -> list[tuple[Any, ...]]:
    return [(i, names.get(i % 3), i * 10) for i in ids]


@pytest.mark.in_test_all
def test_query_follows_each_of_its_inputs(shop):
    shop.apply(name="sales", source=Query(JOIN, inputs=INPUTS))

    first = shop.refresh("sales")

    holds(shop, expected_join({0: "c0", 1: "c1"}, range(6)), "sales")
    assert first.source == "customers at Delta version 0, orders at Delta version 0"
    assert shop.refresh("sales").outcome is Outcome.NOTHING_TO_DO

    shop.sql("UPDATE {t} SET name = 'new' WHERE id = 1", path="raw/customers")
    second = shop.refresh("sales")

    holds(shop, expected_join({0: "c0", 1: "new"}, range(6)), "sales")
    assert (second.rows_updated, second.rows_unchanged) == (2, 4)
    assert second.source == "customers at Delta version 1, orders at Delta version 0"

    shop.sql("DELETE FROM {t} WHERE id = 5", path="raw/orders")
    shop.sql("INSERT INTO {t} VALUES (6, 0, 60)", path="raw/orders")
    shop.refresh("sales")

    holds(shop, [*expected_join({0: "c0", 1: "new"}, range(5)), (6, "c0", 60)], "sales")


@pytest.mark.in_test_all
def test_query_is_read_at_its_pin_however_late(shop):
    shop.apply(name="sales", source=Query(JOIN, inputs=INPUTS))
    caller = shop.caller("same")
    shop.refresher().begin("sales", caller)
    shop.sql("DELETE FROM {t} WHERE id >= 3", path="raw/orders")

    report = shop.refresh("sales", caller=caller)

    assert report.rows_inserted == 6
    holds(shop, expected_join({0: "c0", 1: "c1"}, range(6)), "sales")


@pytest.mark.in_test_all
def test_projection_applies_on_top_of_a_query(shop):
    source = Query("WITH big AS (SELECT * FROM orders WHERE total > 20) SELECT * FROM big;", inputs=INPUTS)
    shop.apply(name="sales", source=source.model_copy(update={"select": ("id", "total + 1 AS more")}))

    shop.refresh("sales")

    assert shop.rows("sales") == [(3, 31), (4, 41), (5, 51)]


@pytest.mark.in_test_all
def test_two_queries_call_different_tables_by_one_name(shop):
    shop.apply(name="a", source=Query("SELECT id FROM t", inputs={"t": "raw/orders"}))
    shop.apply(name="b", source=Query("SELECT id FROM t", inputs={"t": "raw/customers"}))
    refresher = shop.refresher()

    for name in ("a", "b"):
        refresher.refresh(name, shop.caller())

    assert refresher.spark.catalog.listTables() == []
    assert (len(shop.rows("a")), len(shop.rows("b"))) == (6, 2)


@pytest.mark.in_test_all
def test_query_that_is_not_deterministic_is_compared_each_time_and_says_so(shop):
    shop.apply(name="sales", source=Query("SELECT id, uuid() AS u FROM orders", inputs=INPUTS))
    shop.refresh("sales")
    before = shop.rows("sales")

    report = shop.refresh("sales")

    assert report.reason == "the query is not deterministic"
    assert report.rows_updated == 6
    assert Counter(before) != Counter(shop.rows("sales"))


@pytest.mark.in_test_all
def test_view_of_an_inputs_name_is_not_read(shop):
    shop.apply(name="sales", source=Query("SELECT id FROM orders", inputs={"orders": "raw/orders"}))
    refresher = shop.refresher()
    refresher.spark.range(100).createOrReplaceTempView("orders")

    refresher.refresh("sales", shop.caller())

    assert len(shop.rows("sales")) == 6


# -- functions ---------------------------------------------------------------------------------------------------------

MODULE = """
calls = 0

def rows(spark):
    global calls
    calls += 1
    spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    return spark.range(5).selectExpr("id", "CASE WHEN id < {limit} THEN 'new' ELSE 'old' END AS v")
"""


@pytest.fixture
def module(tmp_path, monkeypatch):
    """Write the DAG author's module, and let Python find it, and forget it when it changes."""
    (tmp_path / "authors").mkdir()
    monkeypatch.syspath_prepend(tmp_path / "authors")

    def write(text: str) -> None:
        (tmp_path / "authors/my_orders.py").write_text(text)
        sys.modules.pop("my_orders", None)
        sys.path_importer_cache.clear()

    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    yield write
    sys.modules.pop("my_orders", None)


@pytest.mark.in_test_all
def test_function_is_called_once_a_refresh_and_always_compared(lake, module):
    module(MODULE.format(limit=0))
    lake.apply(source=Function("my_orders:rows"))

    first = lake.refresh()

    assert (first.rows_inserted, sys.modules["my_orders"].calls) == (5, 1)
    assert lake.rows() == [(i, "old") for i in range(5)]

    module(MODULE.format(limit=2))
    second = lake.refresh()

    assert (second.rows_updated, second.rows_unchanged, sys.modules["my_orders"].calls) == (2, 3, 1)
    assert second.reason == "a function may return other rows at each call"
    assert second.source == "a source without versions"
    assert lake.rows() == [(i, "new" if i < 2 else "old") for i in range(5)]

    third = lake.refresh()

    assert (third.outcome, third.rows_unchanged) == (Outcome.PUBLISHED, 5)


@pytest.mark.in_test_all
def test_session_is_as_it_was_after_a_function(lake, module):
    module(MODULE.format(limit=0))
    lake.apply(source=Function("my_orders:rows", select=["id", "upper(v) AS v"]))
    refresher = lake.refresher()

    refresher.refresh("orders", lake.caller())

    assert refresher.spark.conf.get("spark.sql.session.timeZone") == "UTC"
    assert lake.rows() == [(i, "OLD") for i in range(5)]


# -- read-only ---------------------------------------------------------------------------------------------------------


@pytest.mark.in_test_all
@pytest.mark.parametrize(
    "source",
    [Query("SELECT * FROM o", inputs={"o": "raw/orders"}), Function("my_orders:rows"), DeltaSource("raw/orders")],
    ids=lambda s: s.type,
)
def test_read_only_counts_what_would_change(lake, module, source):
    module(MODULE.format(limit=1))
    lake.write("SELECT id, 'old' AS v FROM range(5)")
    lake.apply()
    lake.refresh()
    lake.sql("UPDATE {t} SET v = 'new' WHERE id = 0", path="raw/orders")
    lake.apply(source=source)

    report = lake.refresh(read_only=True)

    assert (report.outcome, report.rows_updated, report.rows_unchanged) == (Outcome.DIFFERENCES, 1, 4)
    assert lake.rows() == [(i, "old") for i in range(5)]
    assert lake.workspaces() == []


@pytest.mark.in_test_all
def test_sources_of_one_table_may_be_exchanged(lake, module):
    lake.write("SELECT id, 'old' AS v FROM range(5)")
    lake.apply()
    lake.refresh()
    module(MODULE.format(limit=3))
    lake.apply(source=Function("my_orders:rows"))

    report = lake.refresh()

    assert (report.reason, report.rows_updated) == ("the definition changed", 3)
    lake.apply(source=Query("SELECT id FROM t", inputs={"t": "raw/orders"}))
    with pytest.raises(SchemaMismatchError) as caught:
        lake.refresh()
    assert isinstance(caught.value, MvError)
