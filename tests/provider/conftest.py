"""Airflow's own fixtures; imported here, before any test of this folder imports airflow."""

from __future__ import annotations

import pytest

from tests.airflow_home import airflow
from tests.conftest import Lake

__all__ = ["airflow"]


@pytest.fixture
def home(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> Lake:
    """A warehouse that Airflow's tasks find by the [mv] section, with a source of five rows."""
    monkeypatch.setenv("AIRFLOW__MV__SQL_ALCHEMY_CONN", lake.settings.database_url)
    monkeypatch.setenv("AIRFLOW__MV__WAREHOUSE", str(lake.root))
    lake.write("SELECT id, concat('v', id) AS v FROM range(5)")
    return lake
