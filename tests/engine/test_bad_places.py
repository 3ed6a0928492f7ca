"""Sources, mains and links where none may be; mains that are not ours, or not as they were left."""

from __future__ import annotations

from dataclasses import replace

import pytest

from airflow_mv_provider import DeltaSource, Files
from airflow_mv_provider.exceptions import (
    AdoptionError,
    MainNotOursError,
    MainUnsupportedError,
    UnsafeLocationError,
)
from tests.engine.refusing import GOOD, csv, refused

pytestmark = pytest.mark.slow


def test_symlink_out_of_the_root_is_refused(lake, tmp_path):
    secret = tmp_path / "secret"
    secret.mkdir()
    (secret / "x.csv").write_text("id,v\n1,a\n")
    (lake.root / "raw").mkdir()
    (lake.root / "raw/link").symlink_to(secret)
    lake.apply(source=Files("raw/link/*.csv", format="csv", schema="id BIGINT, v STRING"))

    with pytest.raises(UnsafeLocationError, match="link"):
        lake.refresh()


@pytest.mark.in_test_all
def test_symlinked_file_out_of_the_root_is_refused(lake, tmp_path):
    secret = tmp_path / "x.csv"
    secret.write_text("id,v\n1,a\n")
    csv(lake, good="id,v\n1,a\n")
    (lake.root / "raw/csv/link.csv").symlink_to(secret)

    with pytest.raises(UnsafeLocationError, match="link"):
        lake.refresh()


@pytest.mark.in_test_all
def test_source_outside_the_warehouse_needs_an_allowed_root(lake, tmp_path):
    with pytest.raises(UnsafeLocationError, match="outside"):
        lake.apply(source=DeltaSource(str(tmp_path / "elsewhere")))


@pytest.mark.in_test_all
def test_main_may_not_be_its_own_source(lake):
    with pytest.raises(UnsafeLocationError, match="share a directory"):
        lake.apply(source=DeltaSource("orders"))


def test_existing_table_is_not_touched_unless_adopted(lake):
    lake.write(GOOD)
    lake.write("SELECT id, 'theirs' AS v FROM range(3)", "orders")
    lake.apply()
    refused(lake, MainNotOursError, "adopt")

    lake.apply(adopt=True)
    report = lake.refresh()

    assert (report.rows_updated, report.rows_inserted) == (3, 7)
    assert lake.rows("orders") == lake.rows("raw/orders")


@pytest.mark.in_test_all
@pytest.mark.parametrize("bad", ["(1, 'a'), (1, 'b')", "(NULL, 'a')"])
def test_table_with_bad_keys_is_not_adopted(lake, bad):
    lake.write(GOOD)
    lake.write(f"SELECT CAST(id AS BIGINT) AS id, v FROM VALUES {bad} AS t(id, v)", "orders")
    lake.apply(adopt=True)

    refused(lake, AdoptionError)


@pytest.mark.in_test_all
def test_main_with_bad_keys_is_repaired(good):
    good.sql("INSERT INTO {t} VALUES (3, 'v3'), (3, 'other'), (NULL, 'x'), (NULL, NULL)")

    good.apply(guards={"max_deleted_fraction": 0.5})
    report = good.refresh()

    assert report.rows_deleted == 5  # three copies of 3, two without a key
    assert good.rows("orders") == good.rows("raw/orders")


def test_main_that_is_not_delta_is_refused(lake):
    lake.write(GOOD)
    lake.spark.sql(GOOD).write.parquet(str(lake.root / "orders"))
    lake.apply()

    with pytest.raises(MainUnsupportedError, match="Delta"):
        lake.refresh()


@pytest.mark.in_test_all
def test_view_of_mains_name_is_not_main(good):
    """Main is a place, not a name: what the catalog calls so is neither read nor written."""
    good.spark.sql("CREATE VIEW orders AS SELECT 77 AS id, 'theirs' AS v")
    try:
        good.write("SELECT id, 'n' AS v FROM range(10)")

        good.refresh()

        assert good.rows("orders") == [(n, "n") for n in range(10)]
        assert good.spark.table("orders").collect() == [(77, "theirs")]
    finally:
        good.spark.sql("DROP VIEW orders")


@pytest.mark.in_test_all
def test_main_on_s3_without_a_log_store_for_several_drivers_is_refused(lake):
    """Before anything of S3 is touched: there is none here."""
    settings = replace(lake.settings, warehouse="s3a://bucket/wh", source_roots=(str(lake.root),))
    on_s3 = replace(lake, settings=settings)
    on_s3.apply(source=DeltaSource(str(lake.root / "raw/orders")))

    with pytest.raises(MainUnsupportedError, match="only one driver") as caught:
        on_s3.refresh()

    assert "s3a://bucket/wh/orders" in str(caught.value)
    assert "spark.delta.logStore.s3a.impl" in caught.value.advice
    assert lake.phase() == "NORMAL"


def test_main_that_forgets_transactions_is_refused(good):
    good.sql("ALTER TABLE {t} SET TBLPROPERTIES ('delta.setTransactionRetentionDuration' = 'interval 1 days')")
    good.write("SELECT id, 'n' AS v FROM range(10)")

    refused(good, MainUnsupportedError, "setTransactionRetentionDuration")
