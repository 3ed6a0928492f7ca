"""Others write to main between the differences and the publish: it is seen, and corrected for."""

from __future__ import annotations

import shutil

import pytest

from airflow_mv_provider.core.outcome import Outcome
from airflow_mv_provider.exceptions import EngineError, MainMovedError, MainNotOursError, MainUnsupportedError
from tests.conftest import Crash
from tests.scenarios.conftest import NUM_CHANGES, change_source, check_invariants

pytestmark = pytest.mark.slow


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    "sql",
    [
        pytest.param("INSERT INTO {t} VALUES (777, 77, 'foreign')", id="append"),
        pytest.param("DELETE FROM {t} WHERE id IN (0, 5, 8)", id="delete"),
        pytest.param("INSERT INTO {t} SELECT * FROM {t} WHERE id < 12", id="duplicate"),
        pytest.param("INSERT INTO {t} VALUES (NULL, 1, 'no key'), (NULL, 1, 'no key')", id="null key"),
        pytest.param("UPDATE {t} SET v = 'foreign' WHERE p = 2", id="update"),
        pytest.param("RESTORE {t} TO VERSION AS OF 1", id="restore"),
    ],
)
def test_foreign_write_before_the_publish_is_corrected(table, at_point, sql):
    change_source(table)
    at_point("publish.before", lambda: table.sql(sql))

    report = table.refresh()

    assert report.outcome is Outcome.PUBLISHED
    check_invariants(table)


@pytest.mark.in_test_all
def test_optimize_before_the_publish_changes_nothing(table, at_point):
    change_source(table)
    at_point("publish.before", lambda: table.sql("OPTIMIZE {t}"))

    table.refresh()

    check_invariants(table, published=2)


@pytest.mark.in_test_all
def test_foreign_write_at_rest_makes_the_next_refresh_compare(table):
    table.sql("INSERT INTO {t} VALUES (777, 77, 'foreign')")

    report = table.refresh()

    assert (report.outcome, report.rows_deleted) == (Outcome.PUBLISHED, 1)
    assert "another writer" in report.reason
    check_invariants(table)


@pytest.mark.in_test_all
def test_optimize_at_rest_keeps_main_trusted(table):
    table.sql("OPTIMIZE {t}")

    assert table.refresh().outcome is Outcome.NOTHING_TO_DO


@pytest.mark.in_test_all
def test_main_that_was_dropped_is_made_again(table):
    import shutil

    shutil.rmtree(table.root / "orders")

    report = table.refresh()

    assert report.rows_inserted == 40
    check_invariants(table)


@pytest.mark.sample(1)
@pytest.mark.parametrize("point", ["staging.before", "seal.after"])
def test_table_that_has_taken_mains_place_is_left_alone(table, crash_at, point):
    change_source(table)
    crash_at(point)
    caller = table.caller()
    with pytest.raises(Crash):
        table.refresh(caller=caller)
    shutil.rmtree(table.root / "orders")
    table.write("SELECT id, CAST(7 AS INT) AS p, 'theirs' AS v FROM range(100, 103)", "orders")
    before = (table.rows(), table.versions())

    with pytest.raises(MainMovedError, match="the table was replaced by another table"):
        table.refresh(caller=caller)

    assert (table.rows(), table.versions()) == before
    assert (table.phase(), table.workspaces()) == ("NORMAL", [])
    with pytest.raises(MainNotOursError):
        table.refresh()


@pytest.mark.in_test_all
def test_main_that_was_put_back_is_not_believed_once_failed_refreshes_have_reached_its_version(table, at_point):
    """A fence is an empty commit: with enough of them a copy from before the publish has the version of the publish."""
    import shutil

    main, copy = table.root / "orders", table.root / "backup"
    shutil.copytree(main, copy)
    change_source(table)
    table.refresh()
    published = table.versions()
    shutil.rmtree(main)
    shutil.move(copy, main)

    def fail() -> None:
        raise EngineError("a test", "it failed after its fence.")

    while table.versions() < published:
        at_point("staging.before", fail)
        with pytest.raises(EngineError):
            table.refresh()
    report = table.refresh()

    assert (report.rows_inserted, report.rows_updated, report.rows_deleted) == NUM_CHANGES
    assert table.rows("orders") == table.rows("raw/orders")


@pytest.mark.in_test_all
def test_main_that_others_have_partitioned_otherwise_is_refused(table):
    rows = table.spark.read.format("delta").load(str(table.root / "orders"))
    writer = rows.write.format("delta").mode("overwrite").option("overwriteSchema", "true")
    writer.partitionBy("v").save(str(table.root / "orders"))

    with pytest.raises(MainUnsupportedError, match="the table is partitioned by v, the definition by p"):
        table.refresh()

    assert table.phase() == "NORMAL"
