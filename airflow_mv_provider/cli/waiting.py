"""Wait in the foreground for one's turn: look, say for whom one waits, look again.

admitted       whatever the work returns or raises
time is up     RefreshInProgressError, as without waiting; the ticket is given back
Ctrl-C         InterruptedRefreshError; the ticket is given back
killed         the ticket is not renewed and loses its place by itself
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
LOOK_S = 1.0

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
    """Return what `work` returns, trying again for as long as it says that the caller has a place in a queue.

    pause : waits so many seconds; True if this process was asked to stop meanwhile
    clock : seconds, for `wait_s`
    """
    pause = pause or runner.is_interrupted_within
    until, told = clock() + wait_s, ""
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
            if error.problem != told:
                told = error.problem
                runner.watch(Progress(error.where, "", Phase(error.facts["phase"]), told))
            if pause(min(LOOK_S, left_s)):
                _leave(runner, caller)
                raise InterruptedRefreshError(error.where, "it was interrupted while it waited.") from error


def _leave(runner: Refresher, caller: Caller) -> None:
    with suppress(MvError):  # a database that is away: the ticket expires
        runner.store.queue.leave(caller.key)
