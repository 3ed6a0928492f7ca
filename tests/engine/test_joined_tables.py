"""A small table is compared by a join of all rows: the same rows, counts and errors as with fingerprints."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from airflow_mv_provider.core.outcome import Outcome
from airflow_mv_provider.exceptions import DuplicateKeyError, NullKeyError
from tests.conftest import Crash
from tests.engine.test_random_changes import FOREIGN, SCHEMA, SOURCE
from tests.engine.test_small_tables import change, is_the_source

pytestmark = pytest.mark.slow

KINDS = ("delta", "parquet")


@pytest.fixture
def small(lake):
    """A published table of 60 rows."""
    lake.write("SELECT id, id % 3 AS p, concat('v', id) AS v FROM range(60)")
    lake.apply()
    lake.refresh()
    return lake


def joins(lake):
    """A refresh that took the join: main is the source, and no fingerprints of it are kept."""
    report = lake.refresh()
    assert (report.strategy, report.outcome) == ("corrections", Outcome.PUBLISHED)
    is_the_source(lake)
    assert fingerprints(lake) == ()
    return report


def fingerprints(lake):
    return lake.store.state(lake.store.table("orders").id).published_totals.fingerprints


def is_compared_without_difference(lake):
    report = lake.refresh(force=True)
    assert (report.rows_inserted, report.rows_updated, report.rows_deleted) == (0, 0, 0)
    assert lake.workspaces() == []


def test_a_small_table_is_corrected_without_fingerprints(small):
    change(small)

    report = joins(small)

    assert (report.rows_inserted, report.rows_updated, report.rows_deleted) == (1, 1, 1)
    assert report.rows_unchanged == 58
    is_compared_without_difference(small)


@pytest.mark.in_test_all
@settings(max_examples=3, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
@given(histories=st.lists(st.tuples(SOURCE, FOREIGN), min_size=2, max_size=3), is_merged=st.booleans())
def test_main_follows_its_source(lake_factory, histories, is_merged):
    """Beside writes of others."""
    lake = lake_factory()
    partition_by = ["p"] if is_merged else []
    lake.apply(partition_by=partition_by, chunk_rows=4, guards={"allow_empty": True, "max_deleted_fraction": 1.0})
    for number, (source, foreign) in enumerate(histories):
        rows = [(key, *values) for key, values in source.items()]
        lake.write(lake.spark.createDataFrame(rows, SCHEMA))
        if foreign and number:
            lake.sql(foreign)

        lake.refresh()

        assert Counter(lake.rows("orders")) == Counter(lake.rows("raw/orders"))
    is_compared_without_difference(lake)


@pytest.mark.in_test_all
def test_source_that_is_copied_is_read_once(lake):
    """Between the copy and the commit its files may change as they like."""
    folder = lake.root / "raw/files"

    def write(rows):
        lake.spark.sql(rows).coalesce(1).write.mode("overwrite").parquet(str(folder))

    write("SELECT id, 'a' AS v FROM range(9)")
    lake.apply(
        source={"type": "files", "path": "raw/files/*.parquet", "format": "parquet", "schema": "id BIGINT, v STRING"}
    )
    lake.refresh()
    write("SELECT id, IF(id = 3, 'b', 'a') AS v FROM range(10)")

    report = lake.refresh()

    assert (report.rows_inserted, report.rows_updated, report.rows_deleted) == (1, 1, 0)
    assert Counter(lake.rows("orders")) == Counter((n, "b" if n == 3 else "a") for n in range(10))
    assert fingerprints(lake) == ()
    is_compared_without_difference(lake)


@pytest.mark.in_test_all
@pytest.mark.parametrize(
    ("statement", "error"),
    [
        ("INSERT INTO {t} VALUES (NULL, 1, 'x'), (NULL, 1, 'y'), (NULL, 2, 'z')", NullKeyError),
        ("INSERT INTO {t} VALUES (7, 1, 'v7'), (9, 1, 'other')", DuplicateKeyError),
        ("INSERT INTO {t} VALUES (700, 1, 'v7'), (700, 1, 'v7')", DuplicateKeyError),
    ],
)
def test_bad_keys_are_the_same_errors(small, statement, error):
    before = small.rows("orders")
    change(small)
    small.sql(statement, path="raw/orders")

    with pytest.raises(error) as raised:
        small.refresh()

    small.settings = replace(small.settings, fingerprint_rows=0)
    with pytest.raises(error) as expected:
        small.refresh()
    assert raised.value.problem == expected.value.problem
    assert small.rows("orders") == before


@pytest.mark.in_test_all
def test_later_refresh_reads_the_change_feed_alone(small):
    change(small)
    joins(small)
    small.sql("ALTER TABLE {t} SET TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true')", path="raw/orders")
    small.refresh()
    small.apply(strategy="incremental", strict=True)
    small.refresh(force=True)
    change_again = "UPDATE {t} SET v = 'again' WHERE id = 5"
    small.sql(change_again, path="raw/orders")

    report = small.refresh()

    assert (report.strategy, report.rows_updated) == ("incremental", 1)
    is_the_source(small)
    is_compared_without_difference(small)


@pytest.mark.in_test_all
def test_table_that_has_grown_is_compared_by_fingerprints(small):
    change(small)
    joins(small)
    small.settings = replace(small.settings, fingerprint_rows=10)
    for number in range(2):
        small.sql(f"UPDATE {{t}} SET v = 'again {number}' WHERE id = 5", path="raw/orders")

        report = small.refresh()

        assert (report.strategy, report.rows_updated) == ("corrections", 1)
        is_the_source(small)
        assert len(fingerprints(small)) == number + 1


_POINTS = ("staging.before", "staging.after", "seal.before", "seal.after", "publish.before")
_POINTS += ("publish.after", "published.before", "published.after", "staging_delete.before", "staging_delete.after")


@pytest.mark.parametrize("point", _POINTS)
@pytest.mark.victim("refresh crashed")
@pytest.mark.in_test_all
def test_killed_anywhere_it_comes_out_right(small, crash_at, point):
    change(small)
    joins(small)
    small.sql("UPDATE {t} SET v = 'again' WHERE id IN (5, 6)", path="raw/orders")
    small.sql("DELETE FROM {t} WHERE id = 9", path="raw/orders")
    crash_at(point)
    with pytest.raises(Crash):
        small.refresh()
    small.clock.pass_ms(small.settings.lease_ms + 1)
    small.sql("UPDATE {t} SET v = 'later' WHERE id = 20", path="raw/orders")

    small.refresh()

    is_the_source(small)
    is_compared_without_difference(small)


@pytest.mark.in_test_all
@pytest.mark.parametrize("point", ["staging.after", "seal.after", "publish.before", "publish.after"])
def test_foreign_write_meanwhile_is_corrected(small, at_point, point):
    change(small)
    joins(small)
    small.sql("UPDATE {t} SET v = 'again' WHERE id IN (5, 6)", path="raw/orders")
    at_point(point, lambda: small.sql("INSERT INTO {t} VALUES (777, 7, 'foreign'), (5, 1, 'twice')"))

    report = small.refresh()

    assert report.outcome is Outcome.PUBLISHED
    is_the_source(small)
    is_compared_without_difference(small)


@pytest.mark.in_test_all
def test_foreign_rows_are_corrected(small):
    change(small)
    joins(small)
    small.sql("INSERT INTO {t} SELECT * FROM {t} WHERE id < 9")

    small.refresh()

    is_the_source(small)
    is_compared_without_difference(small)


@pytest.mark.in_test_all
def test_columns_may_change(small):
    change(small)
    joins(small)
    small.apply(schema_policy="add")
    small.sql("ALTER TABLE {t} ADD COLUMN note STRING", path="raw/orders")
    small.sql("UPDATE {t} SET note = 'x' WHERE id < 3", path="raw/orders")

    small.refresh()

    is_the_source(small)
    is_compared_without_difference(small)


@pytest.mark.in_test_all
def test_totals_that_do_not_add_up_are_not_believed(small, caplog):
    """As if the recorded totals were those of other rows: all is compared, and nothing is published for them."""
    change(small)
    joins(small)
    with small.store.engine.begin() as db:
        db.exec_driver_sql(
            "UPDATE refresh_state SET published_totals = json_set(published_totals, '$.totals.num_rows', 58)"
        )
    small.sql("UPDATE {t} SET v = 'again' WHERE id = 5", path="raw/orders")

    report = small.refresh()

    assert (report.rows_inserted, report.rows_updated, report.rows_deleted) == (0, 1, 0)
    assert "do not add up" in caplog.text
    is_the_source(small)
