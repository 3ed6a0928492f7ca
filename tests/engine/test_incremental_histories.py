"""Any history of incremental refreshes leaves what one that compares everything would."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from airflow_mv_provider.core.outcome import Outcome
from tests.engine.feeding import change, with_feed

# One group for all that has no group of its own: each of them refreshes several times.
pytestmark = pytest.mark.slow
_OPS = st.one_of(
    st.tuples(st.just("INSERT INTO {{t}} VALUES ({0}, {1}, '{2}')"), st.integers(60, 70), st.integers(0, 3),
              st.sampled_from("abc")),
    st.tuples(st.just("UPDATE {{t}} SET v = '{2}', p = {1} WHERE id % 7 = {0}"), st.integers(0, 6), st.integers(0, 3),
              st.sampled_from("abc")),
    st.tuples(st.just("DELETE FROM {{t}} WHERE id % 11 = {0}"), st.integers(0, 10), st.just(0), st.just("")),
    st.tuples(st.just("OPTIMIZE {{t}}"), st.just(0), st.just(0), st.just("")),
)  # fmt: skip


@pytest.mark.in_test_all
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
    kept = lake.published()
    full = lake.refresh(force=True)
    assert (full.strategy, full.rows_inserted, full.rows_updated, full.rows_deleted) == ("corrections", 0, 0, 0)
    assert lake.published() == kept
