"""The dependencies of every runner operation: the metadata database, Spark, the settings, table sources and leases.

Admission, assessment, preview, drop, relocation and recovery take it as their first argument; `refresh` is the facade
over them.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from pyspark.sql import SparkSession

from airflow_mv_provider.core.approval.rolled_back import is_rollback
from airflow_mv_provider.core.definition.table import RefreshableTable
from airflow_mv_provider.core.ingestion.turn import check_can_begin
from airflow_mv_provider.core.state import Caller, Ownership, RefreshRecord, RefreshState, Renewal, TableRecord
from airflow_mv_provider.exceptions import EngineError, InterruptedRefreshError, TableNotFoundError
from airflow_mv_provider.metadata.store import Store
from airflow_mv_provider.runner.lease import Lease
from airflow_mv_provider.runner.settings import Settings
from airflow_mv_provider.runner.watching import Watcher
from airflow_mv_provider.sources.credentials import Lookup, confined_to
from airflow_mv_provider.sources.reader import SharingReader
from airflow_mv_provider.sources.shared import SharedState
from airflow_mv_provider.sources.table_source import TableSource, open_source
from airflow_mv_provider.spark.session import interrupt, isolated, open_session, tagged

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Shared:
    """A state that a table's source shares with others.

    fixed_ms : the time as of which it holds all that they had
    fixed_at : how far the table was published before that, in source versions
    """

    table_id: int
    state: SharedState[Any]
    fixed_ms: int
    fixed_at: int


class Context:
    """One process's database, Spark session and settings.

    session : returns the Spark session; called at most once, at the first use. By default opened from `settings`
    watch   : called before every step
    is_gone : returns whether no process of the caller with this key will come any more
    """

    def __init__(
        self,
        store: Store,
        settings: Settings,
        session: Callable[[], SparkSession] | None = None,
        watch: Watcher = lambda progress: None,
        is_gone: Callable[[str], bool] = lambda owner_key: False,
    ) -> None:
        self.store = store
        self._is_gone = is_gone
        self.settings = settings
        self.watch = watch
        answer_s, databases = settings.answer_ms / 1000, ",".join(settings.source_databases) or None
        self._start = session or (lambda: open_session(settings.spark_remote, answer_s=answer_s, databases=databases))
        self._where = spark_place(settings.spark_remote)
        self._session: SparkSession | None = None
        self._shared: dict[str, _Shared] = {}  # by the names of tables
        self._interrupted = threading.Event()

    @property
    def spark(self) -> SparkSession:
        """A session of this context's own, with its own confs."""
        if self._session is None:
            # Minutes on a busy machine: without a line, a task's log looks as if the task hung.
            log.info("Starting Spark (%s).", self._where)
            began = time.monotonic()
            try:
                self._session = isolated(self._start())
            except EngineError as error:
                if self.is_interrupted:  # what stopped this process has ended the JVM that was starting, too
                    raise InterruptedRefreshError("Spark", "this process was stopped while it started.") from error
                raise
            log.info("Spark is ready after %.1f s.", time.monotonic() - began)
        return self._session

    @property
    def is_interrupted(self) -> bool:
        """True once `interrupt` was called."""
        return self._interrupted.is_set()

    def interrupt(self) -> None:
        """Stop this process's work for good, from another thread, by interrupting its Spark jobs.

        The working thread raises a TransientError; the durable state is valid, as after every other failure.
        """
        self._interrupted.set()
        if self._session is not None:
            self._session.interruptAll()

    def is_interrupted_within(self, seconds: float) -> bool:
        """Wait for `seconds` or until `interrupt` is called; return True if it was called."""
        return self._interrupted.wait(seconds)

    def freed(self, state: RefreshState) -> RefreshState:
        """Return a table's row, after ending the lease of a refresh that is kept for a caller who is gone."""
        return self.store.freed(state, self._is_gone)

    @property
    def connections(self) -> Lookup:
        """Finds the connections that sources name, as far as the settings allow their hosts."""
        return confined_to(self.settings.source_hosts, self.settings.connections)

    @contextmanager
    def sharing(self, table: TableRecord, state: SharedState[Any], *, fixed_ms: int, fixed_at: int) -> Iterator[None]:
        """Read a table's source, during the `with` block, in a state that other tables' sources share.

        fixed_ms : the database's time, not after the state was fixed
        fixed_at : how far the table was published before that, in source versions
        """
        self._shared[table.name] = _Shared(table.id, state, fixed_ms, fixed_at)
        try:
            yield
        finally:
            del self._shared[table.name]

    def fixed_ms(self, table: TableRecord) -> int | None:
        """Return when the state in which a table's source is read was fixed; None if it is the present one."""
        shared = self._shared.get(table.name)
        return None if shared is None else shared.fixed_ms

    def check_can_begin(self, table: TableRecord, seen: RefreshState, caller: Caller) -> None:
        """Check that a table, as it is acquired from, can be read in the state that its source shares, if any.

        raises : as `core.ingestion.turn.check_can_begin`; TableNotFoundError, if another table has its name now
        """
        if (shared := self._shared.get(table.name)) is not None:
            if shared.table_id != table.id:
                problem = "the table was dropped and registered again after this run had fixed its state."
                raise TableNotFoundError(table.name, problem, hint="Run the ingestion again.")
            check_can_begin(table.name, shared.fixed_at, seen, caller.key)

    def source_of(self, table: TableRecord, definition: RefreshableTable) -> TableSource:
        """Return a table's source; check that its location and main's do not overlap."""
        main, roots = None if is_rollback(definition, table) else table.location, self.settings.source_roots
        source = open_source(self.spark, definition, table.warehouse, roots, self.connections, main)
        if (shared := self._shared.get(table.name)) is not None:
            assert isinstance(source.reader, SharingReader)
            source.reader.share(shared.state)
        return source

    def table_of(self, refresh: RefreshRecord) -> TableRecord:
        """Return the table that a refresh belongs to."""
        return next(table for table in self.store.tables() if table.id == refresh.table_id)

    @contextmanager
    def held(self, own: Ownership, renew: Callable[..., Renewal]) -> Iterator[Lease]:
        """Renew a lease during the `with` block; interrupt Spark's jobs if it is lost or the work has to stop."""
        tag = f"mv-{own.refresh_id}-{own.epoch}"  # an owner that was overtaken must not interrupt the new owner
        with (
            tagged(self.spark, tag),
            Lease(renew, own, self.settings.lease_ms, lambda: interrupt(self.spark, tag), self._interrupted) as lease,
        ):
            yield lease

    def kept(self, own: Ownership) -> Lease:
        """Return a lease that is renewed inside a `with` block while this process works on something else."""
        return Lease(self.store.renew, own, self.settings.lease_ms, lambda: None, self._interrupted)


def spark_place(remote: str | None) -> str:
    """Return where Spark runs, for a log: without what may be a token, and not as Airflow masks it in a task's log."""
    return f"Connect, {remote.partition(';')[0].removeprefix('sc://').strip('/')}" if remote else "in this process"
