"""A folder of files that belongs to a table with a log of its own is refused, with the type that reads it."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.orc
import pyarrow.parquet
import pytest

from airflow_mv_provider import DeltaSource, Files
from airflow_mv_provider.exceptions import DefinitionError
from tests.engine.refusing import refused

pytestmark = pytest.mark.slow

ROWS = pa.table({"id": [1, 2], "v": ["a", "b"]})


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("path", "table"),
    [
        ("raw/table", "raw/table"),
        ("raw/table/", "raw/table"),
        ("raw/table/*.parquet", "raw/table"),
        ("raw/table/m=1", "raw/table"),
        ("raw/table/m=*", "raw/table"),
        ("raw/table/m=1/*.parquet", "raw/table"),
        ("raw/*", "raw/table"),
        ("r*w/table/m=1", "raw/table"),
        ("{raw,other}/table/*/*", "raw/table"),
        ("raw", "raw/table"),
        ("raw/*.parquet", None),
    ],
)
def test_delta_table_is_not_read_as_files(lake, path, table):
    """Nor is a folder that has one beside other files, which a glob can name."""
    rows = "SELECT id, 'a' AS v, id % 2 AS m FROM range(4)"
    lake.spark.sql(rows).write.format("delta").partitionBy("m").save(str(lake.root / "raw/table"))
    lake.sql("DELETE FROM {t} WHERE id = 3", path="raw/table")
    lake.apply(source=Files(path, format="parquet"))

    if table is None:
        pyarrow.parquet.write_table(ROWS, lake.root / "raw/a.parquet")
        lake.refresh()
        assert lake.rows() == [(1, "a"), (2, "b")]
    else:
        refused(lake, DefinitionError, f"{lake.root / table} is a Delta table", "type: delta")
        lake.apply(source=DeltaSource(table))
        lake.refresh()
        assert lake.rows() == [(0, 0, "a"), (1, 1, "a"), (2, 0, "a")]


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("log", "file", "path", "parts"),
    [
        pytest.param(
            "metadata/v1.metadata.json", "data/a.parquet", "raw/t", ["Iceberg", "format: iceberg"], id="iceberg"
        ),
        pytest.param(
            "metadata/00001-x.metadata.json", "data/m=1/a.parquet", "raw/t/data", ["Iceberg"], id="iceberg's data"
        ),
        pytest.param(".hoodie/hoodie.properties", "m=1/a.parquet", "raw/t/m=1", ["Hudi", "format: hudi"], id="hudi"),
        pytest.param(".hoodie/hoodie.properties", "eu/2024/a.parquet", "raw/t/*/*", ["Hudi"], id="hudi's folders"),
        pytest.param("_delta_log/0.json", "a.parquet", "raw/m=1", ["Delta"], id="a table in a partition folder"),
        pytest.param("_orc_acid_version", "base_0000001/bucket_00000", "raw/t", ["Hive"], id="hive's base"),
        pytest.param(
            "_orc_acid_version", "m=1/delta_0000002_0000002_0000/bucket_0", "raw/t/*/*", ["Hive"], id="hive's changes"
        ),
    ],
)
def test_other_tables_with_a_log_are_not_read_as_files(lake, log, file, path, parts):
    place = lake.root / ("raw/m=1/m=2" if path == "raw/m=1" else "raw/t")
    for name in (log, file):
        (place / name).parent.mkdir(parents=True, exist_ok=True)
    (place / log).write_text("{}")
    pyarrow.parquet.write_table(ROWS, place / file)
    lake.apply(source=Files(path, format="parquet"))

    refused(lake, DefinitionError, str(place), *parts)


@pytest.mark.in_test_all
def test_folders_of_exports_that_are_named_like_hives_are_read(lake):
    for n, folder in enumerate(("base_20240101", "delta_20240101_20240131")):
        (lake.root / "raw" / folder).mkdir(parents=True)
        pyarrow.parquet.write_table(ROWS.slice(n, 1), lake.root / "raw" / folder / "a.parquet")
    lake.apply(source=Files("raw/*", format="parquet"))

    lake.refresh()

    assert lake.rows() == [(1, "a"), (2, "b")]


def by_stream(lake: Any) -> None:
    """Write one row by a stream of Spark, and leave a file beside it that no commit of the stream has."""
    lake.spark.sql("SELECT 1L AS id, 'a' AS v").write.parquet(str(lake.root / "in"))
    rows = lake.spark.readStream.schema("id BIGINT, v STRING").parquet(str(lake.root / "in"))
    written = rows.writeStream.format("parquet").option("checkpointLocation", str(lake.root / "checkpoint"))
    written.trigger(availableNow=True).start(str(lake.root / "raw/t")).awaitTermination()
    pyarrow.parquet.write_table(ROWS, lake.root / "raw/t/not-committed.parquet")


@pytest.mark.in_test_all
def test_what_a_stream_has_written_is_read_by_its_log(lake):
    by_stream(lake)
    lake.apply(source=Files("raw/t/*.parquet", format="parquet"))

    refused(lake, DefinitionError, "stream", f"{lake.root}/raw/t", "this folder itself")

    lake.apply(source=Files("raw/t", format="parquet"))
    lake.refresh()
    assert lake.rows() == [(1, "a")]


@pytest.mark.in_test_all
def test_the_log_itself_may_be_read(lake):
    lake.write("SELECT 1L AS id", "raw/t")
    (lake.root / "raw/t/_delta_log/notes.json").write_text('{"id": 1}\n')
    lake.apply(source=Files("raw/t/_delta_log/notes.json", format="json", schema="id BIGINT"))

    lake.refresh()

    assert lake.rows() == [(1,)]
