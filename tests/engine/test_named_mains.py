"""Mains that have a name in a catalog, in a real Hive metastore: readers by name see what was published."""

from __future__ import annotations

import shutil
from dataclasses import replace
from typing import Any

import pytest

from airflow_mv_provider.core.outcome import Outcome
from airflow_mv_provider.exceptions import (
    DefinitionError,
    MainNotOursError,
    NameGoneError,
    NameTakenError,
    SettingError,
    TableConflictError,
    UnsafeLocationError,
)
from airflow_mv_provider.spark.delta import NAME_PROPERTY
from tests.conftest import Crash, read_independently

pytestmark = [pytest.mark.slow, pytest.mark.in_process]

FIRST = "SELECT id, 'a' AS v FROM range(10)"
LATER = "SELECT id, IF(id = 3, 'late', 'a') AS v FROM range(1, 12)"
OTHER = "SELECT 7L AS id, 'theirs' AS v"


@pytest.fixture
def shop(catalog: Any) -> Any:
    """A table with a name, applied but not refreshed."""
    catalog.lake.write(FIRST)
    catalog.lake.apply(catalog_name=catalog.name())
    return catalog


def published(shop: Any) -> Any:
    shop.lake.refresh()
    return shop


def check_equal(shop: Any, path: str = "orders") -> None:
    assert shop.rows() == shop.lake.rows(path)
    entry = shop.entry()
    assert entry is not None
    assert entry.type == "EXTERNAL"
    assert entry.leads_to(str(shop.path(path)))


@pytest.mark.in_test_all
def test_readers_of_the_name_see_what_was_published(shop):
    lake = shop.lake
    assert lake.refresh().outcome is Outcome.PUBLISHED
    check_equal(shop)
    versions = lake.versions()
    assert lake.refresh().outcome is Outcome.NOTHING_TO_DO
    assert lake.versions() == versions

    lake.write(LATER)
    lake.refresh()

    check_equal(shop)
    assert lake.rows() == lake.rows("raw/orders")


@pytest.mark.in_test_all
def test_name_given_later_is_registered_although_nothing_is_new(shop):
    lake = shop.lake
    lake.apply()
    lake.refresh()
    assert shop.entry() is None

    lake.apply(catalog_name=shop.name())

    assert lake.refresh().outcome is Outcome.NOTHING_TO_DO
    check_equal(shop)


@pytest.mark.in_test_all
def test_table_with_a_path_alone_never_asks_the_catalog(lake):
    """The catalog of this session would say so: it has no metastore."""
    lake.write(FIRST)
    lake.apply()
    lake.refresh()

    assert NAME_PROPERTY not in {row.key for row in lake.sql("SHOW TBLPROPERTIES {t}")}


@pytest.mark.in_test_all
@pytest.mark.parametrize("write", ["create_main", "register_name", "record_name", "fence"])
@pytest.mark.parametrize("when", ["before", "after"])
def test_next_refresh_registers_what_a_crash_left(shop, crash_at, write, when):
    lake = shop.lake
    crash_at(f"{write}.{when}")
    with pytest.raises(Crash):
        lake.refresh()

    lake.clock.pass_ms(lake.settings.lease_ms + 1)
    lake.refresh()

    check_equal(shop)
    assert lake.rows() == lake.rows("raw/orders")
    assert lake.refresh().outcome is Outcome.NOTHING_TO_DO


@pytest.mark.in_test_all
@pytest.mark.parametrize("write", ["register_name", "record_name"])
def test_retry_of_the_same_caller_registers_the_name_before_it_publishes(shop, crash_at, write):
    lake, caller = shop.lake, shop.lake.caller()
    crash_at(f"{write}.before")
    with pytest.raises(Crash):
        lake.refresh(caller=caller)

    lake.refresh(caller=caller)

    check_equal(shop)


@pytest.mark.in_test_all
@pytest.mark.parametrize("statement", ["DROP TABLE shop.orders", "ALTER TABLE shop.orders RENAME TO shop.former"])
def test_name_that_is_gone_is_noticed(shop, statement):
    lake = published(shop).lake
    rows, versions = lake.rows(), lake.versions()
    shop.sql(statement)
    lake.write(LATER)

    for asked in (lake.refresh, lambda: lake.refresher().plan("orders")):
        with pytest.raises(NameGoneError, match=r"dropped or renamed.*CREATE TABLE IF NOT EXISTS"):
            asked()

    assert (lake.rows(), lake.versions()) == (rows, versions)
    shop.sql(f"CREATE TABLE IF NOT EXISTS shop.orders USING delta LOCATION '{shop.path()}'")
    lake.refresh()
    check_equal(shop)


SWAPPED = {
    "managed": f"CREATE TABLE shop.orders USING delta AS {OTHER}",
    "external": f"CREATE TABLE shop.orders USING delta LOCATION '{{other}}' AS {OTHER}",
    "parquet": f"CREATE TABLE shop.orders USING parquet AS {OTHER}",
    "view": "CREATE VIEW shop.orders AS SELECT 7L AS id, 'theirs' AS v",
}


@pytest.mark.parametrize(
    "statement",
    [pytest.param(text, id=name) for name, text in SWAPPED.items()],
)
@pytest.mark.in_test_all
def test_what_took_the_name_is_never_written_dropped_or_deleted(shop, statement):
    lake = published(shop).lake
    rows, versions = lake.rows(), lake.versions()
    shop.sql("ALTER TABLE shop.orders RENAME TO shop.former")
    shop.sql(statement.format(other=shop.path("theirs")))
    before = shop.entry()
    lake.write(LATER)

    with pytest.raises(NameTakenError, match="Nothing was written there"):
        lake.refresh()
    with pytest.raises(NameTakenError):
        lake.refresher().relocate("orders", lake.caller())
    assert (lake.rows(), lake.versions()) == (rows, versions)

    done = lake.refresher().drop("orders", lake.caller(), delete_main=True)

    assert (done.is_main_deleted, done.unnamed) == (True, None)
    assert shop.entry() == before
    assert shop.rows() == [(7, "theirs")]


@pytest.mark.in_test_all
def test_name_is_taken_before_the_first_refresh(shop):
    shop.sql(f"CREATE TABLE shop.orders USING delta AS {OTHER}")

    with pytest.raises(NameTakenError, match="is a managed delta table"):
        shop.lake.refresh()

    assert not shop.path().exists(), "main was not created"
    assert shop.rows() == [(7, "theirs")]


@pytest.mark.in_test_all
def test_name_is_taken_while_main_is_created(shop, at_point):
    at_point("register_name.before", lambda: shop.sql(f"CREATE TABLE shop.orders USING delta AS {OTHER}"))

    with pytest.raises(NameTakenError, match="is a managed delta table"):
        shop.lake.refresh()

    assert shop.rows() == [(7, "theirs")]
    shop.sql("DROP TABLE shop.orders")
    shop.lake.refresh()
    check_equal(shop)


@pytest.mark.in_test_all
def test_swap_after_the_refresh_began_leaves_the_others_table_alone(shop, at_point):
    """Main is written at its location: the name plays no part in it."""
    lake = published(shop).lake
    lake.write(LATER)

    def swap() -> None:
        shop.sql("ALTER TABLE shop.orders RENAME TO shop.former")
        shop.sql(f"CREATE TABLE shop.orders USING delta AS {OTHER}")

    at_point("publish.before", swap)
    lake.refresh()

    assert lake.rows() == lake.rows("raw/orders")
    assert shop.rows() == [(7, "theirs")]


@pytest.mark.in_test_all
def test_schema_that_is_missing_is_named(shop):
    shop.lake.apply(catalog_name="spark_catalog.nowhere.orders")

    with pytest.raises(DefinitionError, match=r"no schema spark_catalog.nowhere.*CREATE SCHEMA"):
        shop.lake.refresh()


@pytest.mark.in_test_all
def test_two_tables_have_two_names(shop):
    with pytest.raises(TableConflictError, match="is the catalog_name of orders"):
        shop.lake.apply(name="others", catalog_name=shop.name())


@pytest.mark.in_test_all
def test_dropped_table_has_no_name_any_more_and_keeps_main(shop):
    lake = published(shop).lake
    rows = lake.rows()

    done = lake.refresher().drop("orders", lake.caller(), delete_main=False)

    assert done.unnamed == shop.name()
    assert shop.entry() is None
    assert lake.rows() == rows
    lake.apply(catalog_name=shop.name())
    lake.refresh()
    check_equal(shop)


@pytest.mark.in_test_all
@pytest.mark.parametrize(
    "point", ["unregister_name.before", "unregister_name.after", "drop_files.before", "forget.before"]
)
def test_drop_that_died_is_finished_by_the_next_one(shop, crash_at, point):
    lake = published(shop).lake
    crash_at(point)
    with pytest.raises(Crash):
        lake.refresher().drop("orders", lake.caller(), delete_main=True)

    lake.refresher().drop("orders", lake.caller(), delete_main=True)

    assert shop.entry() is None
    assert not shop.path().exists()


@pytest.mark.in_test_all
def test_main_that_a_table_reads_by_its_name_is_not_deleted(shop):
    lake = published(shop).lake
    lake.apply(name="copies", source={"type": "delta", "table": shop.name()})
    lake.refresh("copies")
    assert lake.rows("copies") == lake.rows()

    with pytest.raises(UnsafeLocationError, match="share a directory"):
        lake.refresher().drop("orders", lake.caller(), delete_main=True)

    check_equal(shop)


@pytest.mark.in_test_all
def test_main_that_was_replaced_by_another_table_keeps_its_name(shop):
    lake = published(shop).lake
    shutil.rmtree(shop.path())
    lake.write(OTHER, "orders")
    with pytest.raises(MainNotOursError):
        lake.refresh()

    done = lake.refresher().drop("orders", lake.caller(), delete_main=False)

    assert done.unnamed is None
    assert shop.rows() == [(7, "theirs")]


@pytest.mark.in_test_all
@pytest.mark.parametrize("point", [None, "relocate.after", "move_name.before", "move_name.after"])
def test_name_goes_where_main_was_moved_to(shop, crash_at, point):
    lake = published(shop).lake
    moved(shop, shutil.move)
    if point is not None:
        crash_at(point)
        with pytest.raises(Crash):
            lake.refresher().relocate("orders", lake.caller())

    lake.refresher().relocate("orders", lake.caller())

    check_equal(shop)
    lake.write(LATER)
    lake.refresh()
    check_equal(shop)
    assert lake.rows() == lake.rows("raw/orders")


@pytest.mark.in_test_all
def test_copy_of_a_warehouse_does_not_take_the_name(shop):
    lake = published(shop).lake
    old = moved(shop, shutil.copytree)
    rows = read_independently(old / "orders")

    with pytest.raises(NameTakenError, match="expected an external delta table"):
        lake.refresher().relocate("orders", lake.caller(), is_old_gone=True)
    lake.write(LATER)
    with pytest.raises(NameTakenError):
        lake.refresh()

    assert shop.rows() == rows
    assert read_independently(old / "orders") == rows


def moved(shop: Any, how: Any) -> Any:
    lake = shop.lake
    old, new = lake.root, lake.root.with_name("elsewhere")
    how(old, new)
    lake.root, lake.settings = new, replace(lake.settings, warehouse=str(new))
    return old


@pytest.mark.in_test_all
def test_rollback_and_export_of_a_table_with_a_name(shop, tmp_path):
    lake = published(shop).lake
    rows, version = lake.rows(), lake.versions()
    lake.write(LATER)
    lake.refresh()
    export = lake.refresher().export("orders", str(tmp_path / "exported"))
    assert export.manifest.rows == len(lake.rows())

    lake.refresher().roll_back("orders", str(version), lake.caller(), "tried")

    assert shop.rows() == rows
    check_equal(shop)


@pytest.mark.in_test_all
def test_existing_table_of_the_catalog_is_adopted_with_its_name(catalog):
    lake = catalog.lake
    catalog.sql(f"CREATE TABLE shop.orders USING delta LOCATION '{catalog.path()}' AS {FIRST}")
    lake.write(LATER)
    lake.apply(catalog_name=catalog.name(), adopt=True)

    lake.refresh()

    check_equal(catalog)
    assert lake.rows() == lake.rows("raw/orders")


def test_name_needs_a_metastore(lake):
    lake.write(FIRST)
    lake.apply(catalog_name="spark_catalog.shop.orders")

    with pytest.raises(SettingError, match="this Spark has no metastore"):
        lake.refresh()
    with pytest.raises(SettingError, match="this Spark has no metastore"):
        lake.refresher().drop("orders", lake.caller(), delete_main=False)

    assert not (lake.root / "orders").exists()
