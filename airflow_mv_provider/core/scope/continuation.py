"""Whether a table whose source is a log continues from its last publish, starts over, or can do neither.

A log lists changes, so the rows of a refresh are main's at the last publish, brought forward by what came since. Main
is known there by its version, whatever others have written later. The log from its start gives the whole table only
if its author guarantees that.
"""

from __future__ import annotations

from enum import StrEnum

from airflow_mv_provider.exceptions import DefinitionError, StreamReloadError


class ReadFrom(StrEnum):
    """From where a refresh reads a log."""

    LOG_START = "the log's start"
    LAST_PUBLISH = "the last publish"


def read_from(
    table: str,
    *,
    is_reload: bool,
    is_complete: bool,
    is_first: bool,
    has_rows: bool,
    obstacle: str | None,
) -> ReadFrom:
    """Return from where a refresh reads its log.

    is_reload   : a person asks to start over
    is_complete : the log from its start gives the whole table, as its author guarantees
    is_first    : the database knows no publish of the table
    has_rows    : main may have rows nonetheless: it is adopted, or the database was lost
    obstacle    : why main at its last publish is not what the log gave up to there; None if it is
    raises      : DefinitionError; StreamReloadError
    """
    if is_reload and not is_complete:
        hint = "Set `complete: true` if the topic, read from its start, gives the whole table: then rows that it lacks"
        raise DefinitionError(
            table,
            "a reload needs a source that is complete.",
            hint=f"{hint} are deleted from the table, within the guards.",
        )
    if is_reload:
        return ReadFrom.LOG_START
    if is_first:
        if has_rows and not is_complete:
            problem = "the table may have rows, and which of the topic's records they include is not known."
            raise StreamReloadError(table, problem)
        return ReadFrom.LOG_START
    if obstacle is not None:
        raise StreamReloadError(table, f"the topic cannot be continued: {obstacle}.")
    return ReadFrom.LAST_PUBLISH


def obstacle(*, same_definition: bool, is_rolled_back: bool, num_kept: int, has_position: bool) -> str | None:
    """Return why main at its last publish is not what the log gave up to there; None if it is.

    num_kept     : rows whose deletes were left out
    has_position : the last publish recorded how far the log was read
    """
    if is_rolled_back:
        return "the table was rolled back since the last refresh from its source"
    if not same_definition:
        return "the definition has changed, or the table was loaded from another source"
    if num_kept:
        return f"the table has kept {num_kept:,} rows that were deleted"
    return None if has_position else "the last publish did not record how far the topic was read"
