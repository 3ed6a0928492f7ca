"""Connections to PostgreSQL on which nobody waits for ever.

A server that is away is noticed by the kernel; one behind a network that swallows packets is not, nor one that hangs
behind a proxy that goes on to acknowledge. So there are three limits, and the first that is met counts:

    the server's    a statement, a lock and an idle transaction end by themselves: nothing of ours stays and holds locks
    the kernel's    what is not acknowledged ends the connection: TCP_USER_TIMEOUT, keepalives
    this process's  what is silent for longer is closed here, whatever the kernels at both ends say

The server's are set by each transaction and not by each connection: behind PgBouncer a connection's settings would
reach other programs.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from typing import Any, TypeVar

from psycopg import Connection, OperationalError

_GRACE_S = 1.0  # more than the server has: its own word is better than silence
_CONNECT_S = 10

T = TypeVar("T")


class NoAnswerError(OperationalError):
    """The server was silent for too long; the connection is closed."""


def connecting(answer_s: float) -> Callable[..., Connection[Any]]:
    """Return what opens a connection, as `psycopg.connect` does; what its caller sets itself holds.

    answer_s : how long the server may be silent
    """
    limits = {
        "connect_timeout": min(_CONNECT_S, max(2, round(answer_s))),
        "keepalives_idle": max(1, round(answer_s / 2)),
        "keepalives_interval": max(1, round(answer_s / 6)),
        "keepalives_count": 3,
        "tcp_user_timeout": round(answer_s * 1000),
    }

    class Impatient(_Impatient):
        patience_s = answer_s + _GRACE_S

    def connect(*arguments: Any, **given: Any) -> Connection[Any]:
        return Impatient.connect(*arguments, **(limits | given))

    return connect


def limits_of_a_transaction(answer_s: float) -> str:
    """Return the SQL that ends by itself whatever this transaction waits for, or leaves lying."""
    names = ("statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout")
    return "; ".join(f"SET LOCAL {name} = {round(answer_s * 1000)}" for name in names)


class _Impatient(Connection[Any]):
    patience_s: float

    def wait(self, gen: Generator[Any, Any, T], *arguments: Any, **more: Any) -> T:
        """Wait for the server as every connection does, as long as it is not silent."""
        return super().wait(self._unless_silent(gen), *arguments, **more)

    def _unless_silent(self, gen: Generator[Any, Any, T]) -> Generator[Any, Any, T]:
        """Pass on what a generator waits for and what comes; each `ready` that is none is a moment of silence."""
        try:
            wanted = next(gen)
            heard_s = time.monotonic()
            while True:
                ready = yield wanted
                if ready:
                    heard_s = time.monotonic()
                elif time.monotonic() - heard_s > self.patience_s:
                    self.pgconn.finish()  # nobody can use it any more; no goodbye, which would be waited for, too
                    raise NoAnswerError(f"no answer within {self.patience_s:g} s")
                wanted = gen.send(ready)
        except StopIteration as end:
            found: T = end.value
            return found
