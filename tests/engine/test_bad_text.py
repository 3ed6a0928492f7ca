"""CSV and JSON files that are not what they should be name themselves; mended, they are read."""

from __future__ import annotations

import bz2
import gzip
from collections.abc import Callable
from typing import Any

import pytest

from airflow_mv_provider import Files
from airflow_mv_provider.exceptions import (
    CorruptRecordError,
    DefinitionError,
    FileEncodingError,
    SchemaMismatchError,
    SourceFileError,
)
from tests.engine.refusing import HEADER, csv, refused

pytestmark = pytest.mark.slow


@pytest.mark.in_test_all
@pytest.mark.sample(1)
@pytest.mark.parametrize(
    ("content", "error", "parts"),
    [
        pytest.param("id,v\n2\n", CorruptRecordError, ["bad.csv", "'2'"], id="line too short"),
        pytest.param("id,v\n2,b,c\n", CorruptRecordError, ["bad.csv", "2,b,c"], id="line too long"),
        pytest.param("id,v\ntwo,b\n", CorruptRecordError, ["bad.csv", "two"], id="wrong type"),
        pytest.param("v,id\nb,2\n", SchemaMismatchError, ["bad.csv", "'id'", "'v'"], id="columns in another order"),
        pytest.param("id,v,w\n2,b,c\n", SchemaMismatchError, ["bad.csv"], id="column added"),
        pytest.param("id,v\n2,caf\xe9\n".encode("latin-1"), FileEncodingError, ["bad.csv"], id="latin-1"),
        pytest.param("id,v\n2,b\n".encode("utf-16"), FileEncodingError, ["bad.csv", "`multiLine"], id="utf-16"),
    ],
)
def test_bad_csv_names_the_file(good_csv, content, error, parts):
    csv(good_csv, bad=content)

    refused(good_csv, error, *parts)


@pytest.mark.in_test_all
def test_mended_csv_is_refreshed(good_csv):
    csv(good_csv, bad="id,v\ntwo,b\n")
    refused(good_csv, CorruptRecordError)
    csv(good_csv, bad="id,v\n2,b\n")

    good_csv.refresh()

    assert good_csv.rows("orders") == [(1, "a"), (2, "b")]


@pytest.mark.in_test_all
def test_byte_order_mark_is_not_part_of_the_first_name(lake):
    csv(lake, marked=b"\xef\xbb\xbfid,v\n1,a\n")

    lake.refresh()

    assert lake.rows("orders") == [(1, "a")]


@pytest.mark.in_test_all
def test_paths_with_glob_and_comma_are_read_as_they_are(lake):
    folder = lake.root / "raw/csv"
    folder.mkdir(parents=True)
    for number, name in enumerate(["a,b.csv", "[x].csv", "a b%20c.csv", "{y}.csv", "ü'`.csv"]):
        (folder / name).write_text(f"{HEADER}{number},{number}\n")
    lake.apply(source=Files("raw/csv", format="csv", schema="id BIGINT, v STRING"))

    lake.refresh()

    assert lake.rows("orders") == [(n, str(n)) for n in range(5)]


def json(lake: Any, options: dict[str, str] | None = None, **files: str | bytes) -> None:
    """Write JSON files under raw/json and make them the source of `orders`."""
    folder = lake.root / "raw/json"
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / f"{name}.json").write_bytes(content if isinstance(content, bytes) else content.encode())
    source = Files("raw/json/*.json*", format="json", schema="id BIGINT, v STRING", options=options or {})
    lake.apply(source=source)


@pytest.fixture
def good_json(prepared: Callable[..., Any]) -> Any:
    """A table that was published once, from one JSON file."""

    def build(lake: Any) -> None:
        json(lake, good='{"id": 1, "v": "a"}\n')
        lake.refresh()

    return prepared("good-json", build)


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("content", "error", "parts"),
    [
        pytest.param('{"id": 2, "v"', CorruptRecordError, ['{"id": 2, "v"'], id="corrupt line"),
        pytest.param("2,b", CorruptRecordError, ["2,b"], id="no JSON"),
        pytest.param("2", CorruptRecordError, ["'2'"], id="number"),
        pytest.param("null", CorruptRecordError, ["null"], id="null"),
        pytest.param('[{"id": 2, "v": "b"}]', CorruptRecordError, ["[{"], id="array"),
        pytest.param('{"id": 2, "v": "b"} {"id": 3, "v": "c"}', CorruptRecordError, ["3"], id="two on a line"),
        pytest.param('{"id": 2, "v": "b"}, {"id": 3, "v": "c"}', CorruptRecordError, ["3"], id="two and a comma"),
        pytest.param('{"id": 2, "v": "b"} junk', CorruptRecordError, ["junk"], id="junk behind"),
        pytest.param('{"id": 2, "id": 3, "v": "b"}', CorruptRecordError, ['"id": 3'], id="field twice"),
        pytest.param('{"id": "two", "v": "b"}', CorruptRecordError, ["two"], id="text for a number"),
        pytest.param('{"id": 2.5, "v": "b"}', CorruptRecordError, ["2.5"], id="fraction for an integer"),
        pytest.param('{"id": 99999999999999999999, "v": "b"}', CorruptRecordError, ["99999"], id="too large"),
        pytest.param('{"id": 2, "v": "b", "w": 1}', SchemaMismatchError, ["field 'w'"], id="field added"),
        pytest.param('{"ID": 2, "v": "b"}', SchemaMismatchError, ["field 'ID'"], id="field in capitals"),
        pytest.param('{"id": 2, "v": "caf\xe9"}'.encode("latin-1"), FileEncodingError, [], id="latin-1"),
        pytest.param('{"id": 2, "v": "b"}'.encode("utf-16"), FileEncodingError, ["`multiLine"], id="utf-16"),
    ],
)
def test_bad_json_names_the_file(good_json, content, error, parts):
    json(good_json, bad=content)

    refused(good_json, error, "bad.json", *parts)


@pytest.mark.in_test_all
def test_mended_json_is_refreshed(good_json):
    json(good_json, bad="2,b")
    refused(good_json, CorruptRecordError)
    json(good_json, bad='{"id": 2, "v": "b"}')

    good_json.refresh()

    assert good_json.rows("orders") == [(1, "a"), (2, "b")]


@pytest.mark.in_test_all
@pytest.mark.parametrize(
    ("content", "error"),
    [
        pytest.param('{"id": 1, "v": "a"}\n{"id": 2, "v": "b"}\n', CorruptRecordError, id="lines"),
        pytest.param('[{"id": 1,\n"v": "a"}', CorruptRecordError, id="cut off"),
        # A Connect server tells that the file cannot be read, not why.
        pytest.param('[{"id": "one",\n"v": "a"}]', CorruptRecordError, id="wrong type", marks=pytest.mark.in_process),
        pytest.param('[{"id": 1,\n"v": "caf\xe9"}]'.encode("latin-1"), FileEncodingError, id="latin-1"),
    ],
)
def test_bad_json_over_several_lines_names_the_file(lake, content, error):
    json(lake, {"multiLine": "true"}, bad=content)

    refused(lake, error, "bad.json")


@pytest.mark.in_test_all
@pytest.mark.parametrize(("schema", "told"), [("id BIGINT, v INTT", '"INTT"'), ("id BIGINT, v VARCHAR", '"VARCHAR"')])
def test_type_that_nobody_knows_is_named(lake, schema, told):
    csv(lake, good="id,v\n1,a\n")
    lake.apply(source=Files("raw/csv/*.csv", format="csv", schema=schema))

    refused(lake, DefinitionError, "the schema cannot be parsed", told)


def test_encoding_that_nobody_knows_is_named(lake):
    json(lake, {"encoding": "klingon"}, good='{"id": 1, "v": "a"}\n')

    refused(lake, DefinitionError, "klingon")


@pytest.mark.sample(1)
@pytest.mark.parametrize("cut", [10, 40])
def test_truncated_compressed_file_is_named(lake, cut):
    whole = gzip.compress(b"".join(b'{"id": %d, "v": "%d"}\n' % (n, n * 7919) for n in range(1000)))
    json(lake)
    (lake.root / "raw/json/bad.json.gz").write_bytes(whole[:-cut])

    refused(lake, SourceFileError, "bad.json.gz")


@pytest.mark.in_test_all
@pytest.mark.parametrize("errors", [None, {}])
def test_compressed_file_of_which_nothing_comes_out_is_named(lake, errors):
    """Hadoop's bzip2 looks for the next block, and finds none to the end."""
    csv(lake, good="id,v\n1,a\n")
    (lake.root / "raw/csv/bad ü.csv.bz2").write_bytes(bytes(500))
    lake.apply(source=Files("raw/csv", format="csv", schema="id BIGINT, v STRING"), errors=errors)

    refused(lake, SourceFileError, "bad ü.csv.bz2 is empty and has no header")

    (lake.root / "raw/csv/bad ü.csv.bz2").write_bytes(bz2.compress(b"id,v\n2,b\n"))
    assert lake.refresh().rows_inserted == 2
