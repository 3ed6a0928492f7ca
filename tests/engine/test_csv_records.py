"""Every record of a csv file is read as it is, or the refresh is refused: line ends, white space, NULL and NUL."""

from __future__ import annotations

import csv
import io
import random
from collections import Counter
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from airflow_mv_provider import Files
from airflow_mv_provider.exceptions import CorruptRecordError, SchemaMismatchError
from airflow_mv_provider.sources.files.reader import FilesReader
from airflow_mv_provider.spark.errors import translated

pytestmark = pytest.mark.slow

SCHEMA = "id BIGINT, v STRING"
SEPARATORS = ["\t", " ", "\x01", "\x0b", "\x0c", "\x1f", "\t\t"]


@pytest.fixture
def read(spark: Any, tmp_path: Path) -> Any:
    """Write one file and read it as a refresh would."""

    def read_file(content: str | bytes, schema: str = SCHEMA, **options: str) -> list[tuple[Any, ...]]:
        (tmp_path / "raw").mkdir(exist_ok=True)
        (tmp_path / "raw/a.csv").write_bytes(content if isinstance(content, bytes) else content.encode())
        reader = FilesReader(spark, Files("raw/*.csv", format="csv", schema=schema, options=options), str(tmp_path), ())
        with translated("source"):
            return [tuple(row) for row in reader.read(reader.probe()).collect()]

    return read_file


@pytest.mark.sample(1)
@pytest.mark.parametrize("header", ["true", "false"])
@pytest.mark.parametrize("separator", SEPARATORS)
def test_line_of_separators_alone_is_a_record_or_refused(read, separator, header):
    lines = [*([f"id{separator}v"] if header == "true" else []), separator, f"1{separator}a", separator]
    content, options = "\r\n".join(lines), {"sep": separator, "header": header}

    assert read(content, **options, multiLine="true") == [(None, None), (1, "a"), (None, None)]
    with pytest.raises(CorruptRecordError, match=r"a\.csv has a line with white space") as caught:
        read(content, **options)
    assert "`multiLine: true`" in caught.value.advice


@pytest.mark.in_test_all
@pytest.mark.parametrize("line", [" ", "\t", "\x1a", " \x1a\x01"])
@pytest.mark.parametrize("at", [0, 1, 2])
def test_line_of_white_space_in_one_column_is_its_value_or_refused(read, line, at):
    lines = ["a", "b"]
    lines.insert(at, line)
    content = "v\n" + "\n".join(lines)

    assert read(content, "v STRING", multiLine="true") == [(each,) for each in lines]
    with pytest.raises(CorruptRecordError, match="white space or control characters"):
        read(content, "v STRING")


@pytest.mark.in_test_all
def test_only_empty_lines_are_skipped_and_positions_count_records(lake):
    """The record of two empty values is the third one; the error table has the place of the fourth."""
    (lake.root / "raw").mkdir()
    (lake.root / "raw/a.csv").write_bytes(b'\r\nid\tv\r\n1\t"a\r\nb"\r\n\r\n2\tc\r\n\t\r\nx\td\r\n5\te\r\n')
    options = {"sep": "\t", "multiLine": "true"}
    source = Files("raw/*.csv", format="csv", schema=SCHEMA, options=options, select=["*", "_position AS n"])
    lake.apply(source=source, key=["n"], errors={})

    lake.refresh()

    assert Counter(lake.rows()) == Counter([(1, 1, "a\r\nb"), (2, 2, "c"), (None, 3, None), (5, 5, "e")])
    errors = lake.sql("SELECT source_position, rule, record FROM {t}", path="orders__errors")
    assert [tuple(row) for row in errors] == [(4, "corrupt_record", "x\td")]


@pytest.mark.in_test_all
def test_line_of_white_space_is_refused_where_the_table_has_an_error_table(lake):
    (lake.root / "raw").mkdir()
    (lake.root / "raw/a.csv").write_text("id\tv\n1\ta\n\t\n2\tb\n")
    source = Files("raw/*.csv", format="csv", schema=SCHEMA, options={"sep": "\t"})
    lake.apply(source=source, errors={"max_rows": 5})

    with pytest.raises(CorruptRecordError, match="white space or control characters"):
        lake.refresh()


@pytest.mark.sample(2)
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("inside", ["\n", "\r\n", "\r", "\n\r\r\n"])
def test_line_ends_inside_quotes_are_kept(read, end, inside):
    records = ["id,v", f'1,"first{inside}second"', f'2,"{inside}"', "3,c"]

    rows = read(end.join(records) + end, multiLine="true")

    assert rows == [(1, f"first{inside}second"), (2, inside), (3, "c")]


@pytest.mark.in_test_all
def test_a_line_ends_with_any_line_end_or_with_the_one_of_the_option(read):
    mixed = '\ufeff"id",v\n1,a\r\n2,b\r3,"c\r"\n\r\n'

    assert read(mixed, multiLine="true") == [(1, "a"), (2, "b"), (3, "c\r")]
    assert read('id,v;1,a\nb;2,"c;\nd";', lineSep=";", multiLine="true") == [(1, "a\nb"), (2, "c;\nd")]
    assert read("id,v\n1,a\rb\n", lineSep="\n", multiLine="true") == [(1, "a\rb")]
    assert read('# "\r\nid,v\r\n#1,"\r\n1,"a\r\n#b"\r\n#', comment="#", multiLine="true") == [(1, "a\r\n#b")]


@pytest.mark.in_test_all
@pytest.mark.parametrize("encoding", ["UTF-8", "UTF-16"])
@pytest.mark.parametrize("separator", [",", "\t", " ", "\x01"])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_what_python_writes_is_read_as_it_was(read, encoding, separator, end):
    draw = random.Random(f"{encoding}{separator}{end}")
    characters = ["a", '"', "'", "\r", "\n", "\r\n", " ", "\t", ",", "\\", "#", *"\x01\x1a\x1f\x0b\x85\u2028\ufeffé😀"]
    rows = [(str(n), *("".join(draw.choices(characters, k=draw.choice([0, 1, 3]))) for _ in "ab")) for n in range(200)]
    written = io.StringIO(newline="")
    how = csv.QUOTE_MINIMAL if end == "\r\n" else csv.QUOTE_ALL
    csv.writer(written, delimiter=separator, lineterminator=end, quoting=how).writerows(rows)
    options = {"sep": separator, "encoding": encoding, "escape": '"', "header": "false", "multiLine": "true"}

    found = read(written.getvalue().encode(encoding), "id STRING, a STRING, b STRING", **options)

    assert found == [tuple(value or None for value in row) for row in rows]


@pytest.mark.in_test_all
@pytest.mark.parametrize("multi_line", ["false", "true"])
def test_nul_that_spark_would_not_keep_is_refused(read, multi_line):
    assert read('id,v\n1,"a"\n2,b\0\n', multiLine=multi_line) == [(1, "a"), (2, "b\0")]
    with pytest.raises(CorruptRecordError, match="a NUL character inside quotes"):
        read('id,v\n1,"a\0b"\n', multiLine=multi_line)
    with pytest.raises(CorruptRecordError, match="a NUL character"):
        read("id,v\n1,\0a\n", multiLine=multi_line, quote="")


@pytest.mark.sample(1)
@pytest.mark.parametrize("multi_line", ["false", "true"])
@pytest.mark.parametrize("null", ["\\N", "NULL", "-"])
def test_an_empty_value_is_not_null_if_null_is_written_otherwise(read, null, multi_line):
    options = {"nullValue": null, "multiLine": multi_line, "sep": "|"}
    types = "id BIGINT, s STRING, b BINARY, d DATE, t BOOLEAN, f DOUBLE, c DECIMAL(10,2), i TINYINT"

    rows = read(f'id|s\n1|\n2|{null}\n3|""\n4|{null}x\n{null}|y\n', "id BIGINT, s STRING", **options)
    first = "id|s|b|d|t|f|c|i\n1|a|b|2024-01-05|true|1.5|1,234.50|7\n"
    typed = read(f"{first}2{f'|{null}' * 7}\n3{'|' * 7}\n", types, **options)

    assert rows == [(1, ""), (2, None), (3, ""), (4, f"{null}x"), (None, "y")]
    assert typed == [
        (1, "a", b"b", date(2024, 1, 5), True, 1.5, Decimal("1234.50"), 7),
        (2, *[None] * 7),
        (3, "", b"", *[None] * 5),  # no other type has a value for an empty text
    ]


@pytest.mark.in_test_all
@pytest.mark.parametrize("multi_line", ["false", "true"])
@pytest.mark.parametrize("value", ['"\\N"', '"\\\\N"', ' "\\N" '])
def test_quoted_value_that_equals_null_value_names_the_way(read, value, multi_line):
    options = {"nullValue": "\\N", "multiLine": multi_line, "ignoreLeadingWhiteSpace": "true"}

    with pytest.raises(CorruptRecordError, match=r"a\.csv has a quoted value '\\\\N', as `nullValue` is") as caught:
        read(f"id,v\n1,{value}\n", **options)
    assert "nullif(<column>, '\\\\N')" in caught.value.advice
    assert read('id,v\n1,"\\Nx"\n2,"x,\\N"\n3,"\\N\\""\n', **options) == [(1, "\\Nx"), (2, "x,\\N"), (3, '\\N"')]


@pytest.mark.in_test_all
@pytest.mark.parametrize("text", ["two", "3.0", '""', "\0003\0", "99999999999999999999"])
def test_text_of_no_number_is_shown_where_null_has_a_text(read, text):
    with pytest.raises(CorruptRecordError, match="id: expected BIGINT, found"):
        read(f"id,v\n{text},a\n", nullValue="\\N")


@pytest.mark.in_test_all
@pytest.mark.parametrize("multi_line", ["false", "true"])
def test_blank_in_a_header_is_shown(read, multi_line):
    with pytest.raises(SchemaMismatchError, match=r"a\.csv does not match the schema: expected column 'v', found ' v'"):
        read("id, v\n1,a\n", multiLine=multi_line)
    with pytest.raises(SchemaMismatchError, match=r"a\.csv does not match the schema"):
        read("id,v,w\n1,a,b\n", multiLine=multi_line)
    assert read("ID,V\n1,a\n", multiLine=multi_line) == [(1, "a")]
