"""The metadata database in a schema of Airflow's own database, migrated by `airflow db migrate`."""

from __future__ import annotations

import os
import subprocess
import sys

import psycopg
import pytest
from sqlalchemy import make_url

from airflow_mv_provider.metadata import migrations
from airflow_mv_provider.metadata.models import Base

pytestmark = [pytest.mark.slow, pytest.mark.in_test_all]
ADDRESS, MANAGER = "AIRFLOW__MV__SQL_ALCHEMY_CONN", "airflow_mv_provider.hooks.airflow_migration.MvDBManager"


def airflow_does(*words: str, **more: str) -> str:
    """Run Airflow's command line, and return what it prints."""
    command = [sys.executable, "-m", "airflow", *words]
    done = subprocess.run(command, check=False, env=os.environ | more, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def tables_in(address: str, schema: str) -> set[str]:
    with psycopg.connect(address) as db:
        found = db.execute("SELECT tablename FROM pg_tables WHERE schemaname = %s", (schema,))
        return {name for (name,) in found}


def test_airflow_migrates_it_in_a_schema_of_its_own_and_leaves_it_when_it_resets_its_own(airflow, postgres, tmp_path):
    address = postgres.new_database()
    with psycopg.connect(address) as db:
        db.execute("CREATE SCHEMA refreshable")
    ours = make_url(address).set(drivername="postgresql+psycopg", query={"options": "-csearch_path=refreshable"})
    mine = set(Base.metadata.tables) | {migrations.VERSION_TABLE}
    airflows = make_url(address).set(drivername="postgresql+psycopg").render_as_string(hide_password=False)
    environment = {
        "AIRFLOW_HOME": str(tmp_path),
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": airflows,
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN_ASYNC": airflows,
        "AIRFLOW__DATABASE__EXTERNAL_DB_MANAGERS": MANAGER,
        ADDRESS: ours.render_as_string(hide_password=False),
    }

    told = airflow_does("db", "migrate", **environment)
    airflow_does("db", "check-migrations", "--migration-wait-timeout", "1", **environment)

    assert f"refreshable tables is at version {migrations.head()}" in told
    assert tables_in(address, "refreshable") == mine
    assert {"dag", "task_instance", "alembic_version"} <= tables_in(address, "public")
    assert not mine & tables_in(address, "public")

    airflow_does("db", "reset", "--yes", "--skip-init", **environment)
    assert "task_instance" not in tables_in(address, "public")
    assert tables_in(address, "refreshable") == mine
