"""A database whose heartbeats are counted, and work that notes its interrupts; no test waits for time."""

from __future__ import annotations

import threading

from sqlalchemy import Engine, event, exc, select

from airflow_mv_provider.metadata.models import RefreshStateRow

PATIENCE_S = 30


class Beats:
    """Counts the transactions that the heartbeat's thread ends, and can make them fail."""

    def __init__(self, engine: Engine) -> None:
        self._ended = threading.Semaphore(0)
        self.is_away = False
        event.listen(engine, "commit", self._end)
        event.listen(engine, "begin", self._begin)

    def _is_beat(self) -> bool:
        return threading.current_thread().name.startswith("lease-")

    def _end(self, _connection: object) -> None:
        if self._is_beat():
            self._ended.release()

    def _begin(self, _connection: object) -> None:
        if self.is_away:
            if self._is_beat():
                self._ended.release()
            raise exc.OperationalError("BEGIN", {}, Exception("away"))

    def wait(self, more: int = 2) -> None:
        """Wait until so many beats have ended; of two, the second began after the call."""
        while self._ended.acquire(blocking=False):
            pass
        for _ in range(more):
            assert self._ended.acquire(timeout=PATIENCE_S), "the heart has stopped"


class Stops:
    """Counts the calls of `on_stop` and says from which thread they came."""

    def __init__(self) -> None:
        self.threads: list[str] = []
        self._called = threading.Condition()

    def __call__(self) -> None:
        with self._called:
            self.threads.append(threading.current_thread().name)
            self._called.notify_all()

    def wait(self, times: int = 1) -> None:
        with self._called:
            assert self._called.wait_for(lambda: len(self.threads) >= times, PATIENCE_S), "nobody was told to stop"


def expiry(engine: Engine) -> int:
    with engine.begin() as db:
        return db.scalars(select(RefreshStateRow.lease_expires_ms)).one()


def hearts() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith(("lease-", "watch-"))]


class Hands:
    """This process's clock, moved by hand."""

    def __init__(self) -> None:
        self.s = 1000.0

    def __call__(self) -> float:
        return self.s
