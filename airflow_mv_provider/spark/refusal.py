"""What a table refuses to take: told from what merely failed, because to ask it again is of no use.

Delta gives its conditions the SQLSTATEs of the standard. Their classes tell a refusal (a constraint, a property, a
feature, a right) from a conflict with somebody else (2D, 40) and from a failure (08, 53, 58, XX); a test asks Delta's
own list for those that matter. What a file system refuses has no state of its own: there its words decide.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from py4j.protocol import Py4JError
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
from airflow_mv_provider.spark.errors import condition_of, first_line, translate

# Not supported; data that do not fit; a constraint; a rule of access or SQL; a check option; a limit; another release.
_REFUSING = ("0A", "22", "23", "42", "44", "54", "56038", "KD003", "KD004", "KD00E", "KD00G")
# A table, file or variable that is not there, a rename that failed: whoever looks again sees what became of it.
_GONE = ("42K03", "42K04", "42P01", "42883")
_WORDS = (
    *("Permission denied", "Operation not permitted", "Read-only file system", "AccessDenied", "Access Denied"),
    *("AccessControlException", "AuthorizationPermissionMismatch", "403 Forbidden"),
    *("Not a directory", "not a directory", "File name too long", "Nul character not allowed", "Mkdirs failed"),
)


@contextmanager
def writing_to(location: str) -> Iterator[None]:
    """As `errors.translated`, for a write into the table at `location`.

    raises : MainRefusedError, when it refuses what is written, or to be written at all
    """
    try:
        yield
    except (PySparkException, Py4JError) as error:
        raise refusal(error, location) or translate(error, location) from error


def refusal(error: BaseException, location: str) -> MvError | None:
    """Return the error for what the table at `location` refuses; None for every other failure."""
    found = translate(error, location)
    if isinstance(found, DiskFullError | InterruptedRefreshError):
        return None
    if isinstance(found, EngineError | DefinitionError | CorruptRecordError) and _is_refused(error):
        # A value of the source that cannot be converted is a matter of the source's, unless Delta says so of the table.
        if isinstance(found, CorruptRecordError) and not condition_of(error).startswith(("DELTA_", "EXCEED_")):
            return None
        return MainRefusedError(location, f"it refuses what is written to it: {_said(error)}.")
    if type(found) in (EngineError, SourceFileError) and (line := _line_of_file_system(error)):
        return MainRefusedError(location, f"it cannot be written: {line}.")
    return None


def _is_refused(error: BaseException) -> bool:
    state = _sql_state(error)
    return state.startswith(_REFUSING) and state not in _GONE


def _sql_state(error: BaseException) -> str:
    with suppress(Exception):  # Py4J asks the JVM, which may be gone
        asked = error if isinstance(error, PySparkException) else getattr(error, "java_exception", None)
        if asked is not None and (state := asked.getSqlState()):
            return str(state)
    found = re.search(r"SQLSTATE: (\w+)", _all_text(error))
    return found.group(1) if found else ""


def _said(error: BaseException) -> str:
    """Return what the table says, without the values of rows: they are nobody's to log."""
    return re.sub(r" by row with values:?$", " by a row", first_line(_all_text(error))).rstrip(":")


def _line_of_file_system(error: BaseException) -> str | None:
    """Return the line of the error, or of one of its causes, in which the file system refuses."""
    for line in _all_text(error).splitlines():
        if any(word in line for word in _WORDS) and not line.lstrip().startswith("at "):
            return first_line(re.sub(r"^\s*(Caused by: )?([\w.$]+(Exception|Error): )?", "", line))
    return None


def _all_text(error: BaseException) -> str:
    """Return an error's text with its causes: a Connect server's are beside the message."""
    with suppress(Exception):
        text = str(error)
        stack = getattr(error, "getStackTrace", None)
        return f"{text}\n{stack() or ''}" if stack and "Caused by" not in text else text
    return type(error).__name__
