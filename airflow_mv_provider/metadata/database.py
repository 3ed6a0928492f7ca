"""Engines, one clock, and one translation of database errors.

The database's own clock judges leases, because workers' clocks may differ. Addresses may contain a password, so errors
never show an address with its secrets, or a driver's message.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

from sqlalchemy import (
    URL,
    BigInteger,
    ColumnElement,
    Connection,
    Engine,
    create_engine,
    event,
    exc,
    literal_column,
    make_url,
)

from airflow_mv_provider.exceptions import (
    DatabaseVersionError,
    DependencyError,
    MetadataDeniedError,
    MetadataUnavailableError,
    MvError,
    SettingError,
)

Now = Callable[[str], ColumnElement[int]]
"""Given a dialect's name, the SQL for the current time in milliseconds."""

_ANSWER_S = 30.0
# PostgreSQL's errors that a later try may not meet, by their SQLSTATE.
_PASSING = {
    "25006": (
        "the database is read-only: a standby, or default_transaction_read_only.",
        "Name the primary, or wait for it.",
    ),
    "25P03": ("the database ended a transaction of this process that was left idle.", ""),
    "40001": ("the database ended this transaction in favour of another.", "Try again."),
    "40P01": ("the database ended this transaction in favour of another.", "Try again."),
    "53100": ("its disk is full.", "Free space there, then try again."),
}
# SQLite's errors for a file that no retry can fix.
_UNUSABLE = {
    "SQLITE_NOTADB": ("this file is not a SQLite database.", "Name another file."),
    "SQLITE_CORRUPT": (
        "this SQLite database is damaged.",
        "Restore it from a backup, or move it away and register its tables again.",
    ),
    "SQLITE_READONLY": ("this file cannot be written.", "Let this user write to it and to its directory."),
}


def database_now(dialect: str) -> ColumnElement[int]:
    """Return the SQL for the database's clock, in milliseconds since the epoch, UTC."""
    sql = {
        "sqlite": "CAST(ROUND((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER)",
        "postgresql": "CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000 AS BIGINT)",
    }
    return literal_column(sql[dialect], BigInteger)


def open_engine(url: str, *, reads_only: bool = False, answer_s: float = _ANSWER_S) -> Engine:
    """Return an engine for SQLite or PostgreSQL.

    url        : SQLAlchemy's form; `postgresql://` means psycopg 3
    reads_only : its transactions write nothing, so that on SQLite no other process has to wait for them
    answer_s   : how long the database may be silent, or locked by another process, before it counts as unavailable
    raises     : SettingError, for an invalid address or an unsupported database
    """
    try:
        parsed = make_url(url)
    except (exc.ArgumentError, ValueError):  # ValueError: a port that is not a number
        raise SettingError(
            "metadata database",
            "the address cannot be parsed.",
            hint="Use sqlite:///FILE or postgresql://..., and for several hosts ?host=ONE:5432&host=OTHER:5432.",
        ) from None  # the cause quotes the port: after an @ in a password, that is the rest of the password
    if _is_ambiguous(url, parsed):
        problem = "the address has more than one @, so the end of the password is ambiguous."
        raise SettingError("metadata database", problem, hint="Write %40 for an @ in a user's name or a password.")
    if parsed.drivername == "postgresql":
        parsed = parsed.set(drivername="postgresql+psycopg")
    try:
        return _engine(parsed, reads_only=reads_only, answer_s=answer_s)
    except (ImportError, exc.NoSuchModuleError) as error:
        raise DependencyError(
            "metadata database",
            f"the driver of {parsed.drivername} is not installed.",
            hint="Install psycopg (`pip install 'psycopg[binary]'`) and use postgresql://...",
        ) from error
    except ValueError:  # the driver's error quotes the value
        raise _refused_option("metadata database") from None


def _refused_option(where: str) -> SettingError:
    problem = "the driver rejects an option of the address (after its ?)."
    return SettingError(where, problem, hint="Correct the option's name or value, or leave it out.")


def _is_ambiguous(url: str, parsed: URL) -> bool:
    """True if the parsed host or an option may be the end of a password, which would then be shown."""
    if parsed.get_backend_name() == "sqlite":
        return False  # it has no password, and a file's name may contain an @
    return "@" in (parsed.host or "") or ("@" in url.partition("?")[0] and url.count("@") > 1)


def _engine(parsed: URL, *, reads_only: bool, answer_s: float) -> Engine:
    match parsed.get_backend_name():
        case "sqlite":
            engine = create_engine(parsed, hide_parameters=True, connect_args={"timeout": answer_s})
            event.listen(engine, "connect", _configure_sqlite)
            event.listen(engine, "begin", _begin_reading_sqlite if reads_only else _begin_sqlite)
            return engine
        case "postgresql" if parsed.get_driver_name() == "psycopg":
            from airflow_mv_provider.postgres import connecting, limits_of_a_transaction

            # Each compare-and-set is one statement, which every level of isolation keeps: a role's stricter default
            # would only make concurrent callers fail.
            pool = {"pool_pre_ping": True, "pool_size": 2, "pool_timeout": answer_s}
            engine = create_engine(parsed, hide_parameters=True, isolation_level="READ COMMITTED", **pool)
            connect, limits = connecting(answer_s), limits_of_a_transaction(answer_s)
            event.listen(engine, "do_connect", lambda _dialect, _record, args, given: connect(*args, **given))
            event.listen(engine, "begin", lambda connection: connection.exec_driver_sql(limits))
            return engine
        case "postgresql":
            problem = f"{parsed.drivername} is not supported."
            raise SettingError("metadata database", problem, hint="Use postgresql://..., which is psycopg 3.")
        case other:
            raise SettingError("metadata database", f"{other} is not supported.", hint="Use SQLite or PostgreSQL.")


@contextmanager
def transaction(engine: Engine) -> Iterator[Connection]:
    """Open one transaction; commit at the end, roll back on an exception.

    raises : MetadataUnavailableError, when the database cannot be reached or does not answer; DatabaseVersionError,
             when it has no tables
    """
    try:
        with engine.begin() as connection:
            yield connection
    except exc.TimeoutError as error:
        where = f"metadata database {_shown(engine.url)}"
        raise MetadataUnavailableError(where, "all connections of this process wait for its answer.") from error
    except exc.DBAPIError as error:
        found = _translated(error, engine.url)
        if found is None:
            raise
        raise found from error


class StorePart:
    """The writes about one subject; each method is one transaction.

    now : the clock that judges leases, tickets and holds, and that times are taken from
    """

    def __init__(self, engine: Engine, now: Callable[[], ColumnElement[int]]) -> None:
        self.engine = engine
        self._now = now


def _translated(error: exc.DBAPIError, url: URL) -> MvError | None:
    """Return the error that names why the database did not answer; None if it did."""
    where = f"metadata database {_shown(url)}"
    if _lacks_tables(error):
        return DatabaseVersionError(where, "the database has no tables yet.")
    state = getattr(error.orig, "sqlstate", None) or ""
    if state in _PASSING or getattr(error.orig, "sqlite_errorname", None) == "SQLITE_FULL":
        problem, hint = _PASSING[state or "53100"]
        return MetadataUnavailableError(where, problem, hint=hint or None)
    if state == "42501":
        user = url.username or "this user"
        hint = (
            f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO {user};"
            f" GRANT USAGE ON ALL SEQUENCES IN SCHEMA public TO {user};"
            f" for `amv db migrate` GRANT USAGE, CREATE ON SCHEMA public TO {user}."
        )
        return MetadataDeniedError(where, f"{user} lacks a right that is needed there.", hint=hint)
    if _is_option_refused(error):
        return _refused_option(where)
    if _is_locked(error):
        hint = f"Find it with `fuser -v {url.database}` and let it end, then try again."
        return MetadataUnavailableError(where, "another process holds the lock of this SQLite file.", hint=hint)
    of_sqlite = getattr(error.orig, "sqlite_errorname", "")
    for name, (problem, hint) in _UNUSABLE.items():
        if of_sqlite.startswith(name):
            return SettingError(where, problem, hint=hint)
    if of_sqlite.startswith("SQLITE_CANTOPEN"):
        hint = "Check that its directory exists and that this user may write to it."
        kind = SettingError if _is_closed(Path(url.database or "")) else MetadataUnavailableError
        return kind(where, "its file cannot be opened.", hint=hint)
    if isinstance(error, exc.OperationalError | exc.InterfaceError):
        return MetadataUnavailableError(where, "the database is unreachable, or its answer is not valid.")
    return None


def _is_closed(file: Path) -> bool:
    """True if no retry can open a file; False if its directory is missing, since that may be a mount that returns."""
    if file.is_dir() or (file.exists() and not os.access(file, os.R_OK)):
        return True
    try:
        with TemporaryFile(dir=file.parent):
            return False
    except OSError as error:
        return file.parent.is_dir() and error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE)


def _lacks_tables(error: exc.DBAPIError) -> bool:
    is_undefined_table = getattr(error.orig, "sqlstate", None) == "42P01"  # PostgreSQL's
    return is_undefined_table or "no such table" in str(error.orig)  # SQLite has no specific code for it


def _is_option_refused(error: exc.DBAPIError) -> bool:
    """True if psycopg refuses to connect because of an option's name (or a number's value), or libpq of its value."""
    if error.statement is not None or getattr(error.orig, "sqlstate", None):
        return False
    return isinstance(error, exc.ProgrammingError) or "connection is bad: invalid " in str(error.orig)


def _is_locked(error: exc.DBAPIError) -> bool:
    return str(getattr(error.orig, "sqlite_errorname", "")).startswith(("SQLITE_BUSY", "SQLITE_LOCKED"))


def _shown(url: URL) -> str:
    """Return an address without its secrets: a password may be before the host or among the options."""
    return url.set(query={}).render_as_string(hide_password=True)


def _configure_sqlite(connection: Any, _record: object) -> None:
    connection.isolation_level = None  # the driver must not begin on its own: `_begin_sqlite` does
    for pragma in ("journal_mode=WAL", "foreign_keys=ON", "synchronous=NORMAL"):
        connection.execute(f"PRAGMA {pragma}")


def _begin_sqlite(connection: Connection) -> None:
    # A transaction that turns from reading to writing can fail at once with "database is locked"; one that begins as a
    # writer waits.
    connection.exec_driver_sql("BEGIN IMMEDIATE")


def _begin_reading_sqlite(connection: Connection) -> None:
    connection.exec_driver_sql("BEGIN")
