"""When main's rows are replaced, when corrections are merged, and when a small main is overwritten instead."""

from __future__ import annotations

from dataclasses import replace

import pytest

from airflow_mv_provider.core.guard import Counts
from airflow_mv_provider.core.progress.publishing import (
    MAX_BITMAP_KEYS,
    MergeFacts,
    ReplaceFacts,
    RewriteFacts,
    is_worth_replacing,
    may_replace,
    merge_form,
    rewrite_obstacle,
    strategy_of_changes,
)
from airflow_mv_provider.core.scope.scope import Scope
from airflow_mv_provider.core.strategy import Choice
from tests.conftest import a_table

ALL, PART = Scope(), Scope(partitions=("p=1",))
COMPARE, REPLACE = Choice("corrections", "the source is new"), Choice("replace", "the source is new")
USUAL = ReplaceFacts(
    choice=REPLACE,
    dropped=(),
    is_evolving=False,
    own_columns=(),
    is_empty=False,
    is_adopting=False,
    may_be_held=False,
)
MANY, LARGE = 5_000_000, 6_000_000
PROGRESSIVE = {"partition_by": ["p"], "key": ["id", "p"], "publish": "progressive"}
FROZEN = {"partition_by": ["day"], "frozen_before": "2026-01-01"}
COUNTED = {"guards": {"max_updated_fraction": 0.5}}
ONLY_MERGED = [{"may_be_held": True}, {"is_adopting": True}, {"choice": replace(REPLACE, wanted="corrections")}]
SMALL = RewriteFacts(
    counts=Counts(desired=1000, main=1000, updated=1),
    properties={"delta.minReaderVersion": "3"},
    is_small=True,
    is_readable=True,
    is_undisturbed=True,
    changes_columns=False,
    has_own_columns=False,
)


def test_rows_are_replaced_without_a_comparison_if_that_was_chosen_or_requested():
    assert may_replace(a_table(), ALL, USUAL)
    assert may_replace(a_table(), ALL, replace(USUAL, choice=replace(COMPARE, wanted="replace")))
    assert not may_replace(a_table(), ALL, replace(USUAL, choice=COMPARE))


@pytest.mark.parametrize("changed", [{"is_evolving": True}, {"own_columns": ("mine",)}, *ONLY_MERGED], ids=str)
def test_rows_are_compared(changed):
    assert not may_replace(a_table(), ALL, replace(USUAL, **changed))


@pytest.mark.parametrize("definition", [PROGRESSIVE, FROZEN, COUNTED], ids=str)
def test_definition_needs_a_comparison(definition):
    assert not may_replace(a_table(**definition), ALL, USUAL)
    assert not may_replace(a_table(partition_by=["p"]), PART, USUAL)


@pytest.mark.parametrize("changed", [{}, {"own_columns": ("mine",)}, *ONLY_MERGED[:2], {"choice": COMPARE}], ids=str)
def test_empty_main_needs_no_comparison(changed):
    assert may_replace(a_table(**COUNTED), ALL, replace(USUAL, is_empty=True, **changed))


@pytest.mark.parametrize("changed", [{"is_evolving": True}, ONLY_MERGED[2]], ids=str)
def test_rows_are_merged_into_an_empty_main(changed):
    assert not may_replace(a_table(), ALL, replace(USUAL, is_empty=True, **changed))
    assert not may_replace(a_table(**PROGRESSIVE), ALL, replace(USUAL, is_empty=True))


@pytest.mark.parametrize("changed", [{}, {"is_evolving": True}, {"is_empty": True}, *ONLY_MERGED], ids=str)
def test_lost_column_always_rewrites_main(changed):
    facts = replace(USUAL, **{"choice": COMPARE, "dropped": ("old", "older"), **changed})

    assert may_replace(a_table(**PROGRESSIVE), PART, facts)
    assert is_worth_replacing(facts, LARGE, 1)
    why = "the table is rewritten without old, older"
    assert strategy_of_changes(a_table(**PROGRESSIVE), PART, facts, LARGE, 1) == ("replace", why)


def test_few_changes_are_not_worth_a_replacement():
    assert is_worth_replacing(USUAL, LARGE, MANY)
    assert is_worth_replacing(USUAL, LARGE, None)
    assert not is_worth_replacing(USUAL, LARGE, LARGE // 100)
    assert is_worth_replacing(replace(USUAL, is_empty=True), LARGE, 0)
    assert is_worth_replacing(replace(USUAL, choice=replace(REPLACE, wanted="replace")), LARGE, 0)


@pytest.mark.parametrize(
    ("changed", "num_changes", "expected"),
    [
        ({}, None, ("replace", "most rows are expected to differ")),
        ({}, MANY, ("replace", "staging showed that most rows differ")),
        ({"choice": COMPARE}, MANY, ("replace", "staging showed that most rows differ")),
        ({}, LARGE // 100, ("corrections", "staging showed that most rows are the same")),
        ({}, 0, ("corrections", "staging showed that most rows are the same")),
        ({"is_evolving": True}, MANY, ("corrections", "the table's columns change in a MERGE")),
        (
            {"own_columns": ("mine", "yours")},
            MANY,
            ("corrections", "replacing the table would lose mine, yours, which the source lacks"),
        ),
        *((changed, MANY, ("corrections", "staging showed that most rows are the same")) for changed in ONLY_MERGED),
    ],
    ids=str,
)
def test_strategy_after_the_rows_were_read(changed, num_changes, expected):
    assert strategy_of_changes(a_table(), ALL, replace(USUAL, **changed), LARGE, num_changes) == expected


def test_exact_counts_let_guards_judge_a_replacement():
    assert strategy_of_changes(a_table(**COUNTED), ALL, USUAL, LARGE, MANY)[0] == "replace"
    assert strategy_of_changes(a_table(**PROGRESSIVE), ALL, USUAL, LARGE, MANY)[0] == "corrections"


def test_few_corrections_of_a_small_main_are_an_overwrite():
    assert rewrite_obstacle(a_table(), ALL, SMALL) is None
    assert rewrite_obstacle(a_table(), ALL, replace(SMALL, counts=Counts(999, 1000, deleted=1))) is None


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"is_small": False}, "the table is not small"),
        ({"counts": Counts(desired=100_001, main=100_000, updated=1)}, "the table is not small"),
        ({"counts": Counts(desired=1001, main=1000, inserted=1)}, "rows are only added"),
        ({"counts": Counts(desired=0, main=1000, deleted=1000)}, "no row is left"),
        ({"changes_columns": True}, "columns are not the source's"),
        ({"has_own_columns": True}, "columns are not the source's"),
        ({"properties": {"delta.enableChangeDataFeed": "true"}}, "the table has delta.enableChangeDataFeed"),
        ({"properties": {"delta.enableRowTracking": "TRUE"}}, "the table has delta.enableRowTracking"),
        ({"is_readable": False}, "were not copied"),
        ({"is_undisturbed": False}, "recorded before"),
    ],
)
def test_corrections_are_merged(changed, why):
    assert why in (rewrite_obstacle(a_table(), ALL, replace(SMALL, **changed)) or "")


@pytest.mark.parametrize(
    "definition",
    [{"partition_by": ["p"]}, PROGRESSIVE],
    ids=["partitioned", "progressive"],
)
def test_partitions_are_merged(definition):
    assert rewrite_obstacle(a_table(**definition), ALL, SMALL)


def test_part_of_a_table_is_merged():
    assert rewrite_obstacle(a_table(partition_by=["p"]), PART, SMALL) == "only some partitions are refreshed"


FEW = MergeFacts(
    num_changes=1000,
    num_bytes=1 << 20,
    num_columns=16,
    num_rows=6_000_000,
    inserts=False,
    has_null_keys=False,
    is_retry=False,
)


@pytest.mark.parametrize(
    ("changed", "form"),
    [
        ({}, "broadcast"),
        ({"num_rows": 1000}, "broadcast"),
        ({"has_null_keys": True}, "broadcast"),
        ({"inserts": True}, "bitmap"),
        ({"is_retry": True}, "bitmap"),
        ({"num_bytes": 1 << 30}, "bitmap"),
        ({"num_changes": 1_000_000}, "bitmap"),
        ({"inserts": True, "num_rows": 1000}, "sorted"),
        ({"inserts": True, "has_null_keys": True}, "sorted"),
        ({"inserts": True, "num_changes": 0}, "sorted"),
        ({"num_changes": MAX_BITMAP_KEYS + 1}, "sorted"),
    ],
    ids=str,
)
def test_form_of_a_merge(changed, form):
    found = merge_form(replace(FEW, **changed))

    assert ("broadcast" if found.is_broadcast else "bitmap" if found.has_bitmap else "sorted") == form
    assert found.why
