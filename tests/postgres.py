"""A real PostgreSQL server for the tests."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from scripts.ports import free_port
from scripts.postgres_programs import PostgresMissingError
from scripts.postgres_server import ASKED, PostgresServer
from scripts.server_error import ServerError

__all__ = ["ASKED", "PostgresServer"]


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """The one PostgreSQL server of the run; a machine without PostgreSQL fails here, it does not skip."""
    with running_server() as server:
        yield server


@contextmanager
def running_server(**settings: str) -> Iterator[PostgresServer]:
    """Start a server in a directory of its own, and leave nothing of it behind."""
    directory = Path(tempfile.mkdtemp(prefix="mv-postgres-"))
    server = None
    try:
        server = PostgresServer(directory, free_port(), **settings)
        server.start()
    except (PostgresMissingError, ServerError) as error:
        shutil.rmtree(directory)
        pytest.fail(str(error), pytrace=False)
    try:
        yield server
    finally:
        server.kill()  # nothing of it is needed any more, so no checkpoint
        shutil.rmtree(directory)
