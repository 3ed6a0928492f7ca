"""Queries and functions that cannot be run, or read what is not pinned."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from airflow_mv_provider import Function, Query
from airflow_mv_provider.exceptions import (
    CorruptRecordError,
    DefinitionError,
    SchemaMismatchError,
    SourceFunctionError,
    SourceNotFoundError,
    UnpinnedTableError,
    UnsafeLocationError,
)
from tests.engine.refusing import GOOD, refused

pytestmark = pytest.mark.slow


def query(lake: Any, sql: str, **inputs: str) -> None:
    lake.apply(source=Query(sql, inputs={"o": "raw/orders"} | inputs))


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("sql", "error", "parts"),
    [
        pytest.param("SELECT * FROM o JOIN other USING (id)", UnpinnedTableError, ["`other`"], id="no such table"),
        pytest.param("SELECT * FROM default.elsewhere", UnpinnedTableError, ["default.elsewhere"], id="of the catalog"),
        pytest.param("SELECT * FROM a_view", UnpinnedTableError, ["a_view"], id="view"),
        pytest.param("SELECT * FROM delta.`{root}/raw/orders`", UnpinnedTableError, ["/raw/orders"], id="by path"),
        pytest.param("SELECT * FROM parquet.`{root}/raw/orders`", UnpinnedTableError, ["parquet"], id="files by path"),
        pytest.param(
            "SELECT * FROM o WHERE id IN (SELECT id FROM elsewhere)", UnpinnedTableError, ["elsewhere"], id="in"
        ),
        pytest.param("SELECT o.*, a_function() AS v2 FROM o", UnpinnedTableError, ["elsewhere"], id="SQL function"),
        pytest.param("SELECT * FROM o; DROP TABLE o", DefinitionError, ["';'"], id="two statements"),
        pytest.param("WITH a AS (SELECT 1) INSERT INTO o SELECT * FROM a", DefinitionError, ["INSERT"], id="insert"),
        pytest.param("SELECT nothing FROM o", DefinitionError, ["`nothing`"], id="no such column"),
        pytest.param("SELECT * FROM o VERSION AS OF 0", DefinitionError, ["TIME_TRAVEL"], id="another version"),
        pytest.param("SELECT *, id FROM o", SchemaMismatchError, ["'id'"], id="name twice"),
        pytest.param("SELECT id, CAST(v AS INT) AS v FROM o", SchemaMismatchError, ["'v'", "integer"], id="other type"),
        pytest.param(
            "SELECT id, coalesce(string(assert_true(id < 5)), v) AS v FROM o",
            CorruptRecordError,
            ["is not true"],
            id="fails",
        ),
        pytest.param(
            "SELECT id, IF(id = 5, raise_error('five is odd'), v) AS v FROM o", CorruptRecordError, [": five is odd."]
        ),
    ],
)
def test_bad_query_is_refused(good, sql, error, parts):
    good.write("SELECT id FROM range(3)", "elsewhere")
    good.spark.sql(f"CREATE TABLE elsewhere USING delta LOCATION '{good.root}/elsewhere'")
    good.spark.sql("CREATE VIEW a_view AS SELECT * FROM elsewhere")
    good.spark.sql("CREATE FUNCTION a_function() RETURNS BIGINT RETURN (SELECT max(id) FROM elsewhere)")
    try:
        query(good, sql.replace("{root}", str(good.root)))

        refused(good, error, *parts)
    finally:
        good.spark.sql("DROP FUNCTION a_function")
        good.spark.sql("DROP VIEW a_view")
        good.spark.sql("DROP TABLE elsewhere")


@pytest.mark.in_test_all
def test_mended_query_is_refreshed(good):
    query(good, "SELECT nothing FROM o")
    refused(good, DefinitionError)
    query(good, "SELECT id, upper(v) AS v FROM o")

    good.refresh()

    assert good.rows("orders") == [(n, f"V{n}") for n in range(10)]


def test_each_input_of_a_query_is_confined(lake, tmp_path):
    lake.write(GOOD)

    with pytest.raises(UnsafeLocationError, match="outside"):
        query(lake, "SELECT * FROM o", p=str(tmp_path / "elsewhere"))
    with pytest.raises(UnsafeLocationError, match="share a directory"):
        query(lake, "SELECT * FROM o", p="orders")

    (tmp_path / "secret").mkdir()
    (lake.root / "raw/link").symlink_to(tmp_path / "secret")
    query(lake, "SELECT * FROM o", p="raw/link")
    with pytest.raises(UnsafeLocationError, match="link"):
        lake.refresh()


@pytest.mark.in_test_all
def test_missing_input_is_named(lake):
    lake.write(GOOD)
    query(lake, "SELECT * FROM o", p="raw/none")

    refused(lake, SourceNotFoundError, "raw/none")


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("text", "callable_", "error", "parts"),
    [
        pytest.param(
            None, "no_such_module:rows", SourceFunctionError, ["no_such_module", "ModuleNotFound"], id="module"
        ),
        pytest.param("1 / 0", "bad_rows:rows", SourceFunctionError, ["ZeroDivisionError", "line 1"], id="import fails"),
        pytest.param("def (", "bad_rows:rows", SourceFunctionError, ["SyntaxError"], id="no Python"),
        pytest.param("", "bad_rows:rows", SourceFunctionError, ["no 'rows'"], id="no such name"),
        pytest.param("rows = 5", "bad_rows:rows", SourceFunctionError, ["int, not a function"], id="not callable"),
        pytest.param("def rows(): pass", "bad_rows:rows", SourceFunctionError, ["TypeError"], id="takes nothing"),
        pytest.param("def rows(s): return [1]", "bad_rows:rows", SourceFunctionError, ["list"], id="a list"),
        pytest.param("def rows(s): pass", "bad_rows:rows", SourceFunctionError, ["NoneType"], id="nothing"),
        pytest.param(
            "def rows(s):\n    raise ValueError('pass' + 'word')",
            "bad_rows:rows",
            SourceFunctionError,
            ["ValueError (bad_rows.py, line 2)"],
            id="raises",
        ),
        pytest.param(
            "def rows(s): return s.readStream.format('rate').load()",
            "bad_rows:rows",
            SourceFunctionError,
            ["stream"],
            id="a stream",
        ),
        pytest.param(
            "def rows(s): return s.table('none')", "bad_rows:rows", DefinitionError, ["`none`"], id="no table"
        ),
        pytest.param(
            "def rows(s): return s.range(3)", "bad_rows:rows", SchemaMismatchError, ["'v'"], id="other columns"
        ),
        pytest.param(
            "def rows(s): return s.sql(\"SELECT 1L AS id, raise_error('no') AS v\").selectExpr('id', 'string(v) v')",
            "bad_rows:rows",
            CorruptRecordError,
            [": no."],
            id="fails when run",
        ),
    ],
)
def test_bad_function_is_refused(good, tmp_path, monkeypatch, text, callable_, error, parts):
    (tmp_path / "authors").mkdir()
    monkeypatch.syspath_prepend(tmp_path / "authors")
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    sys.modules.pop("bad_rows", None)
    if text is not None:
        (tmp_path / "authors/bad_rows.py").write_text(text)
    good.apply(source=Function(callable_))

    raised = refused(good, error, *parts)

    assert "password" not in str(raised)
    sys.modules.pop("bad_rows", None)


@pytest.mark.in_test_all
def test_table_of_a_bad_function_goes_on_with_another_source(good):
    good.apply(source=Function("no_such_module:rows"))
    refused(good, SourceFunctionError)
    good.apply()

    good.refresh()

    assert good.rows("orders") == good.rows("raw/orders")
