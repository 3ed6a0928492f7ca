"""Nothing merges unless it is sealed, and its counts and digests still match."""

from __future__ import annotations

import pytest

from airflow_mv_provider.exceptions import MvError, SealBrokenError
from tests.conftest import Crash

pytestmark = pytest.mark.slow


@pytest.fixture
def table(prepared):
    def build(lake):
        lake.write("SELECT id, 'a' AS v FROM range(30)")
        lake.apply()
        lake.refresh()
        lake.sql("UPDATE {t} SET v = 'b' WHERE id % 5 = 0", path="raw/orders")

    return prepared("unpartitioned", build)


def stop_at(table, crash_at, point):
    crash_at(point)
    with pytest.raises(Crash):
        table.refresh()
    table.clock.pass_ms(table.settings.lease_ms + 1)
    return table.store.state(table.store.table("orders").id).refresh_id


def test_staging_that_lost_rows_is_not_merged(table, crash_at):
    before = table.rows("orders")
    stop_at(table, crash_at, "seal.after")
    staging = next((table.root / "_mv").glob("*/*/staging-*"))
    _truncate_data(table, staging)

    with pytest.raises(SealBrokenError):
        table.refresh()

    assert (table.rows("orders"), table.phase()) == (before, "NORMAL")
    table.refresh()
    assert table.rows("orders") == table.rows("raw/orders")


def test_changes_that_differ_from_the_record_are_not_merged(table, crash_at):
    before = table.rows("orders")
    stop_at(table, crash_at, "progress.after")
    changes = next((table.root / "_mv").glob("*/*/changes-*"))
    _truncate_data(table, changes)

    with pytest.raises(SealBrokenError):
        table.refresh()

    assert (table.rows("orders"), table.phase()) == (before, "NORMAL")


def test_staging_that_is_gone_ends_the_refresh(table, crash_at):
    import shutil

    before = table.rows("orders")
    stop_at(table, crash_at, "seal.after")
    shutil.rmtree(table.root / "_mv")

    with pytest.raises(MvError):
        table.refresh()

    assert (table.rows("orders"), table.phase()) == (before, "NORMAL")


def _truncate_data(table, place):
    """Replace the data file by a valid one that lacks its first row, under the same name and the log's old size."""
    import pyarrow.parquet as pq

    file = next(place.glob("*.parquet"))
    rows = pq.read_table(file)
    pq.write_table(rows.slice(1), file)
    for leftover in place.glob(".*.crc"):
        leftover.unlink()
