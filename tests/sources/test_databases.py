"""What a definition of a database may say, how its connection is found, and how its rows are divided."""

from __future__ import annotations

import json

import pytest
from pydantic import ValidationError

from airflow_mv_provider.exceptions import ConnectionUnknownError, UnsafeLocationError
from airflow_mv_provider.sources.credentials import Credentials, confined_to, of_environment
from airflow_mv_provider.sources.jdbc.model import Jdbc
from airflow_mv_provider.sources.jdbc.postgresql import parts

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
        ({"table": "a.b", "watermark": "x"}, "no watermark"),
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
