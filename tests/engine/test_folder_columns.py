"""Values that only the names of folders have: never left out in silence, and taken as the error says."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.orc
import pyarrow.parquet
import pytest
import yaml

from airflow_mv_provider import Files
from airflow_mv_provider.exceptions import CorruptRecordError, DefinitionError, MvError
from tests.engine.refusing import refused

pytestmark = pytest.mark.slow

WRITERS: dict[str, Callable[[Path, int], Any]] = {
    "csv": lambda file, n: file.write_text(f"id,v\n{n},v{n}\n"),
    "json": lambda file, n: file.write_text(json.dumps({"id": n, "v": f"v{n}"}) + "\n"),
    "orc": lambda file, n: pyarrow.orc.write_table(pa.table({"id": [n], "v": [f"v{n}"]}), file),
    "parquet": lambda file, n: pyarrow.parquet.write_table(pa.table({"id": [n], "v": [f"v{n}"]}), file),
}
SCHEMA = "id BIGINT, v STRING"
FOLDERS = {"zip=01001": "01001", "zip=1d": "1d", "zip=a%2Fb+c é": "a/b+c é", "zip=__HIVE_DEFAULT_PARTITION__": None}


def write(lake: Any, format_: str, folder: str, n: int) -> None:
    place = lake.root / "raw/by" / folder
    place.mkdir(parents=True, exist_ok=True)
    WRITERS[format_](place / f"{n}.{format_}", n)


def proposed(error: Any) -> list[str]:
    """The `select` that an error proposes."""
    found = re.search(r"`select: (\[.*?\])`, without", error.advice)
    assert found, error.advice
    select: list[str] = yaml.safe_load(found[1])
    return select


@pytest.mark.sample(1)
@pytest.mark.parametrize("errors", [None, {"max_rows": 1}], ids=["", "errors"])
@pytest.mark.parametrize("path", ["raw/by", "raw/by/*", "raw/by/zip=*", "raw/b?/*/*"])
@pytest.mark.parametrize("format_", WRITERS)
def test_value_of_a_folder_is_taken_as_the_error_says(lake, format_, path, errors):
    for n, folder in enumerate(list(FOLDERS)[:-1]):
        write(lake, format_, folder, n)
    more = {"errors": errors} if errors else {}
    lake.apply(source=Files(path, format=format_, schema=SCHEMA), **more)
    error = refused(lake, DefinitionError, "folders", "zip")

    lake.apply(source=Files(path, format=format_, schema=SCHEMA, select=proposed(error)), **more)
    lake.refresh()
    write(lake, format_, list(FOLDERS)[-1], 3)
    report = lake.refresh()

    assert report.rows_inserted == 1
    assert lake.rows() == [(n, f"v{n}", value) for n, value in enumerate(FOLDERS.values())]


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("format_", "source"),
    [
        ("parquet", {}),
        ("parquet", {"schema": f"{SCHEMA}, zip STRING"}),
        ("orc", {"schema": f"{SCHEMA}, zip STRING"}),
        ("json", {"schema": f"{SCHEMA}, zip STRING"}),
        ("parquet", {"select": ["id", "upper(zip) AS zip"]}),
        ("csv", {"schema": SCHEMA, "select": ["*", "1 AS one"]}),
    ],
)
def test_folder_that_has_what_the_files_lack_is_named(lake, format_, source):
    write(lake, format_, "zip=01001/at=2024-01-01", 1)
    lake.apply(source=Files("raw/by", format=format_, **source))

    error = refused(lake, DefinitionError, "zip")

    assert ("AS `at`" in proposed(error)[-1]) is not ("upper" in str(source))


@pytest.mark.in_test_all
@pytest.mark.parametrize(
    ("path", "more"),
    [
        ("raw/by", {"select": ["id", "v"]}),
        ("raw/by/zip=01001", {}),
        ("raw/by/zip=01001/*.parquet", {}),
        ("raw/by", {"select": ["id", "v", "length(_file) AS n"]}),
    ],
)
def test_folder_that_the_definition_leaves_out_is_left_out(lake, path, more):
    write(lake, "parquet", "zip=01001", 1)
    lake.apply(source=Files(path, format="parquet", **more))

    lake.refresh()

    assert [row[0] for row in lake.rows()] == [1]


@pytest.mark.in_test_all
def test_column_that_files_and_folders_have_is_the_files(lake):
    write(lake, "parquet", "V=other", 1)
    lake.apply(source=Files("raw/by", format="parquet"))

    lake.refresh()

    assert lake.rows() == [(1, "v1")]


@pytest.mark.in_test_all
@pytest.mark.parametrize("format_", ["csv", pytest.param("parquet", marks=pytest.mark.in_test_all)])
def test_a_file_that_is_in_no_such_folder_is_an_error_and_has_no_empty_value(lake, format_):
    write(lake, format_, "zip=01001", 1)
    lake.apply(source=Files("raw/by", format=format_, schema=SCHEMA))
    select = proposed(refused(lake, DefinitionError))
    lake.apply(source=Files("raw/by", format=format_, schema=SCHEMA, select=select))
    lake.refresh()
    write(lake, format_, "", 2)

    with pytest.raises(MvError, match=r"no folder zip= above .*/by/2\."):
        lake.refresh()

    assert lake.rows() == [(1, "v1", "01001")]


def test_folder_of_that_name_above_the_path_is_not_the_value(lake):
    write(lake, "csv", "zip=99999/raw/zip=01001", 1)
    lake.apply(source=Files("raw/by/zip=99999/raw", format="csv", schema=SCHEMA))
    select = proposed(refused(lake, DefinitionError, "zip"))
    lake.apply(source=Files("raw/by/zip=99999/raw", format="csv", schema=SCHEMA, select=select))

    lake.refresh()

    assert lake.rows() == [(1, "v1", "01001")]


@pytest.mark.in_test_all
def test_the_name_of_the_file_is_not_the_value_of_its_folder(lake):
    write(lake, "csv", "zip=01001", 1)
    lake.apply(source=Files("raw/by", format="csv", schema=SCHEMA, select=["*", "_file AS origin"]))

    error = refused(lake, DefinitionError, "folders", "zip")

    assert len(proposed(error)) == 2


@pytest.mark.in_test_all
def test_value_of_a_folder_that_does_not_fit_its_type_is_named(lake):
    write(lake, "csv", "zip=1d", 1)
    lake.apply(source=Files("raw/by", format="csv", schema=SCHEMA))
    (_, value) = proposed(refused(lake, DefinitionError))
    cast = f"CAST({value.removesuffix(' AS `zip`')} AS INT) AS zip"
    lake.apply(source=Files("raw/by", format="csv", schema=SCHEMA, select=["*", cast]))

    refused(lake, CorruptRecordError, "'1d'")
