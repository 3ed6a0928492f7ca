"""One behaviour suite: every test that takes `store` runs on SQLite, on PostgreSQL, and on that behind PgBouncer."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, text

from airflow_mv_provider.core.state import TableRecord
from airflow_mv_provider.metadata import migrations
from airflow_mv_provider.metadata.database import open_engine
from airflow_mv_provider.metadata.models import Base
from airflow_mv_provider.metadata.store import Store
from tests.conftest import migrated_database
from tests.metadata.rows import registered

BOTH = ["sqlite", pytest.param("postgresql", marks=pytest.mark.slow)]
POOLED = pytest.param("pgbouncer", marks=[pytest.mark.slow, pytest.mark.in_test_all])


@pytest.fixture(params=BOTH)
def empty_address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The address of an empty database."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'empty.db'}"
    return str(request.getfixturevalue("postgres").new_database())


@pytest.fixture(scope="session")
def migrated_server(postgres: Any) -> Iterator[Engine]:
    """A PostgreSQL database at this package's version, emptied for each test."""
    engine = open_engine(postgres.new_database())
    migrations.migrate(engine)
    yield engine
    engine.dispose()


@pytest.fixture(params=[*BOTH, POOLED])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The address of a database at this package's version, without rows."""
    if request.param == "sqlite":
        shutil.copy(migrated_database(), tmp_path / "mv.db")
        return f"sqlite:///{tmp_path / 'mv.db'}"
    server: Engine = request.getfixturevalue("migrated_server")
    with server.begin() as db:
        db.execute(text(f"TRUNCATE {', '.join(Base.metadata.tables)}"))
    found = server.url.render_as_string(hide_password=False)
    return request.getfixturevalue("pgbouncer").before(found) if request.param == "pgbouncer" else found


@pytest.fixture
def engine(address: str) -> Iterator[Engine]:
    opened = open_engine(address)
    yield opened
    opened.dispose()


@pytest.fixture
def empty_engine(empty_address: str) -> Iterator[Engine]:
    opened = open_engine(empty_address)
    yield opened
    opened.dispose()


@pytest.fixture
def store(engine: Engine, clock: Any) -> Store:
    return Store(engine, clock.now)


@pytest.fixture
def table(store: Store) -> TableRecord:
    """A table that was never refreshed."""
    return registered(store)
