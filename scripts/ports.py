"""Ports on loopback for the servers that tests and the demo start."""

from __future__ import annotations

import random
import socket

# Below those that the system gives out by itself: nobody takes one between the look and the server's start, such as
# the server's own JVM did. Not the seeded generator, which Hypothesis sets alike in every process.
_FIRST, _LAST = 15_000, 31_999
_choose = random.SystemRandom()


def free_port() -> int:
    """Return a port that nobody listens on."""
    while True:
        port = _choose.randint(_FIRST, _LAST)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        return port
