"""Whether a table is late, and when it will be.

    source's state     checked            now
    source_ms          checked_ms         now_ms
        │                  │                 │
        │                  └── age, measured from the check: main had all that the source had then
        └───────────────────── age, measured from the source: main has nothing newer than this

A check that finds nothing new ends the first age and not the second. A source whose states have no time of their own (a
database, a function) is as it is at each check, so both ages are the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from airflow_mv_provider.core.definition.freshness import MeasuredFrom


@dataclass(frozen=True, slots=True)
class SourceCheck:
    """The newest successful refresh of everything.

    checked_ms : when it checked the source: about when it began, or when a run of an ingestion fixed that state
    source_ms  : when the source came to the state that it found; None if such a source has no such time
    """

    checked_ms: int
    source_ms: int | None

    def as_of_ms(self, measured_from: MeasuredFrom) -> int:
        """Return the time from which the table's age is counted."""
        if measured_from is MeasuredFrom.CHECK or self.source_ms is None:
            return self.checked_ms
        return min(self.source_ms, self.checked_ms)  # a file or a clock may be ahead of its time


def is_late(as_of_ms: int | None, now_ms: int, target_s: int | None) -> bool:
    """True if a table is older than its freshness target, or was never refreshed.

    as_of_ms : see `SourceCheck.as_of_ms`; None if there was no good refresh of everything
    target_s : None if the table has no target
    """
    return target_s is not None and (as_of_ms is None or now_ms - as_of_ms > target_s * 1000)


@dataclass(frozen=True, slots=True)
class Forecast:
    """When a table is late, if nothing brings it up to date, and what may.

    late_ms     : None if it is late since ever: it was never refreshed, or was rolled back or loaded
    next_run_ms : when its next run starts; None if none is planned, or that is not known here
    takes_ms    : how long its refreshes usually take; None if none has published
    """

    now_ms: int
    late_ms: int | None
    next_run_ms: int | None = None
    takes_ms: int | None = None

    @property
    def is_late(self) -> bool:
        """True if the table is late already."""
        return self.late_ms is None or self.late_ms < self.now_ms


def forecast(
    as_of_ms: int | None, now_ms: int, target_s: int, next_run_ms: int | None, durations_ms: Sequence[int]
) -> Forecast:
    """Return when a table will be late.

    durations_ms : of its last refreshes that published; the usual one is their median
    """
    late_ms = None if as_of_ms is None else as_of_ms + target_s * 1000
    return Forecast(now_ms, late_ms, next_run_ms, round(median(durations_ms)) if durations_ms else None)
