"""Main brought back to what it was: exactly, whatever dies meanwhile, until the table is resumed."""

from __future__ import annotations

from pathlib import Path

import pytest
from deltalake import DeltaTable

from airflow_mv_provider.core.outcome import Outcome
from airflow_mv_provider.exceptions import (
    ArgumentError,
    DefinitionError,
    RefreshPausedError,
    SchemaMismatchError,
    VersionGoneError,
)
from tests.conftest import Crash, read_independently

pytestmark = pytest.mark.slow


@pytest.fixture
def table(prepared):
    """Main had ten rows, then five of which one was changed."""

    def build(lake):
        lake.write("SELECT id, id % 2 AS p, 'a' AS v FROM range(10)")
        lake.apply(partition_by=["p"], guards={"max_deleted_fraction": 0.9, "max_inserted_fraction": 0.1})
        lake.refresh(overrides=["max_inserted_fraction"])
        lake.sql("DELETE FROM {t} WHERE id < 5", path="raw/orders")
        lake.sql("UPDATE {t} SET v = 'b' WHERE id = 7", path="raw/orders")
        lake.refresh()

    lake = prepared("two-publishes", build)
    versions = ((at, read_independently(lake.root / "orders", at)) for at in range(lake.versions()))
    lake.good_version, lake.good = next((at, rows) for at, rows in versions if len(rows) == 10)
    lake.bad = lake.rows()
    return lake


def roll_back(lake, to=None):
    return lake.refresher().roll_back("orders", str(to or lake.good_version), lake.caller(user="ann"), "a bad export")


@pytest.mark.in_test_all
def test_main_is_as_it_was_and_stays_so_until_the_table_is_resumed(table):
    report = roll_back(table)

    assert (report.outcome, report.rows_inserted, report.rows_updated) == (Outcome.PUBLISHED, 5, 1)
    assert "a bad export" in report.note
    assert table.rows() == table.good
    assert table.workspaces() == []
    assert table.store.age_s(1) is None, "main is older than the last look at the source"
    with pytest.raises(RefreshPausedError):
        table.refresh()

    table.store.resume(table.store.table("orders").id)
    again = table.refresh()

    assert "the table was rolled back" in again.reason
    assert (again.outcome, again.rows_deleted, again.rows_updated) == (Outcome.PUBLISHED, 5, 1)
    assert table.rows() == table.bad
    assert table.store.age_s(1) is not None
    assert table.refresh().outcome is Outcome.NOTHING_TO_DO


@pytest.mark.in_test_all
def test_an_old_version_is_read_as_long_as_its_files_are_there(table, crash_at):
    """By default Delta refuses it by its age: so a rollback, and a refresh that is resumed long after its seal."""
    for path in ("orders", "raw/orders"):
        table.sql(
            "ALTER TABLE {t} SET TBLPROPERTIES (delta.deletedFileRetentionDuration = 'interval 0 hours')", path=path
        )
    table.sql("UPDATE {t} SET v = 'c' WHERE id = 8", path="raw/orders")
    crash_at("seal.after")
    with pytest.raises(Crash):
        table.refresh()
    sealed = table.rows("raw/orders")
    table.sql("UPDATE {t} SET v = 'd' WHERE id = 8", path="raw/orders")
    table.clock.pass_ms(table.settings.lease_ms + 1)

    (resumed,) = table.refresher().recover(table.caller())

    assert (resumed.outcome, table.rows()) == (Outcome.PUBLISHED, sealed)
    assert roll_back(table).outcome is Outcome.PUBLISHED
    assert table.rows() == table.good


@pytest.mark.in_test_all
def test_the_totals_are_those_of_main(table):
    roll_back(table)
    kept = table.published()
    table.store.resume(table.store.table("orders").id)
    table.sql("INSERT INTO {t} SELECT id, id % 2, 'a' FROM range(5)", path="raw/orders")
    table.sql("UPDATE {t} SET v = 'a' WHERE id = 7", path="raw/orders")

    report = table.refresh()

    assert (report.rows_inserted, report.rows_updated, report.rows_deleted) == (0, 0, 0)
    assert table.published() == kept


@pytest.mark.in_test_all
@pytest.mark.sample(1)
@pytest.mark.parametrize("by", ["refresh", "time"])
def test_a_refresh_or_a_time_names_the_version(table, by):
    first = table.store.history(table.store.table("orders").id)[-1]

    roll_back(table, first.refresh_id if by == "refresh" else first.finished_at)

    assert table.rows() == table.good


@pytest.mark.sample(1)
@pytest.mark.parametrize("point", ["acquire.after", "seal.before", "seal.after", "publish.before", "publish.after"])
def test_killed_anywhere_it_is_undone_or_done(table, at_point, point):
    def die() -> None:
        raise KeyboardInterrupt

    at_point(point, die)
    with pytest.raises(KeyboardInterrupt):
        roll_back(table)
    table.clock.pass_ms(table.settings.lease_ms + 1)
    table.refresher().recover(table.caller())

    is_paused = table.store.state(table.store.table("orders").id).paused_since_ms is not None
    is_done = point not in ("acquire.after", "seal.before")
    assert table.rows() == (table.good if is_done else table.bad)
    assert (table.phase(), table.workspaces()) == ("NORMAL", [])
    assert is_paused is is_done, "it is paused exactly if it was rolled back"


@pytest.mark.in_test_all
def test_a_version_that_never_was_changes_nothing(table):
    with pytest.raises(ArgumentError, match="no version 999"):
        roll_back(table, 999)

    assert table.rows() == table.bad
    assert table.store.state(table.store.table("orders").id).paused_since_ms is None


@pytest.mark.in_test_all
def test_a_version_with_other_columns_is_refused_and_the_table_is_not_paused(table):
    table.apply(partition_by=["p"], schema_policy="add")
    table.write("SELECT id, id % 2 AS p, 'b' AS v, 1 AS w FROM range(10)")
    table.refresh(overrides=["max_inserted_fraction"])
    before = table.rows()

    with pytest.raises(SchemaMismatchError):
        roll_back(table)

    assert table.rows() == before
    assert table.phase() == "NORMAL"
    assert table.store.state(table.store.table("orders").id).paused_since_ms is None


@pytest.mark.in_test_all
def test_no_definition_may_name_main_as_its_own_source(table):
    with pytest.raises(DefinitionError, match="share a directory"):
        table.apply(source={"type": "delta", "path": "orders"})


@pytest.mark.in_test_all
def test_a_version_whose_files_were_vacuumed_is_refused_before_anything_is_written(table):
    epoch, versions = table.store.state(1).epoch, table.versions()
    then, now = (set(DeltaTable(str(table.root / "orders"), at).file_uris()) for at in (table.good_version, versions))
    for file in then - now:
        Path(file.removeprefix("file://")).unlink()

    with pytest.raises(VersionGoneError, match="cannot be read any more"):
        roll_back(table)

    state = table.store.state(1)
    assert (table.rows(), table.versions(), state.epoch) == (table.bad, versions, epoch)
    assert (state.phase, state.paused_since_ms) == ("NORMAL", None)


@pytest.mark.in_test_all
@pytest.mark.parametrize("point", [None, "collected.after", "publish.after", "errors.before", "errors.after"])
def test_the_error_table_goes_back_with_main(lake, at_point, point):
    folder = lake.root / "raw/csv"
    folder.mkdir(parents=True)

    def refresh(*lines):
        (folder / "a.csv").write_text("\n".join(["id,v", *lines, ""]))
        lake.refresh(force=True)
        return lake.versions(), lake.rows(), errors()

    def errors():
        found = lake.rows("orders__errors")  # without batch and refresh, which are the rollback's
        return sorted((*row[1:3], *row[4:]) for row in found)

    source = {"type": "files", "path": "raw/csv/*.csv", "format": "csv", "schema": "id BIGINT, v STRING"}
    lake.apply(source=source, errors={}, guards={"max_deleted_fraction": 1.0})
    version, *good = refresh("1,a", "x,bad", "2,b")
    refresh("1,c", "2,d")
    assert [len(good[1]), errors()] == [1, []]

    def die() -> None:
        raise KeyboardInterrupt

    if point:
        at_point(point, die)
        with pytest.raises(KeyboardInterrupt):
            roll_back(lake, version)
        lake.clock.pass_ms(lake.settings.lease_ms + 1)
        lake.refresher().recover(lake.caller())
    else:
        roll_back(lake, version)

    is_done = point != "collected.after"
    assert [lake.rows(), errors()] == (good if is_done else [[(1, "c"), (2, "d")], []])
    assert lake.phase() == "NORMAL"
