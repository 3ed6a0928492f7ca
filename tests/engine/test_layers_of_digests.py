"""A refresh of few changes adds a layer to main's digests instead of writing all of them anew."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from airflow_mv_provider.core.outcome import Outcome
from airflow_mv_provider.core.progress import layers
from tests.conftest import Crash
from tests.engine.feeding import published_with_a_feed

pytestmark = [pytest.mark.slow, pytest.mark.large_tables]

CHANGES = (
    "UPDATE {t} SET v = 'new' WHERE id IN (7, 8)",
    "DELETE FROM {t} WHERE id = 8",
    "INSERT INTO {t} SELECT 1000 AS id, p, 'more' AS v FROM {t} WHERE id = 9",
    "UPDATE {t} SET v = 'newer' WHERE id = 7",
    "DELETE FROM {t} WHERE id >= 1000",
)


@pytest.fixture
def table(prepared, monkeypatch):
    """A published table of sixty rows whose digests are layered as those of a large one."""
    monkeypatch.setattr(layers, "_MIN_ROWS", 0)
    return published_with_a_feed(prepared)


def change(table, text):
    table.sql(text, path="raw/orders")


def published(table):
    return table.store.state(table.store.table("orders").id).published_digests


def written(table):
    """The refreshes whose digests are there."""
    return {path.parent.name for path in (table.root / "_mv").glob("*/digests/*/*")}


def of_the_layers(table):
    return {layer.refresh_id for layer in published(table).layers}


def is_the_source(table):
    """Compare main with the source, and main's digests with those of another comparison of everything."""
    assert table.rows("orders") == table.rows("raw/orders")
    digests = table.digests()
    report = table.refresh(force=True, strategy="corrections")
    assert report.rows_inserted + report.rows_updated + report.rows_deleted == 0
    table.sql("INSERT INTO {t} SELECT 777 AS id, p, 'foreign' AS v FROM {t} LIMIT 1")
    assert table.refresh().rows_deleted == 1  # main's digests were not used: all of it was read
    assert table.digests() == digests


@pytest.mark.in_test_all
def test_layers_are_the_digests_of_main_and_are_joined_in_the_end(table):
    for number, text in enumerate(CHANGES, 1):
        change(table, text)
        assert table.refresh().strategy == "incremental"
        assert len(published(table).layers) == number + 1
        assert written(table) == of_the_layers(table)
        assert table.workspaces() == []
    assert table.rows("orders") == table.rows("raw/orders")

    change(table, "UPDATE {t} SET v = 'last' WHERE id = 3")
    table.refresh()

    assert len(published(table).layers) == 1
    assert written(table) == of_the_layers(table)
    is_the_source(table)


@pytest.mark.in_test_all
def test_comparison_of_everything_reads_all_layers(table):
    for text in CHANGES[:3]:
        change(table, text)
        table.refresh()
    change(table, "UPDATE {t} SET v = 'found' WHERE id = 5")

    report = table.refresh(strategy="corrections")

    assert (report.rows_inserted, report.rows_updated, report.rows_deleted) == (0, 1, 0)
    assert len(published(table).layers) == 1
    assert written(table) == of_the_layers(table)
    is_the_source(table)


@pytest.mark.in_test_all
def test_partition_that_loses_its_rows_in_a_layer_is_gone(lake, monkeypatch):
    monkeypatch.setattr(layers, "_MIN_ROWS", 0)
    lake.write("SELECT id, CAST(id % 3 AS INT) AS p, 'v' AS v FROM range(60) UNION ALL SELECT 100, 9, 'alone'")
    lake.sql("ALTER TABLE {t} SET TBLPROPERTIES (delta.enableChangeDataFeed = true)", path="raw/orders")
    lake.apply(partition_by=["p"])
    lake.refresh()
    for text in ("UPDATE {t} SET v = 'b' WHERE id = 1", "DELETE FROM {t} WHERE p = 9"):
        change(lake, text)
        lake.refresh()

    assert len(published(lake).layers) == 3
    report = lake.refresh(force=True, strategy="corrections")
    assert report.rows_deleted == 0
    assert lake.rows("orders") == lake.rows("raw/orders")


@pytest.mark.in_test_all
@pytest.mark.parametrize("lost", [0, 1])
def test_layer_that_is_lost_is_not_needed(table, lost):
    change(table, CHANGES[0])
    table.refresh()
    shutil.rmtree(published(table).paths[lost])
    change(table, CHANGES[1])

    report = table.refresh()

    assert report.outcome is Outcome.PUBLISHED
    assert table.rows("orders") == table.rows("raw/orders")
    assert (len(published(table).layers), table.workspaces()) == (1, [])


@pytest.mark.in_test_all
@pytest.mark.parametrize("lost", [0, 1])
def test_layer_that_is_damaged_is_not_believed(table, lost):
    change(table, CHANGES[0])
    table.refresh()
    for file in Path(published(table).paths[lost]).glob("*.parquet"):
        shutil.copy(file, file.with_name(f"part-again-{file.name}"))
    change(table, CHANGES[1])

    table.refresh()

    assert len(published(table).layers) == 1
    is_the_source(table)


@pytest.mark.in_test_all
@pytest.mark.parametrize(
    "point", ["staging.after", "seal.after", "publish.after", "published.before", "published.after", "normal.before"]
)
def test_refresh_that_dies_leaves_the_layers_as_they_are_or_adds_its_own(table, crash_at, point):
    change(table, CHANGES[0])
    table.refresh()
    change(table, CHANGES[1])
    crash_at(point)
    with pytest.raises(Crash):
        table.refresh()
    table.clock.pass_ms(table.settings.lease_ms + 1)

    table.refresh()

    assert written(table) == of_the_layers(table)
    assert table.workspaces() == []
    is_the_source(table)


@pytest.mark.in_test_all
def test_sealed_refresh_keeps_its_layers_whatever_is_swept_and_whoever_writes(table, crash_at):
    """The foreign write makes it compare its seal, layers and all, with main as it is then."""
    change(table, CHANGES[0])
    table.refresh()
    before = of_the_layers(table)
    change(table, CHANGES[1])
    crash_at("seal.after")
    with pytest.raises(Crash):
        table.refresh()
    table.sql("DELETE FROM {t} WHERE id = 20")

    table.refresher().recover(table.caller())

    assert before <= written(table)
    table.clock.pass_ms(table.settings.lease_ms + 1)
    table.refresh()
    assert table.rows("orders") == table.rows("raw/orders")
    assert written(table) == of_the_layers(table)
    is_the_source(table)


@pytest.mark.in_test_all
def test_rollback_leaves_no_layer_behind(table):
    first = table.versions()
    for text in CHANGES[:2]:
        change(table, text)
        table.refresh()

    table.refresher().roll_back("orders", str(first), table.caller(user="ann"), "a test")

    assert written(table) == (of_the_layers(table) if published(table) else set())
