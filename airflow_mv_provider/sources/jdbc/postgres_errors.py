"""psycopg's errors as this package's."""

from __future__ import annotations

from airflow_mv_provider.exceptions import (
    DefinitionError,
    MvError,
    SnapshotLostError,
    SourceDeniedError,
    SourceNotFoundError,
    SourceUnavailableError,
)
from airflow_mv_provider.spark.causes.databases import locked, not_text, silent, too_slow

# Classes of SQLSTATE: not supported, too many rows, a value that does not fit, wrong SQL, beyond the server's limits.
_AUTHORS = ("0A", "21", "22", "42", "54")


def translated(error: Exception, text: str, read_timeout: int, *, is_holding: bool) -> MvError | None:
    """Return what to raise for one of psycopg's errors; None for another's.

    text         : its message, without secrets
    read_timeout : seconds that the connection waited for an answer
    is_holding   : the connection held a snapshot
    """
    from psycopg import Error, OperationalError, errors

    from airflow_mv_provider.postgres import NoAnswerError

    if not isinstance(error, Error):
        return None
    message = text.strip().splitlines()[0].rstrip(".")[:300] if text.strip() else type(error).__name__
    if "snapshot identifier" in text or "import the requested snapshot" in text:
        return SnapshotLostError("source", "the connection that held the source's snapshot has ended.")
    match error:
        case NoAnswerError():
            return silent("source", f"no answer within {read_timeout} s")
        case errors.InsufficientPrivilege():
            hint = "GRANT USAGE ON SCHEMA … and GRANT SELECT ON … TO the connection's login."
            return SourceDeniedError("source", f"{message}.", hint=hint)
        case errors.UndefinedTable() | errors.InvalidSchemaName():
            return SourceNotFoundError(
                "source", f"{message}.", hint="Check schema and table, spelt as in the database."
            )
        case errors.LockNotAvailable():
            return locked("source")
        case errors.QueryCanceled() if "statement timeout" in text:
            return too_slow("source")
        case errors.CharacterNotInRepertoire() | errors.UntranslatableCharacter():
            return not_text("source", f"a text of the source has bytes that are not a character: {message}.")
        case _ if (error.sqlstate or "")[:2] in _AUTHORS:
            return DefinitionError("source", f"PostgreSQL rejects the query: {message}.")
        case OperationalError() if is_holding:
            return SnapshotLostError("source", "the connection that held the source's snapshot has ended.")
        case OperationalError() if error.sqlstate is None and "FATAL" in text and not _is_transient(text):
            message = text[text.index("FATAL") :].removeprefix("FATAL:").strip().splitlines()[0]
            return SourceDeniedError("source", f"the server refuses the login: {message}.")
    return SourceUnavailableError("source", f"{message}.")


def _is_transient(text: str) -> bool:
    return any(words in text for words in ("too many", "starting up", "shutting down", "recovery", "remaining"))
