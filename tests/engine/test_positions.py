"""The origin of a record in `select`: the names that a definition may use, and what they stand for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from airflow_mv_provider import Files
from airflow_mv_provider.sources.files.reader import FilesReader

pytestmark = pytest.mark.slow


def read(spark: Any, warehouse: Path, select: list[str], **more: Any) -> tuple[list[str], list[tuple[Any, ...]]]:
    """Return the columns and the rows that a refresh would read of raw/in."""
    source = Files("raw/in", **{"format": "csv", "schema": "id BIGINT, v STRING", "select": select, **more})
    reader = FilesReader(spark, source, str(warehouse), ())
    rows = reader.read(reader.probe())
    return rows.columns, [tuple(row) for row in rows.collect()]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    place = tmp_path / "raw/in"
    place.mkdir(parents=True)
    return place


def test_origin_is_path_time_and_number_and_a_star_does_not_include_it(spark, tmp_path, folder):
    file = folder / "a+b%20 ü.csv"
    file.write_text("id,v\n7,x\n8,y\n")

    columns, rows = read(spark, tmp_path, ["*", "_file", "unix_millis(_file_time) AS ms", "_position"])

    written_ms = file.stat().st_mtime_ns // 1_000_000
    assert columns == ["id", "v", "_file", "ms", "_position"]
    assert rows == [(7, "x", str(file), written_ms, 1), (8, "y", str(file), written_ms, 2)]


@pytest.mark.in_test_all
def test_column_of_the_schema_comes_before_the_origin_of_its_name(spark, tmp_path, folder):
    (folder / "a.csv").write_text("id,_file\n7,its own\n")

    _, rows = read(spark, tmp_path, ["*", "_position"], schema="id BIGINT, _file STRING")

    assert rows == [(7, "its own", 1)]


@pytest.mark.in_test_all
@pytest.mark.sample(1)
@pytest.mark.parametrize("errors", [None, {}])
def test_folder_without_a_file_has_the_columns_of_the_origin(lake, errors):
    (lake.root / "raw/in").mkdir(parents=True)
    source = Files("raw/in", format="csv", schema="id BIGINT, v STRING", select=["*", "_file AS f", "_file_time AS t"])
    lake.apply(
        source=source, on_conflict="overwrite", order_by=["_position"], guards={"allow_empty": True}, errors=errors
    )

    lake.refresh()

    assert [field.dataType.simpleString() for field in lake.spark.read.load(str(lake.root / "orders")).schema] == [
        *("bigint", "string", "string", "timestamp")
    ]
