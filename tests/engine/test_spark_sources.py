"""Data sources of Spark by name: what Spark ships, a class of Python, and what is missing or not allowed."""

from __future__ import annotations

import json
import logging
import traceback

import pytest

from airflow_mv_provider.core.outcome import Outcome
from airflow_mv_provider.core.secret import every_spelling
from airflow_mv_provider.exceptions import (
    ConnectionUnknownError,
    DefinitionError,
    DependencyError,
    MvError,
    SourceFunctionError,
    UnsafeLocationError,
)
from airflow_mv_provider.sources.spark.model import SparkSource
from airflow_mv_provider.sources.table_source import open_source

pytestmark = [pytest.mark.slow, pytest.mark.in_process]

PASSWORD = "c4n4ry/p4ss w@rd"
SHOP = '''
import json
from pathlib import Path
from pyspark.sql.datasource import DataSource, DataSourceReader


class Shop(DataSource):
    """The rows, or how often they were changed, of a file; for whoever knows the password."""

    @classmethod
    def name(cls):
        return "the shop"

    def schema(self):
        return "changes int" if self.options.get("table") == "changes" else "id int, v string"

    def reader(self, schema):
        return Reader(dict(self.options))


class Reader(DataSourceReader):
    def __init__(self, options):
        self.options = options

    def read(self, partition):
        shop = json.loads(Path(self.options["file"]).read_text())
        if self.options.get("secretword") != "c4n4ry/p4ss w@rd":
            raise PermissionError("who are you?")
        yield from map(tuple, shop[self.options.get("table", "rows")])


class NoShop:
    pass
'''


@pytest.mark.parametrize("format_", ["text", pytest.param("Text", marks=pytest.mark.in_test_all)])
def test_files_of_a_table_with_a_log_are_refused(lake, format_):
    lake.write("SELECT 'a' AS value", "raw/t")
    lake.apply(source=SparkSource(format_, path="raw/t"), key=["value"])

    with pytest.raises(DefinitionError, match="is a Delta table"):
        lake.refresh()


@pytest.fixture(scope="session")
def shop_module(spark, tmp_path_factory):
    """A module that Spark's Python workers can import, too."""
    path = tmp_path_factory.mktemp("modules") / "mv_test_shop.py"
    path.write_text(SHOP)
    spark.sparkContext.addPyFile(str(path))


@pytest.fixture
def shop(lake, shop_module, tmp_path, monkeypatch):
    """What a shop has, behind a data source that needs a password."""
    file = tmp_path / "shop.json"
    monkeypatch.setenv("AIRFLOW_CONN_SHOP", json.dumps({"conn_type": "generic", "password": PASSWORD}))

    def fill(changes, *rows):
        file.write_text(json.dumps({"rows": rows, "changes": [[changes]]}))

    def apply(**more):
        options = {"file": str(file)}
        known = {"options": options, "conn_id": "shop", "credentials": {"secretword": "password"}}
        lake.apply(source=SparkSource("mv_test_shop:Shop", **(known | more)))

    lake.file, lake.fill, lake.shop = file, fill, apply
    fill(1, [1, "a"], [2, "b"], [4, "d"], [5, "e"])
    return lake


@pytest.mark.in_test_all
def test_class_of_python_is_read_and_compared_each_time(shop):
    shop.shop()
    first, again = shop.refresh(), shop.refresh()
    shop.fill(2, [1, "c"], [3, "b"], [4, "d"], [5, "e"])
    changed = shop.refresh()

    assert (first.outcome, first.rows_inserted) == (Outcome.PUBLISHED, 4)
    assert (again.strategy, again.rows_unchanged) == ("corrections", 4)
    assert "no `version`" in again.reason
    assert (changed.rows_inserted, changed.rows_updated, changed.rows_deleted) == (1, 1, 1)
    assert shop.rows() == [(1, "c"), (3, "b"), (4, "d"), (5, "e")]


@pytest.mark.in_test_all
def test_same_version_means_that_nothing_is_read(shop):
    shop.shop(version={"file": str(shop.file), "table": "changes"})
    shop.refresh()
    shop.fill(1, [9, "its author has promised otherwise"])
    kept = shop.refresh()
    shop.fill(2, [9, "z"])
    changed = shop.refresh(overrides=["max_deleted_fraction"])

    assert (kept.outcome, kept.strategy) == (Outcome.NOTHING_TO_DO, "skip")
    assert (changed.outcome, shop.rows()) == (Outcome.PUBLISHED, [(9, "z")])


@pytest.mark.in_test_all
def test_format_that_spark_ships_reads_a_path(lake):
    (lake.root / "raw/notes").mkdir(parents=True)
    (lake.root / "raw/notes/1.txt").write_text("a\nb\nd\ne\n")
    lake.apply(source=SparkSource("text", path="raw/notes", options={"lineSep": "\n"}), key=["value"])
    lake.refresh()
    (lake.root / "raw/notes/1.txt").write_text("a\nc\nd\ne\n")
    report = lake.refresh()

    assert (report.rows_inserted, report.rows_deleted) == (1, 1)
    assert lake.rows() == [("a",), ("c",), ("d",), ("e",)]


@pytest.mark.in_test_all
@pytest.mark.parametrize(
    ("source", "error", "words"),
    [
        ({"format": "nowhere"}, DependencyError, "AMV_SPARK_PACKAGES"),
        ({"format": "rate"}, DefinitionError, "rate"),
        ({"format": "text", "path": "/etc"}, UnsafeLocationError, "outside the warehouse"),
        ({"format": "text", "path": "orders/x"}, UnsafeLocationError, "share a directory"),
        ({"format": "snowflake", "options": {"sfURL": "x"}}, DefinitionError, "sfURL is not among the allowed options"),
        ({"format": "oracle", "options": {"table": "x"}}, DefinitionError, "AMV_SPARK_OPTIONS='oracle="),
        ({"format": "mv_test_shop:Nothing"}, SourceFunctionError, "has no 'Nothing'"),
        ({"format": "mv_test_shop:NoShop"}, SourceFunctionError, "DataSource"),
        ({"format": "mv_test_no_module:X"}, SourceFunctionError, "ModuleNotFoundError"),
        ({"conn_id": "shop", "credentials": {"secretword": "login"}}, ConnectionUnknownError, "has no login"),
        ({"credentials": {"x": "password"}, "conn_id": "shop"}, MvError, "PermissionError"),
        ({"version": {"file": "nowhere"}}, MvError, "FileNotFoundError"),
    ],
    ids=lambda each: str(each)[:40],
)
@pytest.mark.sample(1)
def test_what_is_missing_or_not_allowed_is_named(shop, source, error, words):
    known = {} if "format" in source else {"options": {"file": str(shop.file)}, "format": "mv_test_shop:Shop"}
    try:
        shop.apply(source={"type": "spark"} | known | source)
        shop.refresh()
    except MvError as found:
        caught = found

    assert isinstance(caught, error)
    assert words in str(caught)
    assert caught.advice
    assert PASSWORD not in repr(caught.__dict__) + str(caught)
    assert not shop.store.tables() or shop.phase() == "NORMAL"


@pytest.mark.in_test_all
def test_what_is_secret_shows_nowhere(shop, caplog, capfd):
    caplog.set_level(logging.INFO, logger="py4j")
    caplog.set_level(logging.DEBUG)
    shop.shop()
    shop.refresh()
    source = open_source(shop.spark, shop.store.table("orders").definition, shop.settings.warehouse)
    rows = source.read(source.probe())
    rows.explain(mode="extended")
    shop.file.unlink()
    with pytest.raises(MvError) as lost:
        shop.refresh()

    told = ["".join(traceback.format_exception(lost.value)), caplog.text, *capfd.readouterr()]
    assert not [spelling for spelling in every_spelling([PASSWORD]) for text in told if spelling in text]
