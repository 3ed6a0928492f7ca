"""Sources that the definition names as tables of a catalog, in a real Hive metastore."""

from __future__ import annotations

import shutil
from typing import Any

import pytest

from airflow_mv_provider import DeltaSource
from airflow_mv_provider.core.outcome import Outcome
from airflow_mv_provider.exceptions import DefinitionError, SettingError, SourceNotFoundError, UnsafeLocationError
from airflow_mv_provider.sources.query.model import NamedTable, Query
from tests.conftest import Crash

pytestmark = [pytest.mark.slow, pytest.mark.in_process]

TEN = "SELECT id, CAST(id AS STRING) AS v FROM range(10)"


@pytest.fixture
def named(catalog: Any) -> Any:
    """A managed table of ten rows, and a table that reads it by its name."""
    catalog.sql(f"CREATE TABLE shop.orders USING delta AS {TEN}")
    catalog.lake.apply(source=DeltaSource(table=catalog.name()))
    return catalog


def obstacles(lake: Any) -> str:
    """What `amv plan` says of why the changes alone cannot be read."""
    return "; ".join(each.why or "" for each in lake.refresher().plan("orders").estimates)


@pytest.mark.in_test_all
def test_table_is_kept_equal_to_a_table_of_the_catalog(named):
    lake = named.lake
    assert lake.refresh().outcome is Outcome.PUBLISHED
    assert lake.rows() == [(number, str(number)) for number in range(10)]
    assert lake.refresh().outcome is Outcome.NOTHING_TO_DO

    named.sql("UPDATE shop.orders SET v = 'late' WHERE id = 3")
    named.sql("DELETE FROM shop.orders WHERE id = 4")

    done = lake.refresh()
    assert (done.rows_updated, done.rows_deleted) == (1, 1)
    assert lake.rows() == sorted(named.rows(), key=repr)


@pytest.mark.in_test_all
def test_query_reads_names_and_paths(catalog):
    lake = catalog.lake
    catalog.sql(f"CREATE TABLE shop.orders USING delta AS {TEN}")
    lake.write("SELECT id, id * 2 AS twice FROM range(5)", "raw/twice")
    inputs = {"o": NamedTable(table=catalog.name()), "t": "raw/twice"}
    lake.apply(source=Query("SELECT o.id, o.v, t.twice FROM o JOIN t USING (id)", inputs=inputs))

    lake.refresh()

    assert lake.rows() == [(number, 2 * number, str(number)) for number in range(5)]
    assert lake.refresh().outcome is Outcome.NOTHING_TO_DO


@pytest.mark.in_test_all
def test_query_may_not_read_a_name_that_is_no_input(catalog):
    lake = catalog.lake
    catalog.sql(f"CREATE TABLE shop.orders USING delta AS {TEN}")
    catalog.sql("CREATE TABLE shop.others USING parquet AS SELECT 1L AS id")
    lake.write(TEN, "raw/orders")
    for name in ("orders", "others"):
        sql = f"SELECT o.* FROM o JOIN {catalog.schema}.{name} USING (id)"
        lake.apply(source=Query(sql, inputs={"o": "raw/orders"}))
        with pytest.raises(DefinitionError, match="not among its inputs"):
            lake.refresh()


@pytest.mark.in_test_all
@pytest.mark.parametrize("statement", ["DROP TABLE shop.orders", "ALTER TABLE shop.orders RENAME TO shop.former"])
def test_name_that_is_gone_is_an_error_that_says_what_to_do(named, statement):
    named.lake.refresh()
    named.sql(statement)

    with pytest.raises(SourceNotFoundError, match=rf"the catalog has no table {named.name()}.*change `table`"):
        named.lake.refresh()

    assert len(named.lake.rows()) == 10, "main stays"


@pytest.mark.in_test_all
def test_name_that_was_given_to_another_table_is_noticed(named):
    lake = named.lake
    lake.refresh()
    named.sql("ALTER TABLE shop.orders RENAME TO shop.former")
    named.sql("CREATE TABLE shop.orders USING delta AS SELECT id, 'other' AS v FROM range(10)")

    assert "replaced by another table" in obstacles(lake)
    lake.refresh()

    assert lake.rows() == [(number, "other") for number in range(10)]


@pytest.mark.in_test_all
def test_name_that_leads_to_a_copy_of_the_table_is_noticed(named):
    """A copy has the same id and the same versions, and may have other commits since."""
    lake = named.lake
    named.sql(f"CREATE TABLE shop.copied USING delta LOCATION '{named.path('raw/first')}' AS {TEN}")
    lake.apply(source=DeltaSource(table=named.name("copied")))
    lake.refresh()
    shutil.copytree(named.path("raw/first"), named.path("raw/second"))
    lake.sql("UPDATE {t} SET v = 'first'", path="raw/first")
    lake.sql("UPDATE {t} SET v = 'second' WHERE id < 5", path="raw/second")
    named.sql(f"ALTER TABLE shop.copied SET LOCATION '{named.path('raw/second')}'")

    assert "name leads to another place" in obstacles(lake)
    lake.refresh()

    assert lake.rows() == lake.rows("raw/second")


@pytest.mark.in_test_all
def test_pinned_table_is_read_where_its_name_led(named, crash_at):
    """A retry reads the recorded pin, whatever has the name by then."""
    lake, caller = named.lake, named.lake.caller()
    named.sql(f"CREATE TABLE shop.first USING delta LOCATION '{named.path('raw/first')}' AS {TEN}")
    lake.apply(source=DeltaSource(table=named.name("first")))
    crash_at("staging.before")
    with pytest.raises(Crash):
        lake.refresh(caller=caller)
    named.sql("ALTER TABLE shop.first RENAME TO shop.former")
    named.sql("CREATE TABLE shop.first USING delta AS SELECT 1L AS id, 'other' AS v")

    lake.refresh(caller=caller)

    assert lake.rows() == [(number, str(number)) for number in range(10)]


@pytest.mark.in_test_all
@pytest.mark.parametrize(
    ("statement", "described"),
    [
        ("CREATE VIEW shop.other AS SELECT 1 AS id", "is a view"),
        ("CREATE TABLE shop.other USING parquet AS SELECT 1 AS id", "is a managed parquet table"),
    ],
)
def test_name_of_something_else_is_refused(named, statement, described):
    named.sql(statement)
    named.lake.apply(source=DeltaSource(table=named.name("other")))

    with pytest.raises(SourceNotFoundError, match=rf"{described}.*expected a Delta table"):
        named.lake.refresh()


@pytest.mark.in_test_all
def test_name_leads_to_no_place_that_a_path_could_not_name(named, tmp_path):
    named.sql(f"CREATE TABLE shop.outside USING delta LOCATION '{tmp_path}/outside' AS {TEN}")
    named.lake.apply(source=DeltaSource(table=named.name("outside")))

    with pytest.raises(UnsafeLocationError, match="outside the warehouse and the source roots"):
        named.lake.refresh()


@pytest.mark.in_test_all
def test_name_of_main_is_no_source(named):
    lake = named.lake
    lake.refresh()
    named.sql(f"CREATE TABLE shop.itself USING delta LOCATION '{named.path()}'")
    lake.apply(source=DeltaSource(table=named.name("itself")))

    with pytest.raises(UnsafeLocationError, match="share a directory"):
        lake.refresh()


def test_name_needs_a_metastore(lake):
    lake.apply(source=DeltaSource(table="spark_catalog.shop.orders"))

    with pytest.raises(SettingError, match=r"this Spark has no metastore.*catalogImplementation=hive"):
        lake.refresh()


@pytest.mark.in_test_all
def test_load_from_a_name(named):
    lake = named.lake
    lake.write("SELECT id, 'a' AS v FROM range(10)")
    lake.apply()
    lake.refresh()

    lake.refresher().load("orders", {"type": "delta", "table": named.name()}, lake.caller())

    assert lake.rows() == [(number, str(number)) for number in range(10)]
