"""Wait on a condition, without keeping a core busy with asking."""

from __future__ import annotations

import time
from collections.abc import Callable

_PAUSE_S = 0.05


def wait_until(is_so: Callable[[], bool], seconds: float, what: str) -> None:
    """Return once a condition holds; fail with `what` where it does not within some seconds."""
    until = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < until, f"not within {seconds:g} s: {what}"
        time.sleep(_PAUSE_S)
