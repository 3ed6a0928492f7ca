# ruff: noqa: TID251  a test looks into Airflow's own database, as neither tasks nor triggers can
"""Airflow's real API application with the plugin in it, simple auth manager, and a store of ours that tests fill.

The application, Airflow's database with its DAGs, and the file of our database are made once for this folder; each test
gets an empty store in it.
"""

from __future__ import annotations

import html
import os
import re
import secrets
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, delete, event, update

from airflow_mv_provider.metadata import migrations
from airflow_mv_provider.metadata.database import open_engine
from airflow_mv_provider.metadata.models import Base
from airflow_mv_provider.metadata.store import Store
from tests.airflow_home import DAGS, HOME, migrated
from tests.api.dags import DAG_FILE
from tests.conftest import Clock

ROLES = ("viewer", "user", "op", "admin")
PAGE = "/mv"
OUR_FILE = HOME / "page.db"


@pytest.fixture(scope="session")
def dag_ids() -> frozenset[str]:
    """The DAGs of this folder, in Airflow's database."""
    migrated()
    return _register(DAGS / "page_dags.py", DAG_FILE)


@pytest.fixture(scope="session")
def application(dag_ids: frozenset[str]) -> Any:
    """Airflow's API application, as `airflow api-server` makes it."""
    os.environ |= {
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS": ",".join(f"{role}:{role}" for role in ROLES),
        "AIRFLOW__API_AUTH__JWT_SECRET": secrets.token_hex(32),
        "AIRFLOW__API__HOST": "127.0.0.1",
    }
    from airflow.api_fastapi.app import create_app

    return create_app()


def _register(file: Path, text: str) -> frozenset[str]:
    """Bring a DAG file's DAGs into Airflow's database, as the DAG processor does; return their ids."""
    from airflow.dag_processing.bundles.manager import DagBundlesManager
    from airflow.dag_processing.dagbag import DagBag, sync_bag_to_db

    DagBundlesManager().sync_bundles_to_db()
    file.write_text(text, encoding="utf-8")
    bag = DagBag(str(file), bundle_path=DAGS, bundle_name="dags-folder")
    assert bag.import_errors == {}
    sync_bag_to_db(bag, "dags-folder", None)
    file.unlink()
    return frozenset(bag.dags)


@pytest.fixture(scope="session")
def our_engine() -> Iterator[Engine]:
    engine = open_engine(f"sqlite:///{OUR_FILE}")
    migrations.migrate(engine)
    yield engine
    engine.dispose()


@pytest.fixture
def store(our_engine: Engine, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> Store:
    """An empty store, which the page finds by Airflow's configuration."""
    monkeypatch.setenv("AIRFLOW__MV__SQL_ALCHEMY_CONN", str(our_engine.url))
    with our_engine.begin() as db:
        for table in reversed(Base.metadata.sorted_tables):
            db.execute(delete(table))
    return Store(our_engine, clock.now)


@pytest.fixture
def as_role(application: Any, store: Store, dag_ids: frozenset[str]) -> Callable[[str | None], Any]:
    """Give a browser in which somebody of a role is signed in, or nobody; it follows no redirect."""
    from airflow.api_fastapi.app import get_auth_manager
    from airflow.api_fastapi.auth.managers.simple.user import SimpleAuthManagerUser
    from airflow.models.dag import DagModel
    from airflow.utils.session import create_session
    from starlette.testclient import TestClient

    with create_session() as session:  # others' tests in this process leave theirs in the one database of its Airflow
        session.execute(update(DagModel).values(is_stale=DagModel.dag_id.not_in(dag_ids)))

    def browser(role: str | None) -> Any:
        client = TestClient(application, follow_redirects=False, headers={"sec-fetch-site": "same-origin"})
        if role is not None:
            user = SimpleAuthManagerUser(username=role, role=role.upper())
            client.cookies.set("_token", get_auth_manager().generate_jwt(user))
        return client

    return browser


@pytest.fixture
def viewer(as_role: Callable[[str | None], Any]) -> Any:
    return as_role("viewer")


@pytest.fixture
def user(as_role: Callable[[str | None], Any]) -> Any:
    return as_role("user")


@pytest.fixture
def rights(application, monkeypatch):
    """Let an auth manager with rights per DAG decide: the real one, with some DAGs taken away."""
    from airflow.api_fastapi.app import get_auth_manager

    manager = get_auth_manager()
    taken: dict[str, set[str]] = {"GET": set(), "POST": set()}
    ask = manager.is_authorized_dag

    def decide(*, method, user, access_entity=None, details=None):
        is_taken = details is not None and details.id in taken.get(method, ())
        return not is_taken and ask(method=method, user=user, access_entity=access_entity, details=details)

    monkeypatch.setattr(manager, "is_authorized_dag", decide)
    return taken


@dataclass
class Statements:
    """What was asked of databases since `begin`."""

    found: list[str]

    def begin(self) -> None:
        self.found.clear()

    @property
    def selects(self) -> list[str]:
        return [each for each in self.found if each.lstrip().upper().startswith(("SELECT", "WITH"))]


@pytest.fixture
def statements() -> Iterator[Statements]:
    """All statements of all engines of this process: ours and Airflow's."""
    noted = Statements([])

    def note(_connection: Any, _cursor: Any, statement: str, *_more: Any) -> None:
        noted.found.append(statement)

    event.listen(Engine, "before_cursor_execute", note)
    yield noted
    event.remove(Engine, "before_cursor_execute", note)


def text_of(page: str) -> str:
    """Return what a reader sees, in one line."""
    return " ".join(html.unescape(re.sub(r"<[^>]*>", " ", page)).split())


def assert_harmless(page: str) -> None:
    """Assert that no word of data has become markup."""
    assert "<script>alert" not in page
    assert "<img" not in page
    assert "\x1b" not in page
    for value in re.findall(r'="([^"]*)"', page):
        assert "<" not in value
