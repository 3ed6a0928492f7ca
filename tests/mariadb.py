"""A real MariaDB server on loopback, in a directory of its own: started by the tests, stopped by its own pid."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pymysql
import pytest

from scripts.ports import free_port
from scripts.postgres_programs import as_account, own
from tests.waiting import wait_for_server

_PATIENCE_S = 60
ASKED, PASSWORD = "asked", "c4n4ry/p4ss w@rd"  # the login that sources use
_ALL = ["--no-defaults"]
# Of an authority of its own, for this address alone.
_CERTIFICATE = ["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=tests"]
_CERTIFICATE += ["-addext", "subjectAltName=IP:127.0.0.1"]


class MariaServer:
    """One server, with and without TLS; `root` may do everything, `ASKED` nothing until it is granted."""

    def __init__(self, directory: Path, port: int) -> None:
        self.port = port
        self.certificate = directory / "certificate.pem"
        data, key = directory / "data", directory / "key.pem"
        self._run("openssl", *_CERTIFICATE, "-keyout", str(key), "-out", str(self.certificate))
        self._run("mariadb-install-db", *_ALL, f"--datadir={data}", "--auth-root-authentication-method=normal")
        words = [_program("mariadbd"), *_ALL, f"--datadir={data}", f"--port={port}", "--bind-address=127.0.0.1"]
        words += [f"--socket={directory / 'socket'}", f"--pid-file={directory / 'pid'}", "--skip-name-resolve"]
        words += ["--log-bin=log", "--innodb-flush-log-at-trx-commit=0", f"--log-error={directory / 'error.log'}"]
        words += ["--character-set-server=utf8mb4", f"--ssl-cert={self.certificate}", f"--ssl-key={key}"]
        self._process = subprocess.Popen(words, **as_account(), stdin=subprocess.DEVNULL)
        self._wait(directory / "error.log")
        self.run("", f"CREATE USER '{ASKED}'@'%' IDENTIFIED BY '{PASSWORD}'")

    def run(self, database: str, *statements: str) -> list[tuple[Any, ...]]:
        """Run statements as root, each in its own transaction; return the rows of the last."""
        connection = pymysql.connect(
            host="127.0.0.1", port=self.port, user="root", database=database or None, autocommit=True, ssl_disabled=True
        )
        with connection, connection.cursor() as cursor:
            for each in statements:
                cursor.execute(each)
            return list(cursor.fetchall()) if cursor.description else []

    def new_database(self) -> str:
        """Create an empty database and return its name."""
        name = f"mv_{uuid.uuid4().hex[:12]}"
        self.run("", f"CREATE DATABASE {name}")
        return name

    def kill(self) -> None:
        """End the server by its own pid."""
        self._process.kill()
        self._process.wait(_PATIENCE_S)

    def _wait(self, log: Path) -> None:
        why: list[object] = [""]

        def answers() -> bool:
            try:
                self.run("", "SELECT 1")
            except pymysql.err.OperationalError as error:
                why[0] = error
                return False
            return True

        try:
            wait_for_server(answers, [self._process], _PATIENCE_S, lambda: f"{why[0]} {log.read_text()[-800:]}")
        except pytest.fail.Exception:
            self.kill()
            raise

    def _run(self, name: str, *arguments: str) -> None:
        done = subprocess.run([_program(name), *arguments], **as_account(), capture_output=True, text=True, check=False)
        if done.returncode:
            pytest.fail(f"MariaDB's {name} failed: {done.stderr.strip()}{done.stdout.strip()}", pytrace=False)


def _program(name: str) -> str:
    found = shutil.which(name, path="/usr/sbin:/usr/bin:/usr/local/bin")
    if found is None:
        pytest.fail(f"{name} is not found: run `make setup`.", pytrace=False)
    return found


@pytest.fixture(scope="session")
def mariadb() -> Iterator[MariaServer]:
    """The one MariaDB server of the run; a machine without MariaDB fails here, it does not skip."""
    with running_server() as server:
        yield server


@contextmanager
def running_server() -> Iterator[MariaServer]:
    """Start a server in a directory of its own, and leave nothing of it behind."""
    directory = Path(tempfile.mkdtemp(prefix="mv-mariadb-"))
    server = None
    try:
        own(directory)
        server = MariaServer(directory, free_port())
        yield server
    finally:
        if server is not None:
            server.kill()
        shutil.rmtree(directory)
