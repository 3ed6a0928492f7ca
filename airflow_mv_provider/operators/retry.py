"""The retry policy: which of this package's errors a task retries, and after which delay.

This package's operators never retry terminal errors. The policy sets their retry delays, and serves tasks that call
this package themselves: `default_args={"retries": 3, "retry_policy": retry_policy()}`.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from airflow_mv_provider.compat import HAS_RETRY_POLICIES, needs
from airflow_mv_provider.exceptions import (
    CommitUnknownError,
    EngineError,
    InterruptedRefreshError,
    LeaseLostError,
    MetadataUnavailableError,
    TerminalError,
    TransientError,
)

if TYPE_CHECKING:
    from airflow.sdk import ExceptionRetryPolicy

_SHORT_DELAY = timedelta(seconds=10)
_LONG_DELAY = timedelta(minutes=1)


def retry_policy() -> ExceptionRetryPolicy:
    """Return the policy: transient errors are retried up to the task's `retries`, terminal errors are not.

    Other exceptions follow the task's own settings. The first matching rule applies.

    Raises:
        DependencyError: Before Airflow 3.3, which has no retry policies.
    """
    needs(
        HAS_RETRY_POLICIES,
        "retry policies",
        "3.3",
        "Leave `retry_policy` out: terminal errors are not retried anyway.",
    )
    from airflow.sdk import ExceptionRetryPolicy, RetryAction, RetryRule

    rules = [
        RetryRule(TerminalError, RetryAction.FAIL, reason="The error needs a person."),
        # A short delay suffices: no server has to recover first.
        RetryRule(
            [CommitUnknownError, InterruptedRefreshError],
            RetryAction.RETRY,
            _SHORT_DELAY,
            "The next try continues from the last durable step.",
        ),
        RetryRule(LeaseLostError, RetryAction.RETRY, _LONG_DELAY, "Another process continues the refresh."),
        RetryRule([MetadataUnavailableError, EngineError], RetryAction.RETRY, _LONG_DELAY, "A server is unavailable."),
        RetryRule(TransientError, RetryAction.RETRY, reason="A retry may succeed."),
    ]
    return ExceptionRetryPolicy(rules)
