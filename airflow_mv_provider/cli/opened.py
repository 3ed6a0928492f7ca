"""A Refresher for one command; PySpark is imported only here."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from airflow_mv_provider.cli.progress_bar import warnings_on_stderr, watcher
from airflow_mv_provider.runner.local import open_store

if TYPE_CHECKING:
    from airflow_mv_provider.runner.refresh import Refresher
    from airflow_mv_provider.runner.settings import Settings


@contextmanager
def opened_refresher(settings: Settings) -> Iterator[Refresher]:
    """Yield a Refresher that shows its progress."""
    store = open_store(settings)
    from airflow_mv_provider.runner.refresh import Refresher

    with warnings_on_stderr(), watcher() as watch:
        yield Refresher(store, settings, watch=watch)
