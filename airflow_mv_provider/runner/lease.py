"""Keep a lease alive while its owner works, and bring it control: a cancel, or the news that it is lost.

The lease decides only who may try. Whoever ignores a lost one is stopped by the fence.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Self

from airflow_mv_provider.core.state import Ownership
from airflow_mv_provider.exceptions import InterruptedRefreshError, LeaseLostError, RefreshCancelledError
from airflow_mv_provider.metadata.store import Store

log = logging.getLogger(__name__)

_BEATS_PER_LEASE = 4


class Lease:
    """Heartbeats in a thread of their own, from `with` to its end.

    on_stop     : called from that thread when the work under way had better be interrupted; at every beat until the
                  work asks, because an interrupt that falls between two of Spark's jobs stops neither
    interrupted : set when this process was asked to stop
    """

    def __init__(
        self,
        store: Store,
        own: Ownership,
        lease_ms: int,
        on_stop: Callable[[], None],
        interrupted: threading.Event | None = None,
    ) -> None:
        self.own = own
        self._store = store
        self._lease_ms = lease_ms
        self._on_stop = on_stop
        self._interrupted = interrupted or threading.Event()
        self._done = threading.Event()
        self._lock = threading.Lock()
        self._is_lost = False
        self._is_cancelled = False
        self._is_cancellable = True
        self._heard = self._news
        self._thread = threading.Thread(target=self._beat, name=f"lease-{own.refresh_id[:8]}", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """End the heartbeats; what the row says of the lease from now on is its owner's word."""
        self._done.set()
        self._thread.join()

    def check(self, *, is_cancellable: bool = True) -> None:
        """Ask the database now, before a step is begun or a commit made.

        is_cancellable : whether a cancel may stop the work now, and interrupt it up to the next check
        raises         : LeaseLostError, RefreshCancelledError, InterruptedRefreshError, MetadataUnavailableError
        """
        self._renew()
        self._is_cancellable = is_cancellable
        self._heard = self._news
        if self._is_lost:
            raise LeaseLostError(f"refresh {self.own.refresh_id}", f"epoch {self.own.epoch} no longer owns the table.")
        if self._is_cancelled and is_cancellable:
            raise RefreshCancelledError(f"refresh {self.own.refresh_id}", "it was cancelled on request.")
        if self._interrupted.is_set():
            raise InterruptedRefreshError(f"refresh {self.own.refresh_id}", "it was interrupted.")

    def ignore_cancel(self) -> None:
        """Let no cancel interrupt the work up to the next check: it would come too late, and cost a commit."""
        self._is_cancellable = False

    @property
    def _news(self) -> tuple[bool, bool, bool]:
        return self._is_lost, self._is_cancelled and self._is_cancellable, self._interrupted.is_set()

    def _beat(self) -> None:
        while not self._done.wait(self._lease_ms / _BEATS_PER_LEASE / 1000):
            try:
                self._renew()
                if self._news != self._heard:
                    self._on_stop()
            except Exception as error:  # whatever it is, the next beat may succeed; a dead thread would lose the lease
                log.warning("Heartbeat failed, trying again: %s", error)

    def _renew(self) -> None:
        with self._lock:
            renewal = self._store.renew(self.own, lease_ms=self._lease_ms)
            self._is_lost = self._is_lost or not renewal.is_owner
            self._is_cancelled = self._is_cancelled or renewal.is_cancel_requested
