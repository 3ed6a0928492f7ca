"""Wait on a condition, without keeping a core busy with asking."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Sequence
from subprocess import Popen
from typing import Any

import pytest

_PAUSE_S = 0.05


def wait_until(is_so: Callable[[], bool], seconds: float, what: str) -> None:
    """Return once a condition holds; fail with `what` where it does not within some seconds."""
    until = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < until, f"not within {seconds:g} s: {what}"
        time.sleep(_PAUSE_S)


def wait_for_server(
    answers: Callable[[], bool], processes: Sequence[Popen[Any]], seconds: float, told: Callable[[], str]
) -> None:
    """Return once a server answers; fail with `told` where one of its processes ends before, or it takes too long."""
    until = time.monotonic() + seconds
    while not answers():
        if any(each.poll() is not None for each in processes) or time.monotonic() > until:
            pytest.fail(f"The server did not start: {told()}", pytrace=False)
        time.sleep(_PAUSE_S)


def accepts(port: int) -> bool:
    """Return whether a server on this machine accepts connections."""
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return False
    return True
