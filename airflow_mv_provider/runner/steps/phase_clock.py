"""Seconds per phase, summed up between two writes to the history."""

from __future__ import annotations

import time

from airflow_mv_provider.core.phase import Phase


class PhaseClock:
    """A timer that counts seconds for one phase at a time."""

    def __init__(self) -> None:
        self._seconds: dict[str, float] = {}
        self._phase: Phase | None = None
        self._since = 0.0

    def start(self, phase: Phase) -> None:
        """Count for `phase` from now on."""
        self.stop()
        self._phase, self._since = phase, time.monotonic()

    def stop(self) -> None:
        """Stop counting."""
        if self._phase is not None:
            self._seconds[self._phase] = self._seconds.get(self._phase, 0.0) + time.monotonic() - self._since
            self._phase = None

    def spent(self) -> dict[str, float]:
        """Return the seconds per phase since the last call, and begin again at zero."""
        running = self._phase
        self.stop()
        spent, self._seconds = self._seconds, {}
        if running is not None:
            self.start(running)
        return spent
