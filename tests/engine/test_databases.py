"""A real PostgreSQL as source: what is read, at which moment, by whom; and what happens to values that do not fit."""

from __future__ import annotations

import json
import logging
import random
import re
import threading
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import psycopg
import pytest
from psycopg import sql
from sqlalchemy.engine import make_url

from airflow_mv_provider.core.outcome import Outcome
from airflow_mv_provider.core.secret import every_spelling
from airflow_mv_provider.exceptions import (
    ConnectionUnknownError,
    DefinitionError,
    InexactColumnError,
    SnapshotLostError,
    SourceDeniedError,
    SourceNotFoundError,
    SourceUnavailableError,
)
from airflow_mv_provider.sources.jdbc.model import Jdbc
from airflow_mv_provider.sources.jdbc.postgres_types import EPOCH
from airflow_mv_provider.sources.table_source import open_source
from scripts.ports import free_port
from tests.conftest import Crash, Lake
from tests.postgres import ASKED

pytestmark = [pytest.mark.slow, pytest.mark.in_process]

PASSWORD = "c4n4ry/p4ss w@rd"


@dataclass
class Shop:
    """A database, its owner, and a lake that reads it as a role that may do nothing but that."""

    lake: Lake
    address: str
    monkeypatch: pytest.MonkeyPatch

    def run(self, *statements: str) -> list[tuple[Any, ...]]:
        """Run statements as the owner, each in its own transaction; return the rows of the last."""
        found = None
        with psycopg.connect(self.address, autocommit=True) as connection:
            for each in statements:
                found = connection.execute(each)  # type: ignore[arg-type]
            return found.fetchall() if found and found.pgresult and found.pgresult.nfields else []

    def connect(self, **changes: Any) -> None:
        at = make_url(self.address)
        known = {"conn_type": "postgres", "host": "127.0.0.1", "port": at.port, "schema": at.database}
        known |= {"login": ASKED, "password": PASSWORD}
        self.monkeypatch.setenv("AIRFLOW_CONN_SHOP", json.dumps(known | changes))

    def apply(self, **source: Any) -> None:
        self.lake.apply(source=Jdbc("shop", **({"table": "public.orders"} | source)))

    def refresh(self, **more: Any) -> Any:
        return self.lake.refresh(**more)

    def is_equal(self, query: str = "SELECT id, v FROM orders") -> bool:
        """True if main is what the owner reads, as a multiset of full rows."""
        return self.lake.rows() == sorted(self.run(query), key=repr)


@pytest.fixture
def shop(lake: Lake, postgres: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shop]:
    found = Shop(lake, postgres.new_database(), monkeypatch)
    role = sql.SQL("CREATE ROLE {} LOGIN PASSWORD {}").format(sql.Identifier(ASKED), sql.Literal(PASSWORD))
    with psycopg.connect(found.address, autocommit=True) as connection:
        if not connection.execute("SELECT FROM pg_roles WHERE rolname = %s", [ASKED]).fetchall():
            connection.execute(role)
    found.connect()
    found.run(
        "CREATE TABLE orders (id int PRIMARY KEY, v text)",
        "INSERT INTO orders SELECT i, 'v' || i FROM generate_series(1, 40) AS i",
        f"GRANT SELECT ON orders TO {ASKED}",
    )
    yield found
    found.run(f"REASSIGN OWNED BY {ASKED} TO mv", f"DROP OWNED BY {ASKED}")


def test_table_follows_its_source_and_is_skipped_while_nothing_is_written(shop):
    shop.apply(split={"column": "id", "parts": 3})
    first, nothing = shop.refresh(), shop.refresh()
    shop.run(
        "UPDATE orders SET v = NULL WHERE id = 3", "DELETE FROM orders WHERE id = 40", "INSERT INTO orders SELECT 99"
    )
    changed = shop.refresh()

    assert (first.outcome, first.rows_inserted) == (Outcome.PUBLISHED, 40)
    assert (nothing.outcome, nothing.strategy) == (Outcome.NOTHING_TO_DO, "skip")
    assert (changed.rows_inserted, changed.rows_updated, changed.rows_deleted) == (1, 1, 1)
    assert shop.is_equal()
    assert shop.run(f"SELECT query FROM pg_stat_activity WHERE usename = '{ASKED}'") == [], "no connection is left"


@pytest.mark.in_test_all
def test_open_transaction_is_seen_once_it_has_committed(shop):
    with psycopg.connect(shop.address) as writer:
        writer.execute("UPDATE orders SET v = 'late' WHERE id = 1")
        shop.apply()
        shop.refresh()
        before = shop.lake.rows()[0]
        writer.commit()
    shop.refresh()

    assert (before, shop.lake.rows()[0]) == ((1, "v1"), (1, "late"))
    assert shop.is_equal()


@pytest.mark.in_test_all
def test_rows_are_of_one_moment_while_others_write(shop, at_point):
    shop.apply(split={"column": "id", "parts": 4})
    shop.run("ALTER TABLE orders ADD COLUMN other int")
    at_point("staging.before", lambda: shop.run("UPDATE orders SET other = 1", "DELETE FROM orders WHERE id < 9"))

    shop.refresh()

    assert {row[1] for row in shop.lake.rows()} in ({None}, {1})


# The types that Spark's own JDBC reader takes as they are, or rounds, or replaces, and extremes of each.
TYPES = """
CREATE TABLE orders2 (id int, b bool, i2 int2, i8 int8, f4 float4, f8 float8, n numeric(20, 5), t text, c char(5),
  by bytea, d date, ts timestamp, tz timestamptz, u uuid, j jsonb, tm time, iv interval, ia int[], ta text[], o oid,
  "a ""b" varchar(9), big numeric, x numeric(50, 20), day date)
"""
VALUES = """
INSERT INTO orders2 VALUES
 (1, true, -32768, 9223372036854775807, 1.5, 0.1, 123456789012345.12345, 'é''"', 'ab', '\\x00ff', '0001-01-01',
  '2024-03-31 02:30:00.123456', '2024-03-31 02:30:00+02', '6b1b36cb-f1d4-45f8-a7a3-75b7b9e4a9a3', '{"a": 1}',
  '24:00', '1 day 02:00', '{1,NULL,3}', '{a,NULL}', 4294967295, 'q', 12345678901234567890.25, 1.5, 'infinity'),
 (2, NULL, NULL, NULL, 'NaN', '-Infinity', NULL, '', NULL, NULL, '9999-12-31', '0001-01-01', '1582-10-10 00:00Z', NULL,
  NULL, NULL, NULL, '{}', NULL, NULL, NULL, NULL, NULL, NULL)
"""


def test_values_arrive_as_they_are(shop):
    shop.run(TYPES, VALUES, f"GRANT SELECT ON orders2 TO {ASKED}")
    shop.apply(table="public.orders2", columns={"big": "decimal(30, 2)", "x": "STRING", "day": "STRING"})

    shop.refresh()

    columns = ["id", "b", "i2", "i8", "f4", "f8", "n", "t", "c", "by", "d", "ts", "tz", "u", "j", "tm", "iv", "ia"]
    columns += ["ta", "o", 'a "b', "big", "x", "day"]
    rows = [dict(zip(sorted(columns), row, strict=True)) for row in shop.lake.rows()]
    one, two = ([row[name] for name in columns] for row in sorted(rows, key=lambda row: row["id"]))
    assert one == [
        *(1, True, -32768, 2**63 - 1, 1.5, 0.1, Decimal("123456789012345.12345"), "é'\"", "ab", b"\x00\xff"),
        *(date(1, 1, 1), datetime(2024, 3, 31, 2, 30, 0, 123456, UTC), datetime(2024, 3, 31, 0, 30, tzinfo=UTC)),
        *("6b1b36cb-f1d4-45f8-a7a3-75b7b9e4a9a3", '{"a": 1}', "24:00:00", "1 day 02:00:00", (1, None, 3)),
        *(("a", None), 4294967295, "q", Decimal("12345678901234567890.25"), "1.50000000000000000000", "infinity"),
    ]
    assert two[:14] == [
        *(2, None, None, None, "NaN", float("-inf"), None, "", None, None, date(9999, 12, 31)),
        *(datetime(1, 1, 1, tzinfo=UTC), datetime(1582, 10, 10, tzinfo=UTC), None),
    ]


@pytest.mark.parametrize(
    ("column", "value", "columns", "words"),
    [
        ("numeric", "1.5", {}, "Spark has no exact type for x (numeric)"),
        ("numeric(50, 20)", "1.5", {}, "x (numeric(50,20))"),
        ("point[]", "NULL", {}, "x (point[])"),
        ("numeric(5, 2)", "'NaN'", {}, "column x has the value 'NaN'"),
        ("date", "'infinity'", {}, "column x has the value 'infinity'"),
        ("timestamptz", "'-infinity'", {}, "column x has the value '-infinity'"),
        ("int[]", "'{{1},{2}}'", {}, "column x has the value '{{1},{2}}'"),
        ("numeric", "1.25", {"x": "DECIMAL(5,1)"}, "column x has the value '1.25'"),
        ("numeric", "100000", {"x": "DECIMAL(5,1)"}, "column x has the value '100000'"),
        ("timestamp", "'2024-01-01 10:00'", {"x": "DATE"}, "column x has the value '2024-01-01 10:00:00'"),
    ],
    ids=lambda each: str(each)[:20],
)
@pytest.mark.sample(1)
def test_value_or_type_that_spark_would_change_is_an_error(shop, column, value, columns, words):
    shop.run(f"ALTER TABLE orders ADD x {column}", f"UPDATE orders SET x = {value} WHERE id = 7")
    shop.apply(columns=columns)

    with pytest.raises(InexactColumnError) as caught:
        shop.refresh()

    assert words in str(caught.value)
    assert "columns" in caught.value.advice
    assert shop.lake.phase() == "NORMAL"


@pytest.mark.parametrize("kind", ["timestamp", "timestamptz"])
def test_times_are_exact_where_the_servers_epoch_is_a_double(postgres, kind):
    """It is one before PostgreSQL 14, whose `extract` is what `date_part` still is."""
    ends = (-62_135_596_800_000_000, 253_402_300_799_999_999)  # of the years 1 and 9999
    draw = random.Random(0)
    wanted = [*ends, -1_000_001, -1_000_000, -1, 0, 1, *(draw.randint(*ends) for _ in range(2000))]
    times = [(datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=each)).isoformat(" ") for each in wanted]
    now = EPOCH[kind][1].format("it")
    before_14 = re.sub(r"extract\((\w+) FROM ", r"date_part('\1', ", now)

    with psycopg.connect(postgres.new_database(), options="-c TimeZone=UTC") as connection:
        sql = f"SELECT {now}, {before_14} FROM unnest(%s::text[]::{kind}[]) WITH ORDINALITY AS t (it, n) ORDER BY n"
        found = connection.execute(sql.replace("% 1", "%% 1"), [times]).fetchall()

    assert found == [(each, each) for each in wanted]


# -- whether anything is new -------------------------------------------------------------------------------------------


@pytest.mark.in_test_all
@pytest.mark.parametrize(
    ("statements", "source", "why"),
    [
        ([], {"table": None, "query": "SELECT id, v FROM orders"}, "a query may depend"),
        (["CREATE VIEW w AS SELECT * FROM orders", f"GRANT SELECT ON w TO {ASKED}"], {"table": "public.w"}, "a view"),
        (["ALTER TABLE orders SET UNLOGGED"], {"unchanged": "snapshot"}, "loses its rows in a crash"),
        ([], {"select": ("id", "v", "current_date() AS today")}, "not deterministic"),
        ([], {"unchanged": "compare"}, "unchanged: compare"),
        ([], {"table": None, "query": "SELECT id, v FROM orders", "unchanged": "snapshot"}, None),
    ],
)
@pytest.mark.sample(1)
def test_source_whose_rows_depend_on_more_than_its_tables_is_compared(shop, statements, source, why):
    shop.run(*statements)
    shop.apply(**source)
    shop.refresh()

    again = shop.refresh()

    assert (again.outcome is Outcome.NOTHING_TO_DO) is (why is None)
    assert why is None or why in again.reason


@pytest.mark.in_test_all
def test_restart_of_the_server_is_a_reason_to_compare(shop, postgres):
    shop.apply()
    shop.refresh()
    postgres.kill()
    postgres.start()

    again = shop.refresh()

    assert again.strategy == "corrections"
    assert shop.refresh().strategy == "skip"
    assert shop.is_equal()


@pytest.mark.in_test_all
def test_size_of_what_is_read_is_known_or_unknown_and_never_too_small(shop):
    """A small source is read by plans that are not compiled: of a view, or of large values, that would take hours."""
    shop.run(
        "CREATE TABLE large (id int, v text)",
        "ALTER TABLE large ALTER v SET STORAGE EXTERNAL",
        "INSERT INTO large SELECT i, repeat('x', 100000) FROM generate_series(1, 40) AS i",
        "CREATE VIEW w AS SELECT * FROM large",
        "CREATE TABLE parts (id int, v text) PARTITION BY LIST (id)",
        "CREATE TABLE part_1 PARTITION OF parts FOR VALUES IN (1)",
        "INSERT INTO parts VALUES (1, 'a')",
        *(f"GRANT SELECT ON {name} TO {ASKED}" for name in ("large", "w", "parts")),
    )
    found = {}
    for name in ("orders", "large", "w", "parts"):
        shop.apply(table=f"public.{name}")
        definition = shop.lake.store.table("orders").definition
        source = open_source(shop.lake.spark, definition, shop.lake.settings.warehouse)
        found[name] = source.reader.num_bytes(source.probe())

    assert found["w"] is None
    assert max(found["parts"], found["orders"]) < 1 << 20 < 4_000_000 < found["large"]
    assert min(found["parts"], found["orders"]) > 0


# -- what fails --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("connection", "source", "error", "words"),
    [
        ({"password": "wrong"}, {}, SourceDeniedError, "refuses the login"),
        ({"schema": "nowhere"}, {}, SourceDeniedError, '"nowhere" does not exist'),
        ({"port": 0}, {}, SourceUnavailableError, "refused"),
        ({}, {"table": "public.missing"}, SourceNotFoundError, '"public.missing" does not exist'),
        ({}, {"table": "orders"}, DefinitionError, "public.orders"),
        ({}, {"table": "public.secret"}, SourceDeniedError, "GRANT SELECT"),
        ({}, {"split": {"column": "v", "parts": 2}}, DefinitionError, "'v' is of type text"),
        ({}, {"split": {"column": "w", "parts": 2}}, DefinitionError, "'w' is not one of its columns"),
        ({}, {"columns": {"w": "STRING"}}, DefinitionError, "not among id, v"),
        ({}, {"table": None, "query": "SELECT 1; SELECT 2"}, DefinitionError, 'at or near ";"'),
        ({}, {"table": None, "query": "SELECT nothing FROM orders"}, DefinitionError, '"nothing" does not exist'),
        ({"conn_type": "oracle"}, {}, ConnectionUnknownError, "'oracle'"),
    ],
)
@pytest.mark.sample(1)
def test_what_is_wrong_is_named(shop, connection, source, error, words):
    shop.run("CREATE TABLE secret (id int)")
    shop.connect(**({"port": free_port()} if "port" in connection else connection))
    shop.apply(**source)

    with pytest.raises(error) as caught:
        shop.refresh()

    assert words in str(caught.value)
    assert caught.value.advice
    assert PASSWORD not in repr(caught.value.__dict__) + str(caught.value)
    assert shop.lake.phase() == "NORMAL"


@pytest.mark.in_test_all
def test_connection_that_is_not_there_is_named(shop, monkeypatch):
    monkeypatch.delenv("AIRFLOW_CONN_SHOP")
    shop.apply()

    with pytest.raises(ConnectionUnknownError, match="AIRFLOW_CONN_SHOP"):
        shop.refresh()


@pytest.mark.in_test_all
def test_holder_that_is_ended_loses_the_snapshot(shop, at_point):
    end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = %s"

    def kill() -> None:
        with psycopg.connect(shop.address) as owner:
            assert owner.execute(end, [ASKED]).fetchall() == [(True,)], "the holder is the only connection"

    shop.apply()
    at_point("staging.before", kill)
    with pytest.raises(SnapshotLostError):
        shop.refresh()

    assert shop.refresh().rows_inserted == 40
    assert shop.is_equal()


@pytest.mark.in_test_all
def test_truncate_waits_for_the_rows(shop, at_point):
    """Its rows are locked before the snapshot is taken; a reader that comes after the TRUNCATE gives up, not waits."""
    from airflow_mv_provider.sources.jdbc import postgresql

    shop.monkeypatch.setattr(postgresql, "_SET", postgresql._SET.replace("'30000'", "'300'"))
    waits = threading.Thread(target=lambda: shop.run("TRUNCATE orders"))
    is_waiting = "SELECT pid FROM pg_locks WHERE NOT granted AND mode = 'AccessExclusiveLock'"

    def truncate() -> None:
        waits.start()
        while not shop.run(is_waiting):
            pass

    shop.apply()
    at_point("staging.before", truncate)
    with pytest.raises(SourceUnavailableError, match="another session"):
        shop.refresh()
    waits.join(30)

    shop.refresh()
    assert shop.is_equal()
    assert shop.lake.rows() == []


@pytest.mark.in_test_all
@pytest.mark.parametrize("point", ["staging.after", "seal.after", "publish.before"])
@pytest.mark.sample(1)
def test_crash_is_continued(shop, crash_at, point):
    shop.apply()
    shop.refresh()
    shop.run("UPDATE orders SET v = 'w' WHERE id < 5", "DELETE FROM orders WHERE id = 20")
    crash_at(point)
    with pytest.raises(Crash):
        shop.refresh()
    shop.run("UPDATE orders SET v = 'x' WHERE id = 6")
    shop.lake.clock.pass_ms(shop.lake.settings.lease_ms + 1)

    shop.refresh()
    shop.refresh()

    assert shop.is_equal()
    assert shop.run(f"SELECT query FROM pg_stat_activity WHERE usename = '{ASKED}'") == []


@pytest.mark.in_test_all
def test_password_of_a_source_shows_nowhere(shop, at_point, caplog, capfd):
    """As in tests/scenarios/test_canary.py, of what a source's connection passes through."""
    caplog.set_level(logging.INFO, logger="py4j")  # else a line for each call to the JVM
    caplog.set_level(logging.DEBUG)
    end = f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = '{ASKED}'"
    shop.apply(split={"column": "id", "parts": 2})
    shop.refresh()
    shop.run("DELETE FROM orders WHERE id = 1")
    at_point("staging.before", lambda: shop.run(end))
    with pytest.raises(SnapshotLostError) as lost:  # Spark's error, with its plan, is the cause
        shop.refresh()
    source = open_source(shop.lake.spark, shop.lake.store.table("orders").definition, shop.lake.settings.warehouse)
    rows = source.read(source.probe())
    rows.explain(mode="extended")
    source.close()

    told = ["".join(traceback.format_exception(lost.value)), caplog.text, *capfd.readouterr()]
    told += [str(report.to_json()) for report in shop.lake.store.history(shop.lake.store.table("orders").id)]
    assert "PSQLException" in told[0]
    assert "JDBCRelation" in "".join(told)
    for secret in every_spelling([PASSWORD]):
        assert [text for text in told if secret in text] == []
        files = [path for path in shop.lake.root.parent.rglob("*") if path.is_file()]
        assert [path for path in files if secret.encode() in path.read_bytes()] == []


# -- texts and numbers as texts ----------------------------------------------------------------------------------------


@pytest.fixture
def in_encoding(shop, postgres):
    """Make the shop read a database of another encoding, beside its own."""
    made = []

    def create(encoding: str, *statements: str) -> None:
        name = f"{make_url(shop.address).database}_{encoding.lower()}"
        shop.run(f"CREATE DATABASE {name} ENCODING '{encoding}' TEMPLATE template0 LC_COLLATE 'C' LC_CTYPE 'C'")
        made.append(name)
        address = make_url(shop.address).set(database=name, query={"client_encoding": "utf8"})
        with psycopg.connect(address.render_as_string(), autocommit=True) as connection:
            for each in ("CREATE TABLE texts (id int PRIMARY KEY, v text)", *statements):
                connection.execute(each)
            connection.execute(f"GRANT SELECT ON texts TO {ASKED}")
        shop.connect(schema=name)
        shop.apply(table="public.texts")

    yield create
    for name in made:
        shop.run(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.mark.parametrize("encoding", ["SQL_ASCII", "LATIN1", "EUC_JP"])
@pytest.mark.sample("SQL_ASCII")
def test_database_of_another_encoding_is_read_as_it_is(shop, in_encoding, encoding):
    """Of SQL_ASCII a client that does not ask for UTF-8 is given bytes, for the names of types, too."""
    text = "あ" if encoding == "EUC_JP" else "é"
    in_encoding(encoding, f"INSERT INTO texts VALUES (1, '{text}'), (2, NULL), (3, '')")

    shop.refresh()

    assert sorted(shop.lake.rows()) == [(1, text), (2, None), (3, "")]


@pytest.mark.in_test_all
@pytest.mark.parametrize(
    ("encoding", "value"),
    [("SQL_ASCII", r"E'a\xff'"), ("WIN1252", r"E'a\x81'"), ("SQL_ASCII", r"E'\xed\xa0\x80'")],
)
@pytest.mark.sample(1)
def test_text_without_a_place_in_utf_8_is_an_error(shop, in_encoding, encoding, value):
    in_encoding(encoding, "SET client_encoding = 'SQL_ASCII'", f"INSERT INTO texts VALUES (1, {value})")

    with pytest.raises(InexactColumnError, match="not a character") as caught:
        shop.refresh()

    assert "hexadecimal" in caught.value.advice
    shop.apply(table=None, query="SELECT id, encode(convert_to(v, getdatabaseencoding()), 'hex') AS v FROM texts")
    shop.refresh()
    assert {row[0] for row in shop.lake.rows()} == {1}


NUMBERS = [
    ("float4", "16777216", "STRING", "1.6777216e+07"),
    ("float4", "0.1", "STRING", "0.1"),
    ("float4", "0.1", "DOUBLE", 0.10000000149011612),
    ("float8", "0.1::float8 + 0.2", "STRING", "0.30000000000000004"),
    ("float4", "16777216", "DECIMAL(20,0)", Decimal(16777216)),
    ("float8", "1.5e-05", "DECIMAL(6,6)", Decimal("0.000015")),
    ("float8", "1.5e-05", "DECIMAL(5,5)", None),
    ("float8", "1e20", "DECIMAL(20,0)", None),
    ("numeric", "1e400", "DOUBLE", None),
    ("text", "'1d'", "DOUBLE", None),
    ("text", "'0x1p3'", "DOUBLE", None),
    ("text", "'1e-400'", "DOUBLE", None),
    ("text", "'-0.0e5'", "DOUBLE", -0.0),
    ("text", "'-1.5E-3'", "DOUBLE", -0.0015),
    ("float8", "'-Infinity'", "DOUBLE", float("-inf")),
    ("text", "'2024-01'", "TIMESTAMP", None),
    ("text", "'2024-1-5 10:00'", "TIMESTAMP", datetime(2024, 1, 5, 10, tzinfo=UTC)),
    ("money", "-1234.5", "STRING", "-1234.50"),
    ("money", "-1234.5", "DECIMAL(19,2)", Decimal("-1234.50")),
    ("bit(3)", "B'101'", "STRING", "101"),
    ("bit(3)", "B'101'", "INT", None),
    ("varbit", "B'11'", "DECIMAL(5,0)", None),
    ("bit(1)", "B'1'", "BOOLEAN", True),
    ("interval", "'-1 day 02:00:00.5'", "STRING", "-1 days +02:00:00.5"),
    ("regrole", "'mv'", "STRING", "10"),
    ("regrole[]", "NULL", "STRING", None),
    ("money[]", "NULL", "STRING", None),
    ("float4[]", "'{0.1}'", "STRING", "{0.1}"),
    ("numeric(30,0)", "123456789012345678901234567890", "STRING", "123456789012345678901234567890"),
]


@pytest.mark.parametrize(("column", "value", "kind", "arrives"), NUMBERS)
@pytest.mark.sample(1)
def test_number_becomes_another_type_exactly_or_not_at_all(shop, column, value, kind, arrives):
    shop.run(f"ALTER TABLE orders ADD x {column}", f"UPDATE orders SET x = {value}")
    shop.apply(columns={"x": kind})
    if arrives is None:
        with pytest.raises(InexactColumnError):
            shop.refresh()
        return

    shop.refresh()

    assert {row[2] for row in shop.lake.rows()} == {arrives}


# -- settings ----------------------------------------------------------------------------------------------------------

SHOWN = """
CREATE TABLE shown (id char(5) PRIMARY KEY, f4 float4, f8 float8, by bytea, x xml, iv interval, tz timestamptz,
  tr tstzrange, mo money, d date, rc regclass, j jsonb, fa float4[], t text)
"""
SHOWN_VALUES = """
INSERT INTO shown VALUES ('a', 0.1, 0.1, '\\x00ff', '<a/>', '-1 day 02:00:00.5', '2024-01-01 00:00+01',
  '[2024-01-01 00:00+01,)', -1234.5, '2024-02-03', 'orders', '{"a": 0.1}', '{0.1}', 'a\\b''é')
"""
SETTINGS = {
    **{"bytea_output": "escape", "extra_float_digits": "-10", "xmlbinary": "hex", "xmloption": "document"},
    **{"IntervalStyle": "iso_8601", "TimeZone": "Asia/Kolkata", "DateStyle": "SQL, DMY", "lc_monetary": "C.utf8"},
    **{"quote_all_identifiers": "on", "search_path": "pg_catalog", "standard_conforming_strings": "off"},
    **{"client_encoding": "latin1", "default_transaction_isolation": "serializable", "lc_numeric": "C.utf8"},
    **{"statement_timeout": "1"},
}


@pytest.mark.parametrize("place", ["role", "database", "server"])
@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.sample("bytea_output-role")
def test_no_setting_changes_a_value(shop, setting, place):
    value = SETTINGS[setting] if setting == "search_path" else f"'{SETTINGS[setting]}'"
    database = make_url(shop.address).database
    where = {"role": f"ALTER ROLE {ASKED}", "database": f"ALTER DATABASE {database}", "server": "ALTER SYSTEM"}[place]
    shop.run(SHOWN, SHOWN_VALUES, "INSERT INTO shown (id) VALUES ('b')", f"GRANT SELECT ON shown TO {ASKED}")
    names = ["f4", "f8", "by", "x", "iv", "tz", "tr", "mo", "d", "rc", "j", "fa", "t"]
    shop.apply(table="public.shown", columns=dict.fromkeys(names, "STRING"), unchanged="compare")
    shop.refresh()
    before = shop.lake.rows()
    shop.run(f"{where} SET {setting} = {value}", "SELECT pg_reload_conf()")
    try:
        report = shop.refresh()
    finally:
        shop.run("SET statement_timeout = 0", f"{where} RESET {setting}", "SELECT pg_reload_conf()")

    assert (report.rows_inserted, report.rows_updated, report.rows_deleted) == (0, 0, 0)
    assert shop.lake.rows() == before


# -- what no retry mends -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("query", "words"),
    [
        pytest.param("SELECT id, v FROM orders WHERE '{\"a\": 1}'::jsonb ? 'a'", "jsonb_exists", id="question mark"),
        ("SELECT id, v, v FROM orders", "two columns are named 'v'"),
        ('SELECT id, v, 1 AS "V" FROM orders', "'v' and 'V' are one name"),
        ("SELECT id, id + 1, id + 2 FROM orders", "two columns are named '?column?'"),
        ("SELECT id, 1 / (id - 7) AS v FROM orders", "division by zero"),
        ("SELECT id, v::int AS v FROM orders", "invalid input syntax"),
        ("SELECT id, 2147483647 + id AS v FROM orders", "out of range"),
        ("SELECT id, (SELECT v FROM orders) AS v FROM orders", "more than one row"),
    ],
)
@pytest.mark.sample("question mark")
def test_query_that_no_retry_mends_is_a_definition_error(shop, query, words):
    shop.apply(table=None, query=query)

    with pytest.raises(DefinitionError) as caught:
        shop.refresh()

    assert words in f"{caught.value} {caught.value.advice}"


@pytest.mark.in_test_all
def test_question_mark_inside_quotes_is_none_of_jdbcs(shop):
    shop.apply(table=None, query="SELECT id, '?' || v AS \"v ?\" /* ? */ FROM orders WHERE v <> $$?$$ -- ?")

    shop.refresh()

    assert (1, "?v1") in shop.lake.rows()


@pytest.mark.parametrize("column", ["mood[]", "pair", "mood_range"])
@pytest.mark.sample("mood[]")
def test_type_of_a_user_is_named_by_its_name(shop, column):
    shop.run("CREATE TYPE mood AS ENUM ('a', 'b')", "CREATE TYPE pair AS (a int, b text)")
    shop.run("CREATE TYPE mood_range AS RANGE (subtype = int8)", f"ALTER TABLE orders ADD x {column}")
    shop.apply()

    with pytest.raises(InexactColumnError) as caught:
        shop.refresh()

    assert f"x ({column})" in str(caught.value)
    shop.apply(columns={"x": "STRING"})
    assert shop.refresh().rows_inserted == 40
