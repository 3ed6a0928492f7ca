"""Where in a source of files a row came from: the file and its line, and what is said where they are not known."""

from __future__ import annotations

import gzip
import os
from typing import Any

import pytest

from airflow_mv_provider import Files
from airflow_mv_provider.core.approval.hold import Decision
from airflow_mv_provider.core.approval.row_history import MAX_LINES
from airflow_mv_provider.core.outcome import Outcome
from airflow_mv_provider.report_text.row_history_text import row_history_text
from tests.engine.holding import decide, held

pytestmark = pytest.mark.slow

SCHEMA = "id BIGINT, v STRING"


def put(lake: Any, name: str, text: str | bytes) -> str:
    """Write a file of the source; return its path."""
    folder = lake.root / "raw/in"
    folder.mkdir(parents=True, exist_ok=True)
    content = text.encode() if isinstance(text, str) else text
    (folder / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    return str(folder / name)


def apply(lake: Any, format_: str = "csv", **source: Any) -> None:
    more = {
        name: source.pop(name) for name in ("on_conflict", "order_by", "strategy", "errors", "guards") if name in source
    }
    lake.apply(source=Files("raw/in/*", format=format_, **({"schema": SCHEMA} | source)), **more)


def came_from(lake: Any, key: Any) -> Any:
    return lake.refresher().row_history("orders", [f"id={key}"]).came_from


def lines(lake: Any, key: Any) -> tuple[int, ...]:
    """The lines of the one file that has the key."""
    found = came_from(lake, key)
    assert found.no_file is None, found
    [place] = found.places
    assert place.no_line is None, place
    return tuple(place.lines)


@pytest.mark.in_test_all
def test_the_line_that_a_row_came_from_counts_everything_before_it(lake):
    text = "# comment\r\n\r\n\nid;v\n1;'a;b'\n#5;no\n5;five\r\n6; #no\rid;v\n7;'six\\''"
    path = put(lake, "a.csv.gz", text.replace("id;v\n7", "8;eight\n7"))
    apply(lake, options={"sep": ";", "comment": "#", "quote": "'"})
    assert lake.refresh().rows_inserted == 5

    assert [lines(lake, key) for key in (1, 5, 6, 8, 7)] == [(5,), (7,), (8,), (9,), (10,)]
    text = row_history_text(lake.refresher().row_history("orders", ["id=5"]))
    assert f"  file      {path}, line 7\n" in text


@pytest.mark.in_test_all
def test_lines_are_counted_across_the_blocks_of_a_file(lake):
    """Spark reads it in blocks; its header is a row that the schema takes, and that `select` would raise for."""
    put(lake, "a.csv", "id,v\n" + "\n" * 7 + "".join(f"{i},{'x' * (i % 50)}\n" for i in range(20_000)))
    put(lake, "b.csv", "id,v\n50000,y\n")
    apply(lake, schema="id STRING, v STRING", select=["CAST(id AS BIGINT) AS id", "v", "_file AS f"])
    lake.refresh()
    conf = {"spark.sql.files.maxPartitionBytes": "50000", "spark.sql.files.openCostInBytes": "1000"}
    before = {name: lake.spark.conf.get(name) for name in conf}
    try:
        for name, value in conf.items():
            lake.spark.conf.set(name, value)
        found = {key: lines(lake, key) for key in (0, 1, 4_999, 12_345, 19_999, 50_000)}
    finally:
        for name, value in before.items():
            lake.spark.conf.set(name, value)

    assert found == {key: (key + 9,) for key in (0, 1, 4_999, 12_345, 19_999)} | {50_000: (2,)}


@pytest.mark.in_test_all
def test_json_and_a_separator_of_lines_of_its_own(lake):
    put(lake, "a.json", "\ufeff" + '{"id": 1, "v": "a"}|  |{"v": "n\\nl", "id": 2}|{"id": 3}')
    apply(lake, "json", options={"lineSep": "|"})
    lake.refresh()

    assert [lines(lake, key) for key in (1, 2, 3)] == [(1,), (3,), (4,)]


@pytest.mark.in_test_all
def test_all_lines_with_the_key_are_named_in_every_file(lake):
    many = "".join(f"3,{i}\n" for i in range(MAX_LINES + 1))
    a = put(lake, "a.csv", f"id,v\n1,a\n2,b\n1,z\n{many}")
    b = put(lake, "b.csv", "id,v\n9,n\n1,b\n")
    apply(lake, on_conflict="overwrite", order_by=["v"])
    lake.refresh()

    found = came_from(lake, 1)

    assert [(place.file, place.lines, place.is_cut) for place in found.places] == [(a, (2, 4), False), (b, (3,), False)]
    assert lines(lake, 2) == (3,)
    [cut] = came_from(lake, 3).places
    assert (cut.lines, cut.is_cut) == (tuple(range(5, 5 + MAX_LINES)), True)


@pytest.mark.in_test_all
@pytest.mark.parametrize(
    ("format_", "text", "source", "said"),
    [
        ("csv", 'id,v\n1,"a\nb"\n5,c\n', {"options": {"multiLine": "true"}}, "several lines (multiLine)"),
        ("json", '[{"id": 1,\n "v": "a"}, {"id": 5}]', {"options": {"multiLine": "true"}}, "several lines (multiLine)"),
        ("csv", "5,c".encode("utf-16-le"), {"options": {"encoding": "UTF-16LE", "header": "false"}}, "UTF-16LE"),
        ("csv", "id,v\n5,c\n", {"select": ["id", "v", "_position AS p"]}, "_position"),
    ],
    ids=["csv of many lines", "json of many lines", "encoding", "position"],
)
def test_a_line_that_is_not_certain_is_not_named_but_why(lake, format_, text, source, said):
    put(lake, "a", text)
    apply(lake, format_, **source)
    lake.refresh()

    found = came_from(lake, 5)

    reasons = [found.no_file, *(place.no_line for place in found.places)]
    assert said in str(reasons), found
    assert not any(place.lines for place in found.places)


@pytest.mark.in_test_all
def test_a_file_without_lines_is_named(lake):
    lake.spark.sql("SELECT id, 'a' AS v FROM range(3)").coalesce(1).write.parquet(str(lake.root / "raw/in"))
    lake.apply(source=Files("raw/in/*.parquet", format="parquet"))
    lake.refresh()

    [place] = came_from(lake, 1).places

    assert (place.file.endswith(".parquet"), place.no_line) == (True, "a file of parquet has no lines")


@pytest.mark.in_test_all
def test_files_that_have_changed_since_are_not_searched(lake):
    path = put(lake, "a.csv", "id,v\n1,a\n2,b\n")
    put(lake, "b.csv", "id,v\n3,c\n")
    apply(lake)
    lake.refresh()
    put(lake, "c.csv", "id,v\n4,d\n")
    assert lines(lake, 2) == (3,), "a file that came since does not matter"

    put(lake, "a.csv", "id,v\n2,b\n1,a\n")
    os.utime(path, (1_000_000_000, 1_000_000_000))

    assert came_from(lake, 2).no_file == "files of the source have changed since they were read"
    os.unlink(path)
    assert came_from(lake, 3).no_file == "files of the source have changed since they were read"
    assert came_from(lake, 99) is None, "there is no such row"


@pytest.mark.in_test_all
def test_where_the_row_is_not_in_the_source_or_files_are_not_searched(lake):
    put(lake, "a.csv", "id,v\n1,a\n2,b\n3,c\n")
    apply(lake, guards={"max_deleted_fraction": 1.0})
    lake.refresh()
    put(lake, "a.csv", "id,v\n1,a\n")
    held(lake, hold=True)
    decide(lake, Decision.WITHOUT_DELETES)
    assert came_from(lake, 2).no_file == "no file of the source has its key"
    apply(lake, errors={}, guards={"max_deleted_fraction": 1.0})
    lake.refresh(force=True)
    assert came_from(lake, 1).no_file == "the table has an error table"
    lake.sql("UPDATE {t} SET v = 'x' WHERE id = 1")
    assert came_from(lake, 1) is None, "others have changed main since"


@pytest.mark.in_test_all
def test_the_file_is_not_known_any_more_once_a_file_has_changed(lake):
    a = put(lake, "a 1+.csv", "id,v\n5,a\n6,a\n7,a\n")
    put(lake, "b.csv", "id,v\n8,a\n")
    apply(lake, strategy="incremental")
    lake.refresh()
    assert lines(lake, 5) == (2,)

    put(lake, "a 1+.csv", "id,v\n6,a\n7,a\n")
    c = put(lake, "c.csv", "id,v\n5,b\n")
    report = lake.refresh()

    assert (report.strategy, report.outcome) == ("incremental", Outcome.PUBLISHED)
    assert [(place.file, place.lines) for place in came_from(lake, 5).places] == [(c, (2,))]
    assert [(place.file, place.lines) for place in came_from(lake, 6).places] == [(a, (2,))]
    put(lake, "a 1+.csv", "id,v\n66,a\n6,a\n7,a\n")
    changed = came_from(lake, 5)
    assert (changed.places, changed.no_file) == ((), "files of the source have changed since they were read")
