"""Renew a lease while its owner works, and interrupt the work after a cancel or after the lease is lost.

    heartbeat thread   renews the lease in the database, four times per lease; the call may hang
    watch thread       checks the clock and the heartbeat's results, and interrupts the work; never calls the database

The lease decides only which owner may try; the fence stops an owner that ignores a lost lease. An owner that has not
renewed for the length of a lease has lost it, whether or not it has noticed: another process may take its table over
from then on. The owner counts the lease from before each renewal call, so its count ends before the database's. Time
during which the machine is suspended counts too.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Self

from airflow_mv_provider.core.state import Ownership, Renewal
from airflow_mv_provider.exceptions import InterruptedRefreshError, LeaseLostError, RefreshCancelledError

log = logging.getLogger(__name__)

_BEATS_PER_LEASE = 4


def elapsed_s() -> float:
    """Return seconds on a monotonic clock; on Linux it also counts the time during which the machine is suspended."""
    boot: int | None = getattr(time, "CLOCK_BOOTTIME", None)  # Linux
    return time.monotonic() if boot is None else time.clock_gettime(boot)


class Lease:
    """A lease that two threads renew and watch inside a `with` block.

    renew       : renews the lease in the database: `Store.renew` or `Store.renew_preview`
    on_stop     : called from the watch thread to interrupt the current work; called again at every beat until the work
                  calls `check`, because an interrupt between two Spark jobs stops neither
    interrupted : set when this process has to stop
    clock       : seconds, comparable only within this process
    """

    def __init__(
        self,
        renew: Callable[..., Renewal],
        own: Ownership,
        lease_ms: int,
        on_stop: Callable[[], None],
        interrupted: threading.Event | None = None,
        clock: Callable[[], float] = elapsed_s,
    ) -> None:
        self.own = own
        self._ask = renew
        self._lease_s = lease_ms / 1000
        self._on_stop = on_stop
        self._interrupted = interrupted or threading.Event()
        self._clock = clock
        self._until_s = clock() + self._lease_s
        self._done = threading.Event()
        self._beaten = threading.Event()
        self._lock = threading.Lock()  # never held during a call to the database or Spark
        self._is_lost = False
        self._has_run_out = False
        self._is_cancelled = False
        self._is_cancellable = True
        self._heard = self._news
        name = own.refresh_id[:8]
        self._threads = (
            threading.Thread(target=self._beat, name=f"lease-{name}", daemon=True),
            threading.Thread(target=self._watch, name=f"watch-{name}", daemon=True),
        )

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """End the heartbeats; from now on only the owner's own writes change the lease in the row."""
        self._done.set()
        self._beaten.set()
        for thread in self._threads:
            thread.join()

    def check(self, *, is_cancellable: bool = True) -> None:
        """Renew the lease now, and raise if the work must stop; called before each step and each commit.

        is_cancellable : whether a cancel may stop the work now, and interrupt it until the next check
        raises         : LeaseLostError, RefreshCancelledError, InterruptedRefreshError, MetadataUnavailableError
        """
        self._renew()
        self._is_cancellable = is_cancellable
        self._heard = self._news
        where = f"refresh {self.own.refresh_id}"
        if self._has_run_out:
            problem = f"this process could not renew its lease for {self._lease_s:g} s."
            hint = "Check whether the database was unavailable or this machine was suspended, then refresh again."
            raise LeaseLostError(where, problem, hint=hint, epoch=self.own.epoch)
        if self._is_lost:
            raise LeaseLostError(where, "this process no longer owns the table.", epoch=self.own.epoch)
        if self._is_cancelled and is_cancellable:
            raise RefreshCancelledError(where, "the refresh was cancelled on request.")
        if self._interrupted.is_set():
            raise InterruptedRefreshError(where, "the refresh was interrupted.")

    def ignore_cancel(self) -> None:
        """Let no cancel interrupt the work until the next check: it would come too late and only make a commit fail."""
        self._is_cancellable = False

    @property
    def _news(self) -> tuple[bool, bool, bool]:
        is_lost = self._is_lost or self._has_run_out
        return is_lost, self._is_cancelled and self._is_cancellable, self._interrupted.is_set()

    @property
    def _beat_s(self) -> float:
        return self._lease_s / _BEATS_PER_LEASE

    def _beat(self) -> None:
        while not self._done.wait(self._beat_s):
            try:
                self._renew()
            except Exception as error:  # any error: the next beat may succeed, and the lease needs this thread
                log.warning("The lease could not be renewed; trying again: %s", error)
            self._beaten.set()

    def _watch(self) -> None:
        while not self._done.is_set():
            left_s = self._until_s - self._clock()
            self._beaten.wait(min(self._beat_s, left_s) if left_s > 0 else self._beat_s)
            self._beaten.clear()
            self._check_clock()
            if self._done.is_set() or self._news == self._heard:
                continue
            try:
                self._on_stop()
            except Exception as error:  # the next call may succeed
                log.warning("Spark could not be interrupted, trying again: %s", error)

    def _renew(self) -> None:
        asked_s = self._clock()
        if self._check_clock():
            return  # the lease has run out, so a renewal would come too late
        renewal = self._ask(self.own, lease_ms=round(self._lease_s * 1000))
        with self._lock:
            if renewal.is_owner:
                self._until_s = max(self._until_s, asked_s + self._lease_s)
            self._is_lost = self._is_lost or not renewal.is_owner
            self._is_cancelled = self._is_cancelled or renewal.is_cancel_requested

    def _check_clock(self) -> bool:
        with self._lock:
            self._has_run_out = self._has_run_out or self._clock() >= self._until_s
            return self._has_run_out
