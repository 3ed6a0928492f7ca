"""A query reads its inputs alone: how its SQL pins them, and what is decided from the plan that Spark explains."""

from __future__ import annotations

import pytest

from airflow_mv_provider.sources.query.spark_plan import (
    changing_value,
    is_row_by_row,
    pinned_sql,
    reads_more,
    unpinned_relation,
)
from tests.sources.plans import PROJECTIONS, QUERIES, recorded

PLANS = recorded()
UNPINNED = {
    "the catalog's table": "spark_catalog.default.elsewhere",
    "the catalog's table in a subquery": "spark_catalog.default.elsewhere",
    "view": "spark_catalog.default.a_view",
    "temporary view": "a_temporary_view",
    "SQL function": "spark_catalog.default.elsewhere",
    "Delta table by path": "spark_catalog.delta.`/w/elsewhere`",
    "files by path": "something without a name (Relation parquet)",
    "shadowed by a common table expression": "spark_catalog.default.elsewhere",
    # A text that looks like a line of a plan: refused although it reads nothing, which is the safe side.
    "text with line breaks": "something without a name (Project [regexp_replace(c#6,)",
}
CHANGING = {
    "sample": "tablesample",
    "today": "current_date",
    "today by a cast": "today",
    "today between": "yesterday",
    "hour of a text": "12:30",
    "today in nvl": "today",
    "today in nested nvl": "today",
    "today in decode": "today",
    "today by try_cast": "today",
    "time of day": "12:30",
    "part of now": "now",
    "encrypted": "aes_encrypt",
}
FILTERS = {
    "one input",
    "ends in a comment",
    "text like a plan",
    "today",
    "today by a cast",
    "today between",
    "hour of a text",
    "filter",
    "filter in a common table expression",
}
NOT_ROW_BY_ROW = {"window function", "aggregate", "generator", "subquery"}


def test_every_recorded_plan_is_of_a_case():
    assert PLANS.keys() == QUERIES.keys() | PROJECTIONS.keys()
    assert UNPINNED.keys() | CHANGING.keys() | NOT_ROW_BY_ROW <= PLANS.keys()


@pytest.mark.parametrize("name", QUERIES)
def test_only_inputs_of_a_query_count_as_pinned(name):
    assert unpinned_relation(PLANS[name].explained) == UNPINNED.get(name)


@pytest.mark.parametrize("name", PLANS)
def test_what_differs_between_two_queries_is_found_in_the_plan(name):
    assert changing_value(PLANS[name].explained) == CHANGING.get(name)


@pytest.mark.parametrize("name", PROJECTIONS)
def test_projection_is_row_by_row_unless_its_plan_has_more(name):
    assert is_row_by_row(PLANS[name].explained) is (name not in NOT_ROW_BY_ROW)
    assert reads_more(PLANS[name].explained) is (name == "subquery")


@pytest.mark.parametrize("name", QUERIES)
def test_query_is_row_by_row_if_it_only_filters_one_input(name):
    assert is_row_by_row(PLANS[name].explained) is (name in FILTERS)


def test_inputs_are_defined_in_front_of_the_query():
    sql = pinned_sql(" SELECT * FROM o -- all\n; ", {"o": "SELECT 1 AS id"})

    assert sql == (
        "WITH `_mv_pinned_o` AS (SELECT 1 AS id), `o` AS (SELECT * FROM `_mv_pinned_o`) "
        "SELECT * FROM (\nSELECT * FROM o -- all\n\n)"
    )


@pytest.mark.parametrize(
    "text",
    [
        "",
        "== Physical Plan ==\nScan",
        "== Analyzed Logical Plan ==\norg.apache.spark.sql.AnalysisException: [TABLE_OR_VIEW_NOT_FOUND]",
        "== Analyzed Logical Plan ==\nid: bigint\n+- Range (0, 3, step=1)",
    ],
)
def test_plan_that_is_not_understood_is_not_believed(text):
    assert unpinned_relation(text) is not None


@pytest.mark.parametrize("decision", [is_row_by_row, lambda text: not reads_more(text)])
def test_projection_whose_plan_cannot_be_parsed_is_not_trusted(decision):
    assert decision("== Physical Plan ==\nScan") is False
