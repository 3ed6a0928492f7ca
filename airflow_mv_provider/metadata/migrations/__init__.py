"""Alembic's migrations of the metadata database, run by `amv db migrate`."""

from __future__ import annotations

import threading
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Engine, func, select

from airflow_mv_provider.exceptions import DatabaseVersionError
from airflow_mv_provider.metadata.database import transaction

VERSION_TABLE = "mv_alembic_version"  # the database may be shared with Airflow, which has an alembic_version of its own


def migrate(engine: Engine) -> str:
    """Bring the database to this package's version and return it; nothing happens when it is there already.

    Any number of threads and processes may call it at once: one migrates, the others find it done.
    """
    config = _config()
    with _one_thread, transaction(engine) as connection:
        if engine.dialect.name == "postgresql":  # SQLite's transaction begins as a writer: one at a time as it is
            connection.execute(select(func.pg_advisory_xact_lock(_LOCK)))
        current = MigrationContext.configure(connection, opts=_OPTIONS).get_current_revision()
        _refuse_newer(current)
        if current != head():
            config.attributes["connection"] = connection
            command.upgrade(config, "head")
    return head()


def check(engine: Engine) -> str:
    """Return the database's version if it is this package's.

    raises : DatabaseVersionError
    """
    with transaction(engine) as connection:
        current = MigrationContext.configure(connection, opts=_OPTIONS).get_current_revision()
    _refuse_newer(current)
    if current != head():
        found = "no version" if current is None else f"version {current}"
        raise DatabaseVersionError("metadata database", f"expected version {head()}, found {found}.")
    return head()


def head() -> str:
    """Return the version that this package works with."""
    found = ScriptDirectory.from_config(_config()).get_current_head()
    assert found is not None
    return found


def _refuse_newer(current: str | None) -> None:
    known = {script.revision for script in ScriptDirectory.from_config(_config()).walk_revisions()}
    if current is not None and current not in known:
        raise DatabaseVersionError(
            "metadata database",
            f"its version {current} is newer than this package's {head()}.",
            hint="Upgrade airflow-mv-provider.",
        )


_OPTIONS = {"version_table": VERSION_TABLE}
_LOCK = 0x6D76_6D69_6772  # "mvmigr": any number that nobody else takes
_one_thread = threading.Lock()  # Alembic keeps the context of a migration in a module


def _config() -> Config:
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent))
    return config
