"""Wait in the foreground for a place in a table's queue: try once a second, and show which caller is ahead.

admitted       the result or error of the work
time is up     RefreshInProgressError, as without waiting; the ticket is removed
Ctrl-C         InterruptedRefreshError; the ticket is removed
killed         the ticket expires, because it is not renewed
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, TypeVar

from airflow_mv_provider.core.phase import Phase
from airflow_mv_provider.core.state import Caller
from airflow_mv_provider.exceptions import InterruptedRefreshError, MvError, RefreshInProgressError
from airflow_mv_provider.runner.watching import Progress

if TYPE_CHECKING:
    from airflow_mv_provider.runner.refresh import Refresher

DEFAULT_WAIT_S = 3600.0  # as long as an Airflow task waits
TRY_S = 1.0

T = TypeVar("T")


def in_turn(
    runner: Refresher,
    caller: Caller,
    work: Callable[[], T],
    *,
    wait_s: float,
    pause: Callable[[float], bool] | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> T:
    """Return the result of `work`; call it again while it raises that the caller has a place in a queue.

    wait_s : how long to try again
    pause  : waits so many seconds; returns True if this process has to stop
    clock  : returns seconds, to measure `wait_s`
    raises : RefreshInProgressError, if the table's policy is to reject or the time is up; InterruptedRefreshError;
             every other error of `work`
    """
    pause = pause or runner.is_interrupted_within
    until, shown = clock() + wait_s, ""
    while True:
        try:
            return work()
        except RefreshInProgressError as error:
            if "position" not in error.facts:
                raise  # this table's policy is to reject
            left_s = until - clock()
            if left_s <= 0:
                _leave(runner, caller)
                problem = f"{error.problem} Waited {wait_s:.0f} s."
                raise RefreshInProgressError(error.where, problem, **error.facts) from error
            if error.problem != shown:
                shown = error.problem
                runner.watch(Progress(error.where, "", Phase(error.facts["phase"]), shown))
            if pause(min(TRY_S, left_s)):
                _leave(runner, caller)
                raise InterruptedRefreshError(error.where, "the refresh was interrupted while it waited.") from error


def _leave(runner: Refresher, caller: Caller) -> None:
    with suppress(MvError):  # if the database is unavailable, the ticket expires
        runner.store.queue.leave(caller.key)
