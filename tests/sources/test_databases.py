"""What a definition of a database may say, how its connection is found, and how its rows are divided."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from airflow_mv_provider.core.changeset import Whole
from airflow_mv_provider.exceptions import (
    ConnectionUnknownError,
    DefinitionError,
    SettingError,
    SourceDeniedError,
    SourceUnavailableError,
    UnsafeLocationError,
)
from airflow_mv_provider.sources.credentials import Credentials, confined_to, of_environment
from airflow_mv_provider.sources.jdbc.dialect import parts
from airflow_mv_provider.sources.jdbc.frontier import JdbcFrontier
from airflow_mv_provider.sources.jdbc.mariadb_types import Field, column, quoted
from airflow_mv_provider.sources.jdbc.model import Jdbc
from airflow_mv_provider.sources.jdbc.reader import JdbcReader
from airflow_mv_provider.sources.jdbc.row_versions import obstacle_between, written_since
from airflow_mv_provider.spark.causes.databases import of_database

SECRET = "p@ss:w/rd"


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({}, "either a table or a query"),
        ({"table": "a.b", "query": "SELECT 1"}, "either a table or a query"),
        ({"table": "a.b.c"}, "more than two parts"),
        ({"table": "a."}, "schema.name"),
        ({"query": "DELETE FROM a"}, "expected one query"),
        ({"table": "a.b", "columns": {"x": "DECIMAL(39,2)"}}, "none of STRING"),
        ({"table": "a.b", "columns": {"x": "DECIMAL(5,6)"}}, "more decimals"),
        ({"table": "a.b", "changes": "watermark"}, "needs a watermark"),
        ({"table": "a.b", "watermark": "x", "changes": "xmin"}, "needs a watermark"),
        ({"table": "a.b", "overlap": 1}, "overlap needs a watermark"),
        ({"table": "a.b", "watermark": "x", "overlap": -1}, "greater than or equal to 0"),
        ({"query": "SELECT 1", "changes": "xmin"}, "needs a table"),
        ({"table": "a.b", "watermark": "x", "select": ("id", "x + 1 AS x")}, "select has to contain the watermark"),
        ({"table": "a.b", "split": {"column": "x", "parts": 1000}}, "less than or equal to 64"),
        *(({"table": "a.b", name: "x"}, "Extra inputs") for name in ("url", "driver", "sessionInitStatement")),
    ],
)
def test_definition_that_cannot_be_is_refused(given, words):
    with pytest.raises(ValidationError, match=words):
        Jdbc("shop", **given)


@pytest.mark.parametrize("conn_id", ["a b", "a-b", "", "x" * 200])
def test_connection_has_an_id_that_a_variable_can_have(conn_id):
    with pytest.raises(ValidationError, match="conn"):
        Jdbc(conn_id, table="a.b")


WHOLE = Credentials("shop", "postgres", "db.example", 5433, "erp", "reader", SECRET, {"sslmode": "require"})


@pytest.mark.parametrize(
    "text",
    [
        "postgres://reader:p%40ss%3Aw%2Frd@db.example:5433/erp?sslmode=require",
        json.dumps(
            {"conn_type": "postgres", "host": "db.example", "port": "5433", "schema": "erp", "login": "reader"}
            | {"password": SECRET, "extra": '{"sslmode": "require"}'}
        ),
    ],
)
def test_connection_is_found_as_airflow_writes_it(tmp_path, text):
    (tmp_path / "secret").write_text(text + "\n")

    assert of_environment("shop", {"AIRFLOW_CONN_SHOP": text}) == WHOLE
    assert of_environment("shop", {"AMV_CONN_SHOP_FILE": str(tmp_path / "secret")}) == WHOLE
    assert SECRET not in repr(WHOLE)


@pytest.mark.parametrize("text", [None, SECRET, f'{{"password": "{SECRET}"', f"postgres://u:{SECRET}@h:x/d", "{}"])
def test_connection_that_cannot_be_read_is_not_shown(text):
    with pytest.raises(ConnectionUnknownError) as caught:
        of_environment("shop", {} if text is None else {"AIRFLOW_CONN_SHOP": text})

    assert SECRET not in str(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__ or text is None


@pytest.mark.parametrize(("least", "most", "num"), [(1, 100, 7), (-5, 5, 3), (0, 2, 8), (4, 4, 2), (0, 2**62, 64)])
def test_each_row_is_in_exactly_one_part(least, most, num):
    found = parts(least, most, num, "{}")
    values = {least, most, least - 1, most + 1, (least + most) // 2, None, *range(least, min(most, least + 200))}

    for value in values:
        if not found:
            assert least == most
            continue
        # Python's own operators are SQL's here; a comparison with NULL is not true in SQL.
        python = [
            each.replace(" AND ", " and ").replace(" OR ", " or ").replace("IS NULL", "is None") for each in found
        ]
        names = {"mv_split": value}
        true = [
            eval(each.split(" or ")[1] if value is None and " or " in each else each, {}, names)
            for each in python
            if value is not None or " or " in each
        ]
        assert true.count(True) == 1
    assert len(found) <= num


_NUMBERS = st.integers(3, 3 * 2**32)


@given(oldest=_NUMBERS, open_for=st.integers(0, 2**31), since=st.integers(0, 2**33), age=st.integers(1, 2**34))
def test_row_of_a_writer_that_may_have_been_open_is_read_again_whatever_its_bits(oldest, open_for, since, age):
    following = oldest + open_for + since
    if following - oldest >= 2**32 or age > following:
        return
    writer = following - age
    condition = written_since(f"{oldest}:{oldest + open_for}:", f"{following}:{following}:")

    seen = condition.replace("mv_source.xmin::text::int8", str(writer % 2**32))
    is_read = eval(seen)

    assert is_read or writer < oldest
    if age < 2**32:  # not older than the numbers go
        assert is_read is (writer >= oldest)


@pytest.mark.parametrize(
    ("since", "until", "words"),
    [
        ("10:10: 1 5 7", "12:12: 1 6 7", "started again"),
        ("10:10: 1 5 7", "12:12: 2 5 7", "another one took its place"),
        ("10:10: 1 5 7", "4294967306:4294967306: 1 5 7", "4,294,967,296 transactions"),
        ("10:10: 1 5 7", "12:12: 1 5 7", None),
    ],
)
def test_changes_of_one_life_of_a_server_are_found(since, until, words):
    then, now = (JdbcFrontier("PostgreSQL 1 2", token, None, "r") for token in (since, until))

    found = obstacle_between(then, now, is_by_xmin=True)

    assert found is None if words is None else words in (found or "")
    assert "truncated" in (obstacle_between(then, replace(now, token=since, relation="s"), is_by_xmin=True) or "")
    assert "did not record" in (obstacle_between(replace(then, relation=None), then, is_by_xmin=True) or "")


def test_another_database_at_the_same_address_is_compared():
    """What it has written since the last publish of the other one says nothing."""
    source = Jdbc("shop", table="public.orders", changes="xmin")
    reader = JdbcReader(None, source, "/data", (), Credentials("shop", "postgres", "db1"))
    then = JdbcFrontier("PostgreSQL 1 2", "10:10: 1 5 7", None, "r")

    found = reader.changes(then, replace(then, database="PostgreSQL 9 2"))

    assert found == Whole("another database answers than at the last publish", is_another=True)


@pytest.mark.parametrize("host", ["db1", "DB1", "a.example.com", "db1,a.example.com"])
def test_connection_to_a_source_host_is_found(host):
    found = Credentials("shop", "postgres", host)

    assert confined_to(("db1", "*.example.com"), lambda conn_id: found)("shop") == found


@pytest.mark.parametrize("host", ["db2", "example.com", "a.example.com.evil", "db1,db2", None, "/run/postgresql", ""])
def test_connection_to_another_host_is_refused(host):
    find = confined_to(
        ("db1", "*.example.com"), lambda conn_id: Credentials(conn_id, "postgres", host, password=SECRET)
    )

    with pytest.raises(UnsafeLocationError, match="not among the source hosts") as refused:
        find("shop")

    assert SECRET not in str(refused.value)


def test_every_host_is_allowed_unless_some_are_named_and_a_file_is_no_host():
    somewhere, file = Credentials("shop", "postgres", "db9"), Credentials("shop", "sqlite", "/data/shop.db")

    assert confined_to((), lambda conn_id: somewhere)("shop") == somewhere
    assert confined_to(("db1",), lambda conn_id: file)("shop") == file


_FAILED = (
    "[FAILED_JDBC.CONNECTION] Failed JDBC jdbc:mysql:*********(redacted) on the operation: ...\nCaused by: java.sql."
)


@pytest.mark.parametrize(
    ("text", "error", "words"),
    [
        (
            f"{_FAILED}SQLNonTransientConnectionException: (conn=11) Self signed certificates. Either set",
            *(SourceUnavailableError, "sslrootcert"),
        ),
        (
            f"{_FAILED}SQLInvalidAuthorizationSpecException: (conn=17) Access denied for user 'asked'@'h' (using pass",
            *(SourceDeniedError, "Access denied"),
        ),
        (
            f"{_FAILED}SQLNonTransientConnectionException: Socket fail to connect to db:3306. Connection refused",
            *(SourceUnavailableError, "db:3306"),
        ),
        (
            ": java.sql.SQLDataException: (conn=7) BIGINT UNSIGNED value is out of range in 'x'\n\tat org.mariadb.jdbc",
            *(DefinitionError, "BIGINT UNSIGNED value is out of range in 'x'."),
        ),
        (
            ": java.sql.SQLTimeoutException: (conn=7) Query execution was interrupted (max_statement_time exceeded)",
            *(SettingError, "max_statement_time"),
        ),
        (
            ": org.sqlite.SQLiteException: [SQLITE_ERROR] SQL error or missing database (integer overflow)",
            *(DefinitionError, "integer overflow"),
        ),
        (
            ": org.postgresql.util.PSQLException: ERROR: canceling statement due to statement timeout\n\tat org",
            *(SettingError, "statement_timeout"),
        ),
        (
            ": java.sql.SQLException: (conn=16) Lock wait timeout exceeded; try restarting transaction",
            *(SourceUnavailableError, "another session"),
        ),
    ],
)
def test_what_drivers_say_is_understood(text, error, words):
    found = of_database(text, "source")

    assert isinstance(found, error)
    assert words in str(found)


@pytest.mark.parametrize(
    ("code", "flags", "length", "scale", "kind"),
    [
        (246, 0, 12, 2, "DECIMAL(10,2)"),
        (246, 32, 11, 2, "DECIMAL(10,2)"),
        (246, 0, 39, 0, "DECIMAL(38,0)"),
        (246, 0, 67, 30, None),
        (8, 32, 20, 0, "DECIMAL(20,0)"),
        (8, 0, 20, 0, "BIGINT"),
        (16, 32, 64, 0, "DECIMAL(20,0)"),
        (1, 0, 1, 0, "INT"),
        (255, 0, 9, 0, None),
    ],
)
def test_number_of_mariadb_has_an_exact_type_or_none(code, flags, length, scale, kind):
    found = column(Field("x", code, flags, length, scale, 63), None)

    assert (found and found.kind) == kind
    assert quoted("a`b") == "`a``b`"
