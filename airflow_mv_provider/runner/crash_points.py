"""Every durable write, by name and in order, and a way to die just before or after any of them.

The runner wraps each durable write in `durable(...)`; nothing else in the code is a point of no return. Tests arm a
function that raises, blocks or kills its process there, as the demo does. Only code can: no setting reaches this.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum


class Write(StrEnum):
    """The durable writes of a refresh, in the order of the protocol, of a drop, and of a move."""

    REGISTER = "register"
    ADOPT = "adopt"
    ACQUIRE = "acquire"
    HAND_OVER = "hand_over"
    CREATE_MAIN = "create_main"
    CREATE_ERRORS = "create_errors"
    FENCE = "fence"
    STAGING = "staging"
    COLLECTED = "collected"  # records for the error table, in staging
    SEAL = "seal"
    CHANGES = "changes"
    PROGRESS = "progress"
    DISCARD = "discard"
    FEATURES = "features"  # what main's commit needs that some readers do not know: only where it does
    PUBLISH = "publish"
    COMMITTED = "committed"  # progressive only: main has one part
    ERRORS = "errors"  # the error table has this refresh's records; main has its rows already
    PUBLISHED = "published"
    STAGING_DELETE = "staging_delete"
    NORMAL = "normal"
    DROP = "drop"
    DROP_FILES = "drop_files"
    FORGET = "forget"
    RELOCATE = "relocate"


_armed: Callable[[str], None] | None = None


def kill_at(point: str) -> Callable[[str], None]:
    """Return what kills this process with SIGKILL at a point: "publish.after", or "changes.after:2" the second time."""
    point, _, nth = point.partition(":")
    num_seen = 0

    def action(reached: str) -> None:
        nonlocal num_seen
        num_seen += reached == point
        if reached == point and num_seen == int(nth or 1):
            os.kill(os.getpid(), signal.SIGKILL)

    return action


def arm(action: Callable[[str], None] | None) -> None:
    """Call `action` with "<write>.before" and "<write>.after" at every durable write; None disarms."""
    global _armed  # noqa: PLW0603  one switch per process, as there is one process to kill
    _armed = action


@contextmanager
def durable(write: Write) -> Iterator[None]:
    """Mark the durable write inside."""
    _reach(f"{write}.before")
    yield
    _reach(f"{write}.after")


def _reach(point: str) -> None:
    if _armed is not None:
        _armed(point)
