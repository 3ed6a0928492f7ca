"""What one command works with, closed when it ends; PySpark is imported only for a Refresher."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from airflow_mv_provider.cli.progress_bar import warnings_on_stderr, watcher
from airflow_mv_provider.runner.local import open_store

if TYPE_CHECKING:
    from airflow_mv_provider.metadata.store import Store
    from airflow_mv_provider.runner.refresh import Refresher
    from airflow_mv_provider.runner.settings import Settings

_MIN_DIGITS, _HISTORY = 6, 10_000


def opened_store(settings: Settings) -> Store:
    """Return the store, whose connections are closed when the command ends; raises what `open_store` raises."""
    store = open_store(settings)
    click.get_current_context().call_on_close(store.engine.dispose)
    return store


def refresh_ids(store: Store, name: str, digits: str) -> list[str]:
    """Return the ids of a table's refreshes that begin with these digits, as `amv history` shows them."""
    known = store.history(store.table(name).id, _HISTORY) if len(digits) >= _MIN_DIGITS else ()
    return [each.refresh_id for each in known if each.refresh_id and each.refresh_id.startswith(digits)]


@contextmanager
def opened_refresher(settings: Settings) -> Iterator[Refresher]:
    """Yield a Refresher that shows its progress."""
    store = opened_store(settings)
    from airflow_mv_provider.runner.refresh import Refresher

    with warnings_on_stderr(), watcher() as watch:
        yield Refresher(store, settings, watch=watch)
