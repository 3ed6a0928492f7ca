"""MariaDB as source: one connection, whose SELECT is one state, and the binary log's position as the token.

    inspect START TRANSACTION WITH CONSISTENT SNAPSHOT · SELECT … LIMIT 0 · Binlog_snapshot_*       then closed
    hold    the same, kept open: ALTER and TRUNCATE of what it has selected from wait until it ends
    Spark   START TRANSACTION WITH CONSISTENT SNAPSHOT · SELECT … WHERE it is the same server       later than `hold`

Two connections cannot share a snapshot: only FLUSH TABLES WITH READ LOCK gives them equal ones, which stops all writers
and needs more than SELECT. So there is no `split`, and a watermark is of no use: its rows, their number and the keys
that are left would be of three moments.

The position, and the global transaction id there, are those of the snapshot itself: a transaction is in the binary log
before others see it. A server that is started again begins another file of the log. What is written past the log
(`sql_log_bin=0`, a filtered database) does not move it, and no login may look that up; so equal positions count only
if the author declares it. Then Spark's SELECT raises on another server than the holder's: an address may lead to
several, of which one lags behind the position.

The driver demands TLS with a verified certificate unless configured otherwise, and so do we: a password and rows cross
the network. Only on this machine, where no other can listen and few servers have a certificate, it is off by default.
"""

from __future__ import annotations

import re
import ssl
from collections.abc import Sequence
from contextlib import suppress
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any

from airflow_mv_provider.core.definition.identifier import quoted  # MariaDB quotes names as Spark does
from airflow_mv_provider.core.secret import without
from airflow_mv_provider.exceptions import (
    ConnectionUnknownError,
    DefinitionError,
    DependencyError,
    MvError,
    SnapshotLostError,
    SourceDeniedError,
    SourceNotFoundError,
    SourceUnavailableError,
)
from airflow_mv_provider.sources.credentials import Credentials
from airflow_mv_provider.sources.jdbc.dialect import (
    Found,
    Reading,
    ServerDialect,
    check_exact,
    check_known,
    check_names,
)
from airflow_mv_provider.sources.jdbc.exact import Column
from airflow_mv_provider.sources.jdbc.frontier import JdbcFrontier
from airflow_mv_provider.sources.jdbc.mariadb_types import Field, column
from airflow_mv_provider.sources.jdbc.model import Jdbc
from airflow_mv_provider.spark.causes.databases import locked, silent, too_slow, without_tls

if TYPE_CHECKING:
    from pymysql.connections import Connection

_DRIVER = "org.mariadb.jdbc.Driver"
_PATIENCE_S, _LOCK_S, _LONG_S = 10, 30, 24 * 3600
# How texts of values look must not depend on the server's settings; and none of these may cut a read short. The other
# words of `sql_mode` decide what the author's SQL means, and stay as they are for every client of this server.
_SESSION = (
    f"time_zone='+00:00',lock_wait_timeout={_LOCK_S},net_write_timeout={_LONG_S},wait_timeout={_LONG_S},"
    "sql_select_limit=18446744073709551615,character_set_client=utf8mb4,character_set_results=utf8mb4,"
    "character_set_connection=utf8mb4,sql_mode=REPLACE(@@sql_mode,'PAD_CHAR_TO_FULL_LENGTH','')"
)
_NO_LIMIT = {
    "MariaDB": "max_statement_time=0,idle_transaction_timeout=0,idle_readonly_transaction_timeout=0",
    "MySQL": "max_execution_time=0",
}
_ISOLATION = "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ"
_BEGIN = "START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY"
# What users write, as PostgreSQL's client calls it → what the driver calls it.
_TLS = {"disable": "disable", "require": "trust", "verify-ca": "verify-ca", "verify-full": "verify-full"}
_HOST = re.compile(r"[\w.:-]+")  # nothing that ends the host in the driver's address
# A path that does not parse raises with its text, cut to 32 characters, also if there is no row. By the last two words
# `spark.causes.databases` takes it for a connection that failed.
_SAME_SERVER = "EXTRACTVALUE('<a/>', IF({} = {}, '/a', '~other server: Connection reset')) = ''"
_DENIED = (1044, 1045, 1142, 1143, 1227, 1356, 1698)
_MISSING = (1049, 1146)
_LOCKED = (1205, 1213)
_TOO_SLOW = (1969, 3024)
_AUTHORS = (1052, 1054, 1060, 1064, 1111, 1140, 1166, 1222, 1241, 1242, 1248, 1305, 1690)
_GONE = (1053, 1927, 2006, 2013)  # the server shuts down, was killed, or is not there any more


class MariaDb(ServerDialect):
    """A table or a query of a MariaDB database."""

    _quoted = staticmethod(quoted)
    obstacle = "MariaDB is read by one connection: changed rows, their number and all keys would be of different times"

    def __init__(self, source: Jdbc, credentials: Credentials) -> None:
        if source.split is not None:
            hint = "Leave `split` out."
            raise DefinitionError("source", "MariaDB is read by one connection, so it has no `split`.", hint=hint)
        self._source = source
        self._credentials = credentials
        self._host = (credentials.host or "localhost").lower()
        if not _HOST.fullmatch(self._host):
            raise ConnectionUnknownError(credentials.conn_id, f"{self._host!r} is not a host name.", hint="Name one.")
        named = credentials.options.get("sslmode")
        self._tls = named or ("disable" if _is_this_machine(self._host) else "verify-full")
        if self._tls not in _TLS:
            hint = f"Its `extra` may set sslmode: {', '.join(_TLS)}."
            raise ConnectionUnknownError(credentials.conn_id, f"sslmode {self._tls[:40]!r} is not known.", hint=hint)
        self._holder: Connection[Any] | None = None

    def inspect(self) -> Found:
        """See `Dialect`."""
        with self.errors(), self._connect() as connection:
            return self._found(connection)

    def hold(self) -> Reading:
        """See `Dialect`; what is held are locks: the rows are those of the reader's own, later snapshot."""
        self.release()
        with self.errors():
            self._holder = connection = self._connect()
            found = self._found(connection)
            identity, server = self._server(connection)
        mine = self._credentials
        address = f"[{self._host}]" if ":" in self._host else self._host
        options = {
            "user": mine.user or "",
            "password": mine.password or "",
            "database": mine.database or "",
            "sessionVariables": _session(connection),
            "sessionInitStatement": _BEGIN,
            "transactionIsolation": "REPEATABLE-READ",
            "connectTimeout": str(_PATIENCE_S * 1000),
            "socketTimeout": str(self._source.read_timeout * 1000),
            "sslMode": _TLS[self._tls],
            "permitRedirect": "false",  # to a host that is not the connection's
            "tinyInt1isBit": "false",
            "transformedBitIsBoolean": "false",
            "yearIsDateType": "false",
        }
        if (root := mine.options.get("sslrootcert")) and self._tls != "disable":
            options["serverSslCert"] = root
        # Spark quotes names as MariaDB does only where the address is MySQL's.
        url = f"jdbc:mysql://{address}:{mine.port or 3306}/?permitMysqlScheme"
        is_token_used = found.frontier.obstacle is None
        guard = _SAME_SERVER.format(identity, connection.escape(server)) if is_token_used else None
        return Reading(found, url, _DRIVER, self._relation(), options, guard=guard)

    def check(self) -> None:
        """See `Dialect`."""
        with self.errors():
            if self._holder is not None:
                self._holder.ping(reconnect=False)

    def _connect(self) -> Connection[Any]:
        """Return a connection in a transaction with a snapshot; closing it ends the transaction."""
        try:
            import pymysql
        except ImportError as error:
            hint = "Install it: pip install pymysql."
            raise DependencyError("source", "MariaDB's client PyMySQL is not installed.", hint=hint) from error
        mine = self._credentials
        connection = pymysql.connect(
            host=self._host,
            port=mine.port or 3306,
            user=mine.user,
            password=(mine.password or "").encode(),  # it would encode a text as latin1
            database=mine.database,
            charset="utf8mb4",
            connect_timeout=_PATIENCE_S,
            read_timeout=self._source.read_timeout,
            write_timeout=self._source.read_timeout,
            program_name="airflow-mv-provider",
            **({"ssl_disabled": True} if self._tls == "disable" else {"ssl": self._context()}),
        )
        try:
            with connection.cursor() as cursor:
                cursor.execute(f"SET SESSION {_session(connection)}")
                cursor.execute(_ISOLATION)
                cursor.execute(_BEGIN)
        except BaseException:
            connection.close()
            raise
        return connection

    def _context(self) -> ssl.SSLContext:
        root = self._credentials.options.get("sslrootcert")
        try:
            found = ssl.create_default_context(cafile=root)
        except OSError as error:
            problem = f"sslrootcert {root!r} cannot be read as certificates: {error.strerror or error}."
            raise ConnectionUnknownError(self._credentials.conn_id, problem, hint="Name a PEM file.") from None
        found.check_hostname = self._tls == "verify-full"
        if self._tls == "require":
            found.verify_mode = ssl.CERT_NONE
        return found

    def _found(self, connection: Connection[Any]) -> Found:
        return Found(self._frontier(connection), self._columns(connection), self._num_bytes(connection))

    def _columns(self, connection: Connection[Any]) -> tuple[Column, ...]:
        with connection.cursor() as cursor:
            cursor.execute(f"SELECT * FROM {self._relation()} AS mv_source LIMIT 0")  # nosec B608  # the author's
            described = cursor._result.fields if cursor._result else []  # `description` lacks signs and character sets
        fields = [
            Field(each.name, each.type_code, each.flags, each.length, each.scale, each.charsetnr) for each in described
        ]
        wanted = self._source.columns
        check_names([field.name for field in fields])
        check_known([field.name for field in fields], wanted)
        charsets = self._charsets(connection, [field.name for field in fields if field.has_text])
        columns = [(field, column(field, wanted.get(field.name), charsets.get(field.name))) for field in fields]
        inexact = [field for field, found in columns if found is None]
        check_exact(
            [(field.name, field.type_name) for field in inexact if not field.is_geometry],
            [(field.name, field.type_name) for field in inexact if field.is_geometry],
        )
        return tuple(found for _, found in columns if found is not None)

    def _charsets(self, connection: Connection[Any], names: Sequence[str]) -> dict[str, str]:
        """Return the character set that each of these columns is stored in; results are described in the session's."""
        if not names:
            return {}
        wanted = ", ".join(f"CHARSET({quoted(name)})" for name in names)
        nothing = f"(SELECT * FROM {self._relation()} AS mv_source LIMIT 0) AS mv_source"  # nosec B608  # the author's
        with connection.cursor() as cursor:
            cursor.execute(f"SELECT {wanted} FROM {nothing} RIGHT JOIN (SELECT 1) AS one ON TRUE")  # nosec B608  # quoted
            return dict(zip(names, cursor.fetchone() or (), strict=True))

    def _server(self, connection: Connection[Any]) -> tuple[str, str]:
        """Return what identifies the server, in SQL, and its value."""
        with connection.cursor() as cursor:
            cursor.execute("SHOW VARIABLES WHERE Variable_name IN ('server_uid', 'server_uuid')")
            names = [name for name, value in cursor.fetchall() if value]
            identity = f"@@{names[0]}" if names else "CONCAT(@@hostname, ':', @@port)"
            cursor.execute(f"SELECT {identity}")  # nosec B608  # of constants
            (value,) = cursor.fetchone()
        return identity, str(value)

    def _frontier(self, connection: Connection[Any]) -> JdbcFrontier:
        with connection.cursor() as cursor:
            cursor.execute("SELECT VERSION(), DATABASE()")
            version, database = cursor.fetchone()
            cursor.execute("SHOW STATUS LIKE 'Binlog_snapshot_%'")
            log = dict(cursor.fetchall())
            place = [log.get("Binlog_snapshot_file", ""), log.get("Binlog_snapshot_position", "")]
            if all(place):
                cursor.execute("SELECT BINLOG_GTID_POS(%s, %s)", place)
                place += [gtid for (gtid,) in cursor.fetchall() if gtid]
        product = _product(version)
        _, server = self._server(connection)
        obstacle: str | None = None
        if not all(place):
            obstacle = "the server writes no binary log, or does not return a snapshot's position in it"
        elif self._source.unchanged == "compare":
            obstacle = "the definition has `unchanged: compare`"
        elif self._source.unchanged is None:
            obstacle = "writes may bypass the binary log: without `unchanged: snapshot` all rows are compared"
        return JdbcFrontier(f"{product} {server} {database}", " ".join(place).strip() or "unknown", obstacle)

    def _num_bytes(self, connection: Connection[Any]) -> int | None:
        if self._source.table is None:
            return None
        sql = "SELECT data_length FROM information_schema.tables WHERE table_schema = %s AND table_name = %s"
        schema, _, name = self._source.table.rpartition(".")
        with connection.cursor() as cursor:
            cursor.execute(sql, [schema or self._credentials.database, name])
            found = cursor.fetchone()
        return None if found is None or found[0] is None else int(found[0])

    def _translated(self, error: Exception, *, is_holding: bool) -> MvError | None:
        message = without(self._credentials.secrets, str(error.args[-1] if error.args else error))
        return _translated(error, message, self._source.read_timeout, is_holding=is_holding)


def _session(connection: Connection[Any]) -> str:
    """Return the variables that every connection to this server sets, as SET and as the driver take them."""
    version: str = connection.get_server_info()  # type: ignore[no-untyped-call]
    return f"{_SESSION},{_NO_LIMIT[_product(version)]}"


def _product(version: str) -> str:
    return "MariaDB" if "mariadb" in version.lower() else "MySQL"


def _is_this_machine(host: str) -> bool:
    with suppress(ValueError):
        return ip_address(host).is_loopback
    return host == "localhost"


def _translated(error: Exception, text: str, read_timeout: int, *, is_holding: bool) -> MvError | None:
    from pymysql import err

    if not isinstance(error, err.MySQLError):
        return None
    code = error.args[0] if error.args and isinstance(error.args[0], int) else 0
    message = text.strip().rstrip(".")[:300]
    if is_holding and (code in _GONE or isinstance(error, err.InterfaceError)) and "timed out" not in message:
        return SnapshotLostError("source", "the connection that held the source's tables has ended.")
    if code in _DENIED:
        hint = "GRANT SELECT on the table TO the connection's login, and check its password."
        return SourceDeniedError("source", f"{message}.", hint=hint)
    if code in _MISSING:
        return SourceNotFoundError("source", f"{message}.", hint="Check database and table, spelt as in the database.")
    if code in _LOCKED:
        return locked("source")
    if code in _TOO_SLOW:
        return too_slow("source")
    if "SSL" in message or "certificate" in message:
        return without_tls("source", message)
    if "timed out" in message and code != 2003:
        return silent("source", f"no answer within {read_timeout} s")
    if isinstance(error, (err.ProgrammingError, err.NotSupportedError, err.DataError)) or code in _AUTHORS:
        return DefinitionError("source", f"MariaDB rejects the query: {message}.")
    return SourceUnavailableError("source", f"{message}.")
