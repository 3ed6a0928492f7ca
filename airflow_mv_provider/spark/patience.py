"""How often a call to a Spark Connect server is retried. Import it late: it makes this process a Connect client."""

from __future__ import annotations

from pyspark.sql.connect.client.retries import DefaultPolicy, RetryPolicyState


class OneOutage(DefaultPolicy):
    """PySpark's policy, but once a call has used up its retries, every later call of the session is tried only once.

    A refresh that fails because its server is gone still makes calls that clean up; each of them would wait as long
    as the first one did.
    """

    is_over = False

    def to_state(self) -> RetryPolicyState:
        return _State(self)


class _State(RetryPolicyState):
    policy: OneOutage

    def next_attempt(self, exception: BaseException | None = None) -> int | None:
        """Return how long to wait, in milliseconds; None: the call is given up."""
        wait_ms = None if self.policy.is_over else super().next_attempt(exception)
        self.policy.is_over |= wait_ms is None
        return wait_ms
