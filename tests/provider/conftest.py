"""Airflow's own fixtures; imported here, before any test of this folder imports airflow."""

from __future__ import annotations

import json

import pytest

from tests.airflow_home import airflow
from tests.conftest import Lake
from tests.webhook import webhook_server

__all__ = ["airflow"]


@pytest.fixture
def home(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> Lake:
    """A warehouse that Airflow's tasks find by the [mv] section, with a source of five rows."""
    monkeypatch.setenv("AIRFLOW__MV__SQL_ALCHEMY_CONN", lake.settings.database_url)
    monkeypatch.setenv("AIRFLOW__MV__WAREHOUSE", str(lake.root))
    lake.write("SELECT id, concat('v', id) AS v FROM range(5)")
    return lake


@pytest.fixture
def webhook(monkeypatch):
    """A web server on loopback that keeps what is posted to it, as the Airflow connection `alerts`."""
    with webhook_server() as (port, posted):
        connection = {"conn_type": "http", "host": "127.0.0.1", "schema": "http", "port": port}
        monkeypatch.setenv("AIRFLOW_CONN_ALERTS", json.dumps(connection | {"password": "services/T0/s3cr3t"}))
        yield posted
