"""Folders of files through whole refreshes: first everything, then what changed, then nothing."""

from __future__ import annotations

import bz2
import gzip
import os
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from airflow_mv_provider import Files
from airflow_mv_provider.core.outcome import Outcome
from airflow_mv_provider.exceptions import SourceChangedError
from airflow_mv_provider.sources.files import listing

pytestmark = pytest.mark.slow

SCHEMA = "id BIGINT, v STRING, amount DECIMAL(20,2)"
WIDE = {"guards": {"max_deleted_fraction": 1.0}}


def holds(lake: Any, expected: list[tuple[Any, ...]], path: str = "orders") -> None:
    """Compare main, read by delta-rs, with rows of (amount, id, v) as a multiset, whatever their order."""
    assert Counter(lake.rows(path)) == Counter(expected)


def found(lake: Any) -> list[tuple[Any, ...]]:
    """Main's rows as texts of (id, v, amount), sorted: what a test spells out."""
    return sorted((str(i), v, str(a)) for a, i, v in lake.rows())


def folder(lake: Any) -> Path:
    place = lake.root / "raw/files"
    place.mkdir(parents=True, exist_ok=True)
    return Path(place)


def as_json(lake: Any, name: str, rows: str) -> None:
    lines = [row.split(",") for row in rows.split()]
    text = "".join(f'{{"id": {i}, "v": "{v}", "amount": {a}}}\n' for i, v, a in lines)
    (folder(lake) / f"{name}.json").write_text(text)


def as_csv(lake: Any, name: str, rows: str) -> None:
    (folder(lake) / f"{name}.csv").write_text("id,v,amount\n" + "".join(f"{row}\n" for row in rows.split()))


def as_orc(lake: Any, name: str, rows: str) -> None:
    lines = [row.split(",") for row in rows.split()]
    values = ", ".join(f"({i}, '{v}', {a})" for i, v, a in lines)
    frame = lake.spark.sql(f"SELECT * FROM VALUES {values} AS t(id, v, amount)").selectExpr(
        "CAST(id AS BIGINT) AS id", "v", "CAST(amount AS DECIMAL(20,2)) AS amount"
    )
    frame.coalesce(1).write.mode("overwrite").orc(str(lake.root / "made"))
    (written,) = (lake.root / "made").glob("*.orc")
    written.rename(folder(lake) / f"{name}.orc")


@pytest.mark.in_test_all
@pytest.mark.sample(1)
@pytest.mark.parametrize(
    ("format_", "write"), [("json", as_json), ("csv", as_csv), ("orc", as_orc)], ids=["json", "csv", "orc"]
)
def test_files_that_come_change_and_go_are_followed(lake, format_, write):
    write(lake, "a", "1,one,9007199254740993.25 2,two,2.50")
    write(lake, "b", "3,three,3.00")
    lake.apply(source=Files(f"raw/files/*.{format_}", format=format_, schema=SCHEMA), **WIDE)

    first = lake.refresh()

    assert found(lake) == [("1", "one", "9007199254740993.25"), ("2", "two", "2.50"), ("3", "three", "3.00")]
    assert first.source == "2 files, " + first.source.split(", ", 1)[1]

    (folder(lake) / f"b.{format_}").unlink()
    write(lake, "a", "1,one,9007199254740993.25 2,changed,2.50")
    write(lake, "c", "4,four,4.00")
    second = lake.refresh()

    assert (second.rows_inserted, second.rows_updated, second.rows_deleted) == (1, 1, 1)
    assert found(lake) == [("1", "one", "9007199254740993.25"), ("2", "changed", "2.50"), ("4", "four", "4.00")]
    assert lake.refresh().outcome is Outcome.NOTHING_TO_DO


COMPRESSIONS = {
    "gz": gzip.compress,
    "bz2": bz2.compress,
    "zst": lambda data: pa.compress(data, codec="zstd", asbytes=True),
}


@pytest.mark.in_test_all
@pytest.mark.parametrize("ending", COMPRESSIONS)
@pytest.mark.parametrize(
    ("format_", "content"),
    [("csv", b"id,v,amount\n1,one,1.00\n"), ("json", b'{"id": 1, "v": "one", "amount": 1.00}\n')],
    ids=["csv", "json"],
)
def test_compressed_files_are_read(lake, format_, content, ending):
    (folder(lake) / f"a.{format_}.{ending}").write_bytes(COMPRESSIONS[ending](content))
    lake.apply(source=Files("raw/files", format=format_, schema=SCHEMA))

    lake.refresh()

    assert found(lake) == [("1", "one", "1.00")]


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    ("content", "options"),
    [
        (b'\xef\xbb\xbf{"id": 1, "v": "\xc3\xa9", "amount": 1}\n', {}),
        (b'\xef\xbb\xbf[{"id": 1,\n "v": "\xc3\xa9", "amount": 1}]\n', {"multiLine": "true"}),
        (b'{"id": 1, "v": "\xe9", "amount": 1}\r\n\r\n', {"encoding": "ISO-8859-1"}),
        ('{"id": 1, "v": "\xe9", "amount": 1}'.encode("utf-16"), {"encoding": "UTF-16", "multiLine": "true"}),
        (
            b"/* all */ {'id': 1, 'v': '\xc3\xa9', 'amount': 1}\n",
            {"allowComments": "true", "allowSingleQuotes": "true"},
        ),
    ],
    ids=["mark", "mark, several lines", "latin-1", "utf-16", "comments and quotes"],
)
def test_json_is_read_as_its_options_say(lake, content, options):
    (folder(lake) / "a.json").write_bytes(content)
    lake.apply(source=Files("raw/files", format="json", schema=SCHEMA, options=options))

    lake.refresh()

    assert found(lake) == [("1", "\xe9", "1.00")]


@pytest.mark.in_test_all
def test_records_over_several_lines_are_read_whole(lake):
    (folder(lake) / "a.json").write_text(
        '[\n{"id": 1, "v": "one",\n "amount": 1},\n{"id": 2, "v": "two", "amount": 2}]'
    )
    lake.apply(source=Files("raw/files", format="json", schema=SCHEMA, options={"multiLine": "true"}))

    lake.refresh()

    assert found(lake) == [("1", "one", "1.00"), ("2", "two", "2.00")]


@pytest.mark.in_test_all
def test_nested_json_is_compared_by_value(lake):
    (folder(lake) / "a.json").write_text('{"id": 1, "s": {"b": [1, 2], "c": null}}\n{"id": 2, "s": null}\n')
    lake.apply(source=Files("raw/files", format="json", schema="id BIGINT, s STRUCT<b: ARRAY<INT>, c: STRING>"))
    lake.refresh()

    (folder(lake) / "a.json").write_text('{"id": 1, "s": {"b": [1, 2], "c": ""}}\n{"id": 2}\n')
    report = lake.refresh()

    assert (report.rows_updated, report.rows_unchanged) == (1, 1)
    assert lake.rows() == [(1, (("b", (1, 2)), ("c", ""))), (2, None)]


@pytest.mark.in_test_all
@pytest.mark.parametrize("most_bytes", [listing._MAX_WHOLE_BYTES, 0], ids=["whole", "by line"])
def test_file_of_the_same_size_and_time_is_told_by_its_bytes(lake, most_bytes, monkeypatch):
    monkeypatch.setattr(listing, "_MAX_WHOLE_BYTES", most_bytes)
    source = Files("raw/files", format="csv", schema=SCHEMA)
    as_csv(lake, "a b", "1,a,1 2,b,2")
    as_csv(lake, "other", "3,c,3")
    lake.apply(source=source)
    lake.refresh()

    replaced_unnoticed(lake, "a b", "1,a,1 2,x,2")
    assert lake.refresh().outcome is Outcome.NOTHING_TO_DO  # as docs/files.md says
    lake.apply(source=source.model_copy(update={"fingerprint": "checksum"}))
    assert lake.refresh().rows_updated == 1
    assert lake.refresh().outcome is Outcome.NOTHING_TO_DO
    replaced_unnoticed(lake, "a b", "1,a,1 2,y,2")
    assert lake.refresh().rows_updated == 1
    as_csv(lake, "new", "4,d,4")
    assert lake.refresh().strategy == "incremental"
    assert found(lake) == [("1", "a", "1.00"), ("2", "y", "2.00"), ("3", "c", "3.00"), ("4", "d", "4.00")]


def replaced_unnoticed(lake: Any, name: str, rows: str) -> None:
    file = folder(lake) / f"{name}.csv"
    before = file.stat()
    as_csv(lake, name, rows)
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert file.stat().st_size == before.st_size


@pytest.mark.sample(1)
@pytest.mark.parametrize("change", ["removed", "replaced"])
def test_file_that_changes_between_pin_and_read_is_named(lake, change, crash_at):
    as_json(lake, "a", "1,one,1")
    as_json(lake, "b", "2,two,2")
    lake.apply(source=Files("raw/files/*.json", format="json", schema=SCHEMA))
    caller = lake.caller("same")
    begun = lake.refresher().begin("orders", caller)
    if change == "removed":
        (folder(lake) / "b.json").unlink()
    else:
        as_json(lake, "b", "2,another,2")

    with pytest.raises(SourceChangedError, match=r"b\.json"):
        lake.refresh(caller=caller)

    assert begun.own.refresh_id
    assert lake.phase() == "NORMAL"
    lake.refresh()
    assert found(lake)[0] == ("1", "one", "1.00")
