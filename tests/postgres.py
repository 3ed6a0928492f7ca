"""A real PostgreSQL server on loopback, in a directory of its own: started by the tests, stopped by its own pid."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest

from scripts.postgres_programs import PostgresMissingError, as_account, own, program
from tests.ports import free_port

_PATIENCE_S = 60
ASKED = "asked"  # the one role that needs its password
_SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "fsync": "off",  # the machine may not crash; the server may, and WAL that the kernel has survives that
    "lc_messages": "C",
    "max_connections": "100",
    "autovacuum": "off",  # its transactions would move the snapshot that a source is skipped by
}


class PostgresServer:
    """One cluster of databases; nobody but this machine reaches it, and whoever does is trusted, but for `ASKED`."""

    def __init__(self, directory: Path, port: int) -> None:
        self._directory = directory
        self._data = directory / "data"
        self._port = port
        self._process: subprocess.Popen[str] | None = None
        self._log: list[str] = []
        self._run(
            "initdb", "--pgdata", str(self._data), "--username", "mv", "--auth", "trust", "--no-sync", "-E", "UTF8"
        )

        rules = self._data / "pg_hba.conf"
        rules.write_text(f"host all {ASKED} 127.0.0.1/32 scram-sha-256\n{rules.read_text()}")

    @property
    def pid(self) -> int:
        """The postmaster's process."""
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Start the server and wait until it accepts connections; nothing happens if it runs."""
        if self._process is not None and self._process.poll() is None:
            return
        settings = [arg for name, value in _SETTINGS.items() for arg in ("-c", f"{name}={value}")]
        places = ["-D", str(self._data), "-p", str(self._port), "-c", f"unix_socket_directories={self._directory}"]
        self._process = subprocess.Popen(
            [program("postgres"), *places, *settings],
            **as_account(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        is_ready = threading.Event()
        threading.Thread(target=self._follow, args=(self._process, is_ready), daemon=True).start()
        if not is_ready.wait(_PATIENCE_S) or self._process.poll() is not None:
            self.kill()
            pytest.fail("PostgreSQL did not start: " + "".join(self._log[-5:]), pytrace=False)

    def kill(self) -> None:
        """End the server by its own pid as a crash does: no checkpoint, every connection cut; `start` recovers it."""
        if self._process is not None and self._process.poll() is None:
            os.kill(self._process.pid, signal.SIGQUIT)
            self._process.wait(_PATIENCE_S)

    def new_database(self) -> str:
        """Create an empty database and return its address."""
        name = f"mv_{uuid.uuid4().hex[:12]}"
        with psycopg.connect(self._address("postgres"), autocommit=True) as connection:
            connection.execute(f'CREATE DATABASE "{name}"')
        return self._address(name)

    def _address(self, database: str) -> str:
        return f"postgresql://mv@127.0.0.1:{self._port}/{database}"

    def _follow(self, process: subprocess.Popen[str], is_ready: threading.Event) -> None:
        assert process.stderr is not None
        with process.stderr as lines:
            for line in lines:
                self._log.append(line)
                if "ready to accept connections" in line:
                    is_ready.set()
        is_ready.set()  # it has ended: `start` looks at the process

    def _run(self, name: str, *arguments: str) -> None:
        done = subprocess.run([program(name), *arguments], **as_account(), capture_output=True, text=True, check=False)
        if done.returncode:
            pytest.fail(f"PostgreSQL's {name} failed: {done.stderr.strip()}", pytrace=False)


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """The one PostgreSQL server of the run; a machine without PostgreSQL fails here, it does not skip."""
    with running_server() as server:
        yield server


@contextmanager
def running_server() -> Iterator[PostgresServer]:
    """Start a server in a directory of its own, and leave nothing of it behind."""
    directory = Path(tempfile.mkdtemp(prefix="mv-postgres-"))
    try:
        own(directory)
        server = PostgresServer(directory, free_port())
    except PostgresMissingError as missing:
        pytest.fail(str(missing), pytrace=False)
    try:
        server.start()
        yield server
    finally:
        server.kill()  # nothing of it is needed any more, so no checkpoint
        shutil.rmtree(directory)
