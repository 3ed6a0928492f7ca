"""Folders without files, files without rows, columnar files that are broken or disagree."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrameReader

from airflow_mv_provider import DeltaSource, Files
from airflow_mv_provider.core.outcome import Outcome
from airflow_mv_provider.exceptions import (
    DefinitionError,
    EngineError,
    GuardRefusedError,
    SchemaMismatchError,
    SourceFileError,
    SourceNotFoundError,
)
from tests.engine.refusing import GOOD, csv, refused

pytestmark = pytest.mark.slow


def orc(lake: Any, sql: str, schema: str = "id BIGINT, v STRING", mode: str = "overwrite") -> Path:
    lake.spark.sql(sql).coalesce(1).write.mode(mode).orc(str(lake.root / "raw/orc"))
    lake.apply(source=Files("raw/orc", format="orc", schema=schema))
    return next((lake.root / "raw/orc").glob("*.orc"))


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    ("schema", "parts"),
    [
        pytest.param("id INT, v STRING", ["'id'", "long", "integer"], id="narrower"),
        pytest.param("id BIGINT, w STRING", ["'v'"], id="other name"),
        pytest.param("id BIGINT", ["'v'"], id="column added"),
        pytest.param("id BIGINT, v STRING, w INT", ["'w'"], id="column missing"),
    ],
)
@pytest.mark.parametrize("fmt", ["orc", "parquet"])
def test_columnar_files_must_have_the_schemas_columns(lake, fmt, schema, parts):
    lake.spark.sql(GOOD).write.format(fmt).save(str(lake.root / "raw/files"))
    lake.apply(source=Files("raw/files", format=fmt, schema=schema))

    refused(lake, SchemaMismatchError, *parts)

    lake.apply(source=Files("raw/files", format=fmt, schema="v STRING, id BIGINT"))
    lake.refresh()
    assert lake.rows("orders") == [(n, f"v{n}") for n in range(10)]


@pytest.mark.in_test_all
def test_columns_that_differ_in_capitals_are_named(lake):
    (lake.root / "raw/json").mkdir(parents=True)
    (lake.root / "raw/json/a.json").write_text('{"Id": 1, "id": "a"}\n')
    lake.apply(source=Files("raw/json", format="json", schema="Id BIGINT, id STRING"), key=["Id"])

    refused(lake, SchemaMismatchError, "two columns or fields", "Rename one of them, in the files")


@pytest.mark.sample(1)
@pytest.mark.parametrize("fmt", ["csv", "json", "parquet"])
def test_stale_checksum_is_named_and_not_the_file(lake, fmt):
    """Spark writes one beside each file of a local disk; an editor does not."""
    lake.spark.sql(GOOD).coalesce(1).write.format(fmt).option("header", "true").save(str(lake.root / "raw/f"))
    [file] = (lake.root / "raw/f").glob(f"part-*.{fmt}")
    checksum = file.with_name(f".{file.name}.crc")
    file.write_bytes(file.read_bytes()[:-4] + b"\n\n\n\n")
    lake.apply(source=Files("raw/f", format=fmt, schema="id BIGINT, v STRING"))

    error = refused(lake, SourceFileError, str(file), str(checksum))

    assert "remove the file" not in error.advice
    assert f"remove {checksum}" in error.advice


@pytest.mark.in_test_all
def test_orc_files_that_disagree_are_refused(lake):
    orc(lake, GOOD)
    orc(lake, "SELECT 'x' AS id, 'v' AS v", mode="append")

    refused(lake, SchemaMismatchError, "same columns")


@pytest.mark.in_test_all
@pytest.mark.parametrize("size", [0, 100])
def test_truncated_orc_is_named(lake, size):
    file = orc(lake, GOOD)
    lake.refresh()
    os.truncate(file, size)

    refused(lake, SourceFileError, file.name)


@pytest.mark.sample(1)
@pytest.mark.parametrize("path", ["raw/none/*.csv", "raw/none", "raw/empty"])
def test_missing_path_and_empty_directory_are_named(lake, path):
    (lake.root / "raw/empty").mkdir(parents=True)
    lake.apply(source=Files(path, format="csv", schema="id BIGINT, v STRING"))

    refused(lake, SourceNotFoundError, path.split("*")[0].rstrip("/"))


@pytest.mark.in_test_all
@pytest.mark.in_process
def test_folder_with_hidden_files_alone_names_them(good_csv):
    """A Connect client cannot see them."""
    (good_csv.root / "raw/csv/good.csv").rename(good_csv.root / "raw/csv/_good.csv")

    refused(good_csv, SourceNotFoundError, "no file at", "ignored: ", "_good.csv", "allow_empty")


@pytest.mark.in_test_all
@pytest.mark.sample(1)
@pytest.mark.parametrize("path", ["raw/csv", "raw/csv/*.csv"])
def test_folder_without_a_file_is_a_source_without_rows_where_the_definition_allows_it(good_csv, path):
    (good_csv.root / "raw/csv/good.csv").unlink()
    source = Files(path, format="csv", schema="id BIGINT, v STRING")
    good_csv.apply(source=source)
    refused(good_csv, SourceNotFoundError, "there is no file at", path, "allow_empty")
    good_csv.apply(source=source, guards={"allow_empty": True})
    refused(good_csv, GuardRefusedError, "max_deleted_fraction")

    preview = good_csv.refresh(read_only=True)
    report = good_csv.refresh(overrides=["max_deleted_fraction"])

    assert (preview.rows_deleted, report.rows_deleted, good_csv.rows("orders")) == (1, 1, [])
    assert good_csv.refresh().outcome is Outcome.NOTHING_TO_DO
    csv(good_csv, good="id,v\n7,back\n")
    good_csv.refresh()
    assert good_csv.rows("orders") == [(7, "back")]


@pytest.mark.in_test_all
@pytest.mark.parametrize("policy", ["guard", "override"])
def test_headless_csv_without_a_byte_has_no_rows_where_the_definition_allows_it(lake, policy):
    (lake.root / "raw").mkdir()
    (lake.root / "raw/a.csv").write_text("1,a\n")
    source = Files("raw/*.csv", format="csv", schema="id BIGINT, v STRING", options={"header": "false"})
    lake.apply(source=source, guards={"max_deleted_fraction": 1.0})
    lake.refresh()
    (lake.root / "raw/a.csv").write_text("")
    refused(lake, SourceFileError, "a.csv is empty", "allow_empty")

    if policy == "guard":
        lake.apply(source=source, guards={"max_deleted_fraction": 1.0, "allow_empty": True})
    lake.refresh(overrides=["allow_empty"] if policy == "override" else [])

    assert lake.rows("orders") == []


@pytest.mark.in_test_all
def test_csv_with_a_header_cannot_be_without_a_byte(good_csv):
    csv(good_csv, empty="")
    good_csv.apply(
        source=Files("raw/csv/*.csv", format="csv", schema="id BIGINT, v STRING"), guards={"allow_empty": True}
    )

    refused(good_csv, SourceFileError, "empty.csv is empty")


@pytest.mark.in_test_all
def test_columns_of_parquet_without_a_file_are_mains(lake):
    (lake.root / "raw/parquet").mkdir(parents=True)
    guards = {"allow_empty": True, "max_deleted_fraction": 1.0}
    lake.apply(source=Files("raw/parquet", format="parquet"), guards=guards)
    refused(lake, DefinitionError, "there is no file at", "so its columns are unknown")
    file = parquet(lake, GOOD)
    lake.refresh()
    for each in file.parent.iterdir():
        each.unlink()
    lake.apply(source=Files("raw/parquet", format="parquet"), guards=guards)

    report = lake.refresh()

    assert (report.rows_deleted, lake.rows("orders")) == (10, [])


@pytest.mark.sample(1)
@pytest.mark.parametrize("name", ["_late.csv", ".late.csv", "late.csv._COPYING_", "_*.csv", "{_a,b}.csv"])
def test_path_that_names_hidden_files_is_refused(lake, name):
    (lake.root / "raw").mkdir()
    (lake.root / "raw" / name.replace("*", "x").replace("{_a,b}", "_a")).write_text("id,v\n1,a\n")
    lake.apply(source=Files(f"raw/{name}", format="csv", schema="id BIGINT, v STRING"))

    refused(lake, SourceNotFoundError, name, "has only hidden files")


EVERYWHERE = {".b.csv", "_c.csv", "d.csv._COPYING_", "sub/e.csv", "day=2/_g.csv", "_old"}


@pytest.mark.in_test_all
@pytest.mark.sample(1)
@pytest.mark.in_process
@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("raw/csv", EVERYWHERE),
        ("raw/csv/*.csv", {".b.csv", "_c.csv"}),
        ("raw/*", EVERYWHERE),
    ],
)
def test_files_that_are_passed_over_are_named_in_the_report(good_csv, caplog, path, expected):
    """Among them is what Hadoop takes for hidden; a Connect client cannot see that."""
    folder = good_csv.root / "raw/csv"
    for name in ("sub", "day=2", "_old"):
        (folder / name).mkdir()
    names = (
        ".b.csv",
        "_c.csv",
        "d.csv._COPYING_",
        "sub/e.csv",
        "day=2/f.csv",
        "day=2/_g.csv",
        "_old/h.csv",
        "_SUCCESS",
    )
    for name in names:
        (folder / name).write_text("id,v\n2,b\n")
    good_csv.apply(source=Files(path, format="csv", schema="id BIGINT, v STRING", select=["id", "v"]))

    report = good_csv.refresh()

    shown = report.reason.split("ignored: ")[1]
    assert sum(str(folder / name) in shown for name in expected) == min(len(expected), 3)
    assert len(expected) <= 3 or f"and {len(expected) - 3} more" in shown
    assert all(path in caplog.text for path in shown.split(" and ")[0].split(", "))
    assert good_csv.rows("orders") == ([(1, "a")] if "*.csv" in path else [(1, "a"), (2, "b")])


@pytest.mark.in_test_all
@pytest.mark.in_process
def test_folder_that_a_glob_matches_is_read_whatever_its_name(good_csv):
    (good_csv.root / "raw/csv/_old").mkdir()
    for name in ("_old/b.csv", "_old/_c.csv", "_d.csv"):
        (good_csv.root / "raw/csv" / name).write_text("id,v\n2,b\n")
    good_csv.apply(source=Files("raw/csv/*", format="csv", schema="id BIGINT, v STRING"))

    report = good_csv.refresh()

    assert good_csv.rows("orders") == [(1, "a"), (2, "b")]
    named = report.reason.split("ignored: ")[1]
    assert sorted(path.rpartition("raw/csv/")[2] for path in named.split(", ")) == ["_d.csv", "_old/_c.csv"]


@pytest.mark.in_test_all
def test_parquet_files_have_the_columns_of_all_of_them(lake):
    lake.spark.sql("SELECT 1L AS id, 'a' AS v").write.parquet(str(lake.root / "raw/parquet"))
    lake.spark.sql("SELECT 2L AS id, 'b' AS v, 7 AS later").write.mode("append").parquet(str(lake.root / "raw/parquet"))
    lake.apply(source=Files("raw/parquet", format="parquet"))

    lake.refresh()

    assert lake.rows("orders") == [(1, None, "a"), (2, 7, "b")]
    lake.spark.sql("SELECT 'x' AS id").write.mode("append").parquet(str(lake.root / "raw/parquet"))
    refused(lake, SchemaMismatchError, "do not have the same columns")


@pytest.mark.in_process
def test_failure_while_footers_are_read_leaves_no_column_out(lake, monkeypatch):
    for sql in ("SELECT 1L AS id, 'a' AS v", "SELECT 2L AS id, 'b' AS v, 7 AS later"):
        lake.spark.sql(sql).write.mode("append").parquet(str(lake.root / "raw/parquet"))
    lake.apply(source=Files("raw/parquet", format="parquet"))
    option, failed = DataFrameReader.option, list[str]()

    def failing_once(reader: DataFrameReader, name: str, value: Any) -> DataFrameReader:
        if name == "mergeSchema" and not failed:
            failed.append(name)
            raise PySparkException("Job aborted due to stage failure: an executor was lost")
        return option(reader, name, value)

    monkeypatch.setattr(DataFrameReader, "option", failing_once)
    refused(lake, EngineError, "an executor was lost")
    lake.refresh()

    assert lake.rows("orders") == [(1, None, "a"), (2, 7, "b")]


@pytest.mark.in_process
@pytest.mark.sample(1)
@pytest.mark.parametrize(
    ("change", "names"),
    [
        pytest.param(lambda table: table.append_column("later", pa.array(range(10))), "later", id="added"),
        pytest.param(lambda table: table.set_column(1, "w", table["v"]), "v, w", id="renamed"),
        pytest.param(lambda table: table.set_column(2, "s", pa.array([{"b": 1}] * 10)), "a, b", id="field renamed"),
    ],
)
@pytest.mark.parametrize("schema", [None, "id BIGINT, v STRING, s STRUCT<a: INT>"], ids=["", "schema"])
def test_parquet_that_differs_from_sparks_description_in_it_is_named(lake, change, names, schema):
    file = parquet(lake, "SELECT id, concat('v', id) AS v, named_struct('a', 1) AS s FROM range(10)")
    lake.apply(source=Files("raw/parquet", format="parquet", schema=schema))
    lake.refresh()
    changed = change(pq.read_table(file))
    file.with_name(f".{file.name}.crc").unlink()
    pq.write_table(changed, file)

    refused(lake, SchemaMismatchError, file.name, f"footer: {names}.")


@pytest.mark.in_test_all
@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything; tests/engine/test_errors.py has the text")
def test_file_that_may_not_be_read_is_named(lake):
    csv(lake, closed="id,v\n1,a\n")
    (lake.root / "raw/csv/closed.csv").chmod(0)

    refused(lake, SourceFileError, "closed.csv")


@pytest.mark.in_test_all
def test_missing_delta_source_is_named(lake):
    lake.apply(source=DeltaSource("raw/none"))

    refused(lake, SourceNotFoundError, "raw/none")


def parquet(lake: Any, sql: str) -> Path:
    lake.spark.sql(sql).coalesce(1).write.mode("overwrite").parquet(str(lake.root / "raw/parquet"))
    lake.apply(source=Files("raw/parquet", format="parquet"))
    return next((lake.root / "raw/parquet").glob("*.parquet"))


@pytest.mark.in_test_all
def test_truncated_parquet_is_named(lake):
    file = parquet(lake, GOOD)
    lake.refresh()
    os.truncate(file, file.stat().st_size // 2)

    refused(lake, SourceFileError, file.name)


@pytest.mark.in_test_all
def test_parquet_files_are_read(lake):
    parquet(lake, GOOD)

    lake.refresh()

    assert lake.rows("orders") == [(n, f"v{n}") for n in range(10)]


def test_empty_parquet_is_named(lake):
    file = parquet(lake, GOOD)
    file.write_bytes(b"")

    refused(lake, SourceFileError, file.name)
