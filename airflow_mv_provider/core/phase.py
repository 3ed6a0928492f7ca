"""The phases of a refresh, the steps between them, and what a takeover does in each.

NORMAL ──acquire──▶ REFRESHING ──seal──▶ MERGING ──publish──▶ CLEANUP ──finish──▶ NORMAL
                        │                   │
                        └─────abandon───────┴──────────────────────────────────▶ NORMAL
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import assert_never


class Phase(StrEnum):
    """The phase of a table's refresh. `runner/refresh.py` lists what is durable at the end of each."""

    NORMAL = "NORMAL"
    REFRESHING = "REFRESHING"
    MERGING = "MERGING"
    CLEANUP = "CLEANUP"


NEXT: Mapping[Phase, frozenset[Phase]] = {
    Phase.NORMAL: frozenset({Phase.REFRESHING}),
    Phase.REFRESHING: frozenset({Phase.MERGING, Phase.NORMAL}),
    Phase.MERGING: frozenset({Phase.CLEANUP, Phase.NORMAL}),
    Phase.CLEANUP: frozenset({Phase.NORMAL}),
}


class Recovery(StrEnum):
    """What a process that takes over a dead owner's refresh does with it."""

    NOTHING = "nothing"
    RESET = "reset"  # drop staging, back to NORMAL: nothing was sealed, so nothing is lost
    RESUME = "resume"  # continue from the seal and the recorded chunks
    ABANDON = "abandon"  # a cancel was requested: give up unless main's log shows the publish
    FINISH = "finish"  # main contains the refresh: only the cleanup is left


def on_takeover(phase: Phase, *, is_cancel_requested: bool) -> Recovery:
    """Decide how a refresh left in `phase` by a dead owner ends."""
    match phase:
        case Phase.NORMAL:
            return Recovery.NOTHING
        case Phase.REFRESHING:
            return Recovery.RESET
        case Phase.MERGING:
            return Recovery.ABANDON if is_cancel_requested else Recovery.RESUME
        case Phase.CLEANUP:
            return Recovery.FINISH
        case _:
            assert_never(phase)


class Ending(StrEnum):
    """What happens to a refresh whose attempt failed."""

    ABANDON = "abandon"  # back to NORMAL, the reason in its history
    KEEP = "keep"  # it stays in its phase, for a retry or a takeover to resume


def is_cancellable(phase: Phase, *, is_progressive: bool, has_committed: bool, has_tried: bool) -> bool:
    """True if the owner may stop for a cancel now.

    has_committed : main holds a commit of this refresh, and another round has to follow
    has_tried     : a commit of this refresh, by this or an earlier epoch, may have reached main: the log decides, and
                    the cancel is checked again before the next try
    """
    if phase is Phase.CLEANUP:
        return False
    return is_progressive or not (has_committed or has_tried)


_USELESS_TO_RESUME = frozenset(
    {"MV-SOURCE-CHANGED", "MV-SEAL-BROKEN", "MV-MAIN-MOVED", "MV-MAIN-REFUSED", "MV-OVERTAKEN", "MV-KEY-MOVED"}
)
_MAX_MERGING_ATTEMPTS = 5


def on_failure(
    phase: Phase, code: str, *, is_transient: bool, has_committed: bool, will_retry: bool, merging_attempts: int
) -> Ending:
    """Decide what happens to a refresh after a handled failure of its owner.

    has_committed    : main holds a commit of this refresh, and another round turned out to be needed
    will_retry       : the same caller returns, as an Airflow task with retries left does
    merging_attempts : epochs that have worked on Merging, this one included; their number is limited
    """
    if phase is Phase.CLEANUP:
        return Ending.KEEP  # main contains the refresh
    if code in _USELESS_TO_RESUME or merging_attempts >= _MAX_MERGING_ATTEMPTS:
        return Ending.ABANDON  # even after a commit: the next refresh compares main with the source again
    if has_committed:
        return Ending.KEEP  # a commit cannot be undone: the refresh can only be completed
    if not is_transient:
        return Ending.ABANDON
    if phase is Phase.REFRESHING:
        return Ending.KEEP if will_retry else Ending.ABANDON
    return Ending.KEEP
