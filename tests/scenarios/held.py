"""Hold a refresh between the preparation and the commit of its MERGE, with Delta's own phase locks. No sleeps."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

_PATIENCE_S = 120


class MergeGate:
    """Phase locks for the next transaction of the thread that asks to be held."""

    def __init__(self, spark: Any) -> None:
        self._delta = spark._jvm.org.apache.spark.sql.delta
        self._phases = self._delta.fuzzer.OptimisticTransactionPhases.forName("held")
        self._observer = self._delta.fuzzer.PhaseLockingTransactionExecutionObserver(self._phases)
        # Only the MERGE is held: what the thread commits later goes its way.
        nothing = getattr(getattr(self._delta, "NoOpTransactionExecutionObserver$"), "MODULE$")
        self._observer.setNextObserver(nothing, True)
        for phase in (self._phases.analysisPhase(), self._phases.initialPhase(), self._phases.preparePhase()):
            phase.entryBarrier().unblock()

    def hold_this_thread(self) -> None:
        """Hold the next commit of this thread: an observer belongs to the thread that commits."""
        self._delta.TransactionExecutionObserver.setObserver(self._observer)

    def wait_until_prepared(self, is_alive: Callable[[], bool]) -> None:
        """Return once the MERGE has read, written its files, and waits to commit."""
        waiting = threading.Event()
        for _ in range(_PATIENCE_S * 50):
            if self._phases.preparePhase().hasLeft() and self._phases.commitPhase().hasReached():
                return
            assert is_alive(), "the refresh ended before its commit"
            waiting.wait(0.02)
        raise AssertionError("the MERGE never came to its commit")

    def open(self) -> None:
        """Let the commit go on."""
        for phase in (self._phases.commitPhase(), self._phases.backfillPhase(), self._phases.postCommitPhase()):
            phase.entryBarrier().unblock()
        # Before it hands its thread to the next observer, this one waits to be let out of its last phase.
        self._phases.postCommitPhase().exitBarrier().unblock()


class HeldCommit:
    """A refresh in a thread of its own, whose publish waits for `release`."""

    def __init__(self, lake: Any, at_point: Callable[[str, Callable[[], None]], None]) -> None:
        self._lake = lake
        self._gate = MergeGate(lake.spark)
        self._error: BaseException | None = None
        self._is_released = False
        at_point("publish.before", self._gate.hold_this_thread)  # the point is reached in the refresh's thread
        self._thread = threading.Thread(target=self._run, name="held-commit", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def wait_until_prepared(self) -> None:
        """Return once the MERGE has read, written its files, and waits to commit."""
        self._gate.wait_until_prepared(self._thread.is_alive)

    def release(self) -> BaseException | None:
        """Let the commit go on; return what the refresh raised in the end."""
        self.unblock()
        self._thread.join(_PATIENCE_S)
        assert not self._thread.is_alive()
        return self._error

    def unblock(self) -> None:
        if not self._is_released:
            self._is_released = True
            self._gate.open()

    def _run(self) -> None:
        try:
            self._lake.refresh()
        except BaseException as error:
            self._error = error


@contextmanager
def held_commit(lake: Any, at_point: Callable[[str, Callable[[], None]], None]) -> Iterator[HeldCommit]:
    """Start a refresh that stops in the middle of its publish; it is released at the end at the latest."""
    held = HeldCommit(lake, at_point)
    held.start()
    try:
        yield held
    finally:
        held.unblock()
        held._thread.join(_PATIENCE_S)
