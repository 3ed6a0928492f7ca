"""Distinguish writes that a table refuses from writes that failed: repeating a refused write is of no use.

Delta's error conditions carry standard SQLSTATEs. The SQLSTATE class distinguishes a refusal (constraint, property,
feature, permission) from a write conflict (2D, 40) and from a failure (08, 53, 58, XX). A test checks the relevant
conditions against Delta's own list. A file system's refusal has no SQLSTATE, so the words of its message decide.
"""

from __future__ import annotations

import re
from contextlib import AbstractContextManager, suppress

from pyspark.errors import PySparkException

from airflow_mv_provider.exceptions import (
    CorruptRecordError,
    DefinitionError,
    DiskFullError,
    EngineError,
    InterruptedRefreshError,
    MainRefusedError,
    MvError,
    SourceFileError,
)
from airflow_mv_provider.spark.errors import condition_of, first_line, translate, translated

# Not supported; invalid data; a constraint; an access or syntax rule; a check option; a limit; another release.
_REFUSING = ("0A", "22", "23", "42", "44", "54", "56038", "KD003", "KD004", "KD00E", "KD00G")
# A table, file or variable that is missing, or a rename that failed: a retry sees the present state.
_GONE = ("42K03", "42K04", "42P01", "42883")
_WORDS = (
    *("Permission denied", "Operation not permitted", "Read-only file system", "AccessDenied", "Access Denied"),
    *("AccessControlException", "AuthorizationPermissionMismatch", "403 Forbidden"),
    *("Not a directory", "not a directory", "File name too long", "Nul character not allowed", "Mkdirs failed"),
)


def writing_to(where: str) -> AbstractContextManager[None]:
    """As `errors.translated`, for a write into a table, which messages call `where`.

    raises : MainRefusedError, when the table refuses these rows, or refuses to be written at all
    """
    return translated(where, lambda error: refusal(error, where) or translate(error, where))


def refusal(error: BaseException, where: str) -> MvError | None:
    """Return the error for a write that the table `where` refuses; None for every other failure."""
    found = translate(error, where)
    if isinstance(found, DiskFullError | InterruptedRefreshError):
        return None
    if isinstance(found, EngineError | DefinitionError | CorruptRecordError) and _is_refused(error):
        # A value that cannot be converted is the source's fault, unless the condition shows that the table refused it.
        if isinstance(found, CorruptRecordError) and not condition_of(error).startswith(("DELTA_", "EXCEED_")):
            return None
        return MainRefusedError(where, f"the table refuses the write: {_message_of(error)}.")
    if type(found) in (EngineError, SourceFileError) and (line := _line_of_file_system(error)):
        return MainRefusedError(where, f"the table cannot be written: {line}.")
    return None


def _is_refused(error: BaseException) -> bool:
    state = _sql_state(error)
    return state.startswith(_REFUSING) and state not in _GONE


def _sql_state(error: BaseException) -> str:
    with suppress(Exception):  # Py4J calls the JVM, which may have exited
        asked = error if isinstance(error, PySparkException) else getattr(error, "java_exception", None)
        if asked is not None and (state := asked.getSqlState()):
            return str(state)
    found = re.search(r"SQLSTATE: (\w+)", _all_text(error))
    return found.group(1) if found else ""


def _message_of(error: BaseException) -> str:
    """Return the refusal's message without the values of rows, which must not be logged."""
    return re.sub(r" by row with values:?$", " by a row", first_line(_all_text(error))).rstrip(":")


def _line_of_file_system(error: BaseException) -> str | None:
    """Return the line of the error, or of one of its causes, that holds the file system's refusal; None without one."""
    for line in _all_text(error).splitlines():
        if any(word in line for word in _WORDS) and not line.lstrip().startswith("at "):
            return first_line(re.sub(r"^\s*(Caused by: )?([\w.$]+(Exception|Error): )?", "", line))
    return None


def _all_text(error: BaseException) -> str:
    """Return an error's text with its causes, which a Connect server sends separately from the message."""
    with suppress(Exception):
        text = str(error)
        stack = getattr(error, "getStackTrace", None)
        return f"{text}\n{stack() or ''}" if stack and "Caused by" not in text else text
    return type(error).__name__
