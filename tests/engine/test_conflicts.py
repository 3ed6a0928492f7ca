"""Two rows of the source with one key: the last one, or the row that main has, where the definition says so."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_mv_provider import DeltaSource, Files
from airflow_mv_provider.core.outcome import Outcome
from airflow_mv_provider.exceptions import KeyColumnError, NullKeyError
from airflow_mv_provider.spark import session

pytestmark = pytest.mark.slow

FIRST = "SELECT * FROM VALUES (1, 1, 'a'), (2, 1, 'b'), (3, 1, 'c') AS t(id, n, v)"
TWICE = """
    SELECT * FROM VALUES (1, 1, 'a'), (2, 3, 'newer'), (2, 2, 'new'), (4, 1, 'x'), (4, NULL, 'y'), (5, 7, 'p'),
                         (5, 7, 'q'), (5, 6, 'o') AS t(id, n, v)
"""


def test_last_by_order_by_wins(lake):
    lake.write(FIRST)
    lake.apply(on_conflict="overwrite", order_by=["n"], guards={"max_deleted_fraction": 1.0})
    lake.refresh()
    lake.write(TWICE)

    report = lake.refresh()

    tie = next(row for row in lake.rows() if row[0] == 5)
    assert tie in ((5, 7, "p"), (5, 7, "q"))
    assert lake.rows() == sorted([(1, 1, "a"), (2, 3, "newer"), (4, 1, "x"), tie], key=repr)
    assert (report.rows_inserted, report.rows_updated, report.rows_deleted, report.rows_unchanged) == (2, 1, 1, 1)
    again = lake.refresh(force=True)
    assert (again.outcome, again.rows_unchanged, again.rows_updated) == (Outcome.PUBLISHED, 4, 0)


@pytest.mark.in_test_all
def test_row_already_in_main_stays(lake):
    lake.write(FIRST)
    lake.apply(on_conflict="ignore", order_by=["n"], guards={"max_deleted_fraction": 1.0})
    lake.refresh()
    lake.write(TWICE)

    preview, report = lake.refresh(read_only=True), lake.refresh()

    assert lake.rows() == sorted([(1, 1, "a"), (2, 1, "b"), (4, None, "y"), (5, 6, "o")], key=repr)
    for each in (preview, report):
        counts = (each.rows_inserted, each.rows_updated, each.rows_deleted, each.rows_unchanged)
        assert counts == (2, 0, 1, 2)


@pytest.mark.in_test_all
def test_row_in_main_is_kept_whatever_the_source_says_of_its_key(lake):
    lake.write(FIRST)
    lake.apply(on_conflict="keep", order_by=["n"], guards={"max_deleted_fraction": 1.0})
    lake.refresh()
    lake.write(TWICE.replace("(1, 1, 'a')", "(1, 9, 'changed')"))

    preview, report = lake.refresh(read_only=True), lake.refresh()

    assert lake.rows() == sorted([(1, 1, "a"), (2, 1, "b"), (4, None, "y"), (5, 6, "o")], key=repr)
    for each in (preview, report):
        counts = (each.rows_inserted, each.rows_updated, each.rows_deleted, each.rows_unchanged)
        assert counts == (2, 0, 1, 2)


@pytest.mark.in_test_all
@pytest.mark.parametrize(
    "policy",
    [{"on_conflict": "overwrite", "order_by": ["n"]}, {"on_conflict": "ignore"}, {"on_conflict": "keep"}],
    ids=str,
)
def test_rows_without_a_key_are_no_conflict(lake, policy):
    lake.write("SELECT * FROM VALUES (1, 1), (NULL, 2), (NULL, 3) AS t(id, n)")
    lake.apply(**policy)

    with pytest.raises(NullKeyError, match="2 rows"):
        lake.refresh()


@pytest.mark.in_test_all
def test_order_by_has_to_be_a_column(lake):
    lake.write(FIRST)
    lake.apply(on_conflict="overwrite", order_by=["m"])

    with pytest.raises(KeyColumnError, match="order_by column 'm' is not among id, n, v"):
        lake.refresh()


TWO_FILES = {"b": ["2,old", "1,first", "1,second", "3,x"], "a": ["1,early", "2,new"]}
FORMATS = {
    "csv": lambda id_, v: f"{id_},{v}",
    "json": lambda id_, v: f'{{"id": {id_}, "v": "{v}"}}',
}


def two_files(lake: Any, format_: str, filler: int) -> None:
    """Write two files in which a key is there several times, with so much between that Spark splits them."""
    folder = lake.root / "raw/files"
    folder.mkdir(parents=True)
    for name, records in TWO_FILES.items():
        lines = ["id,v"] if format_ == "csv" else []
        for number, record in enumerate(records):
            if number:
                lines += [FORMATS[format_](1000 + n, f"filler of {name} before {number}") for n in range(filler)]
            lines.append(FORMATS[format_](*record.split(",")))
        (folder / f"{name}.{format_}").write_text("\n".join(lines) + "\n")


@pytest.mark.in_test_all
@pytest.mark.sample(1)
@pytest.mark.parametrize("format_", FORMATS)
def test_last_line_of_the_last_file_wins_however_files_are_split(lake, format_, monkeypatch):
    two_files(lake, format_, 300)
    source = Files(f"raw/files/*.{format_}", format=format_, schema="id BIGINT, v STRING")
    lake.apply(source=source, on_conflict="overwrite", order_by=["_file", "_position"])

    for most_bytes in ("1k", "3k", "128m"):
        monkeypatch.setitem(session._CONFS, "spark.sql.files.maxPartitionBytes", most_bytes)
        lake.refresh(force=True)

        kept = dict(row for row in lake.rows() if row[0] < 1000)
        assert kept == {1: "second", 2: "old", 3: "x"}
        assert dict(lake.rows())[1000] == "filler of b before 3"


@pytest.mark.in_test_all
@pytest.mark.parametrize("format_", [*FORMATS, "parquet", "orc"])
def test_records_know_where_they_are(lake, format_):
    if format_ in FORMATS:
        two_files(lake, format_, 0)
    else:
        for name, records in TWO_FILES.items():
            values = ", ".join(f"({id_}L, '{v}')" for id_, v in (record.split(",") for record in records))
            rows = lake.spark.sql(f"SELECT * FROM VALUES {values} AS t(id, v)").coalesce(1)
            rows.write.format(format_).save(str(lake.root / f"raw/files/name={name}"))
    path = f"raw/files/*.{format_}" if format_ in FORMATS else "raw/files"
    place = ["regexp_extract(_file, '([ab])[./]', 1) AS f", "_file_time AS t", "_position AS p"]
    source = Files(path, format=format_, schema="id BIGINT, v STRING", select=["*", *place])
    lake.apply(source=source, key=["f", "p"])

    lake.refresh()

    rows = lake.sql("SELECT f, p, id, v FROM {t} WHERE t > current_timestamp() - INTERVAL 1 DAY")
    expected = [
        (name, position, *record.split(","))
        for name, records in TWO_FILES.items()
        for position, record in enumerate(records, 1)
    ]
    assert sorted((f, p, str(id_), v) for f, p, id_, v in rows) == sorted(expected)
    assert lake.refresh(force=True).rows_unchanged == len(expected)


@pytest.mark.in_test_all
def test_rows_are_ordered_by_columns_that_main_has_not_got(lake):
    lake.write(TWICE.replace("'q'", "'p'"))
    lake.apply(source=DeltaSource("raw/orders", select=["id", "v"]), on_conflict="overwrite", order_by=["n"])

    preview, report = lake.refresh(read_only=True), lake.refresh()

    assert lake.rows() == [(1, "a"), (2, "newer"), (4, "x"), (5, "p")]
    assert preview.rows_inserted == report.rows_inserted == 4
