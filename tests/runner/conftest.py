"""A store on SQLite, an owner of one refresh, and its beats."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy import Engine

from airflow_mv_provider.metadata import migrations
from airflow_mv_provider.metadata.database import open_engine
from airflow_mv_provider.metadata.store import Store
from airflow_mv_provider.runner import lease as lease_module
from tests.metadata.rows import LEASE_MS, acquired, registered
from tests.runner.beating import Beats, Hands, Stops


@pytest.fixture
def engine(tmp_path: Any) -> Iterator[Engine]:
    opened = open_engine(f"sqlite:///{tmp_path / 'mv.db'}")
    migrations.migrate(opened)
    yield opened
    opened.dispose()


@pytest.fixture
def store(engine: Engine, clock: Any) -> Store:
    return Store(engine, clock.now)


@pytest.fixture
def own(store):
    return acquired(store, registered(store))


@pytest.fixture
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beat every five milliseconds."""
    monkeypatch.setattr(lease_module, "_BEATS_PER_LEASE", LEASE_MS / 5)


@pytest.fixture
def beats(engine: Engine) -> Beats:
    return Beats(engine)


@pytest.fixture
def stops() -> Stops:
    return Stops()


@pytest.fixture
def hands() -> Hands:
    return Hands()
