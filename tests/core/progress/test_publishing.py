"""When corrections are merged, and when a small main is overwritten instead."""

from __future__ import annotations

from dataclasses import replace

import pytest

from airflow_mv_provider.core.guard import Counts
from airflow_mv_provider.core.progress.publishing import (
    MAX_BITMAP_KEYS,
    MergeFacts,
    RewriteFacts,
    merge_form,
    rewrite_obstacle,
)
from airflow_mv_provider.core.scope.scope import Scope
from tests.conftest import a_table

ALL = Scope()
SMALL = RewriteFacts(
    counts=Counts(desired=1000, main=1000, updated=1),
    properties={"delta.minReaderVersion": "3"},
    is_small=True,
    is_readable=True,
    is_undisturbed=True,
    changes_columns=False,
    has_own_columns=False,
)


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
    [{"partition_by": ["p"]}, {"partition_by": ["p"], "key": ["id", "p"], "publish": "progressive"}],
    ids=["partitioned", "progressive"],
)
def test_partitions_are_merged(definition):
    assert rewrite_obstacle(a_table(**definition), ALL, SMALL)


def test_part_of_a_table_is_merged():
    scope = Scope(partitions=("p=1",))

    assert rewrite_obstacle(a_table(partition_by=["p"]), scope, SMALL) == "only some partitions are refreshed"


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
