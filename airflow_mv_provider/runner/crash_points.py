"""Every durable write, by name and in order, with a crash point just before and just after each of them.

The runner wraps each durable write in `durable(...)`; nothing else in the code is a point of no return. Tests and the
demo arm a function that raises, blocks or kills its process there. Only code can arm it; no setting can.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum


class Write(StrEnum):
    """The durable writes of a refresh, in the protocol's order, then of a drop, a relocation, an export, a group."""

    REGISTER = "register"
    ADOPT = "adopt"
    ACQUIRE = "acquire"
    HAND_OVER = "hand_over"
    CREATE_MAIN = "create_main"
    REGISTER_NAME = "register_name"  # main's name in Spark's catalog, if it has one
    RECORD_NAME = "record_name"  # in main's properties: the name was registered
    CREATE_ERRORS = "create_errors"
    CREATE_HISTORY = "create_history"
    FENCE = "fence"
    STAGING = "staging"
    COLLECTED = "collected"  # records for the error table, in staging
    SEAL = "seal"
    CHANGES = "changes"
    PROGRESS = "progress"
    DISCARD = "discard"
    HOLD = "hold"  # the refresh waits for a person's decision, if it needs one
    DECIDE = "decide"  # by that person
    KEEP = "keep"  # records the corrections without their deletes, if that person wants them left out
    FEATURES = "features"  # table features that main's commit needs and some readers lack; only if it needs any
    PUBLISH = "publish"
    COMMITTED = "committed"  # progressive only: records that main has one part
    ERRORS = "errors"  # overwrites the error table with this refresh's records; main already has its rows
    FENCE_HISTORY = "fence_history"  # only where an earlier process may still write the history
    HISTORY = "history"  # brings the history to main's version; main already has its rows
    PUBLISHED = "published"
    STAGING_DELETE = "staging_delete"
    NORMAL = "normal"
    DROP = "drop"
    UNREGISTER_NAME = "unregister_name"
    DROP_FILES = "drop_files"
    FORGET = "forget"
    RELOCATE = "relocate"
    MOVE_NAME = "move_name"
    EXPORT_FILES = "export_files"
    EXPORT_MANIFEST = "export_manifest"
    BIND = "bind"  # the state in which all tables of an ingestion's run are read, before any is
    RELEASE = "release"  # upstream: how far all tables of the ingestion are, after they were published
    SHED = "shed"  # removes versions from a history that ended long ago
    RELEASED = "released"  # the same in the database, where only people read it


_armed: Callable[[str], None] | None = None


def kill_at(point: str) -> Callable[[str], None]:
    """Return an action that kills this process with SIGKILL at a point.

    point : such as "publish.after", or "changes.after:2" for the second time that it is reached
    """
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
    global _armed  # noqa: PLW0603  one switch per process, because the action kills the process
    _armed = action


@contextmanager
def durable(write: Write) -> Iterator[None]:
    """Mark the durable write in the `with` block."""
    _reach(f"{write}.before")
    yield
    _reach(f"{write}.after")


def _reach(point: str) -> None:
    if _armed is not None:
        _armed(point)
