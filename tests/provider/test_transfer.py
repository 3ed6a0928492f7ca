"""A DAG that loads a table once from another source, and exports what it then has."""

from __future__ import annotations

import json

import pytest

from tests.airflow_home import DAGS

pytestmark = [pytest.mark.slow, pytest.mark.in_test_all]

TEXT = """
from airflow.sdk import DAG
from airflow_mv_provider.operators.transfer import ExportTableOperator, LoadTableOperator

with DAG("transfer", schedule=None, default_args={{"retries": 0}}):
    load = LoadTableOperator(task_id="load", table="orders", {source}, note="the lost week")
    load >> ExportTableOperator(task_id="export", table="orders", to="{to}")
"""


@pytest.mark.parametrize("how", ["mapping", "file"])
def test_table_is_loaded_and_exported(home, airflow, how):
    home.apply()
    home.refresh()
    home.write("SELECT id, 'other' AS v FROM range(1, 5)", "raw/lost")
    source = {"type": "delta", "path": "raw/lost"}
    (DAGS / "lost.yaml").write_text("source: {type: delta, path: raw/lost}\n")
    given = f"source={source!r}" if how == "mapping" else "source_file='lost.yaml'"
    to = home.root.parent / "exports"

    run = airflow.run(airflow.load("transfer", TEXT.format(source=given, to=to)))

    assert run.states == {"load": "success", "export": "success"}, run.errors
    assert home.rows() == [(n, "other") for n in range(1, 5)]
    loaded = home.store.history(home.store.table("orders").id)[0]
    assert (loaded.refresh_id, loaded.note) == (
        run.xcoms["load:return_value"],
        "loaded from another source: the lost week",
    )
    told = run.xcoms["export:return_value"]
    assert (told["table"], told["rows"], told["root"]) == ("orders", 4, str(to))
    manifest = to / f"manifest/version={told['version']}"
    assert manifest.is_dir()
    (written,) = manifest.glob("*.json")
    assert json.loads(written.read_text())["rows"] == 4
    assert [event.source_task_id for event in airflow.events("mv://table/orders")][-1:] == ["load"]


def test_load_without_one_source_fails_and_changes_nothing(home, airflow):
    home.apply()
    home.refresh()
    before = home.rows()

    run = airflow.run(airflow.load("transfer", TEXT.format(source="overrides=[]", to="relative")))

    assert run.states["load"] == "failed"
    [error] = run.errors["load"]
    assert "either `source` or `source_file`" in str(error)
    assert (home.rows(), home.phase()) == (before, "NORMAL")
