"""A real PgBouncer before a PostgreSQL server: each transaction may get another of its few connections."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from sqlalchemy import make_url

from scripts.ports import free_port
from scripts.postgres_programs import as_account, own
from scripts.postgres_server import PostgresServer
from tests.waiting import wait_until

_PATIENCE_S = 30


class PgBouncer:
    """A pooler on loopback that pools transactions, as the one of Airflow's Helm chart does."""

    def __init__(self, server: PostgresServer, directory: Path) -> None:
        program = shutil.which("pgbouncer", path="/usr/sbin:/usr/bin:/usr/local/bin")
        assert program, "PgBouncer is missing: `make setup` installs it (apt-get install pgbouncer)."
        own(directory)
        target = make_url(server.new_database())
        self._port = free_port()
        settings = {
            "listen_addr": "127.0.0.1",
            "listen_port": self._port,
            "unix_socket_dir": "",
            "auth_type": "any",
            "pool_mode": "transaction",
            "default_pool_size": 3,
            "logfile": directory / "log",
        }
        lines = ["[databases]", f"* = host=127.0.0.1 port={target.port} user={target.username}", "[pgbouncer]"]
        file = directory / "pgbouncer.ini"
        file.write_text("\n".join([*lines, *(f"{name} = {value}" for name, value in settings.items())]) + "\n")
        file.chmod(0o644)
        quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        self._process = subprocess.Popen([program, str(file)], **as_account(), **quiet)
        through = self.before(server.new_database())
        wait_until(lambda: _answers(through), _PATIENCE_S, f"PgBouncer answers; its log is {directory / 'log'}")

    def before(self, address: str) -> str:
        """Return the address of a database of the server, by way of the pooler."""
        return make_url(address).set(port=self._port).render_as_string(hide_password=False)

    def end(self) -> None:
        self._process.terminate()
        self._process.wait(_PATIENCE_S)


def _answers(address: str) -> bool:
    try:
        psycopg.connect(address).close()
    except psycopg.OperationalError:
        return False
    return True


@pytest.fixture(scope="session")
def pgbouncer(postgres: PostgresServer) -> Iterator[PgBouncer]:
    """The one pooler of the run, before its PostgreSQL server; a machine without PgBouncer fails here."""
    directory = Path(tempfile.mkdtemp(prefix="mv-pgbouncer-"))
    pooler = PgBouncer(postgres, directory)
    try:
        yield pooler
    finally:
        pooler.end()
        shutil.rmtree(directory)
