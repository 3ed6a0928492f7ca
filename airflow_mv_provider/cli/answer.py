"""Turn one refresh request into one report, for every entry point outside Airflow to print.

refreshed                                the refresh's own history row
failed, refused, cancelled, interrupted  that row, with the error
never began                              the table's name, with the error
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

import click

from airflow_mv_provider.cli.interruptible import interruptibly
from airflow_mv_provider.cli.waiting import DEFAULT_WAIT_S, in_turn
from airflow_mv_provider.core.outcome import EXIT_UNTOLD, ErrorReport, Outcome, RefreshReport, error_report, failed
from airflow_mv_provider.core.scope.request import Request
from airflow_mv_provider.core.secret import without
from airflow_mv_provider.core.state import Caller
from airflow_mv_provider.core.submission import is_answer
from airflow_mv_provider.exceptions import ArgumentError, InterruptedRefreshError, MvError

if TYPE_CHECKING:
    from airflow_mv_provider.metadata.store import Store
    from airflow_mv_provider.runner.refresh import Refresher

DEBUG_VARIABLE = "AMV_DEBUG"


def refresh_answer(
    refresher: Refresher, name: str, caller: Caller, request: Request, *, wait_s: float = DEFAULT_WAIT_S
) -> RefreshReport:
    """Refresh a table and return its report; see `answer_of`."""
    return answer_of(refresher, name, caller, lambda: refresher.refresh(name, caller, request), wait_s=wait_s)


def answer_of(
    refresher: Refresher, name: str, caller: Caller, work: Callable[[], RefreshReport], *, wait_s: float
) -> RefreshReport:
    """Return the report of a refresh that `work` does; an MvError or Ctrl-C becomes the report's `error`.

    wait_s : how long to wait for the caller's turn, if the table has a queue
    """
    try:
        before = _newest(refresher.store, caller)
    except MvError as error:
        return failed(RefreshReport(table=name), error)
    try:
        return interruptibly(refresher, lambda: in_turn(refresher, caller, work, wait_s=wait_s))
    except MvError as error:
        return _failure(refresher.store, name, caller, error, before)
    except KeyboardInterrupt:  # the second one
        return _failure(
            refresher.store, name, caller, InterruptedRefreshError(name, "the refresh was interrupted."), before
        )


def _failure(store: Store, name: str, caller: Caller, error: MvError, before: RefreshReport | None) -> RefreshReport:
    """Return the report of this call's refresh with `error`, or an otherwise empty report if it began none.

    A refresh that is PUBLISHED is reported without the error: main has its commit, however its process ended.

    before : the newest refresh under the caller's key when this call began; all tries of a task share one key
    """
    try:
        after = _newest(store, caller)
    except MvError:  # the database itself is what failed
        after = None
    report = after if after is not None and is_answer(before, after) else RefreshReport(table=name)
    return report if report.outcome is Outcome.PUBLISHED else failed(report, error)


def _newest(store: Store, caller: Caller) -> RefreshReport | None:
    refresh_id = store.worked_on(caller.key)
    return None if refresh_id is None else store.report(refresh_id)


def write_output(text: str, code: int) -> int:
    """Write a command's answer to stdout; return the command's exit code.

    If the answer cannot be written, a line on stderr reports that, because the command itself is done. The result is
    then `code`, or EXIT_UNTOLD if `code` is 0. A reader that closes the pipe early, such as `head`, and a closed stdout
    are no errors.
    """
    if sys.stdout is None:
        return code
    try:
        if text:
            click.echo(_writable(text, sys.stdout.encoding or "utf-8"))
        sys.stdout.flush()
    except BrokenPipeError:
        _silence_stdout()
    except OSError as error:
        _silence_stdout()
        aside(f"amv: the command succeeded, but its output could not be written: {error.strerror or error}.")
        return code or EXIT_UNTOLD
    return code


def _writable(text: str, encoding: str) -> str:
    """Return a text that can be written in an encoding: characters that it lacks are escaped as in JSON."""
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        return "".join(c if c.encode(encoding, "ignore") else json.dumps(c)[1:-1] for c in text)
    return text


def aside(text: str) -> None:
    """Write a line to stderr; ignore a failure, because nothing depends on the line."""
    with suppress(OSError):
        click.echo(text, err=True)


def _silence_stdout() -> None:
    """Redirect stdout to the null device: at exit the interpreter flushes it, and a failure changes the exit code."""
    with suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


def unexpected(error: Exception, secrets: Sequence[str]) -> ErrorReport:
    """Return the report of an unexpected exception, in one line; print its trace on stderr only if AMV_DEBUG is set."""
    if os.environ.get(DEBUG_VARIABLE):
        print(without(secrets, "".join(traceback.format_exception(error))), file=sys.stderr)
    if isinstance(error, UnicodeEncodeError):  # bytes that Python keeps as halves of surrogate pairs
        return error_report(ArgumentError("amv", "an argument is not UTF-8 text.", hint="Write it in UTF-8."))
    first_line = (str(error).strip().splitlines() or [""])[0][:200]
    message = without(secrets, f"unexpected {type(error).__name__}: {first_line}".rstrip(": "))
    return ErrorReport("MV-UNEXPECTED", message, f"This is a bug. Set {DEBUG_VARIABLE}=1 to see where it happened.")
