"""Nothing merges unless it is sealed, and its counts and totals still match."""

from __future__ import annotations

import shutil

import pytest

from airflow_mv_provider import Files
from airflow_mv_provider.exceptions import DuplicateKeyError, MvError, SealBrokenError
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


@pytest.mark.in_test_all
def test_copy_that_lost_rows_is_not_merged(lake, crash_at):
    place = lake.root / "raw/orders"
    place.mkdir(parents=True)
    (place / "a.csv").write_text("id,v\n1,a\n2,b\n3,c\n")
    source = Files("raw/orders/*.csv", format="csv", schema="id INT, v STRING", options={"header": "true"})
    lake.apply(source=source)
    stop_at(lake, crash_at, "seal.after")
    _truncate_data(next((lake.root / "_mv").glob("*/*/staging-*")))

    with pytest.raises(SealBrokenError):
        lake.refresh()

    assert (lake.rows("orders"), lake.phase()) == ([], "NORMAL")
    lake.refresh()
    assert lake.rows("orders") == [(1, "a"), (2, "b"), (3, "c")]


@pytest.mark.in_test_all
@pytest.mark.large_tables
def test_only_what_is_needed_is_kept(table):
    table.refresh()
    table.sql("UPDATE {t} SET v = 'c' WHERE id % 2 = 1", path="raw/orders")
    report = table.refresh()

    kept = {p.parts[-2] for p in (table.root / "_mv").glob("*/kept/*/*")}
    assert kept == {report.refresh_id}


@pytest.mark.in_test_all
def test_duplicate_in_another_partition_is_found(lake):
    lake.write("SELECT id, CAST(id % 2 AS INT) AS p FROM range(10)")
    lake.apply(partition_by=["p"])
    lake.refresh()
    lake.sql("INSERT INTO {t} VALUES (3, 0)", path="raw/orders")

    with pytest.raises(DuplicateKeyError):
        lake.refresh()


@pytest.mark.in_test_all
@pytest.mark.large_tables
def test_duplicate_in_another_partition_is_found_in_a_large_table(lake):
    test_duplicate_in_another_partition_is_found(lake)


@pytest.mark.large_tables
def test_changes_that_differ_from_the_record_are_not_merged(table, crash_at):
    before = table.rows("orders")
    stop_at(table, crash_at, "seal.after")
    changes = next((table.root / "_mv").glob("*/*/changes-*"))
    _truncate_data(changes)

    with pytest.raises(SealBrokenError):
        table.refresh()

    assert (table.rows("orders"), table.phase()) == (before, "NORMAL")


@pytest.mark.in_test_all
def test_changes_from_a_feed_that_differ_from_the_record_are_not_merged(table, crash_at):
    table.sql("ALTER TABLE {t} SET TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true')", path="raw/orders")
    table.refresh()
    table.sql("UPDATE {t} SET v = 'c' WHERE id % 3 = 0", path="raw/orders")
    table.apply(strategy="incremental")
    before = table.rows("orders")
    stop_at(table, crash_at, "seal.after")
    _truncate_data(next((table.root / "_mv").glob("*/*/changes-*")))

    with pytest.raises(SealBrokenError):
        table.refresh()

    assert (table.rows("orders"), table.phase()) == (before, "NORMAL")
    table.refresh()
    assert table.rows("orders") == table.rows("raw/orders")


@pytest.mark.in_test_all
def test_staging_that_is_gone_ends_the_refresh(table, crash_at):
    before = table.rows("orders")
    stop_at(table, crash_at, "seal.after")
    shutil.rmtree(table.root / "_mv")

    with pytest.raises(MvError):
        table.refresh()

    assert (table.rows("orders"), table.phase()) == (before, "NORMAL")


@pytest.mark.in_test_all
@pytest.mark.large_tables
def test_seal_that_breaks_again_and_again_is_explained(table, at_point):
    hints = []
    for _ in range(2):
        at_point("seal.after", lambda: [shutil.rmtree(place) for place in table.root.glob("_mv/*/*/changes-*")])
        with pytest.raises(SealBrokenError) as caught:
            table.refresh()
        hints.append(caught.value.advice)

    assert hints[0].startswith("Refresh again")
    assert "another one will not help" in hints[1]
    assert table.store.history(table.store.table("orders").id, 1)[0].error.hint == hints[1]
    assert table.phase() == "NORMAL"


def _truncate_data(place):
    """Replace the data file by a valid one that lacks its first row, under the same name."""
    import pyarrow.parquet as pq

    file = next(place.glob("*.parquet"))
    rows = pq.read_table(file)
    pq.write_table(rows.slice(1), file)
    for leftover in place.glob(".*.crc"):
        leftover.unlink()
