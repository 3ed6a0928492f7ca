"""Each row of bad input gets its named error; main stays as it was, and once it is mended a refresh works."""

from __future__ import annotations

import gzip
import os
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from airflow_mv_provider.core.outcome import Outcome
from airflow_mv_provider.core.source import DeltaSource, Files, Function, Query
from airflow_mv_provider.exceptions import (
    AdoptionError,
    CorruptRecordError,
    DefinitionError,
    DuplicateKeyError,
    FileEncodingError,
    GuardRefusedError,
    InvalidIdentifierError,
    KeyColumnError,
    MainNotOursError,
    MainUnsupportedError,
    MvError,
    NotComparableError,
    NullKeyError,
    PartitionValueError,
    SchemaMismatchError,
    SourceFileError,
    SourceFunctionError,
    SourceNotFoundError,
    UnpinnedTableError,
    UnsafeLocationError,
)

pytestmark = pytest.mark.slow

GOOD = "SELECT id, concat('v', id) AS v FROM range(10)"


@pytest.fixture
def good(prepared: Callable[..., Any]) -> Any:
    """A table that was published once."""

    def build(lake: Any) -> None:
        lake.write(GOOD)
        lake.apply()
        lake.refresh()

    return prepared("good", build)


def refused(lake: Any, error: type[MvError], *parts: str, **more: Any) -> MvError:
    """Refresh, expect `error` with `parts` in its message, and main, phase and files as before."""
    before = lake.rows("orders") if (lake.root / "orders").exists() else None
    with pytest.raises(error) as caught:
        lake.refresh(**more)
    text = str(caught.value)
    assert all(part in text for part in parts), text
    assert caught.value.advice, "an error without a hint"
    assert "\tat " not in text
    assert "Traceback" not in text
    assert (lake.rows("orders") if before is not None else None) == before
    assert lake.phase() == "NORMAL"
    assert lake.workspaces() == []
    history = lake.store.history(lake.store.table("orders").id, 1)
    assert not history or history[0].outcome is not Outcome.RUNNING
    return caught.value


@pytest.mark.sample(7)
@pytest.mark.parametrize(
    ("source", "error", "parts"),
    [
        pytest.param(f"{GOOD} UNION ALL SELECT 3, 'again'", DuplicateKeyError, ['{"id":3}'], id="twice, in main"),
        pytest.param(
            f"{GOOD} UNION ALL SELECT * FROM VALUES (77, 'a'), (77, 'a')", DuplicateKeyError, ['{"id":77}'], id="twice"
        ),
        pytest.param(f"{GOOD} UNION ALL SELECT NULL, 'none'", NullKeyError, ["'id'", '{"id":null}'], id="null"),
        pytest.param("SELECT id AS other, 'v' AS v FROM range(3)", KeyColumnError, ["'id'", "other"], id="missing"),
        pytest.param(
            "SELECT CAST(id AS DOUBLE) AS id, 'v' AS v FROM range(3)", KeyColumnError, ["double"], id="double"
        ),
        pytest.param("SELECT struct(id) AS id, 'v' AS v FROM range(3)", KeyColumnError, ["struct"], id="struct"),
        pytest.param(
            "SELECT id, 'v' AS v, 1 AS extra FROM range(9)", SchemaMismatchError, ["'extra'"], id="column added"
        ),
        pytest.param("SELECT id FROM range(9)", SchemaMismatchError, ["'v'"], id="column missing"),
        pytest.param("SELECT id, id AS v FROM range(9)", SchemaMismatchError, ["'v'", "long", "string"], id="type"),
        pytest.param(
            "SELECT CAST(id AS INT) AS id, 'v' AS v FROM range(9)", SchemaMismatchError, ["integer"], id="narrowed"
        ),
        pytest.param("SELECT id, 'v' AS w FROM range(9)", SchemaMismatchError, ["'w'"], id="column renamed"),
        pytest.param("SELECT id, 'v' AS V FROM range(9)", SchemaMismatchError, ["'V'"], id="column in capitals"),
        pytest.param("SELECT id AS ID, 'v' AS v FROM range(9)", KeyColumnError, ["'id'", "ID"], id="key in capitals"),
        pytest.param("SELECT id, 7 AS v FROM range(9)", SchemaMismatchError, ["'v'", "integer"], id="text to integer"),
        pytest.param("SELECT CAST(id AS FLOAT) AS id, 'v' AS v FROM range(3)", KeyColumnError, ["float"], id="float"),
        pytest.param("SELECT id, map('a', 1) AS v FROM range(9)", NotComparableError, ["'v'", "map"], id="map"),
        pytest.param(
            "SELECT id, parse_json('{}') AS v FROM range(9)", NotComparableError, ["'v'", "variant"], id="variant"
        ),
        pytest.param("SELECT id, 'v' AS v FROM range(0)", GuardRefusedError, ["allow_empty", "10"], id="empty"),
        pytest.param(
            "SELECT id, concat('v', id) AS v FROM range(4)", GuardRefusedError, ["max_deleted", "60.0%"], id="lost"
        ),
    ],
)
def test_bad_source_is_refused(good, source, error, parts):
    good.write(source)

    refused(good, error, *parts)


def test_key_without_a_value_gets_one_as_the_error_says(good):
    good.write(f"{GOOD} UNION ALL SELECT NULL, 'none'")

    error = refused(good, NullKeyError, "in 1 rows")

    stand_in = "coalesce(`id`, -1) AS `id`"
    assert stand_in in error.advice
    good.apply(source=DeltaSource("raw/orders", select=[stand_in, "v"]))
    assert good.refresh().rows_inserted == 1


def test_column_that_delta_cannot_store_is_named(good):
    """It comes from the definition's own projection: no Delta source has one."""
    good.apply(source=DeltaSource("raw/orders", select=["id", "v AS `a``b`"]))

    refused(good, InvalidIdentifierError, "'a`b'")


@pytest.mark.parametrize(
    ("old", "new"), [("DECIMAL(9,4)", "DECIMAL(9,2)"), ("DECIMAL(9,4)", "DECIMAL(7,4)"), ("BIGINT", "INT")]
)
@pytest.mark.sample(1)
def test_type_that_holds_less_is_refused_by_both_types(lake, old, new):
    lake.write(f"SELECT id, CAST(1 AS {old}) AS v FROM range(3)")
    lake.apply()
    lake.refresh()
    lake.write(f"SELECT id, CAST(1 AS {new}) AS v FROM range(3)")

    refused(lake, SchemaMismatchError, "'v'", "in the source and")


def test_mended_source_is_refreshed(good):
    good.write(f"{GOOD} UNION ALL SELECT NULL, 'none'")
    refused(good, NullKeyError)
    good.write("SELECT id, concat('new', id) AS v FROM range(12)")

    good.refresh()

    assert good.rows("orders") == good.rows("raw/orders")


def test_guard_is_overridden_once(good):
    good.write("SELECT id, concat('v', id) AS v FROM range(4)")

    report = good.refresh(overrides=["max_deleted_fraction"])

    assert report.rows_deleted == 6
    good.write("SELECT id, concat('v', id) AS v FROM range(1)")
    refused(good, GuardRefusedError, "max_deleted_fraction")


def test_empty_source_is_published_when_the_definition_allows_it(good):
    good.apply(guards={"allow_empty": True, "max_deleted_fraction": 1.0})
    good.write("SELECT id, 'v' AS v FROM range(0)")

    good.refresh()

    assert good.rows("orders") == []


NO_TEXT = "CAST(unhex('FF41') AS STRING)"


@pytest.mark.parametrize("value", ["''", "'__HIVE_DEFAULT_PARTITION__'", "repeat('x', 300)", NO_TEXT])
def test_partition_value_that_delta_cannot_keep_is_refused(lake, value):
    lake.write(f"SELECT id, {value} AS p FROM range(3)")
    lake.apply(partition_by=["p"])

    refused(lake, PartitionValueError, "'p'")


# -- files -------------------------------------------------------------------------------------------------------------

HEADER = "id,v\n"


def csv(lake: Any, **files: str | bytes) -> None:
    """Write CSV files under raw/csv and make them the source of `orders`."""
    folder = lake.root / "raw/csv"
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / f"{name}.csv").write_bytes(content if isinstance(content, bytes) else content.encode())
    lake.apply(source=Files("raw/csv/*.csv", format="csv", schema="id BIGINT, v STRING"))


@pytest.fixture
def good_csv(prepared: Callable[..., Any]) -> Any:
    """A table that was published once, from one CSV file."""

    def build(lake: Any) -> None:
        csv(lake, good="id,v\n1,a\n")
        lake.refresh()

    return prepared("good-csv", build)


@pytest.mark.sample(4)
@pytest.mark.parametrize(
    ("content", "error", "parts"),
    [
        pytest.param("id,v\n2\n", CorruptRecordError, ["bad.csv", "'2'"], id="line too short"),
        pytest.param("id,v\n2,b,c\n", CorruptRecordError, ["bad.csv", "2,b,c"], id="line too long"),
        pytest.param("id,v\ntwo,b\n", CorruptRecordError, ["bad.csv", "two"], id="wrong type"),
        pytest.param("v,id\nb,2\n", SchemaMismatchError, ["bad.csv", "'id'", "'v'"], id="columns in another order"),
        pytest.param("id,v,w\n2,b,c\n", SchemaMismatchError, ["bad.csv"], id="column added"),
        pytest.param("id,v\n2,caf\xe9\n".encode("latin-1"), FileEncodingError, ["bad.csv"], id="latin-1"),
        pytest.param("id,v\n2,b\n".encode("utf-16"), MvError, ["bad.csv"], id="utf-16"),
    ],
)
def test_bad_csv_names_the_file(good_csv, content, error, parts):
    csv(good_csv, bad=content)

    refused(good_csv, error, *parts)


def test_mended_csv_is_refreshed(good_csv):
    csv(good_csv, bad="id,v\ntwo,b\n")
    refused(good_csv, CorruptRecordError)
    csv(good_csv, bad="id,v\n2,b\n")

    good_csv.refresh()

    assert good_csv.rows("orders") == [(1, "a"), (2, "b")]


def test_byte_order_mark_is_not_part_of_the_first_name(lake):
    csv(lake, marked=b"\xef\xbb\xbfid,v\n1,a\n")

    lake.refresh()

    assert lake.rows("orders") == [(1, "a")]


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


@pytest.mark.sample(6)
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
        pytest.param('{"id": 2, "v": "b"}'.encode("utf-16"), FileEncodingError, [], id="utf-16"),
    ],
)
def test_bad_json_names_the_file(good_json, content, error, parts):
    json(good_json, bad=content)

    refused(good_json, error, "bad.json", *parts)


def test_mended_json_is_refreshed(good_json):
    json(good_json, bad="2,b")
    refused(good_json, CorruptRecordError)
    json(good_json, bad='{"id": 2, "v": "b"}')

    good_json.refresh()

    assert good_json.rows("orders") == [(1, "a"), (2, "b")]


@pytest.mark.sample(2)
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


def test_encoding_that_nobody_knows_is_named(lake):
    json(lake, {"encoding": "klingon"}, good='{"id": 1, "v": "a"}\n')

    refused(lake, DefinitionError, "klingon")


@pytest.mark.parametrize("cut", [10, 40])
def test_truncated_compressed_file_is_named(lake, cut):
    whole = gzip.compress(b"".join(b'{"id": %d, "v": "%d"}\n' % (n, n * 7919) for n in range(1000)))
    json(lake)
    (lake.root / "raw/json/bad.json.gz").write_bytes(whole[:-cut])

    refused(lake, SourceFileError, "bad.json.gz")


def orc(lake: Any, sql: str, schema: str = "id BIGINT, v STRING", mode: str = "overwrite") -> Path:
    lake.spark.sql(sql).coalesce(1).write.mode(mode).orc(str(lake.root / "raw/orc"))
    lake.apply(source=Files("raw/orc", format="orc", schema=schema))
    return next((lake.root / "raw/orc").glob("*.orc"))


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


def test_orc_files_that_disagree_are_refused(lake):
    orc(lake, GOOD)
    orc(lake, "SELECT 'x' AS id, 'v' AS v", mode="append")

    refused(lake, SchemaMismatchError, "same columns")


@pytest.mark.parametrize("size", [0, 100])
def test_truncated_orc_is_named(lake, size):
    file = orc(lake, GOOD)
    lake.refresh()
    os.truncate(file, size)

    refused(lake, SourceFileError, file.name)


@pytest.mark.parametrize("path", ["raw/none/*.csv", "raw/none", "raw/empty"])
def test_missing_path_and_empty_directory_are_named(lake, path):
    (lake.root / "raw/empty").mkdir(parents=True)
    lake.apply(source=Files(path, format="csv", schema="id BIGINT, v STRING"))

    refused(lake, SourceNotFoundError, path.split("*")[0].rstrip("/"))


@pytest.mark.parametrize("path", ["raw/csv", "raw/csv/*.csv"])
def test_folder_without_a_file_is_a_source_without_rows_where_the_definition_allows_it(good_csv, path):
    (good_csv.root / "raw/csv/good.csv").unlink()
    source = Files(path, format="csv", schema="id BIGINT, v STRING")
    good_csv.apply(source=source)
    refused(good_csv, SourceNotFoundError, "no file is at", path, "allow_empty")
    good_csv.apply(source=source, guards={"allow_empty": True})
    refused(good_csv, GuardRefusedError, "max_deleted_fraction")

    preview = good_csv.refresh(read_only=True)
    report = good_csv.refresh(overrides=["max_deleted_fraction"])

    assert (preview.rows_deleted, report.rows_deleted, good_csv.rows("orders")) == (1, 1, [])
    assert good_csv.refresh().outcome is Outcome.NOTHING_TO_DO
    csv(good_csv, good="id,v\n7,back\n")
    good_csv.refresh()
    assert good_csv.rows("orders") == [(7, "back")]


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


def test_csv_with_a_header_cannot_be_without_a_byte(good_csv):
    csv(good_csv, empty="")
    good_csv.apply(
        source=Files("raw/csv/*.csv", format="csv", schema="id BIGINT, v STRING"), guards={"allow_empty": True}
    )

    refused(good_csv, SourceFileError, "empty.csv is empty")


def test_columns_of_parquet_without_a_file_are_mains(lake):
    (lake.root / "raw/parquet").mkdir(parents=True)
    guards = {"allow_empty": True, "max_deleted_fraction": 1.0}
    lake.apply(source=Files("raw/parquet", format="parquet"), guards=guards)
    refused(lake, DefinitionError, "no file is at", "to say what its columns are")
    file = parquet(lake, GOOD)
    lake.refresh()
    for each in file.parent.iterdir():
        each.unlink()
    lake.apply(source=Files("raw/parquet", format="parquet"), guards=guards)

    report = lake.refresh()

    assert (report.rows_deleted, lake.rows("orders")) == (10, [])


@pytest.mark.parametrize("name", ["_late.csv", ".late.csv", "late.csv._COPYING_", "_*.csv", "{_a,b}.csv"])
def test_path_that_names_hidden_files_is_refused(lake, name):
    (lake.root / "raw").mkdir()
    (lake.root / "raw" / name.replace("*", "x").replace("{_a,b}", "_a")).write_text("id,v\n1,a\n")
    lake.apply(source=Files(f"raw/{name}", format="csv", schema="id BIGINT, v STRING"))

    refused(lake, SourceNotFoundError, name, "hidden")


@pytest.mark.in_process
@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("raw/csv", {".b.csv", "_c.csv", "d.csv._COPYING_", "sub/e.csv"}),
        ("raw/csv/*.csv", {".b.csv", "_c.csv"}),
        ("raw/*", {".b.csv", "_c.csv", "d.csv._COPYING_", "sub/e.csv"}),
    ],
)
def test_files_that_are_passed_over_are_named_in_the_report(good_csv, caplog, path, expected):
    """Among them is what Hadoop takes for hidden; a Connect client cannot see that."""
    folder = good_csv.root / "raw/csv"
    (folder / "sub").mkdir()
    (folder / "day=2").mkdir()
    for name in (".b.csv", "_c.csv", "d.csv._COPYING_", "sub/e.csv", "day=2/f.csv", "_SUCCESS"):
        (folder / name).write_text("id,v\n2,b\n")
    good_csv.apply(source=Files(path, format="csv", schema="id BIGINT, v STRING"))

    report = good_csv.refresh()

    shown = report.reason.split("passed over: ")[1]
    assert sum(str(folder / name) in shown for name in expected) == min(len(expected), 3)
    assert ("and 1 more" in shown) == (len(expected) > 3)
    assert all(path in caplog.text for path in shown.split(" and ")[0].split(", "))
    assert good_csv.rows("orders") == ([(1, "a")] if "*.csv" in path else [(1, "a"), (2, "b")])


def test_parquet_files_have_the_columns_of_all_of_them(lake):
    lake.spark.sql("SELECT 1L AS id, 'a' AS v").write.parquet(str(lake.root / "raw/parquet"))
    lake.spark.sql("SELECT 2L AS id, 'b' AS v, 7 AS later").write.mode("append").parquet(str(lake.root / "raw/parquet"))
    lake.apply(source=Files("raw/parquet", format="parquet"))

    lake.refresh()

    assert lake.rows("orders") == [(1, None, "a"), (2, 7, "b")]
    lake.spark.sql("SELECT 'x' AS id").write.mode("append").parquet(str(lake.root / "raw/parquet"))
    refused(lake, SchemaMismatchError, "do not have the same columns")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything; tests/engine/test_errors.py has the text")
def test_file_that_may_not_be_read_is_named(lake):
    csv(lake, closed="id,v\n1,a\n")
    (lake.root / "raw/csv/closed.csv").chmod(0)

    refused(lake, SourceFileError, "closed.csv")


def test_missing_delta_source_is_named(lake):
    lake.apply(source=DeltaSource("raw/none"))

    refused(lake, SourceNotFoundError, "raw/none")


def parquet(lake: Any, sql: str) -> Path:
    lake.spark.sql(sql).coalesce(1).write.mode("overwrite").parquet(str(lake.root / "raw/parquet"))
    lake.apply(source=Files("raw/parquet", format="parquet"))
    return next((lake.root / "raw/parquet").glob("*.parquet"))


def test_truncated_parquet_is_named(lake):
    file = parquet(lake, GOOD)
    lake.refresh()
    os.truncate(file, file.stat().st_size // 2)

    refused(lake, SourceFileError, file.name)


def test_parquet_files_are_read(lake):
    parquet(lake, GOOD)

    lake.refresh()

    assert lake.rows("orders") == [(n, f"v{n}") for n in range(10)]


def test_empty_parquet_is_named(lake):
    file = parquet(lake, GOOD)
    file.write_bytes(b"")

    refused(lake, SourceFileError, file.name)


# -- places ------------------------------------------------------------------------------------------------------------


def test_symlink_out_of_the_root_is_refused(lake, tmp_path):
    secret = tmp_path / "secret"
    secret.mkdir()
    (secret / "x.csv").write_text("id,v\n1,a\n")
    (lake.root / "raw").mkdir()
    (lake.root / "raw/link").symlink_to(secret)
    lake.apply(source=Files("raw/link/*.csv", format="csv", schema="id BIGINT, v STRING"))

    with pytest.raises(UnsafeLocationError, match="link"):
        lake.refresh()


def test_symlinked_file_out_of_the_root_is_refused(lake, tmp_path):
    secret = tmp_path / "x.csv"
    secret.write_text("id,v\n1,a\n")
    csv(lake, good="id,v\n1,a\n")
    (lake.root / "raw/csv/link.csv").symlink_to(secret)

    with pytest.raises(UnsafeLocationError, match="link"):
        lake.refresh()


def test_source_outside_the_warehouse_needs_an_allowed_root(lake, tmp_path):
    with pytest.raises(UnsafeLocationError, match="outside"):
        lake.apply(source=DeltaSource(str(tmp_path / "elsewhere")))


def test_main_may_not_be_its_own_source(lake):
    with pytest.raises(UnsafeLocationError, match="share a directory"):
        lake.apply(source=DeltaSource("orders"))


# -- state -------------------------------------------------------------------------------------------------------------


def test_existing_table_is_not_touched_unless_adopted(lake):
    lake.write(GOOD)
    lake.write("SELECT id, 'theirs' AS v FROM range(3)", "orders")
    lake.apply()
    refused(lake, MainNotOursError, "adopt")

    lake.apply(adopt=True)
    report = lake.refresh()

    assert (report.rows_updated, report.rows_inserted) == (3, 7)
    assert lake.rows("orders") == lake.rows("raw/orders")


@pytest.mark.parametrize("bad", ["(1, 'a'), (1, 'b')", "(NULL, 'a')"])
def test_table_with_bad_keys_is_not_adopted(lake, bad):
    lake.write(GOOD)
    lake.write(f"SELECT CAST(id AS BIGINT) AS id, v FROM VALUES {bad} AS t(id, v)", "orders")
    lake.apply(adopt=True)

    refused(lake, AdoptionError)


def test_main_with_bad_keys_is_repaired(good):
    good.sql("INSERT INTO {t} VALUES (3, 'v3'), (3, 'other'), (NULL, 'x'), (NULL, NULL)")

    good.apply(guards={"max_deleted_fraction": 0.5})
    report = good.refresh()

    assert report.rows_deleted == 5  # three copies of 3, two without a key
    assert good.rows("orders") == good.rows("raw/orders")


def test_main_that_is_not_delta_is_refused(lake):
    lake.write(GOOD)
    lake.spark.sql(GOOD).write.parquet(str(lake.root / "orders"))
    lake.apply()

    with pytest.raises(MainUnsupportedError, match="Delta"):
        lake.refresh()


def test_view_of_mains_name_is_not_main(good):
    """Main is a place, not a name: what the catalog calls so is neither read nor written."""
    good.spark.sql("CREATE VIEW orders AS SELECT 77 AS id, 'theirs' AS v")
    try:
        good.write("SELECT id, 'n' AS v FROM range(10)")

        good.refresh()

        assert good.rows("orders") == [(n, "n") for n in range(10)]
        assert good.spark.table("orders").collect() == [(77, "theirs")]
    finally:
        good.spark.sql("DROP VIEW orders")


def test_main_on_s3_without_a_log_store_for_several_drivers_is_refused(lake):
    """Before anything of S3 is touched: there is none here."""
    settings = replace(lake.settings, warehouse="s3a://bucket/wh", source_roots=(str(lake.root),))
    on_s3 = replace(lake, settings=settings)
    on_s3.apply(source=DeltaSource(str(lake.root / "raw/orders")))

    with pytest.raises(MainUnsupportedError, match="one driver only") as caught:
        on_s3.refresh()

    assert "s3a://bucket/wh/orders" in str(caught.value)
    assert "spark.delta.logStore.s3a.impl" in caught.value.advice
    assert lake.phase() == "NORMAL"


def test_main_that_forgets_transactions_is_refused(good):
    good.sql("ALTER TABLE {t} SET TBLPROPERTIES ('delta.setTransactionRetentionDuration' = 'interval 1 days')")
    good.write("SELECT id, 'n' AS v FROM range(10)")

    refused(good, MainUnsupportedError, "setTransactionRetentionDuration")


# -- queries and functions ---------------------------------------------------------------------------------------------


def query(lake: Any, sql: str, **inputs: str) -> None:
    lake.apply(source=Query(sql, inputs={"o": "raw/orders"} | inputs))


@pytest.mark.sample(6)
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
        pytest.param("SELECT id, assert_true(id < 5) AS v FROM o", MvError, [], id="fails when run"),
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


def test_missing_input_is_named(lake):
    lake.write(GOOD)
    query(lake, "SELECT * FROM o", p="raw/none")

    refused(lake, SourceNotFoundError, "raw/none")


@pytest.mark.sample(5)
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
            MvError,
            [],
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


def test_table_of_a_bad_function_goes_on_with_another_source(good):
    good.apply(source=Function("no_such_module:rows"))
    refused(good, SourceFunctionError)
    good.apply()

    good.refresh()

    assert good.rows("orders") == good.rows("raw/orders")
