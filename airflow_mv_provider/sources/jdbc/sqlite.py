"""SQLite as source: one connection, whose SELECT is one state of the file, and the file's change counter as the token.

SQLite counts the transactions that changed a file in the file's header, unless it writes ahead (`journal_mode=WAL`):
then a source is compared each time. The counter is read with the file's identity, size and time, before and after a
moment at which no other process was writing, and has to be the same.

A column holds values of any type, whatever was declared, and the driver would turn the others into 0. So each value's
type is checked while it is read. Only INTEGER, REAL, TEXT and BLOB have one type in Spark; SQLite stores a DATE, a
DECIMAL or a BOOLEAN as it was written, and the definition's `columns` has to declare its type.

SQLite stores any bytes as TEXT, and the driver would replace those that are none. So texts travel as bytes.
"""

from __future__ import annotations

import os
import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from airflow_mv_provider.exceptions import (
    ConnectionUnknownError,
    DefinitionError,
    SourceDeniedError,
    SourceNotFoundError,
    SourceUnavailableError,
)
from airflow_mv_provider.sources.credentials import Credentials
from airflow_mv_provider.sources.jdbc.dialect import (
    Dialect,
    Found,
    Reading,
    check_exact,
    check_known,
    check_names,
    quoted,
)
from airflow_mv_provider.sources.jdbc.exact import Column, from_text, marked
from airflow_mv_provider.sources.jdbc.frontier import JdbcFrontier
from airflow_mv_provider.sources.jdbc.model import Jdbc
from airflow_mv_provider.spark.causes.databases import locked

_DRIVER = "org.sqlite.JDBC"
_PATIENCE_S = 10.0
_HEADER = b"SQLite format 3\0"
_HEADER_BYTES = 100
_WRITES_AHEAD = 2  # as the version that a reader has to know
_TRIES = 10
_READ_ONLY = "1"  # SQLITE_OPEN_READONLY, as the driver takes it
# SQLite's own rules, in its own order, for the type that a declared name means.
_DECLARED = (("INT", "BIGINT"), ("CHAR|CLOB|TEXT", "STRING"), ("BLOB", "BINARY"), ("REAL|FLOA|DOUB", "DOUBLE"))
_TYPES_OF = {
    "BIGINT": "typeof({it}) = 'integer'",
    "INT": "typeof({it}) = 'integer'",
    "DOUBLE": "typeof({it}) IN ('real', 'integer')",
    "BINARY": "typeof({it}) = 'blob'",
}


class Sqlite(Dialect):
    """A table or a query of a SQLite file, which every process that reads has to reach."""

    def __init__(self, source: Jdbc, credentials: Credentials) -> None:
        self._source = source
        if source.split is not None:
            hint = "Leave `split` out."
            raise DefinitionError("source", "SQLite is read by one connection, so it has no `split`.", hint=hint)
        named = credentials.host or credentials.database or ""
        if not os.path.isabs(named) or "?" in named:
            hint = 'As JSON: {"conn_type": "sqlite", "host": "/data/shop.db"}.'
            problem = f"the connection names no file by its absolute path, without a question mark: {named!r}."
            raise ConnectionUnknownError(credentials.conn_id, problem, hint=hint)
        self._file = Path(named)

    def inspect(self) -> Found:
        """See `Dialect`."""
        with self._errors():
            for _ in range(_TRIES):
                before = self._stamp()
                with closing(self._connect()) as connection:
                    columns, is_table = self._columns(connection)
                if before == (after := self._stamp()):
                    return Found(self._frontier(after, is_table=is_table), columns, after[2])
        problem = f"{self._file} was being written at every attempt to read its state."
        raise SourceUnavailableError("source", problem, hint="Refresh again.")

    def hold(self) -> Reading:
        """See `Dialect`; nothing is held, because one statement reads one state."""
        options = {"open_mode": _READ_ONLY, "busy_timeout": str(int(_PATIENCE_S * 1000))}
        return Reading(self.inspect(), f"jdbc:sqlite:{self._file}", _DRIVER, self._relation(), options)

    def check(self) -> None:
        """See `Dialect`; nothing was held."""

    def release(self) -> None:
        """See `Dialect`; nothing was held."""

    def _connect(self) -> sqlite3.Connection:
        return sqlite3.connect(f"{self._file.as_uri()}?mode=ro", uri=True, timeout=_PATIENCE_S, isolation_level=None)

    def _columns(self, connection: sqlite3.Connection) -> tuple[tuple[Column, ...], bool]:
        """Return the columns, and whether the source is a plain table; a moment at which no other process writes."""
        select = f"SELECT * FROM {self._relation()} AS mv_source"  # nosec B608  # the author's
        connection.execute(f"CREATE TEMP VIEW mv_source AS {select}")
        found = connection.execute("SELECT name, type FROM pragma_table_xinfo('mv_source')").fetchall()
        check_names([each[0] for each in connection.execute(f"{select} LIMIT 0").description])
        name = (self._source.table or "").rpartition(".")[2]
        sql = "SELECT count(*) FROM main.sqlite_master WHERE type = 'table' AND rootpage > 0 AND lower(name) = lower(?)"
        ((num_tables,),) = connection.execute(sql, [name]).fetchall()
        check_known([name for name, _ in found], self._source.columns)
        ((encoding,),) = connection.execute("PRAGMA encoding").fetchall()
        columns, inexact = [], []
        for name, declared in found:
            wanted = self._source.columns.get(name)
            kind = wanted or _type_of(declared)
            if kind is None:
                inexact.append((name, declared))
            else:
                columns.append(_column(name, kind, encoding, rounds=wanted is not None))
        check_exact(inexact)
        return tuple(columns), num_tables == 1

    def _stamp(self) -> tuple[int, ...]:
        """Return device and inode, size, time, change counter and whether it writes ahead."""
        # Before and after a connection, never beside one: to close a file ends all locks that this process has on it.
        with self._file.open("rb") as file:
            header, stat = file.read(_HEADER_BYTES), os.fstat(file.fileno())
        if header and not header.startswith(_HEADER):
            hint = "Check the connection's file."
            raise SourceNotFoundError("source", f"{self._file} is not a SQLite database.", hint=hint)
        counter, version = int.from_bytes(header[24:28], "big"), header[18] if header else 0
        return stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns, counter, int(version == _WRITES_AHEAD)

    def _frontier(self, stamp: tuple[int, ...], *, is_table: bool) -> JdbcFrontier:
        device, inode, size, time_ns, counter, writes_ahead = stamp
        wanted, obstacle = self._source.unchanged, None
        if not is_table:
            obstacle = "a query or a view may depend on more than tables"
        if wanted == "compare":
            obstacle = "the definition has `unchanged: compare`"
        if wanted == "snapshot":
            obstacle = None
        if writes_ahead:
            obstacle = "a file that is written ahead (journal_mode=WAL) does not count its changes"
        return JdbcFrontier(f"SQLite {self._file}", f"change {counter} {size} {time_ns} {device} {inode}", obstacle)

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError as error:
            hint = "Check the connection's file."
            raise SourceNotFoundError("source", f"there is no file {self._file}.", hint=hint) from error
        except PermissionError as error:
            hint = "Give this user, and that of Spark's processes, read access to it."
            raise SourceDeniedError("source", f"{self._file} may not be read.", hint=hint) from error
        except OSError as error:
            hint = "Check the file and its disk, then refresh again."
            raise SourceUnavailableError("source", f"{self._file}: {error.strerror}.", hint=hint) from error
        except (sqlite3.Error, sqlite3.Warning) as error:
            message = str(error)[:300]
            if "no such table" in message:
                raise SourceNotFoundError("source", f"{message}.", hint="Check the table's name.") from error
            if "locked" in message or "busy" in message:
                raise locked("source") from error
            raise DefinitionError("source", f"SQLite rejects the query: {message}.") from error


def _type_of(declared: str) -> str | None:
    return next((kind for words, kind in _DECLARED if re.search(words, declared, re.IGNORECASE)), None)


def _column(name: str, kind: str, encoding: str, *, rounds: bool) -> Column:
    """Return how a column travels.

    Args:
        encoding: That of the file's texts.
        rounds: A whole number may become the nearest DOUBLE, because the definition's `columns` has that type.
    """
    it = quoted(name)
    if kind in _TYPES_OF:
        fits = _TYPES_OF[kind].format(it=it)
        if kind == "DOUBLE" and not rounds:
            fits += f" AND {it} = CAST({it} AS REAL)"
        sql = _guarded(name, fits, it)
        if kind != "INT":
            return Column(name, sql, kind, kind)
        raises = f"raise_error(concat('{marked(name)}', CAST({{it}} AS STRING)))"
        finish = f"CASE WHEN {{it}} IS NULL THEN NULL ELSE coalesce(try_cast({{it}} AS INT), {raises}) END"
        return Column(name, sql, "BIGINT", "INT", finish)
    # 15 digits may be those of another REAL, too; with 17 it is checked, because older versions of SQLite err there.
    short, long = f"printf('%!.15g', {it})", f"printf('%!.17g', {it})"
    number = f"CASE WHEN CAST({short} AS REAL) = {it} THEN {short} ELSE {long} END"
    text = f"CASE typeof({it}) WHEN 'real' THEN {number} ELSE CAST({it} AS TEXT) END"
    is_same = f"CAST({long} AS REAL) = {it} OR abs({it}) = 9e999"
    fits = f"typeof({it}) IN ('text', 'integer') OR (typeof({it}) = 'real' AND ({is_same}))"
    return from_text(name, _guarded(name, fits, f"CAST({text} AS BLOB)"), kind, encoding.upper())


def _guarded(name: str, fits: str, value: str) -> str:
    """Return an expression that is `value`, and that raises for a value that does not fit.

    json_extract raises for a path that is none, with its text.
    """
    it = quoted(name)
    raises = f"json_extract('{{}}', '{marked(name)}' || typeof({it}))"
    return f"CASE WHEN {it} IS NULL THEN NULL WHEN {fits} THEN {value} ELSE {raises} END"
