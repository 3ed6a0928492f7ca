"""Open the metadata database and name the caller, for every entry point.

SQLAlchemy is imported only when a database is opened, because `amv --help` does not need it.
"""

from __future__ import annotations

import getpass
import os
import socket
import uuid
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from airflow_mv_provider.core.deployment_checks import network_file_system
from airflow_mv_provider.core.state import Caller
from airflow_mv_provider.exceptions import SettingError
from airflow_mv_provider.runner.settings import Settings

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from airflow_mv_provider.metadata.store import Store

_MIGRATION_MS = 3_600_000
MOUNTS = Path("/proc/self/mountinfo")


def open_store(settings: Settings) -> Store:
    """Return the store; its database is at this package's schema version.

    A SQLite file belongs to one machine, so it is created and migrated here. A PostgreSQL database is shared, so it is
    only checked, and a person decides when to migrate it.

    raises : DatabaseVersionError, MetadataUnavailableError, SettingError
    """
    from airflow_mv_provider.metadata import migrations
    from airflow_mv_provider.metadata.store import Store

    engine = open_database(settings)
    try:
        if engine.dialect.name == "sqlite":
            migrations.migrate(engine)
        else:
            migrations.check(engine)
    except Exception:
        engine.dispose()
        raise
    return Store(engine)


def migrate_database(settings: Settings) -> str:
    """Migrate the database to this package's version and return that version.

    A statement may take an hour, or `answer_ms` if that is longer.
    """
    from airflow_mv_provider.metadata import migrations

    return migrations.migrate(open_database(replace(settings, answer_ms=max(settings.answer_ms, _MIGRATION_MS))))


def open_database(settings: Settings, *, reads_only: bool = False) -> Engine:
    """Return the engine of the metadata database; create the directory of a SQLite file.

    raises : SettingError, for a database in memory, on a network file system or in a directory that cannot be made
    """
    from airflow_mv_provider.metadata.database import open_engine

    if _is_in_memory(settings.database_url):
        problem = "a database in memory belongs to one process, and other processes cannot see it."
        raise SettingError("metadata database", problem, hint="Use sqlite:///FILE or postgresql://...")
    engine = open_engine(settings.database_url, reads_only=reads_only, answer_s=settings.answer_ms / 1000)
    file = engine.url.database
    if engine.dialect.name == "sqlite" and file:
        _check_own_disk(file)
        try:
            Path(file).parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            problem = f"the directory of {file} cannot be made: {error.strerror}."
            hint = "Set AIRFLOW_HOME, or AMV_DATABASE_URL, to a writable directory."
            raise SettingError("metadata database", problem, hint=hint) from error
    return engine


def _is_in_memory(address: str) -> bool:
    kind, _, rest = address.partition("://")
    file, _, options = rest.lstrip("/").partition("?")
    is_named_so = file in ("", ":memory:", "file::memory:") or "mode=memory" in options
    return kind.startswith("sqlite") and is_named_so


def _check_own_disk(file: str) -> None:
    """Refuse a SQLite file on a network file system, where its locks do not hold; detected on Linux only."""
    try:
        mounts = MOUNTS.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return
    kind = network_file_system(mounts, os.path.realpath(file))
    if kind is not None:
        problem = f"SQLite works on one host only, and {file} is on {kind}, where its locks are not reliable."
        raise SettingError("metadata database", problem, hint="Use PostgreSQL, or a local disk of this host.")


def command_line_caller() -> Caller:
    """Return a caller for one command, with a unique key: two commands are two callers."""
    return Caller(f"cli:{uuid.uuid4().hex}", this_process(), "command line", _user())


def this_process() -> str:
    """Return this process's host and pid, for people to read."""
    return f"{socket.gethostname()}:{os.getpid()}"


def _user() -> str | None:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return None  # a container's user id without a name
