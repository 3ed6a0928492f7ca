"""Remove what is garbage, as far as that can be done now: a file that stays keeps no table from going on."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from airflow_mv_provider.exceptions import InterruptedRefreshError, LeaseLostError, MvError

log = logging.getLogger(__name__)


@contextmanager
def as_far_as_possible(table: str) -> Iterator[None]:
    """Pass over what keeps files from being removed: no row of the database names them any more, and the sweep does."""
    try:
        yield
    except (InterruptedRefreshError, LeaseLostError):
        raise
    except MvError as error:
        log.warning("%s: files of a refresh were not removed; `amv recover` tries again. %s", table, error)
