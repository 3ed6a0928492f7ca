"""A disk that is full, for some processes only."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def full_disk(*pids: int) -> Iterator[None]:
    """Let every write to a file fail in these processes, as on a full disk: a file's size is limited to nothing."""
    was = [resource.prlimit(pid, resource.RLIMIT_FSIZE) for pid in pids]
    for pid, (_, hard) in zip(pids, was, strict=True):
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (0, hard))
    try:
        yield
    finally:
        for pid, limits in zip(pids, was, strict=True):
            resource.prlimit(pid, resource.RLIMIT_FSIZE, limits)
