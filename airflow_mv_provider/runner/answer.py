"""Turn one request for a refresh into one report, whatever happens: what every entry point outside Airflow prints.

refreshed                                the refresh's own history row
failed, refused, cancelled, interrupted  that row, and the error
never began                              the table's name, and the error
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Sequence
from typing import TYPE_CHECKING

from airflow_mv_provider.core.outcome import ErrorReport, Outcome, RefreshReport, error_report, failed
from airflow_mv_provider.core.request import Request
from airflow_mv_provider.core.secret import without
from airflow_mv_provider.core.state import Caller
from airflow_mv_provider.exceptions import DefinitionError, InterruptedRefreshError, MvError
from airflow_mv_provider.metadata.store import Store
from airflow_mv_provider.runner.interruptible import interruptibly
from airflow_mv_provider.runner.waiting import DEFAULT_WAIT_S, in_turn

if TYPE_CHECKING:
    from airflow_mv_provider.runner.refresh import Refresher

DEBUG_VARIABLE = "AMV_DEBUG"


def refresh_answer(
    refresher: Refresher, name: str, caller: Caller, request: Request, *, wait_s: float = DEFAULT_WAIT_S
) -> RefreshReport:
    """Refresh a table and return its report; an MvError or Ctrl-C ends up in the report's `error`.

    wait_s : how long to wait for one's turn, in a table that has a queue
    """

    def work() -> RefreshReport:
        return refresher.refresh(name, caller, request)

    try:
        return interruptibly(refresher, lambda: in_turn(refresher, caller, work, wait_s=wait_s))
    except MvError as error:
        return failure(refresher.store, name, caller, error)
    except KeyboardInterrupt:  # the second one
        return failure(refresher.store, name, caller, InterruptedRefreshError(name, "it was interrupted."))


def failure(store: Store, name: str, caller: Caller, error: MvError) -> RefreshReport:
    """Return the report of `caller`'s refresh that raised `error`.

    A refresh whose commit is in main is published, however its process ended: its row is returned as it is.
    """
    try:
        refresh_id = store.worked_on(caller.key)
        report = RefreshReport(table=name) if refresh_id is None else store.report(refresh_id)
    except MvError:  # the database itself is what failed
        report = RefreshReport(table=name)
    return report if report.outcome is Outcome.PUBLISHED else failed(report, error)


def unexpected(error: Exception, secrets: Sequence[str]) -> ErrorReport:
    """Report an exception that nobody foresaw: one line, and the trace on stderr only for those who ask for it."""
    if os.environ.get(DEBUG_VARIABLE):
        print(without(secrets, "".join(traceback.format_exception(error))), file=sys.stderr)
    if isinstance(error, UnicodeEncodeError):  # bytes that Python keeps as halves of surrogate pairs
        return error_report(DefinitionError("amv", "an argument is not UTF-8 text.", hint="Write it in UTF-8."))
    first_line = (str(error).strip().splitlines() or [""])[0][:200]
    message = without(secrets, f"unexpected {type(error).__name__}: {first_line}".rstrip(": "))
    return ErrorReport("MV-UNEXPECTED", message, f"This is a bug. Set {DEBUG_VARIABLE}=1 to see where it happened.")
