"""A session on a Spark Connect server whose calls end in bounded time.

Import it late: it makes this process a Connect client.
"""

from __future__ import annotations

import atexit
import weakref
from contextlib import suppress
from typing import cast

from pyspark.sql import SparkSession
from pyspark.sql.connect.client import DefaultChannelBuilder
from pyspark.sql.connect.client.retries import DefaultPolicy, RetryPolicyState
from pyspark.sql.connect.session import SparkSession as RemoteSession


def opened_with_timeouts(remote: str, answer_s: float, *, is_on_this_machine: bool) -> SparkSession:
    """Open a session whose calls do not wait forever for a server that is silent or unreachable.

    Without keep-alive pings a call waits until the kernel gives up, which never happens if a proxy acknowledges
    packets. PySpark would then retry for ten minutes. A Java server treats more than a few pings in five minutes of
    silence as an attack and closes the connection. gRPC doubles its interval when the server closes the connection for
    that reason, and PySpark retries the call.
    """
    answer_ms = round(answer_s * 1000)
    options = {
        "grpc.keepalive_time_ms": answer_ms,
        "grpc.keepalive_timeout_ms": answer_ms // 2,
        "grpc.http2.ping_timeout_ms": answer_ms // 2,  # of a ping that was not for keep-alive; a minute by default
        # The second is the timeout for establishing a connection.
        **dict.fromkeys(("grpc.initial_reconnect_backoff_ms", "grpc.min_reconnect_backoff_ms"), answer_ms // 2),
        "grpc.max_reconnect_backoff_ms": answer_ms,
    }
    if is_on_this_machine:
        options["grpc.enable_http_proxy"] = 0  # no proxy reaches this machine's loopback
    session = RemoteSession.builder.channelBuilder(DefaultChannelBuilder(remote, list(options.items()))).create()
    session.client.set_retry_policies([RetryUntilOutage(max_retries=7, max_backoff=answer_ms // 4)])
    atexit.register(_close, weakref.ref(session))
    return cast(SparkSession, session)


def _close(opened: weakref.ref[RemoteSession]) -> None:
    """Close a session before the interpreter ends: later gRPC's thread is gone, and closing may wait for it forever."""
    if (session := opened()) is not None:
        with suppress(Exception):  # a server that is gone; the process ends in any case
            session.client.close()


class RetryUntilOutage(DefaultPolicy):
    """PySpark's policy, but once a call has used up its retries, every later call of the session is tried only once.

    A refresh that fails because its server is gone still makes calls that clean up; each of them would wait as long
    as the first one did.
    """

    is_over = False

    def to_state(self) -> RetryPolicyState:
        return _State(self)


class _State(RetryPolicyState):
    policy: RetryUntilOutage

    def next_attempt(self, exception: BaseException | None = None) -> int | None:
        """Return how long to wait, in milliseconds; None: the call is given up."""
        wait_ms = None if self.policy.is_over else super().next_attempt(exception)
        self.policy.is_over |= wait_ms is None
        return wait_ms
