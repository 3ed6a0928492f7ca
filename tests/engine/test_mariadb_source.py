"""A real MariaDB as source: what is read, when it is skipped, and what happens to values that do not fit."""

from __future__ import annotations

import json
import logging
import struct
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest

from airflow_mv_provider.core.outcome import Outcome
from airflow_mv_provider.core.secret import every_spelling
from airflow_mv_provider.exceptions import (
    ConnectionUnknownError,
    DefinitionError,
    InexactColumnError,
    MvError,
    SnapshotLostError,
    SourceDeniedError,
    SourceNotFoundError,
    SourceUnavailableError,
)
from airflow_mv_provider.sources.jdbc.model import Jdbc
from airflow_mv_provider.sources.table_source import open_source
from scripts.ports import free_port
from tests.conftest import Lake
from tests.mariadb import ASKED, PASSWORD, MariaServer, mariadb, running_server
from tests.proxy import proxied

__all__ = ["mariadb"]
pytestmark = [pytest.mark.slow, pytest.mark.in_process]

_SILENT_S, _IN_TIME_S = 2, 60


@dataclass
class Shop:
    """A database, and a lake that reads it as a login that may do nothing but that."""

    lake: Lake
    server: MariaServer
    name: str
    set: Callable[[str, str], None]

    def run(self, *statements: str) -> list[tuple[Any, ...]]:
        return self.server.run(self.name, *statements)

    def connect(self, **changes: Any) -> None:
        known = {"conn_type": "mysql", "host": "127.0.0.1", "port": self.server.port, "schema": self.name}
        self.set("AIRFLOW_CONN_SHOP", json.dumps(known | {"login": ASKED, "password": PASSWORD} | changes))

    def apply(self, **source: Any) -> None:
        self.lake.apply(source=Jdbc("shop", **({"table": "orders"} | source)))

    def is_equal(self) -> bool:
        return self.lake.rows() == sorted(self.run("SELECT id, v FROM orders"), key=repr)


@pytest.fixture
def shop(lake: Lake, mariadb: MariaServer, monkeypatch: pytest.MonkeyPatch) -> Shop:
    found = Shop(lake, mariadb, mariadb.new_database(), monkeypatch.setenv)
    found.connect()
    found.run(
        "CREATE TABLE orders (id int PRIMARY KEY, v text)",
        "INSERT INTO orders SELECT seq, CONCAT('v', seq) FROM seq_1_to_40",
        f"GRANT SELECT ON {found.name}.orders TO '{ASKED}'@'%'",
    )
    return found


def test_table_follows_its_source_and_is_skipped_if_its_author_trusts_the_log(shop):
    shop.apply(unchanged="snapshot")
    first, nothing = shop.lake.refresh(), shop.lake.refresh()
    shop.run(
        "UPDATE orders SET v = NULL WHERE id = 3",
        "DELETE FROM orders WHERE id = 40",
        "INSERT INTO orders (id) VALUES (99)",
    )
    changed = shop.lake.refresh()
    shop.apply()
    shop.lake.refresh()
    compared = shop.lake.refresh()

    assert (first.outcome, first.rows_inserted) == (Outcome.PUBLISHED, 40)
    assert nothing.outcome is Outcome.NOTHING_TO_DO
    assert (changed.rows_inserted, changed.rows_updated, changed.rows_deleted) == (1, 1, 1)
    assert compared.strategy == "corrections"
    assert "bypass the binary log" in compared.reason
    assert shop.is_equal()


TYPES = """
CREATE TABLE many (id bigint unsigned, i int unsigned, s bigint, d decimal(10, 2), f float, x double, v varchar(9),
  c char(5), bl blob, bi binary(3), dt date, ts timestamp(6) NULL, dtm datetime(6), tm time(3), y year,
  e enum('a', 'b'), bt bit(3), j json, u uuid, `a "b` tinyint(1), big decimal(65, 30), t tinyint, st set('x', 'y'),
  b8 bit(64), ip inet6, la varchar(9) CHARACTER SET latin1, bz blob(9))
"""
VALUES = """
INSERT INTO many VALUES
 (18446744073709551615, 4294967295, -9223372036854775808, -12345678.91, 0.1, 0.1, 'é''"',
  'ab', x'00ff', 'xyz', '2024-02-29', '2024-03-31 02:30:00.123456', '1000-01-01 00:00:00.000001', '-838:59:59.5', 2024,
  'b', b'101', '{"a": 1}', '6b1b36cb-f1d4-45f8-a7a3-75b7b9e4a9a3', 2, 1.25, -128, 'x,y',
  x'ffffffffffffffff', '2001:db8::1', 'é', x'80'),
 (2, NULL, NULL, NULL, NULL, -1.7976931348623157e308, '',
  NULL, '', NULL, '9999-12-31', NULL, '9999-12-31 23:59:59.999999', NULL, NULL,
  NULL, NULL, NULL, NULL, NULL, NULL, NULL, '',
  NULL, NULL, NULL, NULL)
"""
NAMES = ["id", "i", "s", "d", "f", "x", "v", "c", "bl", "bi", "dt", "ts", "dtm", "tm", "y", "e", "bt", "j", "u", 'a "b']


@pytest.mark.in_test_all
def test_values_arrive_as_they_are(shop):
    shop.run(TYPES, "SET time_zone = '+00:00'", VALUES, f"GRANT SELECT ON {shop.name}.many TO '{ASKED}'@'%'")
    shop.apply(table=f"{shop.name}.many", columns={"big": "DECIMAL(30,2)"})

    shop.lake.refresh()

    names = sorted([*NAMES, "big", "t", "st", "b8", "ip", "la", "bz"])
    one, two = sorted((dict(zip(names, row, strict=True)) for row in shop.lake.rows()), key=lambda row: -row["id"])
    (ts,) = shop.run("SELECT UNIX_TIMESTAMP(ts) FROM many WHERE ts IS NOT NULL")[0]
    assert one == {
        **{"id": Decimal(2**64 - 1), "i": 2**32 - 1, "s": -(2**63), "d": Decimal("-12345678.91"), "x": 0.1},
        **{"f": pytest.approx(0.1, rel=1e-7), "v": "é'\"", "c": "ab", "bl": b"\x00\xff", "bi": b"xyz"},
        **{"dt": date(2024, 2, 29), "dtm": datetime(1000, 1, 1, 0, 0, 0, 1, UTC), "tm": "-838:59:59.500", "y": 2024},
        **{"ts": datetime.fromtimestamp(int(ts), UTC).replace(microsecond=123456), "e": "b", "bt": 5, "j": '{"a": 1}'},
        **{"u": "6b1b36cb-f1d4-45f8-a7a3-75b7b9e4a9a3", 'a "b': 2, "big": Decimal("1.25"), "t": -128},
        **{"st": "x,y", "b8": Decimal(2**64 - 1), "ip": "2001:db8::1", "la": "é", "bz": b"\x80"},
    }
    assert (two["x"], two["v"], two["bl"], two["dt"]) == (-1.7976931348623157e308, "", b"", date(9999, 12, 31))
    assert two["dtm"] == datetime(9999, 12, 31, 23, 59, 59, 999999, UTC)


@pytest.mark.in_test_all
@pytest.mark.parametrize(
    ("statements", "source", "error", "words"),
    [
        (["ALTER TABLE orders ADD x decimal(40, 2)"], {}, InexactColumnError, "x (decimal(40,2))"),
        (["ALTER TABLE orders ADD x point"], {"columns": {"x": "STRING"}}, InexactColumnError, "x (geometry)"),
        (["ALTER TABLE orders ADD x date DEFAULT '0000-00-00'"], {}, InexactColumnError, "the value '0000-00-00'"),
        (
            ["ALTER TABLE orders ADD x decimal(40, 2) DEFAULT 1.25"],
            {"columns": {"x": "DECIMAL(5,1)"}},
            InexactColumnError,
            "'1.25'",
        ),
        ([], {"table": "missing"}, SourceDeniedError, "missing"),
        ([], {"table": None, "query": "SELECT nothing FROM orders"}, DefinitionError, "nothing"),
        ([], {"table": None, "query": "SELECT 1 AS id; SELECT 2"}, DefinitionError, "syntax"),
        ([], {"split": {"column": "id", "parts": 2}}, DefinitionError, "one connection"),
    ],
    ids=lambda each: str(each)[:20],
)
@pytest.mark.sample(1)
def test_what_is_wrong_is_named(shop, statements, source, error, words):
    shop.run("SET sql_mode = ''", *statements)  # as old servers are, which allow dates of zeros
    shop.apply(**source)

    with pytest.raises(MvError) as caught:
        shop.lake.refresh()

    assert isinstance(caught.value, error)
    assert words in str(caught.value)
    assert caught.value.advice
    assert PASSWORD not in repr(caught.value.__dict__) + str(caught.value)
    assert shop.lake.phase() == "NORMAL"


@pytest.mark.in_test_all
@pytest.mark.parametrize(
    ("changes", "error", "words"),
    [
        ({"password": "wrong"}, SourceDeniedError, "Access denied"),
        ({"schema": "nowhere"}, (SourceDeniedError, SourceNotFoundError), "nowhere"),
        ({"port": 0}, SourceUnavailableError, "refused"),
        ({"host": "127.0.0.1:1/x?a="}, ConnectionUnknownError, "is not a host name"),
        ({"extra": {"sslmode": "prefer"}}, ConnectionUnknownError, "verify-full"),
        ({"extra": {"sslmode": "verify-full"}}, SourceUnavailableError, "sslrootcert"),
        ({"extra": {"sslmode": "require", "sslrootcert": "/nowhere.pem"}}, ConnectionUnknownError, "nowhere.pem"),
    ],
)
def test_connection_that_fails_is_named(shop, changes, error, words):
    shop.connect(**({"port": free_port()} if "port" in changes else changes))
    shop.apply()

    with pytest.raises(error, match=words):
        shop.lake.refresh()


@pytest.mark.in_test_all
@pytest.mark.parametrize("sslmode", ["require", "verify-ca", "verify-full"])
@pytest.mark.sample(1)
def test_login_that_needs_tls_has_it(shop, sslmode):
    """Both clients: the server refuses this login without TLS."""
    shop.run(f"ALTER USER '{ASKED}'@'%' REQUIRE SSL")
    try:
        shop.apply()
        with pytest.raises(SourceDeniedError, match="Access denied"):
            shop.lake.refresh()
        shop.connect(extra={"sslmode": sslmode, "sslrootcert": str(shop.server.certificate)})
        shop.lake.refresh()
    finally:
        shop.run(f"ALTER USER '{ASKED}'@'%' REQUIRE NONE")

    assert shop.is_equal()


@pytest.mark.in_test_all
def test_certificate_has_to_be_of_the_host_that_is_named(shop):
    """The certificate is of 127.0.0.1."""
    extra = {"sslmode": "verify-full", "sslrootcert": str(shop.server.certificate)}
    shop.connect(host="localhost", extra=extra)
    shop.apply()
    with pytest.raises(SourceUnavailableError, match="sslmode"):
        shop.lake.refresh()
    shop.connect(host="localhost", extra=extra | {"sslmode": "verify-ca"})

    shop.lake.refresh()

    assert shop.is_equal()


@pytest.mark.in_test_all
def test_rows_are_of_one_moment_and_columns_wait(shop, at_point):
    """ALTER waits for the transaction that holds the table: its lock is seen waiting, and it is done at the end."""
    shop.apply()
    shop.run("ALTER TABLE orders ADD other int")
    waits = threading.Thread(target=lambda: shop.run("ALTER TABLE orders MODIFY other varchar(9)"))
    waiting = "SELECT 1 FROM information_schema.processlist WHERE state LIKE 'Waiting for table metadata lock'"

    def write_and_alter() -> None:
        shop.run("UPDATE orders SET other = 1", "DELETE FROM orders WHERE id < 9")
        waits.start()
        while not shop.run(waiting):
            assert waits.is_alive()

    at_point("staging.after", write_and_alter)
    shop.lake.refresh()
    waits.join(30)

    assert {row[1] for row in shop.lake.rows()} == {None}
    assert not waits.is_alive()


def _end_all(shop: Shop) -> None:
    for (each,) in shop.run(f"SELECT id FROM information_schema.processlist WHERE user = '{ASKED}'"):
        shop.run(f"KILL {each}")


@pytest.mark.in_test_all
def test_rows_of_a_replica_that_lags_are_not_read_under_anothers_token(shop, at_point):
    """An address of two servers: the token is of one of them, Spark is led to the other, which lacks all rows."""
    with running_server() as replica, proxied(shop.server.port) as address:
        replica.run("", f"CREATE DATABASE {shop.name}", f"GRANT SELECT ON {shop.name}.* TO '{ASKED}'@'%'")
        replica.run(shop.name, "CREATE TABLE orders (id int PRIMARY KEY, v text)")
        shop.connect(port=address.port)
        shop.lake.apply(source=Jdbc("shop", table="orders", unchanged="snapshot"), guards={"allow_empty": True})
        at_point("staging.before", lambda: address.lead_to(replica.port))
        with pytest.raises(SourceUnavailableError, match="other server"):
            shop.lake.refresh()
        address.lead_to(shop.server.port)

        shop.lake.refresh()

    assert shop.is_equal()


@pytest.mark.in_test_all
def test_holder_that_is_ended_is_noticed(shop, at_point):
    shop.apply()
    at_point("staging.before", lambda: _end_all(shop))
    with pytest.raises(SnapshotLostError):
        shop.lake.refresh()

    shop.lake.refresh()

    assert shop.is_equal()


@pytest.mark.in_test_all
def test_connection_that_is_ended_while_it_reads_is_named(shop):
    shop.apply(table=None, query="SELECT id, v, SLEEP(0.5 + id * 0) AS wait FROM orders")
    reads = f"user = '{ASKED}' AND info LIKE '%mv_rows%' AND state = 'User sleep'"
    ended: list[Any] = []

    def end() -> None:
        until = time.monotonic() + _IN_TIME_S
        while not ended and time.monotonic() < until:
            ended.extend(shop.run(f"SELECT id FROM information_schema.processlist WHERE {reads}"))
        shop.run(f"KILL {ended[0][0]}")

    ending = threading.Thread(target=end)
    ending.start()
    with pytest.raises(SourceUnavailableError, match="connection to the server failed"):
        shop.lake.refresh()
    ending.join()

    assert shop.lake.phase() == "NORMAL"


@pytest.mark.in_test_all
def test_watermark_of_mariadb_compares_and_says_so(shop):
    shop.run("ALTER TABLE orders ADD at int DEFAULT 1")
    shop.apply(watermark="at", overlap=0, unchanged="snapshot")
    shop.lake.refresh()
    shop.run("UPDATE orders SET v = 'w', at = 2 WHERE id = 3", "DELETE FROM orders WHERE id = 4")

    report = shop.lake.refresh()

    assert report.strategy == "corrections"
    assert "one connection" in str(report.to_json())
    assert (report.rows_updated, report.rows_deleted) == (1, 1)


@pytest.mark.in_test_all
def test_password_shows_nowhere(shop, at_point, caplog, capfd):
    """As in tests/scenarios/test_canary.py, of what a source's connection passes through."""
    caplog.set_level(logging.INFO, logger="py4j")  # else a line for each call to the JVM
    caplog.set_level(logging.DEBUG)
    shop.apply()
    shop.lake.refresh()
    at_point("staging.before", lambda: _end_all(shop))
    with pytest.raises(SnapshotLostError) as lost:
        shop.lake.refresh()
    source = open_source(shop.lake.spark, shop.lake.store.table("orders").definition, shop.lake.settings.warehouse)
    rows = source.read(source.probe())
    rows.explain(mode="extended")
    source.close()

    told = ["".join(traceback.format_exception(lost.value)), caplog.text, *capfd.readouterr()]
    assert not [spelling for spelling in every_spelling([PASSWORD]) for text in told if spelling in text]


@pytest.mark.in_test_all
@pytest.mark.parametrize("point", ["acquire.before", "staging.before"])
def test_silent_server_is_named_in_time(shop, at_point, point):
    with proxied(shop.server.port) as proxy:
        shop.connect(port=proxy.port)
        shop.apply(read_timeout=_SILENT_S)
        at_point(point, proxy.swallow)
        began = time.monotonic()
        with pytest.raises(SourceUnavailableError):
            shop.lake.refresh()
        assert time.monotonic() - began < _IN_TIME_S
        proxy.forward()
        shop.lake.refresh()

    assert shop.is_equal()


# -- texts, numbers as texts, and settings of the server ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "bytes_", "begins"),
    [
        pytest.param("varchar(9) CHARACTER SET cp1250", "6181", "6181", id="a byte that cp1250 does not have"),
        pytest.param("varchar(9) CHARACTER SET ascii", "61ff", "61FF", id="a byte that ascii does not have"),
        pytest.param("varchar(9) CHARACTER SET ucs2", "0061d800", "61EDA080", id="half a surrogate pair"),
        pytest.param("varchar(9) CHARACTER SET sjis", "618540", "618540", id="two bytes that sjis does not have"),
        pytest.param("varbinary(9)", "61ff", "61FF", id="bytes that are wanted as text"),
    ],
)
@pytest.mark.sample(1)
def test_text_that_cannot_be_converted_is_an_error_and_not_a_question_mark(shop, kind, bytes_, begins):
    shop.run(f"ALTER TABLE orders ADD x {kind}", f"UPDATE orders SET x = x'{bytes_}' WHERE id = 7")
    shop.apply(columns={"x": "STRING"})

    with pytest.raises(InexactColumnError, match=f"column x has a text with bytes .* begins with {begins}"):
        shop.lake.refresh()


@pytest.mark.in_test_all
def test_texts_of_every_character_set_arrive_as_they_are(shop):
    """All bytes of latin1, and a text of each other character set that the server knows."""
    shop.run(
        "CREATE TABLE texts"
        " (id int PRIMARY KEY, l varchar(9) CHARACTER SET latin1, e enum('ž', 'b') CHARACTER SET cp1250)"
    )
    shop.run("INSERT INTO texts SELECT seq, UNHEX(LPAD(HEX(seq), 2, '0')), 'ž' FROM seq_0_to_255")
    names = [name for (name,) in shop.run("SELECT CHARACTER_SET_NAME FROM information_schema.CHARACTER_SETS")]
    names = sorted(set(names) - {"binary"})
    for name in names:
        shop.run(f"ALTER TABLE texts ADD {name}_ varchar(9) CHARACTER SET {name} DEFAULT 'a?'")
    shop.run(f"GRANT SELECT ON {shop.name}.texts TO '{ASKED}'@'%'")
    shop.apply(table="texts")

    shop.lake.refresh()

    columns = sorted(["id", "l", "e", *(f"{name}_" for name in names)])
    rows = {row["id"]: row for row in (dict(zip(columns, row, strict=True)) for row in shop.lake.rows())}
    undefined = {0x81, 0x8D, 0x8F, 0x90, 0x9D}  # in Windows' table; MariaDB's has control characters there
    assert [rows[i]["l"] for i in range(256)] == [
        chr(i) if i in undefined else bytes([i]).decode("cp1252") for i in range(256)
    ]
    assert len(names) > 30
    assert {value for name, value in rows[7].items() if name not in ("id", "l", "e")} == {"a?"}
    assert rows[7]["e"] == "ž"


FLOATS = [16777216.0, 16777215.0, 16777214.0, 0.1, -3.4028234663852886e38, 1.1754943508222875e-38, 1e15, 0.0]


@pytest.mark.parametrize("kind", ["STRING", "DECIMAL(38,0)", "DOUBLE"])
@pytest.mark.sample("STRING")
def test_float_is_exactly_that_number_whatever_its_type_becomes(shop, kind):
    """The server's own text of a FLOAT has six digits: 16777216 and 16777215 would both be 16777200."""
    floats = FLOATS[:3] if kind.startswith("DECIMAL") else FLOATS
    rows = ", ".join(f"({i}, {value!r})" for i, value in enumerate(floats))
    shop.run("CREATE TABLE floats (id int PRIMARY KEY, v float)", f"INSERT INTO floats VALUES {rows}")
    shop.run(f"GRANT SELECT ON {shop.name}.floats TO '{ASKED}'@'%'")
    shop.apply(table="floats", columns={"v": kind})
    shop.lake.refresh()
    shop.run("UPDATE floats SET v = IF(id = 0, 16777215, 16777216) WHERE id < 2")

    report = shop.lake.refresh()

    found = dict(shop.lake.rows())
    single = [struct.unpack("f", struct.pack("f", value))[0] for value in (FLOATS[1], FLOATS[0], *floats[2:])]
    assert report.rows_updated == 2
    assert [struct.unpack("f", struct.pack("f", float(found[i])))[0] for i in range(len(floats))] == single
    assert kind != "DOUBLE" or [found[i] for i in range(len(floats))] == single
    assert kind != "STRING" or found[3] == "0.1"


@pytest.mark.in_test_all
def test_number_of_any_type_is_exact_as_text(shop):
    shop.run(
        "CREATE TABLE numbers (id int PRIMARY KEY, d double, d2 double(20, 2), f2 float(7, 4), bt bit(64), y year,"
        " z int(5) zerofill, n decimal(65, 30), i bigint unsigned, t time(6))",
        "INSERT INTO numbers VALUES (1, 0.1e0 + 0.2e0, 1e17, 123.4567, x'ffffffffffffffff', 2024, 42,"
        " 12345678901234567890123456789012345.123456789012345678901234567891, 18446744073709551615,"
        " '-838:59:59.123456')",
        f"GRANT SELECT ON {shop.name}.numbers TO '{ASKED}'@'%'",
    )
    names = ["bt", "d", "d2", "f2", "i", "n", "t", "y", "z"]
    shop.apply(table="numbers", columns=dict.fromkeys(names, "STRING"))

    shop.lake.refresh()

    (row,) = shop.lake.rows()
    assert dict(zip(sorted([*names, "id"]), row, strict=True)) == {
        **{"bt": str(2**64 - 1), "d": "0.30000000000000004", "d2": "1e17", "f2": "123.4567", "i": str(2**64 - 1)},
        **{"n": "12345678901234567890123456789012345.123456789012345678901234567891", "id": 1},
        **{"t": "-838:59:59.123456", "y": "2024", "z": "00042"},
    }


_SETTINGS = [
    pytest.param("sql_mode='PAD_CHAR_TO_FULL_LENGTH'", id="padded"),
    "sql_mode='ANSI_QUOTES,NO_BACKSLASH_ESCAPES,PIPES_AS_CONCAT,PAD_CHAR_TO_FULL_LENGTH'",
    "time_zone='+05:30'",
    "character_set_results='latin1'",
    "character_set_connection='latin1'",
    "collation_connection='cp1250_general_ci'",
    "sql_select_limit=1",
    "max_statement_time=0.000001",
    "sql_mode='ORACLE'",
    "idle_transaction_timeout=1",
    "idle_readonly_transaction_timeout=1",
    "lc_time_names='de_DE'",
    "div_precision_increment=10",
]


@pytest.mark.in_test_all
@pytest.mark.parametrize("place", ["server", "login"])
@pytest.mark.parametrize("setting", _SETTINGS)
@pytest.mark.sample("padded-login")
def test_no_setting_of_the_server_changes_a_value(shop, setting, place):
    """A key that is padded would delete and insert every row; `init_connect` sets what a login begins with."""
    shop.run(
        "CREATE TABLE many (id char(5) PRIMARY KEY, f float, d double, t timestamp, n decimal(5,2), tm time(3), v text,"
        " e enum('ž', 'b') CHARACTER SET cp1250, j json, bt bit(3))",
        "SET time_zone = '+00:00'",
        "INSERT INTO many VALUES ('a', 0.1, 0.1, '2024-01-01 10:00', 1.5, '10:00', 'é\\\\', 'ž', '{}', b'101')",
        "INSERT INTO many (id) VALUES ('b')",
        f"GRANT SELECT ON {shop.name}.many TO '{ASKED}'@'%'",
    )
    shop.apply(table="many", columns=dict.fromkeys(["f", "d", "t", "n", "tm", "v", "e", "j", "bt"], "STRING"))
    shop.lake.refresh()
    before = shop.lake.rows()
    name = setting.partition("=")[0]
    (was,) = shop.run(f"SELECT @@GLOBAL.{name}")[0]
    shop.run(f"SET GLOBAL {setting}" if place == "server" else f'SET GLOBAL init_connect = "SET {setting}"')
    try:
        report = shop.lake.refresh()
    finally:
        shop.run("SET GLOBAL init_connect = ''", f"SET GLOBAL {name} = {was!r}")

    assert (report.rows_inserted, report.rows_updated, report.rows_deleted) == (0, 0, 0)
    assert shop.lake.rows() == before


@pytest.mark.in_test_all
@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("SELECT id, v, v FROM orders", "Duplicate column name 'v'"),
        ("SELECT id, (SELECT v FROM orders) AS v FROM orders", "more than 1 row"),
        ("SELECT id, 18446744073709551615 + id AS v FROM orders", "out of range"),
        ("SELECT id, v FROM orders WHERE id = ?", "syntax"),
    ],
)
def test_query_that_no_retry_mends_is_a_definition_error(shop, query, words):
    shop.apply(table=None, query=query)

    with pytest.raises(DefinitionError, match=words):
        shop.lake.refresh()
