"""PostgreSQL as source: one exported snapshot for all connections that read, and its text as the token.

    inspect BEGIN READ ONLY · SELECT … LIMIT 0 · pg_current_snapshot()                          the token, then closed
    hold    BEGIN READ ONLY · SELECT … LIMIT 0 · pg_export_snapshot()                           kept open: the holder
    count   BEGIN REPEATABLE READ READ ONLY · SET TRANSACTION SNAPSHOT · SELECT count(*)        if only changes are read
    Spark   BEGIN REPEATABLE READ READ ONLY · SET TRANSACTION SNAPSHOT · SELECT                 each of the parts

The first SELECT locks every table behind the source against TRUNCATE and ALTER, which a snapshot does not protect from:
a table truncated after the export would read as empty. The lock has to be older than the snapshot, so the holder's
transaction is READ COMMITTED, in which the export sees what is committed at that moment, not at the first statement. A
reader cannot get its own lock once another session waits to truncate, so its wait is limited.

Equal snapshot texts of one server that has not been restarted are equal data: every transaction that wrote has a
number, and the text shows which of them are visible. It shows nothing about an unlogged table after a crash, a foreign
table, or an expression such as now() in a view, so these are compared each time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Protocol

from airflow_mv_provider.core.secret import without
from airflow_mv_provider.exceptions import DefinitionError, DependencyError, MvError
from airflow_mv_provider.sources.credentials import Credentials
from airflow_mv_provider.sources.jdbc import postgres_types
from airflow_mv_provider.sources.jdbc.dialect import (
    FollowedDialect,
    Found,
    Reading,
    ServerDialect,
    check_exact,
    check_known,
    check_names,
    parts,
    quoted,
)
from airflow_mv_provider.sources.jdbc.exact import Column
from airflow_mv_provider.sources.jdbc.frontier import JdbcFrontier
from airflow_mv_provider.sources.jdbc.model import Jdbc
from airflow_mv_provider.sources.jdbc.postgres_errors import translated
from airflow_mv_provider.sources.jdbc.postgres_types import EPOCH, KINDS, Kind
from airflow_mv_provider.sources.jdbc.row_versions import TABLE, UNIQUE, obstacle_between, written_since

if TYPE_CHECKING:
    from psycopg import Column as Described
    from psycopg import Connection

_DRIVER = "org.postgresql.Driver"
_PATIENCE_S = 10
_LOCK_MS = 30_000
_SSL = ("sslmode", "sslrootcert")
# How texts of values look must not depend on the role's or the database's settings; and none of these may end a read.
# What decides the meaning of the author's SQL, search_path and lc_monetary too, stays as it is for every client.
_SESSION = {
    "TimeZone": "UTC",
    "DateStyle": "ISO, MDY",
    "IntervalStyle": "postgres",
    "extra_float_digits": "3",
    "bytea_output": "hex",
    "xmlbinary": "base64",
    "xmloption": "content",
    "quote_all_identifiers": "off",
    "lock_timeout": str(_LOCK_MS),
    "statement_timeout": "0",
    "idle_in_transaction_session_timeout": "0",
    "transaction_timeout": "0",  # of PostgreSQL 17
}
# Of every connection from its first statement on: Spark asks for the columns without `sessionInitStatement`.
_OPTIONS = f"-c lock_timeout={_LOCK_MS} -c statement_timeout=0"
_WANTED = ", ".join(f"('{name}', '{value}')" for name, value in _SESSION.items())
_KNOWN = "current_setting(name, true) IS NOT NULL"
_SET = f"SELECT set_config(name, value, true) FROM (VALUES {_WANTED}) AS wanted (name, value) WHERE {_KNOWN}"  # nosec B608  # constants
# A crash can undo transactions that did not wait for their commit to be written, and their numbers are used again. The
# server's statistics begin anew after each crash, and so does the archiver's.
_STATE = """
SELECT concat_ws(' ', 'PostgreSQL', (SELECT system_identifier FROM pg_control_system()),
                 (SELECT oid FROM pg_database WHERE datname = current_database())),
       concat_ws(' ', pg_current_snapshot(), (SELECT timeline_id FROM pg_control_checkpoint()),
                 extract(epoch FROM pg_postmaster_start_time()),
                 (SELECT extract(epoch FROM stats_reset) FROM pg_stat_archiver)),
       pg_is_in_recovery()
"""
_RELATION = """
WITH RECURSIVE part (oid) AS (
  SELECT %s::regclass::oid UNION SELECT inhrelid FROM pg_inherits JOIN part ON inhparent = part.oid
)
SELECT bool_and(relkind IN ('r', 'p', 'm')), bool_and(relpersistence = 'p'), bool_or(relrowsecurity),
       CASE WHEN bool_and(relkind IN ('r', 'p', 'm'))
            THEN sum(CASE WHEN relkind = 'p' THEN 0 ELSE pg_table_size(c.oid) END)::int8 END
FROM part JOIN pg_class AS c USING (oid)
"""

_WHOLE = ("int2", "int4", "int8")
_READ_COMMITTED = "BEGIN ISOLATION LEVEL READ COMMITTED READ ONLY"
_IMPORT = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; SET TRANSACTION SNAPSHOT '{}'"
_DAY_S, _MICROS = 24 * 3600, 1_000_000
_OVERLAP_S = 3600


class Exported(Protocol):
    """A snapshot that another connection exports; its id is known once it does."""

    @property
    def snapshot(self) -> str | None: ...


class PostgreSql(ServerDialect, FollowedDialect):
    """A table or a query of a PostgreSQL database.

    shared : reads in this snapshot, instead of one of its own
    """

    def __init__(self, source: Jdbc, credentials: Credentials, shared: Exported | None = None) -> None:
        self._source = source
        self._credentials = credentials
        self._shared = shared
        self._holder: Connection[Any] | None = None
        self._snapshot = ""  # its id, and its text
        self._text = ""
        self._kinds: Mapping[str, str] = {}
        self._without_xmin: str | None = None

    def inspect(self) -> Found:
        """See `Dialect`."""
        with self.errors(), self.connect() as connection:
            return self._found(connection)[0]

    def hold(self) -> Reading:
        """See `Dialect`."""
        self.release()
        with self.errors():
            self._holder = connection = self.connect()
            found, types = self._found(connection)
            snapshot, text = _row(connection, "SELECT pg_export_snapshot(), pg_current_snapshot()::text")
            self._snapshot, self._text, self._kinds = snapshot, text, types
            split, predicates = self._split(connection, types)
        begin = f"{_IMPORT.format(snapshot)}; {_SET}"
        mine, ssl = self._credentials, self._ssl()
        address = f"{mine.host or 'localhost'}:{mine.port or 5432}/{mine.database or mine.user or ''}"
        options = {
            "user": mine.user or "",
            "password": mine.password or "",
            "sessionInitStatement": begin,
            "ApplicationName": "airflow-mv-provider",
            "connectTimeout": str(_PATIENCE_S),
            "socketTimeout": str(self._source.read_timeout),
            "tcpKeepAlive": "true",
            "options": _OPTIONS,
            **ssl,
        }
        relation = self._relation()
        return Reading(found, f"jdbc:postgresql://{address}", _DRIVER, relation, options, split, predicates)

    def change_obstacle(self, since: JdbcFrontier, until: JdbcFrontier) -> str | None:
        """See `FollowedDialect`."""
        is_by_xmin = self._source.change_method == "xmin"
        if is_by_xmin and self._without_xmin is not None:
            return self._without_xmin
        return obstacle_between(since, until, is_by_xmin=is_by_xmin)

    def changed(self, since: JdbcFrontier, last: int | Decimal | None) -> str:
        """See `FollowedDialect`."""
        if self._source.change_method == "xmin":
            return written_since(since.token.partition(" ")[0], self._text)
        if last is None:
            return "true"
        name = self._source.watermark or ""
        kind, overlap, bound = self._kinds[name], self._source.overlap, "({})"
        if kind in EPOCH:
            overlap = _OVERLAP_S if overlap is None else overlap
            overlap, bound = -(-overlap // _DAY_S) if kind == "date" else overlap * _MICROS, EPOCH[kind][0]
        it = quoted(name)
        return f"({it} >= {bound.format(f'({last - (overlap or 0)})')} OR {it} IS NULL)"

    def count(self) -> int:
        """See `FollowedDialect`."""
        with self.errors(), self._connect(_IMPORT.format(self._snapshot)) as connection:
            (found,) = _row(connection, f"SELECT count(*) FROM {self._relation()} AS mv_source")  # nosec B608  # the author's
        return int(found)

    def is_unique(self, columns: Sequence[str]) -> bool:
        """See `FollowedDialect`."""
        if self._source.table is None or self._holder is None:
            return False
        with self.errors():
            (found,) = _row(self._holder, UNIQUE, {"table": self._relation(), "columns": list(columns)})
        return bool(found)

    def check(self) -> None:
        """See `Dialect`."""
        with self.errors():
            if self._holder is not None:
                _row(self._holder, "SELECT 1")

    def lock(self, connection: Connection[Any]) -> None:
        """Lock the tables behind the source against TRUNCATE and ALTER, until the transaction ends."""
        self._described(connection)

    def connect(self) -> Connection[Any]:
        """Return a connection that sees what is committed, or the snapshot that this source shares with others."""
        shared = None if self._shared is None else self._shared.snapshot
        return self._connect(_READ_COMMITTED if shared is None else _IMPORT.format(shared))

    def _connect(self, begin: str) -> Connection[Any]:
        """Return a connection in a transaction that `begin` begins; closing it ends the transaction."""
        try:
            from airflow_mv_provider.postgres import connecting
        except ImportError as error:
            hint = "Install it: pip install 'psycopg[binary]'."
            raise DependencyError("source", "PostgreSQL's client psycopg is not installed.", hint=hint) from error
        mine = self._credentials
        connection = connecting(self._source.read_timeout)(
            host=mine.host or "localhost",
            port=mine.port or 5432,
            user=mine.user,
            password=mine.password,
            dbname=mine.database or mine.user,
            application_name="airflow-mv-provider",
            client_encoding="utf8",  # else the server's or the role's: of SQL_ASCII even names would arrive as bytes
            options=_OPTIONS,
            autocommit=True,
            **self._ssl(),
        )
        try:
            connection.execute(begin)
            connection.execute(_SET)
        except BaseException:
            connection.close()
            raise
        return connection

    def _ssl(self) -> dict[str, str]:
        return {name: self._credentials.options[name] for name in _SSL if name in self._credentials.options}

    def _relation(self) -> str:
        table = self._source.table
        if table is not None and "." not in table:
            raise DefinitionError("source", f"table {table!r} has no schema.", hint=f"Write public.{table}.")
        return super()._relation()

    def _described(self, connection: Connection[Any]) -> Sequence[Described]:
        # Prepared, so that the server refuses a second statement in the author's text.
        answer = connection.execute(f"SELECT * FROM {self._relation()} AS mv_source LIMIT 0", prepare=True)  # nosec B608  # the author's
        return answer.description or ()

    def _found(self, connection: Connection[Any]) -> tuple[Found, Mapping[str, str]]:
        """Return the source as the transaction sees it, and the name of each column's type."""
        described = self._described(connection)
        check_names([each.name for each in described])
        kinds = connection.execute(KINDS, [[each.type_code for each in described]]).fetchall()
        known = {oid: Kind(*values) for oid, *values in kinds}
        types = {each.name: known[each.type_code].name for each in described}
        check_known(list(types), self._source.columns)
        self._check_split(types)
        self._check_watermark(types)
        columns: list[Column] = []
        inexact: list[tuple[str, str]] = []
        without_text: list[tuple[str, str]] = []
        for each in described:
            wanted, kind = self._source.columns.get(each.name), known[each.type_code]
            if wanted is None:
                column = postgres_types.column(each.name, kind, each.precision, each.scale)
            else:
                column = postgres_types.text(each.name, kind, wanted)
            if column is not None:
                columns.append(column)
                continue
            shown = (each.name, each.type_display if kind.name == "numeric" else kind.shown)
            has_text = postgres_types.text(each.name, kind, "STRING") is not None
            (inexact if has_text else without_text).append(shown)
        check_exact(inexact, without_text)
        obstacle, relation, num_bytes = self._obstacle(connection)
        database, token, is_standby = _row(connection, _STATE)
        if is_standby:
            obstacle = obstacle or "a standby does not show which transactions it has"
        moment: str | None = None
        if obstacle is not None and self._source.watermark is not None and self._source.unchanged != "compare":
            # The token does not show whether rows changed, but the watermark shows which: so each look is a new state.
            obstacle, (moment,) = None, _row(connection, "SELECT extract(epoch FROM clock_timestamp())::text")
        return Found(JdbcFrontier(database, token, obstacle, relation, moment), tuple(columns), num_bytes), types

    def _obstacle(self, connection: Connection[Any]) -> tuple[str | None, str | None, int | None]:
        """Return why an equal snapshot does not stand for equal rows, None if it does.

        returns : also `JdbcFrontier.relation`, and the source's size
        """
        wanted, num_bytes, obstacle, relation = self._source.unchanged, None, None, None
        if self._source.table is None:
            obstacle = "a query may depend on more than tables"
        else:
            is_plain, is_logged, has_policy, num_bytes = _row(connection, _RELATION, [self._relation()])
            if not is_plain:
                obstacle = "a view or a foreign table may depend on more than this database"
            elif has_policy:
                obstacle = "the table's row security may depend on more than tables"
            if self._source.change_method == "xmin":
                relation = self._versions(connection, has_policy=has_policy)
            if not is_logged:
                return "an unlogged table loses its rows in a crash", relation, num_bytes
        if wanted == "compare":
            obstacle = "the definition has `unchanged: compare`"
        return (None if wanted == "snapshot" else obstacle), relation, num_bytes

    def _versions(self, connection: Connection[Any], *, has_policy: bool) -> str | None:
        """Return `JdbcFrontier.relation`; None if `xmin` does not show which rows changed, and remember why."""
        relation, has_xmin, others, may_read = _row(connection, TABLE, {"table": self._relation()})
        self._without_xmin = None
        if not has_xmin:
            self._without_xmin = "its rows have no xmin"
        elif has_policy:
            self._without_xmin = "the table's row security may show and hide rows that did not change"
        elif others is not None:
            self._without_xmin = f"values of {others} may change without a new xmin"
        elif not may_read:
            self._without_xmin = "the login may read single columns only: xmin needs GRANT SELECT on the whole table"
        return None if self._without_xmin else str(relation)

    def _check_watermark(self, types: Mapping[str, str]) -> None:
        name = self._source.watermark
        if name is None:
            return
        kind = types.get(name)
        if kind not in (*_WHOLE, "numeric", *EPOCH):
            found = "is not one of its columns" if kind is None else f"is of type {kind}"
            hint = "A watermark is a column of numbers, dates or timestamps."
            raise DefinitionError("source", f"watermark {name!r} {found}.", hint=hint)
        if kind not in EPOCH and self._source.overlap is None:
            hint = "Set how far below the greatest number a transaction that commits late may write: `overlap: 1000`."
            raise DefinitionError("source", f"watermark {name!r} is a number and has no `overlap`.", hint=hint)
        if kind in EPOCH and name in self._source.columns:
            raise DefinitionError("source", f"watermark {name!r} is in `columns`.", hint="Leave it out there.")

    def _check_split(self, types: Mapping[str, str]) -> None:
        split = self._source.split
        kind = types.get(split.column) if split is not None else None
        if split is not None and kind not in (*_WHOLE, *EPOCH):
            found = "is not one of its columns" if kind is None else f"is of type {kind}"
            hint = "Split by a column of whole numbers, dates or timestamps, or leave `split` out."
            raise DefinitionError("source", f"split column {split.column!r} {found}.", hint=hint)

    def _split(self, connection: Connection[Any], types: Mapping[str, str]) -> tuple[str | None, tuple[str, ...]]:
        """Return the expression of the column to split by and the parts' predicates.

        cost : reads the least and the greatest value; a scan of the table if the column has no index
        """
        split = self._source.split
        if split is None:
            return None, ()
        kind = types[split.column]
        it = quoted(split.column)
        value, finite = (it, "true") if kind in _WHOLE else (EPOCH[kind][1].format(it), f"isfinite({it})")
        sql = f"SELECT min({it}), max({it}) FROM {self._relation()} AS mv_source WHERE {finite}"  # nosec B608  # quoted
        ends = f"SELECT {value.replace(it, 'low')}, {value.replace(it, 'high')} FROM ({sql}) AS ends (low, high)"  # nosec B608  # of constants
        least, most = _row(connection, ends)
        if least is None:
            return None, ()
        bound = EPOCH[kind][0] if kind in EPOCH else "{}"
        return it, parts(int(least), int(most), split.parts, bound)

    def _translated(self, error: Exception, *, is_holding: bool) -> MvError | None:
        message = without(self._credentials.secrets, str(error))
        return translated(error, message, self._source.read_timeout, is_holding=is_holding)


def _row(
    connection: Connection[Any], sql: str, values: Sequence[Any] | Mapping[str, Any] | None = None
) -> tuple[Any, ...]:
    found = connection.execute(sql, values).fetchone()
    assert found is not None
    return tuple(found)
