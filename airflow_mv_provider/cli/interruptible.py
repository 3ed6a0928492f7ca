"""Let Ctrl-C stop a refresh in order.

The work runs in a thread of its own and the main thread, to which Python brings signals, only waits for it. A
KeyboardInterrupt in the middle of a call to the JVM would break the connection that the rest of the work, and its
orderly end, need; and PySpark's own handler, which raises just there, is installed only from the main thread.

    first Ctrl-C    Spark's jobs are interrupted; the next step raises, and the refresh settles as after any failure
    second Ctrl-C   the process leaves as it stands, and its lease runs out by itself
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
    """Return what `work` returns, or raise what it raises; after a Ctrl-C that is an InterruptedRefreshError.

    Work that is done before the interrupt reaches it returns as if there had been none.

    raises : KeyboardInterrupt, at the second Ctrl-C
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

    is_done = threading.Event()  # an interrupted Thread.join takes its thread for ended (CPython issue 90882)
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
        raise InterruptedRefreshError("refresh", "it was interrupted.") from error
    raise error
