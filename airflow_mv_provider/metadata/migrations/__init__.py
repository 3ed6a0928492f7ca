"""Alembic's migrations of the metadata database, run by `amv db migrate`.

Every command checks the version of its database. Alembic takes as long to import as everything else together, so only
commands that change the version import it; otherwise versions are read from the numbers in the migrations' file names.
"""

from __future__ import annotations

import logging
import threading
from pathlib import Path

from sqlalchemy import Connection, Engine, column, func, inspect, select, table

from airflow_mv_provider.exceptions import DatabaseVersionError
from airflow_mv_provider.metadata.database import transaction

VERSION_TABLE = "mv_alembic_version"  # the database may be shared with Airflow, which has its own alembic_version


def migrate(engine: Engine) -> str:
    """Bring the database to this package's version and return it; idempotent.

    Any number of threads and processes may call it at once: one migrates, the others wait and find it done.
    """
    with _one_thread, transaction(engine) as connection:
        if engine.dialect.name == "postgresql":  # SQLite's transactions begin as writers and so run one at a time
            connection.execute(select(func.pg_advisory_xact_lock(_LOCK)))
        current = _current(connection)
        if current != head():
            upgrade(connection)
    return head()


def check(engine: Engine) -> str:
    """Return the database's version if it is this package's.

    raises : DatabaseVersionError
    """
    with transaction(engine) as connection:
        current = _current(connection)
    if current != head():
        found = "no version" if current is None else f"version {current}"
        raise DatabaseVersionError("metadata database", f"expected version {head()}, found {found}.")
    return head()


def head() -> str:
    """Return the version that this package works with."""
    return versions()[-1]


def versions() -> tuple[str, ...]:
    """Return all versions that this package knows, oldest first."""
    return tuple(sorted(file.name.split("_")[0] for file in (_FOLDER / "versions").glob("[0-9]*.py")))


def _current(connection: Connection) -> str | None:
    """Return the database's version; None if it has none yet.

    raises : DatabaseVersionError, if a newer package made it
    """
    if not inspect(connection).has_table(VERSION_TABLE):
        return None
    current = connection.scalar(select(column("version_num")).select_from(table(VERSION_TABLE)))
    if current is not None and current not in versions():
        raise DatabaseVersionError(
            "metadata database",
            f"its version {current} is newer than this package's {head()}.",
            hint="Upgrade airflow-mv-provider.",
        )
    return current


def upgrade(connection: Connection, version: str = "head") -> None:
    """Bring a database of an older version to `version`, in the connection's transaction."""
    from alembic import command
    from alembic.config import Config

    # Two lines about dialects in every task's log that opens a new SQLite file.
    logging.getLogger("alembic").setLevel(logging.WARNING)
    config = Config()
    config.set_main_option("script_location", str(_FOLDER))
    config.attributes["connection"] = connection
    command.upgrade(config, version)


_FOLDER = Path(__file__).parent
_LOCK = 0x6D76_6D69_6772  # "mvmigr": an arbitrary number that no other program uses
_one_thread = threading.Lock()  # Alembic keeps the context of a migration in module globals
