"""Delete garbage files as far as possible: a file that cannot be deleted must not block the table."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from airflow_mv_provider.exceptions import InterruptedRefreshError, LeaseLostError, MvError

log = logging.getLogger(__name__)


@contextmanager
def logging_failed_deletions(table: str) -> Iterator[None]:
    """Log an MvError of a file deletion instead of raising it: no database row refers to the files; a sweep retries.

    raises : InterruptedRefreshError, LeaseLostError
    """
    try:
        yield
    except (InterruptedRefreshError, LeaseLostError):
        raise
    except MvError as error:
        log.warning("%s: files of a refresh were not removed; `amv recover` tries again. %s", table, error)
