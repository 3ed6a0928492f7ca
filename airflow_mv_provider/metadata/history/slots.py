"""A table's history in slots of time: which slots a range has, and what is known of each. Pure; `over_time` reads.

    range      24 h       7 d       30 d       all
    slot       30 min     3 h       12 h       the shortest of STEPS_MS of which 60 reach back to the first refresh

A slot starts at a multiple of its length since 1970, so the same slots are shown at each look and only the last one
grows. A refresh belongs to the slot in which it ended, since main changes at the end. What no refresh has recorded is
None, never zero: a gap stays a gap.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

_HOUR_MS = 3_600_000
_DAY_MS = 24 * _HOUR_MS
NUM_SLOTS = 60
STEPS_MS = (
    *(_HOUR_MS // 2, _HOUR_MS, 3 * _HOUR_MS, 12 * _HOUR_MS),
    *(_DAY_MS, 2 * _DAY_MS, 7 * _DAY_MS, 28 * _DAY_MS, 91 * _DAY_MS, 364 * _DAY_MS),
)


class TimeRange(StrEnum):
    """How far back is looked."""

    DAY = "24h"
    WEEK = "7d"
    MONTH = "30d"
    ALL = "all"

    @property
    def length_ms(self) -> int | None:
        """Its length; None for all that is recorded."""
        return {"24h": _DAY_MS, "7d": 7 * _DAY_MS, "30d": 30 * _DAY_MS}.get(self.value)


def slot_length(span_ms: int) -> int:
    """Return how long slots are, in milliseconds, of which NUM_SLOTS reach over a span; a span of 60 years at most."""
    return next((step for step in STEPS_MS if span_ms <= NUM_SLOTS * step), STEPS_MS[-1])


@dataclass(frozen=True, slots=True)
class Recorded:
    """What the refreshes that ended in one slot have recorded; those that only compare are left out.

    number        : of the slot since 1970; the one before the first stands for all that ended earlier
    published, idle, stopped, failed : refreshes by how they ended; idle ones had nothing to do, stopped ones were
                    refused, cancelled or abandoned
    rows_*        : changed in main
    phase_seconds : of the published ones, in total; "WAITING" is what they took in addition
    longest_ms    : of the published ones
    num_rows      : main's rows after the last published refresh of everything
    lag_ms        : greatest age of main right before a good refresh of everything ended
    fresh_ms      : the time from which main's age counts after the last good refresh of everything, as
                    `SourceCheck.as_of_ms`; None also if its rows were not the source's
    has_good      : there was such a refresh
    refresh_id    : of one of all these refreshes
    """

    number: int
    published: int = 0
    idle: int = 0
    stopped: int = 0
    failed: int = 0
    rows_inserted: int = 0
    rows_updated: int = 0
    rows_deleted: int = 0
    phase_seconds: Mapping[str, float] = field(default_factory=dict)
    longest_ms: int | None = None
    bytes_main: int = 0
    bytes_staging: int = 0
    num_rows: int | None = None
    lag_ms: int | None = None
    fresh_ms: int | None = None
    has_good: bool = False
    refresh_id: str | None = None

    @property
    def num_ended(self) -> int:
        """How many refreshes ended in the slot."""
        return self.published + self.idle + self.stopped + self.failed


@dataclass(frozen=True, slots=True)
class Slot:
    """One slot of time.

    recorded : None if no refresh ended in it
    lag_ms   : how old main became in it at most; None if that is not known
    fresh_ms : the time from which its age counts at the slot's end; None if that is not known
    """

    start_ms: int
    recorded: Recorded | None
    lag_ms: int | None = None
    fresh_ms: int | None = None


def slots_of(recorded: Iterable[Recorded], first: int, slot_ms: int, now_ms: int) -> tuple[Slot, ...]:
    """Return every slot from number `first` to now, oldest first; none if the clock was set back before the first.

    The lag grows until a good refresh ends, so it is greatest right before that, or at the end of the slot.
    """
    known = {each.number: each for each in recorded}
    fresh_ms = known[first - 1].fresh_ms if first - 1 in known else None
    found = []
    for number in range(first, now_ms // slot_ms + 1):
        each = known.get(number)
        if each is not None and each.has_good:
            fresh_ms = each.fresh_ms
        ages = [] if each is None or each.lag_ms is None else [each.lag_ms]
        if fresh_ms is not None:
            ages.append(min((number + 1) * slot_ms, now_ms) - fresh_ms)
        found.append(Slot(number * slot_ms, each, max(0, *ages) if ages else None, fresh_ms))
    return tuple(found)
