"""The stack of the end-to-end tests, and a browser with admin signed in."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from scripts.native_compose import read_env
from tests.browser.chromium import chromium
from tests.e2e.stack import PATIENCE_S, Rows, Stack, running_stack, wait_until

LEASE_S = 10
MONTHS = tuple(f"2026-{month:02d}" for month in range(1, 9))


@pytest.fixture(scope="module")  # its servers are not to live beside other tests longer than they are needed
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    more = {"AIRFLOW__MV__LEASE_S": str(LEASE_S)}
    files = [Path(__file__).parent / name for name in ("e2e_dags.py", "e2e_tables.yaml", "e2e_watched.yaml")]
    with running_stack(tmp_path_factory.mktemp("stack"), files, more) as stack:
        wait_until(lambda: len(stack.ask("GET", "dags")["dags"]) == 6, "the DAG processor has read the DAGs")
        yield stack


@pytest.fixture(scope="module")  # no longer: Playwright keeps an event loop running in this thread
def window(stack: Stack) -> Iterator[Any]:
    """Chromium, with admin signed in by Airflow's own form."""
    password = read_env(stack.topology.place.env_file)["AIRFLOW_ADMIN_PASSWORD"]
    with chromium() as browser, browser.new_context(base_url=stack.topology.url) as context:
        context.set_default_timeout(PATIENCE_S * 1000)
        page = context.new_page()
        page.goto("/auth/login")
        page.fill("input[name=username]", "admin")
        page.fill("input[name=password]", password)
        page.click("button[type=submit]")
        page.wait_for_url(lambda url: "/auth/login" not in url)
        yield context


@pytest.fixture(scope="module")
def filled(stack: Stack) -> Rows:
    """The rows of the table `sales`, loaded by the command line: a minute less than by a run of four tasks."""
    return load(stack, "sales")


@pytest.fixture(scope="module")
def stocked(stack: Stack) -> Rows:
    """The rows of the table `stock`, loaded alike."""
    return load(stack, "stock")


def load(stack: Stack, name: str) -> Rows:
    rows = stack.write(name, sales("1"))
    stack.command("mv", "apply", str(stack.topology.place.dags / "e2e_tables.yaml"))
    stack.command("mv", "refresh", name)
    return rows


def sales(version: str) -> list[tuple[str, str, str]]:
    """Sales of some months; each month has a row of this version, and misses another one."""
    return [
        (month, str(id), version if id == 0 else "as ever")
        for month in MONTHS
        for id in range(30)
        if id != int(version)
    ]
