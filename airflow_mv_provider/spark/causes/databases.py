"""Translate JDBC drivers' messages inside Spark's errors, which contain no password, into this package's errors."""

from __future__ import annotations

import re
from functools import cache
from importlib.metadata import version

from airflow_mv_provider.exceptions import (
    DefinitionError,
    DependencyError,
    InexactColumnError,
    MvError,
    SettingError,
    SnapshotLostError,
    SourceDeniedError,
    SourceUnavailableError,
)

INEXACT = "MV-COLUMN-INEXACT"
"""Begins the message of an error that the source's SQL raises: then a column and its value."""
NOT_TEXT = "MV-NOT-TEXT"
"""The same for a text that is none: then a column and the text's first bytes, as hexadecimal digits."""
DRIVERS = {
    "org.postgresql.Driver": "org.postgresql:postgresql:42.7.14",
    "org.mariadb.jdbc.Driver": "org.mariadb.jdbc:mariadb-java-client:4.0.0",
    "org.sqlite.JDBC": "org.xerial:sqlite-jdbc:3.54.1.0",
}
"""Class of each driver → the Maven coordinates that were tested."""
DATABASES = {
    "postgresql": "org.postgresql.Driver",
    "mariadb": "org.mariadb.jdbc.Driver",
    "sqlite": "org.sqlite.JDBC",
}
"""Names for `source_databases` → the class of the driver."""
_MARIADB_AWAY = ("Socket error", "unexpected end of stream", "Connection reset", "Socket fail to connect", "was killed")
_LOST = ("invalid snapshot identifier", "could not import the requested snapshot")
_REFUSED = ("authentication failed", "no password was provided", "no pg_hba.conf entry", "permission denied for")
_LOCKED = ("lock timeout", "Lock wait timeout exceeded", "[SQLITE_BUSY", "[SQLITE_LOCKED")
_NO_UTF_8 = ("invalid byte sequence for encoding", "has no equivalent in encoding")
# What PostgreSQL's server reports about a value as it computes it, and what the other two drivers report so.
_REJECTED = ("division by zero", "out of range", "invalid input syntax", "returned by a subquery used as an expression")
_REJECTED_BY_OTHERS = re.compile(
    r"java\.sql\.SQL(?:Data|SyntaxError|IntegrityConstraintViolation)Exception: \(conn=\d+\) (.*)|\[SQLITE_ERROR\] (.*)"
)
_TOO_SLOW = ("due to statement timeout", "max_statement_time exceeded", "maximum statement execution time exceeded")
_AWAY = (
    *("refused. Check that the hostname", "The connection attempt failed", "An I/O error occurred while"),
    *("terminating connection", "connection has been closed", "FATAL: "),
)


@cache
def connectors() -> dict[str, str]:
    """Return further names for `source_databases`, with the Maven coordinates of Spark's own connectors and formats."""
    artifacts = {"kafka": "spark-sql-kafka-0-10", "avro": "spark-avro"}
    return {name: f"org.apache.spark:{artifact}_2.13:{version('pyspark')}" for name, artifact in artifacts.items()}


def of_database(text: str, where: str) -> MvError | None:
    """Return the error that a database or its driver has caused; None if it was not one of those known here."""
    if found := re.search(rf"{INEXACT} (\S+) (.*?)(?:\"?\n|'\)|'? SQLSTATE|\"?$)", text):
        problem = f"column {found.group(1)} has the value {found.group(2)[:60]!r}, which does not fit its type exactly."
        return InexactColumnError(where, problem)
    if found := re.search(rf"{NOT_TEXT} (\S+) ([0-9A-F]*)", text):
        problem = (
            f"column {found.group(1)} has a text with bytes that are not a character; it begins with {found.group(2)}."
        )
        return not_text(where, problem)
    if "MALFORMED_CHARACTER_CODING" in text and "performing `decode` with UTF-16" in text:
        return not_text(where, "a text of the source has bytes that are not a character of UTF-16.")
    if driver := next((name for name in DRIVERS if f"ClassNotFoundException: {name}" in text), None):
        return missing_driver(where, driver)
    if any(words in text for words in _LOST):
        return SnapshotLostError(where, "the connection that held the source's snapshot has ended.")
    if any(words in text for words in _LOCKED):
        return locked(where)
    if "PSQLException" in text and any(words in text for words in _REFUSED):
        return SourceDeniedError(where, f"the server refuses: {_message_of(_REFUSED, text)}.")
    if "SocketTimeoutException: Read timed out" in text and re.search(r"SQL\w*Exception", text):
        return silent(where, "no answer within `read_timeout`")
    if "PSQLException" in text and any(words in text for words in _AWAY):
        return SourceUnavailableError(where, f"the connection to the server failed: {_message_of(_AWAY, text)}.")
    return _of_a_query(text, where) or _of_mariadb(text, where)


def _of_a_query(text: str, where: str) -> MvError | None:
    """Return the error for what no retry mends: a query, or the values that it computes with."""
    is_of_postgres = "PSQLException" in text
    if is_of_postgres and any(words in text for words in _NO_UTF_8):
        return not_text(
            where, f"a text of the source has bytes that are not a character: {_message_of(_NO_UTF_8, text)}."
        )
    if is_of_postgres and "No value specified for parameter" in text:
        hint = (
            "Call the operator's function: jsonb_exists(a, b) for `a ? b`, jsonb_exists_any for `?|`,"
            " jsonb_exists_all for `?&`, jsonb_path_exists for `@?`."
        )
        return DefinitionError(where, "the query has a `?`, which JDBC takes for a parameter.", hint=hint)
    if any(words in text for words in _TOO_SLOW):
        return too_slow(where)
    if is_of_postgres and any(words in text for words in _REJECTED):
        return DefinitionError(where, f"PostgreSQL rejects it: {_message_of(_REJECTED, text)}.")
    if not is_of_postgres and (found := _REJECTED_BY_OTHERS.search(text)):
        message = (found.group(1) or found.group(2)).strip().rstrip(".")[:300]
        return DefinitionError(where, f"the database rejects it: {message}.")
    return None


def _of_mariadb(text: str, where: str) -> MvError | None:
    if "org.mariadb.jdbc" not in text and "jdbc:mysql:" not in text:
        return None
    found = re.search(r"java\.sql\.(SQL\w+): (?:\(conn=\d+\) )?(.*)", text)
    kind, message = (found.group(1), found.group(2).strip().rstrip(".")[:300]) if found else ("", "")
    if re.search(r"certificate|\bSSL|\bTLS|PKIX", message):
        return without_tls(where, message)
    if kind == "SQLInvalidAuthorizationSpecException":
        return SourceDeniedError(where, f"the server refuses: {message}.")
    if "TransientConnectionException" in kind or any(words in text for words in _MARIADB_AWAY):
        message = message or next(words for words in _MARIADB_AWAY if words in text)
        return SourceUnavailableError(where, f"the connection to the server failed: {message}.")
    return None


def drivers_of(databases: str) -> tuple[str, ...]:
    """Return the Maven coordinates of the drivers for some databases, by name, separated by commas.

    raises : SettingError, for a name that is not known
    """
    names = [name for name in re.split(r"[,\s]+", databases.lower()) if name]
    known = connectors() | {name: DRIVERS[driver] for name, driver in DATABASES.items()}
    if unknown := [name for name in names if name not in known]:
        hint = f"Known are {', '.join(known)}; other drivers' Maven coordinates belong into AMV_SPARK_PACKAGES."
        raise SettingError("AMV_SOURCE_DATABASES", f"{unknown[0][:60]!r} is not known.", hint=hint)
    return tuple(known[name] for name in dict.fromkeys(names))


def missing_driver(where: str, driver: str) -> DependencyError:
    """Return the error for a Spark that lacks a driver's jar."""
    name = next(name for name, each in DATABASES.items() if each == driver)
    hint = (
        f"Set AMV_SOURCE_DATABASES={name} (in Airflow `[mv] source_databases`) where Spark starts: here, or for"
        f" `amv server`, and restart that. For spark-submit: --packages {DRIVERS[driver]}."
    )
    return DependencyError(where, f"Spark has no JDBC driver {driver}.", hint=hint)


def missing_connector(where: str, name: str) -> DependencyError:
    """Return the error for a Spark that lacks the jar of one of `connectors`."""
    hint = (
        f"Set AMV_SOURCE_DATABASES={name} (in Airflow `[mv] source_databases`) where Spark starts: here, or for"
        f" `amv server`, and restart that. For spark-submit: --packages {connectors()[name]}."
    )
    return DependencyError(where, f"Spark has no connector for {name}: its jar is missing.", hint=hint)


def silent(where: str, problem: str) -> SourceUnavailableError:
    """Return the error for a server that keeps its connections and sends nothing."""
    hint = "Refresh again. If the database needs that long to sort or to count, raise the source's `read_timeout`."
    return SourceUnavailableError(where, f"the database is silent: {problem}.", hint=hint)


def too_slow(where: str) -> SettingError:
    """Return the error for a statement that the server's own limit has ended."""
    problem = "the server ended the statement after a limit of its own (statement_timeout, max_statement_time)."
    hint = (
        "Source connections set these limits to 0; so look for what keeps that from the server, such as a pooler that"
        " ignores `options`, or a limit in the query itself."
    )
    return SettingError(where, problem, hint=hint)


def not_text(where: str, problem: str) -> InexactColumnError:
    """Return the error for a text of which some bytes are no character, which any decoder would replace."""
    hint = "Correct it in the database, or read its bytes in a `query`, as hexadecimal digits."
    return InexactColumnError(where, problem, hint=hint)


def without_tls(where: str, message: str) -> SourceUnavailableError:
    """Return the error for a server whose certificate is not trusted, or that has none."""
    hint = (
        "Name the authority that signed its certificate (`sslrootcert` in the connection's extra), or set what is"
        " wanted: `sslmode: verify-full`, `verify-ca`, `require` (encrypted, to anybody) or `disable`."
    )
    return SourceUnavailableError(where, f"the server cannot be reached by TLS: {message}.", hint=hint)


def locked(where: str) -> SourceUnavailableError:
    """Return the error for a table that another session locks."""
    problem = "another session locks the table, or waits for a lock on it (ALTER, TRUNCATE, VACUUM FULL)."
    return SourceUnavailableError(where, problem, hint="Refresh again once it has ended.")


def _message_of(words: tuple[str, ...], text: str) -> str:
    line = next(line for line in text.splitlines() if any(word in line for word in words))
    return re.sub(r"^.*?PSQLException: ", "", line).strip().rstrip(". ")[:300]
