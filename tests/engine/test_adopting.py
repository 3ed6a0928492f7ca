"""What docs/adopting.md says of a table that another job has written so far."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from airflow_mv_provider.core.approval.hold import Decision
from airflow_mv_provider.core.definition.guards import Guards
from airflow_mv_provider.core.outcome import Outcome
from airflow_mv_provider.definition_file import parse
from airflow_mv_provider.exceptions import MvError
from tests.engine.holding import held

pytestmark = pytest.mark.slow
PAGE = Path(__file__).parents[2] / "docs/adopting.md"
MAIN = "gold/orders"


@pytest.fixture
def existing(lake: Any) -> Any:
    """A table with five rows and a column of its own, and a source that differs from it in three rows."""
    lake.write("SELECT id AS order_id, concat('v', id) AS v, 'mine' AS seen_by FROM range(5)", MAIN)
    lake.write("SELECT id AS order_id, if(id = 1, 'changed', concat('v', id)) AS v FROM range(1, 6)")
    return lake


@pytest.mark.in_test_all
def test_existing_table_is_shown_approved_and_kept_with_its_history(existing: Any) -> None:
    (example,) = re.findall(r"```yaml\n(.*?)```", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL)
    (definition,) = parse(re.sub(r"^    ", "", example, flags=re.MULTILINE))
    refresher, before = existing.refresher(), existing.rows(MAIN)
    keeps = {"guards": Guards(max_deleted_fraction=1.0), "schema_policy": "add", "on_lost_column": "keep"}
    refresher.apply(definition.model_copy(update=keeps))

    shown = existing.refresh("gold.orders", read_only=True)

    assert (shown.outcome, shown.rows_inserted, shown.rows_updated, shown.rows_deleted) == (
        Outcome.DIFFERENCES,
        1,
        1,
        1,
    )
    assert existing.rows(MAIN) == before

    held(existing, name="gold.orders")
    assert existing.rows(MAIN) == before
    report = refresher.decide("gold.orders", Decision.APPROVED, existing.caller(user="ann"), "first refresh")

    assert (report.outcome, report.rows_updated, report.rows_unchanged) == (Outcome.PUBLISHED, 1, 3)
    assert Counter((key, v) for key, _, v in existing.rows(MAIN)) == Counter(existing.rows("raw/orders"))
    assert {key: seen_by for key, seen_by, _ in existing.rows(MAIN)} == {
        1: "mine",
        2: "mine",
        3: "mine",
        4: "mine",
        5: None,
    }
    (first, *_) = existing.spark.sql(f"SELECT * FROM delta.`{existing.root / MAIN}` VERSION AS OF 0").collect()
    assert first.seen_by == "mine"


@pytest.mark.parametrize(
    ("changes", "code", "told"),
    [
        ({"partition_by": ["v"]}, "MV-MAIN-UNSUPPORTED", "partitioned by"),
        ({"key": ["v"]}, "MV-ADOPTION", "v1"),
    ],
    ids=["other partitions", "key twice"],
)
def test_table_that_does_not_fit_is_refused(existing: Any, changes: dict[str, Any], code: str, told: str) -> None:
    existing.write("SELECT id AS order_id, concat('v', id % 2) AS v, 'mine' AS seen_by FROM range(5)", MAIN)
    before = existing.rows(MAIN)
    keeps = {"schema_policy": "add", "on_lost_column": "keep"}
    existing.apply(**{"name": "gold.orders", "key": ["order_id"], "adopt": True} | keeps | changes)

    with pytest.raises(MvError, match=told) as caught:
        existing.refresh("gold.orders")

    assert caught.value.code == code
    assert existing.rows(MAIN) == before
