"""A real PostgreSQL server on loopback, in a directory of its own, ended by its own pid."""

from __future__ import annotations

import os
import signal
import subprocess  # nosec B404  # to run PostgreSQL's programs, without a shell
import threading
import uuid
from pathlib import Path

import psycopg

from scripts.postgres_programs import as_account, own, program
from scripts.server_error import ServerError

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

    def __init__(self, directory: Path, port: int, **settings: str) -> None:
        own(directory)
        self._settings = _SETTINGS | settings
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
        """Start the server and wait until it accepts connections; nothing happens if it runs.

        raises : ServerError
        """
        if self._process is not None and self._process.poll() is None:
            return
        settings = [arg for name, value in self._settings.items() for arg in ("-c", f"{name}={value}")]
        places = ["-D", str(self._data), "-p", str(self._port), "-c", f"unix_socket_directories={self._directory}"]
        self._process = subprocess.Popen(  # nosec B603  # our own words alone
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
            raise ServerError("PostgreSQL did not start: " + "".join(self._log[-5:]))

    def kill(self) -> None:
        """End the server by its own pid as a crash does: no checkpoint, every connection cut; `start` recovers it."""
        if self._process is not None and self._process.poll() is None:
            os.kill(self._process.pid, signal.SIGQUIT)
            self._process.wait(_PATIENCE_S)

    def new_database(self, name: str = "") -> str:
        """Create an empty database and return its address."""
        name = name or f"mv_{uuid.uuid4().hex[:12]}"
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
        done = subprocess.run(  # nosec B603  # our own words alone
            [program(name), *arguments], **as_account(), capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise ServerError(f"PostgreSQL's {name} failed: {done.stderr.strip()}")
