"""The API server's connection to the metadata database: located as a task does, opened once, relocated each minute."""

from __future__ import annotations

import os
import socket
import threading
import time
from dataclasses import dataclass
from functools import cache
from typing import Annotated

from fastapi import Depends
from sqlalchemy import Engine

from airflow_mv_provider.core.approval.hold import Decision, Hold, Objection
from airflow_mv_provider.core.state import Caller, Cancelled, TableRecord
from airflow_mv_provider.hooks.mv import MvHook
from airflow_mv_provider.metadata.control import Control
from airflow_mv_provider.metadata.reader import Reader
from airflow_mv_provider.metadata.store import Store

_FOUND_FOR_S = 60  # locating it may cost a query to Airflow's database, for the connection


@dataclass(frozen=True, slots=True)
class _Opened:
    url: str
    reading: Engine
    writing: Engine


class Connection:
    """Provide the database's reader and the user actions on a table; never another write of the store.

    raises : DatabaseVersionError, MetadataUnavailableError, SettingError, MetadataDeniedError, from each method
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._opened: _Opened | None = None
        self._until = 0.0

    def reader(self) -> Reader:
        """Return the reader."""
        return Reader(self._found().reading)

    def control(self) -> Control:
        """Return the reader with pause and resume."""
        return Control(self._found().writing)

    def cancel(self, table: TableRecord, user: str) -> Cancelled:
        """Ask a table's refresh to stop; end it, as its next task would, if no process works on it."""
        me = Caller(f"page:{user}", f"{socket.gethostname()}:{os.getpid()}", "manual", user)
        return Store(self._found().writing).cancel(table, me)

    def decide(self, table: TableRecord, decision: Decision, user: str, note: str, hold_id: str) -> Hold | Objection:
        """Record a person's decision about the held refresh that was shown; nothing if it is another one now."""
        return Store(self._found().writing).holds.decide(table.id, decision, user, note, hold_id)

    def _found(self) -> _Opened:
        with self._lock:
            if self._opened is None or time.monotonic() >= self._until:
                self._opened = self._open()
                self._until = time.monotonic() + _FOUND_FOR_S
            return self._opened

    def _open(self) -> _Opened:
        from airflow_mv_provider.runner.local import open_database, open_store

        settings = MvHook().settings()
        if self._opened is not None:
            if self._opened.url == settings.database_url:
                return self._opened
            self._opened.reading.dispose()
            self._opened.writing.dispose()
            self._opened = None
        writing = open_store(settings).engine
        return _Opened(settings.database_url, open_database(settings, reads_only=True), writing)


@cache
def connection() -> Connection:
    """Return the `Connection` that all requests of this process share."""
    return Connection()


ConnectionDep = Annotated[Connection, Depends(connection)]
