"""One exported snapshot of a PostgreSQL database, which the readers of several tables import.

The holder's transaction first locks every table against TRUNCATE and ALTER, then exports; see `postgresql`. A reader
exports what it has imported once more, for its own tasks, so it needs the holder only until it has begun.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from airflow_mv_provider.core.frontier import Frontier
from airflow_mv_provider.exceptions import DefinitionError, MvError
from airflow_mv_provider.sources.credentials import Credentials
from airflow_mv_provider.sources.jdbc.frontier import JdbcFrontier
from airflow_mv_provider.sources.jdbc.model import Jdbc
from airflow_mv_provider.sources.jdbc.postgresql import PostgreSql
from airflow_mv_provider.sources.shared import SharedState

if TYPE_CHECKING:
    from psycopg import Connection

_KINDS = ("postgres", "postgresql")


class SharedSnapshot(SharedState[Jdbc]):
    """A snapshot that one connection exports and holds."""

    def __init__(self, sources: Mapping[str, Jdbc], credentials: Credentials) -> None:
        super().__init__(sources, credentials)
        if credentials.kind not in _KINDS:
            problem = (
                f"tables of an ingestion share a snapshot: a database of type {credentials.kind!r} has none to share."
            )
            hint = "Give each table a source of its own, of type jdbc."
            raise DefinitionError(credentials.conn_id, problem, hint=hint)
        self._holder: Connection[Any] | None = None
        self.snapshot: str | None = None
        self._text = ""

    def hold(self) -> None:
        """Lock all tables and export; see `SharedState`. A table that cannot be locked is left out."""
        self.close()
        readers = {name: PostgreSql(source, self.credentials) for name, source in self.sources.items()}
        slowest = max(readers, key=lambda name: self.sources[name].read_timeout)
        try:
            with readers[slowest].errors():
                self._holder = holder = readers[slowest].connect()
                for name, reader in readers.items():
                    self._lock(name, reader, holder)
                found = holder.execute("SELECT pg_export_snapshot(), pg_current_snapshot()::text").fetchone()
                self.snapshot, self._text = found or (None, "")
        except MvError:
            self.close()
            raise

    def _lock(self, name: str, reader: PostgreSql, holder: Connection[Any]) -> None:
        """Lock the tables behind one source; if that fails, leave the source out."""
        holder.execute("SAVEPOINT mv_table")
        try:
            with reader.errors():
                reader.lock(holder)
        except MvError as error:
            if holder.closed or holder.broken:
                raise
            holder.execute("ROLLBACK TO SAVEPOINT mv_table")
            self.errors[name] = error
        holder.execute("RELEASE SAVEPOINT mv_table")

    def describe(self) -> str:
        """See `SharedState`."""
        return f"PostgreSQL at {self._text}"

    def holds(self, table: str, frontier: Frontier) -> bool:
        """See `SharedState`."""
        return isinstance(frontier, JdbcFrontier) and frontier.token.partition(" ")[0] == self._text

    def close(self) -> None:
        """See `SharedState`."""
        if self._holder is not None:
            with suppress(Exception):  # it may have been ended
                self._holder.close()
            self._holder = None
