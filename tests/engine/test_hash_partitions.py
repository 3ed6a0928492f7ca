"""Parts of a table that are no columns of it: hash partitions, and slices of partitions larger than a chunk."""

from __future__ import annotations

import pytest

from airflow_mv_provider.core.outcome import Outcome
from tests.conftest import Crash
from tests.scenarios.conftest import check_invariants

pytestmark = pytest.mark.slow

FIRST = "SELECT id, CAST(id % 4 AS INT) AS p, concat('v', id) AS v FROM range(80)"
LATER = """
    SELECT id, CAST(id % 4 AS INT) AS p, CASE WHEN id % 10 = 5 THEN 'late' ELSE concat('v', id) END AS v
    FROM range(90) WHERE id % 9 <> 3
"""


@pytest.fixture(params=["hash", "slices", "progressive slices"])
def table(request, lake):
    lake.write(FIRST)
    match request.param:
        case "hash":
            lake.apply(hash_partitions=4, chunk_rows=20)
        case "slices":
            lake.apply(partition_by=["p"], key=["id", "p"], chunk_rows=11)
        case _:
            lake.apply(partition_by=["p"], key=["id", "p"], chunk_rows=11, publish="progressive")
    return lake


@pytest.mark.in_test_all
def test_parts_together_are_the_table(table):
    first = table.refresh()
    table.write(LATER)

    preview = table.refresh(read_only=True)

    report = table.refresh()

    for each in (preview, report):
        counts = (each.rows_inserted, each.rows_updated, each.rows_deleted, each.rows_unchanged)
        assert counts == (9, 7, 9, 64)
    assert (first.rows_inserted, first.rows_unchanged) == (80, 0)
    check_invariants(table)
    assert len(report.partitions) == 4
    assert sum(p.rows_inserted + p.rows_updated + p.rows_deleted + p.rows_unchanged for p in report.partitions) == 89
    assert set(table.spark.table(f"delta.`{table.root}/orders`").columns) == {"id", "p", "v"}
    assert table.refresh().outcome is Outcome.NOTHING_TO_DO


@pytest.mark.in_test_all
@pytest.mark.sample(1)
def test_takeover_keeps_the_parts_that_are_recorded(table, crash_at):
    table.refresh()
    table.write(LATER)
    crash_at("progress.after:2")
    with pytest.raises(Crash):
        table.refresh()
    state = table.store.state(table.store.table("orders").id)
    chunks, recorded = table.store.chunks(state.refresh_id)
    status = table.store.status(table.store.table("orders"))
    table.clock.pass_ms(table.settings.lease_ms + 1)

    table.refresh()

    assert (len(chunks) >= 4, len(recorded)) == (True, 2)
    assert status.partitions_total == 4
    assert status.partitions_completed <= 2
    check_invariants(table)
