"""Connections to PostgreSQL with timeouts at every level, so that no caller waits for ever.

The kernel detects a server that is gone. It does not detect one behind a network that drops packets, nor one that hangs
behind a proxy that still acknowledges. So there are three limits, and the first that is reached counts:

    the server's    statements, lock waits and idle transactions time out: none of this package's is left holding locks
    the kernel's    unacknowledged data ends the connection: TCP_USER_TIMEOUT, keepalives
    this process's  a connection that is silent for longer is closed here, whatever the kernels at both ends report

The server's limits are set per transaction and not per connection: behind PgBouncer the settings of a connection would
affect other programs. For the same reason no statement is prepared: the next transaction may get another connection.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from typing import Any, TypeVar

from psycopg import Connection, OperationalError

_GRACE_S = 1.0  # beyond the server's limit: the server's own error is more precise than a timeout here
_CONNECT_S = 10

T = TypeVar("T")


class NoAnswerError(OperationalError):
    """The server was silent for too long; the connection is closed."""


def connecting(answer_s: float) -> Callable[..., Connection[Any]]:
    """Return a function that opens a connection like `psycopg.connect`; arguments of its caller override the limits.

    answer_s : how long the server may be silent
    """
    limits = {
        "connect_timeout": min(_CONNECT_S, max(2, round(answer_s))),
        "keepalives_idle": max(1, round(answer_s / 2)),
        "keepalives_interval": max(1, round(answer_s / 6)),
        "keepalives_count": 3,
        "tcp_user_timeout": round(answer_s * 1000),
        "prepare_threshold": None,
    }

    class TimedConnection(_TimedConnection):
        patience_s = answer_s + _GRACE_S

    def connect(*arguments: Any, **given: Any) -> Connection[Any]:
        return TimedConnection.connect(*arguments, **(limits | given))

    return connect


def limits_of_a_transaction(answer_s: float) -> str:
    """Return the SQL that sets the server's timeouts of this transaction: statement, lock wait, idle time."""
    names = ("statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout")
    return "; ".join(f"SET LOCAL {name} = {round(answer_s * 1000)}" for name in names)


class _TimedConnection(Connection[Any]):
    patience_s: float

    def wait(self, gen: Generator[Any, Any, T], *arguments: Any, **more: Any) -> T:
        """Wait for the server as every connection does, but raise NoAnswerError if it is silent for too long."""
        return super().wait(self._unless_silent(gen), *arguments, **more)

    def _unless_silent(self, gen: Generator[Any, Any, T]) -> Generator[Any, Any, T]:
        """Forward a generator's waits and their results; a falsy `ready` means that the server is still silent."""
        try:
            wanted = next(gen)
            heard_s = time.monotonic()
            while True:
                ready = yield wanted
                if ready:
                    heard_s = time.monotonic()
                elif time.monotonic() - heard_s > self.patience_s:
                    self.pgconn.finish()  # the connection is unusable; a regular close would wait for the server, too
                    raise NoAnswerError(f"no answer within {self.patience_s:g} s")
                wanted = gen.send(ready)
        except StopIteration as end:
            found: T = end.value
            return found
