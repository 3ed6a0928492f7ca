"""The examples in Python run as they stand, and those of docs/airflow.md are DAGs."""

from __future__ import annotations

import json
import re
import runpy
from pathlib import Path

import pytest

from airflow_mv_provider.core.scope.request import check_note, parse_request
from airflow_mv_provider.core.scope.scope import Scope
from tests.airflow_home import DAGS
from tests.documents import blocks

TEXT = (Path(__file__).parents[2] / "docs/airflow.md").read_text(encoding="utf-8")


def examples(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", TEXT, flags=re.DOTALL)


@pytest.mark.slow
def test_its_dags_are_loaded(airflow):
    [tables] = examples("yaml")
    (DAGS / "tables.yaml").write_text(tables)
    for number, text in enumerate(examples("python")):
        (DAGS / f"example_{number}.py").write_text(text)

    assert airflow.load_all() == {
        *("refresh_orders", "refresh_gold.customers", "refresh_gold.totals"),
        *("orders_by_hand", "orders_on_the_cluster", "report"),
    }


@pytest.mark.slow
@pytest.mark.parametrize(("where", "text"), [pytest.param(*each, id=each[0]) for each in blocks("python")])
def test_every_example_in_python_runs(tmp_path, where, text):
    """Beside it lies what the README calls `tables.yaml`."""
    [tables] = [text for where, text in blocks("yaml") if where == "README.md 0"]
    (tmp_path / "tables.yaml").write_text(tables)
    (tmp_path / "example.py").write_text(text)

    assert runpy.run_path(str(tmp_path / "example.py"))


def test_its_conf_is_understood():
    [text] = examples("json")

    request = parse_request(json.loads(text))

    check_note(request)
    assert request.scope == Scope(start="2026-03-01", end="2026-03-08")


def test_what_its_table_names_exists():
    package = Path(__file__).parents[2] / "airflow_mv_provider"

    named = set(re.findall(r"`((?:operators|sensors|triggers|notifications)\.[\w.]*)`", TEXT))

    assert len(named) >= 8
    for name in named - {"operators.maintenance"}:
        module, _, noun = name.rpartition(".")
        text = (package / module.replace(".", "/")).with_suffix(".py").read_text()
        assert re.search(rf"^(class|def) {noun}\b", text, flags=re.MULTILINE), name
