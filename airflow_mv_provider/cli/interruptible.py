"""Let Ctrl-C stop a refresh cleanly.

The work runs in its own thread, and the main thread, in which Python handles signals, only waits for it. A
KeyboardInterrupt in the middle of a call to the JVM would break the connection, which the rest of the work and its
clean end need. PySpark's own handler raises exactly there, and it is installed only from the main thread.

    first Ctrl-C    Spark's jobs are interrupted; the next step raises, and the refresh ends as after any failure
    second Ctrl-C   the process exits at once, and its lease expires
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from airflow_mv_provider.exceptions import EngineError, InterruptedRefreshError, MvError

if TYPE_CHECKING:
    from airflow_mv_provider.runner.refresh import Refresher

T = TypeVar("T")


def interruptibly(refresher: Refresher, work: Callable[[], T]) -> T:
    """Return the result of `work`, or raise its error.

    Work that ends before the interrupt reaches it returns normally.

    raises : InterruptedRefreshError, if `work` raises an EngineError or no MvError at all after a Ctrl-C;
             KeyboardInterrupt, at the second Ctrl-C
    """
    results: list[T] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            results.append(work())
        except BaseException as error:
            errors.append(error)
        finally:
            is_done.set()

    is_done = threading.Event()  # after an interrupted Thread.join its thread counts as ended (CPython issue 90882)
    is_interrupted = False
    try:
        threading.Thread(target=run, name="mv-work", daemon=True).start()
        is_done.wait()
    except KeyboardInterrupt:
        is_interrupted = True
        refresher.interrupt()
        is_done.wait()
    if results:
        return results[0]
    error = errors[0]
    is_ours = isinstance(error, MvError) and not isinstance(error, EngineError)
    if is_interrupted and not is_ours:
        raise InterruptedRefreshError("refresh", "the refresh was interrupted.") from error
    raise error
