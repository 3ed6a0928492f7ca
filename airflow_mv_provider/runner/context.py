"""What every verb of the runner works with: the metadata database, Spark, the settings, a table's source and its lease.

It lies below admission, planning, preview, drop and recovery, which take it as their first argument; `refresh` is the
facade over them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from pyspark.sql import SparkSession

from airflow_mv_provider.core.definition.table import RefreshableTable
from airflow_mv_provider.core.location import check_apart
from airflow_mv_provider.core.state import Ownership, RefreshRecord, Renewal, TableRecord
from airflow_mv_provider.metadata.store import Store
from airflow_mv_provider.runner.lease import Lease
from airflow_mv_provider.runner.settings import Settings
from airflow_mv_provider.runner.watching import Watcher
from airflow_mv_provider.sources.reader import TableSource, open_source
from airflow_mv_provider.spark.session import interrupt, isolated, open_session, tagged


class Context:
    """One process's database, Spark session and settings.

    session : gives the Spark session when the first step needs one; called at most once. The settings' without it
    watch   : called with every step before it is done
    """

    def __init__(
        self,
        store: Store,
        settings: Settings,
        session: Callable[[], SparkSession] | None = None,
        watch: Watcher = lambda progress: None,
    ) -> None:
        self.store = store
        self.settings = settings
        self.watch = watch
        self._start = session or (lambda: open_session(settings.spark_remote, answer_s=settings.answer_ms / 1000))
        self._session: SparkSession | None = None
        self._interrupted = threading.Event()

    @property
    def spark(self) -> SparkSession:
        """A session of this context's own, with its own confs."""
        if self._session is None:
            self._session = isolated(self._start())
        return self._session

    @property
    def is_interrupted(self) -> bool:
        """True once this process is asked to stop."""
        return self._interrupted.is_set()

    def interrupt(self) -> None:
        """Stop for good, asked from another thread than the one that works: what Spark runs is interrupted.

        The work raises a TransientError; what is durable then is a valid state, as after every other failure.
        """
        self._interrupted.set()
        if self._session is not None:
            self._session.interruptAll()

    def is_interrupted_within(self, seconds: float) -> bool:
        """Wait so long, or until this process is asked to stop; True if it is."""
        return self._interrupted.wait(seconds)

    def source_of(self, table: TableRecord, definition: RefreshableTable) -> TableSource:
        """Return the reader of a table's source, which must lie apart from main."""
        source = open_source(self.spark, definition, table.warehouse, self.settings.source_roots)
        for location in source.locations:
            check_apart(table.location, location)
        return source

    def table_of(self, refresh: RefreshRecord) -> TableRecord:
        """Return the table that a refresh belongs to."""
        return next(table for table in self.store.tables() if table.id == refresh.table_id)

    @contextmanager
    def held(self, own: Ownership, renew: Callable[..., Renewal]) -> Iterator[Lease]:
        """Keep a lease alive meanwhile; what Spark runs is interrupted when it is lost, or its work is to stop."""
        tag = f"mv-{own.refresh_id}-{own.epoch}"  # whoever is overtaken must not interrupt who has overtaken it
        with (
            tagged(self.spark, tag),
            Lease(renew, own, self.settings.lease_ms, lambda: interrupt(self.spark, tag), self._interrupted) as lease,
        ):
            yield lease
