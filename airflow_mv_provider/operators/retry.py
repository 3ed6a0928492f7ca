"""Which of this package's errors a task tries again, and how soon.

Our own operators never retry what a person must mend. This is for their delays, and for tasks that call this package
themselves: `default_args={"retries": 3, "retry_policy": retry_policy()}`.
"""

from __future__ import annotations

from datetime import timedelta

from airflow.sdk import ExceptionRetryPolicy, RetryAction, RetryRule

from airflow_mv_provider.exceptions import (
    CommitUnknownError,
    EngineError,
    InterruptedRefreshError,
    LeaseLostError,
    MetadataUnavailableError,
    TerminalError,
    TransientError,
)

_SOON = timedelta(seconds=10)
_A_WHILE = timedelta(minutes=1)


def retry_policy() -> ExceptionRetryPolicy:
    """Return the policy: transient errors are tried again, as far as `retries` go, and terminal ones are not.

    Other exceptions are retried as the task says. The first rule that fits holds.
    """
    rules = [
        RetryRule(TerminalError, RetryAction.FAIL, reason="A person must act."),
        # Nothing has to recover first.
        RetryRule(
            [CommitUnknownError, InterruptedRefreshError],
            RetryAction.RETRY,
            _SOON,
            "What is durable tells where to go on.",
        ),
        RetryRule(LeaseLostError, RetryAction.RETRY, _A_WHILE, "Another process goes on with the refresh."),
        RetryRule([MetadataUnavailableError, EngineError], RetryAction.RETRY, _A_WHILE, "A server has to come back."),
        RetryRule(TransientError, RetryAction.RETRY, reason="A retry may succeed."),
    ]
    return ExceptionRetryPolicy(rules)
