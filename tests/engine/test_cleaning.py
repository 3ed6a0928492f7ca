"""Cleaning needs no more rights than writing did, and what it cannot remove keeps no table from NORMAL."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from airflow_mv_provider.core.location import Workspace
from airflow_mv_provider.core.outcome import Outcome
from airflow_mv_provider.exceptions import EngineError, MvError
from airflow_mv_provider.spark import storage
from airflow_mv_provider.spark.session import is_remote
from tests.conftest import Crash

pytestmark = pytest.mark.slow

# A catalog of Delta's that stands for no other one: nothing can be created in it.
CLOSED = "org.apache.spark.sql.delta.catalog.DeltaCatalog"
# A file system that only reads.
READ_ONLY = {"fs.file.impl": "org.apache.hadoop.fs.http.HttpFileSystem", "fs.file.impl.disable.cache": "true"}


@pytest.fixture
def table(prepared: Callable[..., Any]) -> Any:
    """A table that was published once, and whose source has changed since."""

    def build(lake: Any) -> None:
        lake.write("SELECT id, concat('v', id) AS v FROM range(20)")
        lake.apply()
        lake.refresh()
        lake.write("SELECT id, concat('w', id) AS v FROM range(5, 25)")

    return prepared("to-clean", build)


def close_catalog(session: Any) -> None:
    session.conf.set("spark.sql.catalog.closed", CLOSED)
    session.sql("SET CATALOG closed")
    with pytest.raises(Exception):  # noqa: B017  # whatever it says: it is closed
        session.sql("CREATE DATABASE anything")


@pytest.mark.in_test_all
def test_catalog_that_forbids_databases_keeps_no_table_in_cleanup(table, at_point):
    # Over Spark Connect all tests share a session, and what is closed in it cannot be opened again.
    own = replace(table, spark=table.spark.cloneSession()) if is_remote(table.spark) else table
    runner = own.refresher()
    at_point("staging_delete.before", lambda: close_catalog(runner.spark))

    report = runner.refresh("orders", table.caller())

    assert (report.outcome, table.phase(), table.workspaces()) == (Outcome.PUBLISHED, "NORMAL", [])
    assert table.rows() == table.rows("raw/orders")


@pytest.mark.in_test_all
def test_directory_is_emptied_without_a_catalog_and_without_a_jvm(spark, tmp_path):
    workspace = Workspace(str(tmp_path), "0" * 8 + "-0000-4000-8000-" + "0" * 12, "a" * 32)
    beside = Path(workspace.root).parent / ("b" * 32)
    kept = tmp_path / "kept"
    for place in (Path(workspace.root, "_temporary/0"), Path(workspace.root, "staging-1/p=1"), beside, kept):
        place.mkdir(parents=True)
        for name in ("_SUCCESS", ".part-0.crc", "part-0.parquet"):
            (place / name).write_text("x")
    Path(workspace.root, "link").symlink_to(kept, target_is_directory=True)

    storage._empty(spark, workspace.root)

    assert list(Path(workspace.root).rglob("*")) == []
    assert len(list(kept.iterdir())) == len(list(beside.iterdir())) == 3


@pytest.mark.in_test_all
def test_hidden_files_and_links_go_with_a_workspace_and_what_they_lead_to_stays(spark, tmp_path):
    workspace = Workspace(str(tmp_path), "0" * 8 + "-0000-4000-8000-" + "0" * 12, "a" * 32)
    kept = tmp_path / "kept"
    for place in (Path(workspace.root, "_temporary/0"), kept):
        place.mkdir(parents=True)
        (place / ".part-0.crc").write_text("x")
    Path(workspace.root, "link").symlink_to(kept, target_is_directory=True)

    storage.remove(spark, workspace)
    storage.remove(spark, workspace)

    assert not Path(workspace.root).exists()
    assert len(list(kept.iterdir())) == 1


@pytest.mark.in_process
def test_directory_that_hadoop_does_not_remove_is_an_error_although_hadoop_raises_none(spark, tmp_path):
    """Java has no name for a file whose name is not UTF-8; Hadoop's `delete` returns false for its directory."""
    workspace = Workspace(str(tmp_path), "0" * 8 + "-0000-4000-8000-" + "0" * 12, "a" * 32)
    Path(workspace.root).mkdir(parents=True)
    nameless = Path(workspace.root, os.fsdecode(b"\xff"))
    nameless.write_text("x")

    with pytest.raises(EngineError, match="the path cannot be removed"):
        storage.remove(spark, workspace)

    nameless.unlink()
    storage.remove(spark, workspace)
    assert not Path(workspace.root).exists()


@pytest.mark.in_test_all
@pytest.mark.in_process
def test_files_that_cannot_be_removed_are_left_to_the_sweep(table, at_point, caplog):
    runner = table.refresher()

    def forbid() -> None:
        for name, value in READ_ONLY.items():
            runner.spark.conf.set(name, value)

    at_point("staging_delete.before", forbid)

    report = runner.refresh("orders", table.caller())

    assert (report.outcome, table.phase()) == (Outcome.PUBLISHED, "NORMAL")
    assert "`amv recover` tries again" in caplog.text
    assert table.workspaces() != []
    told: list[str] = []
    table.refresher().recover(table.caller(), told.append)
    assert table.workspaces() == []
    assert any("removed the files of refresh" in each for each in told)


@pytest.mark.in_test_all
@pytest.mark.in_process
def test_abandoned_refresh_whose_files_stay_is_abandoned_all_the_same(table, crash_at, at_point):
    crash_at("seal.after")
    with pytest.raises(Crash):
        table.refresh()
    table.clock.pass_ms(table.settings.lease_ms + 1)
    runner = table.refresher()

    def forbid() -> None:
        for name, value in READ_ONLY.items():
            runner.spark.conf.set(name, value)

    at_point("staging_delete.before", forbid)

    report = runner.abandon("orders", table.caller())

    assert (report.outcome, table.phase()) == (Outcome.ABANDONED, "NORMAL")
    with pytest.raises(MvError):  # who asks for nothing else is told
        runner.recover(table.caller())
    table.refresher().recover(table.caller())
    assert table.workspaces() == []
