"""The examples of docs/airflow.md are DAGs, as they stand."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from airflow_mv_provider.core.scope.request import check_note, parse_request
from airflow_mv_provider.core.scope.scope import Scope
from tests.airflow_home import DAGS

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
