"""One API server and one Chromium for all tests of this folder, both on loopback."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import pytest

from airflow_mv_provider.metadata import migrations
from airflow_mv_provider.metadata.database import open_engine
from airflow_mv_provider.metadata.store import Store
from tests.api.dags import DAG_FILE
from tests.api.filled import Keeper, fill
from tests.browser.chromium import chromium
from tests.browser.server import Server, api_server
from tests.conftest import Clock

PARTITIONS = 12
SLOW_MS = 90_000  # a machine may have much else to do; nothing here waits for so long when all is well


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    home = tmp_path_factory.mktemp("airflow")
    with api_server(home, {"page_dags.py": DAG_FILE}) as running:
        yield running
    shutil.rmtree(home, ignore_errors=True)


@pytest.fixture(scope="session")
def keepers(server: Server) -> Iterator[dict[str, Keeper]]:
    """Tables in every state, in the database that the server reads."""
    engine = open_engine(server.our_database)
    migrations.migrate(engine)
    clock = Clock()
    yield fill(Store(engine, clock.now), clock, partitions=PARTITIONS, refreshes=4)
    engine.dispose()


@pytest.fixture(scope="module")  # no longer: Playwright keeps an event loop running in this thread
def browser() -> Iterator[Any]:
    with chromium() as running:
        yield running


@pytest.fixture(scope="module")
def session_of(server: Server, browser: Any) -> Callable[[str], Any]:
    """Give what a browser remembers of somebody of a role who has signed in."""
    return cache(lambda role: signed_in(browser, server, role))


def signed_in(browser: Any, server: Server, role: str) -> Any:
    """Sign in by Airflow's own form; return what the browser has to remember."""
    with browser.new_context() as context:
        context.set_default_timeout(SLOW_MS)
        page = context.new_page()
        page.goto(f"{server.url}/auth/login")
        page.fill("input[name=username]", role)
        page.fill("input[name=password]", server.password(role))
        page.click("button[type=submit]")
        page.wait_for_url(lambda url: "/auth/login" not in url)
        return context.storage_state()


@pytest.fixture
def open_page(
    server: Server, browser: Any, session_of: Callable[[str], Any], keepers: object
) -> Iterator[Callable[..., Any]]:
    """Open an address in a new window; at the end nothing may have gone wrong in any of them.

    role : who is signed in
    expects_404 : the address leads nowhere, which a console calls an error
    more : Playwright's options of a context: viewport, color_scheme, ...
    """
    problems: list[str] = []
    contexts = []

    def note(message: Any) -> None:
        if message.type == "error" and "/mv/" in str(message.location.get("url", "")):
            problems.append(message.text)

    def look_at(request: Any) -> None:
        if not request.url.startswith((server.url, "data:", "blob:")):
            problems.append(f"asks {request.url}")

    def open_one(path: str, role: str = "admin", *, expects_404: bool = False, **more: Any) -> Any:
        context = browser.new_context(storage_state=session_of(role), base_url=server.url, **more)
        context.set_default_timeout(SLOW_MS)
        contexts.append(context)
        page = context.new_page()
        if not expects_404:
            page.on("console", note)
        page.on("pageerror", lambda error: problems.append(str(error)))
        if path.startswith("/mv"):
            page.on("request", look_at)  # Airflow's own pages may ask elsewhere
        page.goto(path)
        return page

    yield open_one
    for context in contexts:
        context.close()
    assert problems == []


def frame_of(page: Any) -> Any:
    return page.frame_locator("iframe")
