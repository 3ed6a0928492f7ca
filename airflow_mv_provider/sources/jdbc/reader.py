"""A table or a query of a database as source: its rows are read once, by Spark's JDBC reader, and staged as a copy."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from decimal import Decimal

from pyspark.sql import DataFrame, SparkSession

from airflow_mv_provider.core.changeset import Changeset, Upserts, Whole
from airflow_mv_provider.core.definition.identifier import quoted
from airflow_mv_provider.core.frontier import Frontier
from airflow_mv_provider.core.strategy import Determinism
from airflow_mv_provider.exceptions import ConnectionUnknownError, DefinitionError, SourceChangedError
from airflow_mv_provider.sources.credentials import Credentials
from airflow_mv_provider.sources.jdbc.dialect import Dialect, FollowedDialect, Found, Reading
from airflow_mv_provider.sources.jdbc.frontier import JdbcFrontier
from airflow_mv_provider.sources.jdbc.mariadb import MariaDb
from airflow_mv_provider.sources.jdbc.model import Jdbc
from airflow_mv_provider.sources.jdbc.postgresql import PostgreSql
from airflow_mv_provider.sources.jdbc.shared import SharedSnapshot
from airflow_mv_provider.sources.jdbc.sqlite import Sqlite
from airflow_mv_provider.sources.projection import MORE_THAN_ROWS, projected, projected_determinism
from airflow_mv_provider.sources.reader import SharingReader
from airflow_mv_provider.sources.shared import SharedState
from airflow_mv_provider.spark.errors import translated
from airflow_mv_provider.spark.session import hide_passwords

log = logging.getLogger(__name__)

_DIALECTS: dict[str, type[PostgreSql | MariaDb | Sqlite]] = {
    "postgres": PostgreSql,
    "postgresql": PostgreSql,
    "mysql": MariaDb,
    "mariadb": MariaDb,
    "sqlite": Sqlite,
}


class JdbcReader(SharingReader[Jdbc, JdbcFrontier]):
    """A reader of one state of a database, which is fixed at the first read and held until `close`.

    A frontier is a lower bound: the rows are those of the database at the frontier or later. That is enough to skip an
    unchanged source, and to read again after a crash.
    """

    def __init__(
        self, spark: SparkSession, source: Jdbc, warehouse: str, roots: Sequence[str], credentials: Credentials
    ) -> None:
        super().__init__(spark, source, warehouse, roots)
        dialect = _DIALECTS.get(credentials.kind)
        if dialect is None:
            problem = f"the connection is of type {credentials.kind!r}; a source's is {' or '.join(_DIALECTS)}."
            raise ConnectionUnknownError(credentials.conn_id, problem, hint="Choose another connection.")
        self._dialect: Dialect = dialect(source, credentials)
        self._credentials = credentials
        self._found: Found | None = None
        self._reading: Reading | None = None
        self._num_rows: int | None = None

    def share(self, state: SharedState[Jdbc]) -> None:
        """See `SourceReader`."""
        assert isinstance(state, SharedSnapshot)
        self._dialect = PostgreSql(self._source, self._credentials, state)

    def probe(self) -> JdbcFrontier:
        """Return the database's identity and token, after checking the source's columns; see `SourceReader`.

        raises : SourceUnavailableError, SourceDeniedError, SourceNotFoundError, InexactColumnError, DefinitionError
        """
        self._found = self._dialect.inspect()
        return self._found.frontier

    def read(self, frontier: JdbcFrontier, extra: Sequence[str] = ()) -> DataFrame:
        """Return the rows of the database as it was at this reader's first read; see `SourceReader`."""
        return projected(self._rows(frontier), self._source.select, extra)

    def _hold(self, frontier: JdbcFrontier) -> Reading:
        reading = self._reading = self._reading or self._dialect.hold()
        if reading.found.frontier.database != frontier.database:
            raise SourceChangedError("source", "another database answers than the one that was pinned.")
        return reading

    def _rows(self, frontier: JdbcFrontier, condition: str | None = None) -> DataFrame:
        reading = self._hold(frontier)
        columns = reading.found.columns
        properties = {
            **reading.options,
            "driver": reading.driver,
            "fetchsize": str(self._source.fetch_size),
            "customSchema": ", ".join(f"c{i} {column.moved}" for i, column in enumerate(columns)),
            # The database would compare texts by its own collation.
            "pushDownPredicate": "false",
        }
        relation = reading.relation(condition)
        num_parts = len(reading.predicates) or 1
        log.info("%s: %d connections read, %d rows at a time", frontier.describe(), num_parts, self._source.fetch_size)
        with translated("source"):
            hide_passwords(self._spark)
            if reading.predicates:
                predicates = list(reading.predicates)
                rows = self._spark.read.jdbc(reading.url, relation, predicates=predicates, properties=properties)
            else:
                rows = self._spark.read.jdbc(reading.url, relation, properties=properties)
            rows = rows.selectExpr(*(column.finished(f"c{i}") for i, column in enumerate(columns)))
            _ = rows.schema  # over Spark Connect this is the first analysis
        return rows

    def changes(self, since: Frontier, until: JdbcFrontier) -> Changeset:
        """Return whether changed rows can be found, by the definition's method; see `SourceReader`."""
        if self._source.change_method == "none":
            return Whole()
        if not isinstance(since, JdbcFrontier) or since.database != until.database:
            return Whole("another database answers than at the last publish", is_another=True)
        dialect = self._dialect
        obstacle = dialect.change_obstacle(since, until) if isinstance(dialect, FollowedDialect) else dialect.obstacle
        if obstacle is None and not self.determinism(until).is_by_row:
            obstacle = MORE_THAN_ROWS
        return Upserts() if obstacle is None else Whole(obstacle)

    def changed(self, since: JdbcFrontier, until: JdbcFrontier, main: DataFrame) -> DataFrame:
        """Return the rows that were written after `since`, which the database itself selects; see `SourceReader`.

        cost : a scan of one column of main, if there is a watermark; and of the table in the database, without an index
        """
        held = self._hold(until).found.frontier  # a later state than `until`: the table may have been truncated since
        if obstacle := self._followed.change_obstacle(since, held):
            raise SourceChangedError("source", f"{obstacle}.")
        condition = self._followed.changed(since, self._last(main))
        return projected(self._rows(until, condition), self._source.select)

    def num_rows(self, frontier: JdbcFrontier) -> int:
        """Return the number of rows, which the database counts; see `SourceReader`."""
        self._hold(frontier)
        if self._num_rows is None:
            self._num_rows = self._followed.count()
        return self._num_rows

    def is_unique(self, key: Sequence[str]) -> bool:
        """Return whether the table has a unique index on the key; see `SourceReader`."""
        is_as_stored = self._source.select is None and not self._source.columns.keys() & set(key)
        return is_as_stored and self._followed.is_unique(key)

    @property
    def _followed(self) -> FollowedDialect:
        assert isinstance(self._dialect, FollowedDialect)
        return self._dialect

    def _last(self, main: DataFrame) -> int | Decimal | None:
        """Return the greatest watermark in main; see `Dialect.changed`."""
        if self._source.watermark is None:
            return None
        if self._source.watermark not in main.columns:
            raise DefinitionError("source", f"the table has no column {self._source.watermark!r}, the watermark.")
        column = quoted(self._source.watermark)
        kind = main.schema[self._source.watermark].dataType.typeName()
        value = {"date": "unix_date({})", "timestamp": "unix_micros({})"}.get(kind, "{}").format(f"max({column})")
        with translated("source"):
            found: int | Decimal | None = main.selectExpr(f"{value} AS last").collect()[0][0]
        return found

    def determinism(self, frontier: JdbcFrontier) -> Determinism:
        """Return whether equal tokens stand for equal rows, also after the projection; see `SourceReader`."""
        if frontier.obstacle is not None:
            return Determinism(frontier.obstacle)
        if self._source.select is None:
            return Determinism()
        found = self._known()
        nothing = ", ".join(f"CAST(NULL AS {column.kind}) AS {quoted(column.name)}" for column in found.columns)
        return projected_determinism(self._spark, self._source.select, f"(SELECT {nothing})")

    def num_bytes(self, frontier: JdbcFrontier) -> int | None:
        """Return the size of the table, as the database stores it; see `SourceReader`."""
        return self._known().num_bytes

    def verify(self, frontier: JdbcFrontier) -> None:
        """Check that the state that was read is still held; see `SourceReader`.

        raises : SnapshotLostError
        """
        self._dialect.check()

    def close(self) -> None:
        """End the connection that holds the state; see `SourceReader`."""
        self._dialect.release()
        self._reading = self._num_rows = None

    def _known(self) -> Found:
        if self._found is None:
            self._found = self._reading.found if self._reading else self._dialect.inspect()
        return self._found
