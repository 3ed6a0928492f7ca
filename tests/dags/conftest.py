"""The examples under dags/, in a DAGS_FOLDER of their own; no test of this folder imports airflow before this."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.airflow_home import DAGS, Airflow, airflow
from tests.conftest import Lake

__all__ = ["airflow"]

EXAMPLES = Path(__file__).parents[2] / "dags"


@pytest.fixture
def examples(airflow: Airflow) -> Airflow:
    """An Airflow with the examples in its DAGS_FOLDER."""
    shutil.copytree(EXAMPLES, DAGS, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
    return airflow


@pytest.fixture
def home(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> Lake:
    """A warehouse that tasks find as the demo's do: by AMV_* variables."""
    monkeypatch.setenv("AMV_DATABASE_URL", lake.settings.database_url)
    monkeypatch.setenv("AMV_WAREHOUSE", str(lake.root))
    return lake
