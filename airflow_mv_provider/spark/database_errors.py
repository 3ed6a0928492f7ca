"""Translate what JDBC drivers say inside Spark's errors, which contain no password, into this package's errors."""

from __future__ import annotations

import re

from airflow_mv_provider.exceptions import (
    DefinitionError,
    InexactColumnError,
    MvError,
    SnapshotLostError,
    SourceDeniedError,
    SourceUnavailableError,
)

INEXACT = "MV-COLUMN-INEXACT"
"""Begins the message of an error that the source's SQL raises: then a column and its value."""
DRIVERS = {
    "org.postgresql.Driver": "org.postgresql:postgresql:42.7.14",
    "org.sqlite.JDBC": "org.xerial:sqlite-jdbc:3.54.1.0",
}
"""Class of each driver → the Maven coordinates that were tested."""
_LOST = ("invalid snapshot identifier", "could not import the requested snapshot")
_REFUSED = ("authentication failed", "no password was provided", "no pg_hba.conf entry", "permission denied for")
_LOCKED = ("lock timeout", "[SQLITE_BUSY", "[SQLITE_LOCKED")
_AWAY = (
    *("refused. Check that the hostname", "The connection attempt failed", "An I/O error occurred while"),
    *("terminating connection", "connection has been closed", "FATAL: "),
)


def of_database(text: str, where: str) -> MvError | None:
    """Return the error that a database or its driver has caused; None if it was not one of those known here."""
    if found := re.search(rf"{INEXACT} (\S+) (.*?)(?:\"?\n|'\)|'? SQLSTATE|\"?$)", text):
        problem = f"column {found.group(1)} has the value {found.group(2)[:60]!r}, which does not fit its type exactly."
        return InexactColumnError(where, problem)
    if driver := next((name for name in DRIVERS if f"ClassNotFoundException: {name}" in text), None):
        return missing_driver(where, driver)
    if any(words in text for words in _LOST):
        return SnapshotLostError(where, "the connection that held the source's snapshot has ended.")
    if any(words in text for words in _LOCKED):
        return locked(where)
    if "PSQLException" in text and any(words in text for words in _REFUSED):
        return SourceDeniedError(where, f"the server refuses: {_said(_REFUSED, text)}.")
    if "PSQLException" in text and any(words in text for words in _AWAY):
        return SourceUnavailableError(where, f"the connection to the server failed: {_said(_AWAY, text)}.")
    return None


def missing_driver(where: str, driver: str) -> DefinitionError:
    """Return the error for a Spark that lacks a driver's jar."""
    hint = f"Set AMV_SPARK_PACKAGES={DRIVERS[driver]} where Spark starts: here, or for `amv server`, and restart that."
    return DefinitionError(where, f"Spark has no JDBC driver {driver}.", hint=hint)


def locked(where: str) -> SourceUnavailableError:
    """Return the error for a table that another session locks."""
    problem = "another session locks the table, or waits for a lock on it (ALTER, TRUNCATE, VACUUM FULL)."
    return SourceUnavailableError(where, problem, hint="Refresh again once it has ended.")


def _said(words: tuple[str, ...], text: str) -> str:
    line = next(line for line in text.splitlines() if any(word in line for word in words))
    return re.sub(r"^.*?PSQLException: ", "", line).strip().rstrip(". ")[:300]
