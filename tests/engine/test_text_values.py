"""Texts in csv and JSON files are values of their column's type, or an error that shows them; nothing is guessed."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime
from decimal import Decimal
from math import inf, nan
from pathlib import Path
from typing import Any

import pytest

from airflow_mv_provider import Files
from airflow_mv_provider.exceptions import CorruptRecordError, FileEncodingError, SchemaMismatchError
from airflow_mv_provider.sources.files import csv_text
from airflow_mv_provider.sources.files.reader import FilesReader
from airflow_mv_provider.spark.errors import translated

pytestmark = pytest.mark.slow

FORMATS = {
    "DATE": ("dateFormat", "yyyy"),
    "TIMESTAMP": ("timestampFormat", "yyyy"),
    "TIMESTAMP_NTZ": ("timestampNTZFormat", "yyyy"),
    "DECIMAL(10,2)": ("locale", "en-US"),
}


@pytest.fixture
def read(spark: Any, tmp_path: Path) -> Any:
    """Write one file and read it as a refresh would."""

    def read_file(content: str | bytes, format_: str, schema: str, **options: str) -> list[tuple[Any, ...]]:
        (tmp_path / "raw").mkdir(exist_ok=True)
        (tmp_path / f"raw/a.{format_}").write_bytes(content if isinstance(content, bytes) else content.encode())
        source = Files(f"raw/*.{format_}", format=format_, schema=schema, options=options)
        reader = FilesReader(spark, source, str(tmp_path), ())
        with translated("source"):
            return [tuple(row) for row in reader.read(reader.probe()).collect()]

    return read_file


# Of each type one text, as csv has it, that is a value, with the value; and texts that are none.
VALUES = [
    ("DATE", "2024-1-05", date(2024, 1, 5), ["2024", "2024-01", "2024-01-05 12:00", "2024-01-05 or so", "2024-02-30"]),
    (
        *("TIMESTAMP", "2024-01-05T12:30:00.5+01:00", datetime(2024, 1, 5, 11, 30, 0, 500_000, UTC)),
        ["2024", "2024-01", "12:30", "T12:30", "2024-01-05 1", "2024-01-05 12:30 or so", "1704456000"],
    ),
    (
        *("TIMESTAMP_NTZ", "2024-01-05 12:30", datetime(2024, 1, 5, 12, 30)),
        ["2024", "12:30", "2024-01-05 12:30Z", "2024-01-05 25:30"],
    ),
    ("DOUBLE", "-1.5e3", -1500.0, ["1d", "1f", "0x1p3", "1e999", "1,5", "one"]),
    ("FLOAT", ".5", 0.5, ["1d", "0x1p3", "1e39"]),
    ("DECIMAL(10,2)", "1,234.5", Decimal("1234.50"), ["1,2,34", "1,23", "1d", "123456789.5"]),
    ("BIGINT", "-3", -3, ["3.0", "1,000", "1d", "99999999999999999999"]),
    ("BOOLEAN", "true", True, ["1", "yes"]),
]
BAD = [(kind, text) for kind, _, _, wrong in VALUES for text in wrong]


@pytest.mark.sample(2)
@pytest.mark.parametrize(("kind", "text", "value", "_"), VALUES, ids=lambda each: each if isinstance(each, str) else "")
def test_csv_text_of_a_type_is_its_value(read, kind, text, value, _):
    rows = read(f"id;v\n1;{text}\n2;\n", "csv", f"id BIGINT, v {kind}", sep=";")

    if kind == "TIMESTAMP":
        rows = [(id_, v and v.replace(tzinfo=UTC) if v and v.tzinfo is None else v) for id_, v in rows]
    assert rows == [(1, value), (2, None)]


@pytest.mark.sample(3)
@pytest.mark.parametrize(("kind", "text"), BAD)
def test_csv_text_of_no_such_type_is_shown(read, kind, text):
    with pytest.raises(CorruptRecordError, match=re.escape(text)) as caught:
        read(f"id;v\n1;{text}\n", "csv", f"id BIGINT, v {kind}", sep=";")

    assert "a.csv" in str(caught.value)


@pytest.mark.in_test_all
@pytest.mark.parametrize("kind", FORMATS)
def test_csv_with_a_format_or_a_locale_is_read_by_it(read, kind):
    name, value = FORMATS[kind]

    assert read("id;v\n1;2024\n", "csv", f"id BIGINT, v {kind}", sep=";", **{name: value})[0][1] is not None


@pytest.mark.in_test_all
def test_csv_words_for_numbers_are_those_of_the_options(read):
    rows = read("v\nNaN\nInf\n-Infinity\n", "csv", "v DOUBLE")
    chosen = read("v\nnix\nviel\n-viel\n", "csv", "v FLOAT", nanValue="nix", positiveInf="viel", negativeInf="-viel")

    assert repr(rows) == repr([(nan,), (inf,), (-inf,)])
    assert repr(chosen) == repr(rows)


@pytest.mark.in_test_all
def test_binary_in_csv_is_the_texts_utf_8(read):
    assert read("v\ncaf\xe9\n".encode("latin-1"), "csv", "v BINARY", encoding="iso-8859-1") == [("caf\xe9".encode(),)]
    for encoding in ("UTF-8", "us-ascii"):
        with pytest.raises(FileEncodingError, match=r"a\.csv"):
            read(b"v\ncaf\xe9\n", "csv", "v BINARY", encoding=encoding)


@pytest.mark.in_test_all
def test_replacement_character_that_is_in_the_file_is_one(read):
    assert read("v\n\ufffd\n", "csv", "v STRING") == [("\ufffd",)]
    assert read('{"v": "\ufffd"}\n', "json", "v STRING") == [("\ufffd",)]


QUOTES = {
    "unclosed": ('id,v\n1,"abc\n2,d\n3,e\n', {}, False),
    "unclosed before another": ('id,v\n1,"abc\n2,d\n3,"x"\n4,y\n', {}, False),
    "text behind": ('id,v\n1,"abc"d\n', {}, False),
    "doubled, not declared": ('id,v\n1,"a""b"\n', {}, False),
    "doubled": ('id,v\n1,"a""b"\n2,""\n', {"escape": '"'}, True),
    "escaped": ('id,v\n1,"a\\"b"\n2,"\\\\"\n', {}, True),
    "escaped to the end": ('id,v\n1,"a\\"\n', {}, False),
    "inside": ('id,v\n1,5" pipe\n2, "x\n', {}, True),
    "blank behind": ('id,v\n1,"a" \r\n2,"b"\t\n', {}, True),
    "blank before": ('id,v\n1, "abc\n', {"ignoreLeadingWhiteSpace": "true"}, False),
    "another quote": ("id,v\n1,'abc\n2,\"\n", {"quote": "'"}, False),
    "no quote": ('id,v\n1,"abc\n', {"quote": ""}, True),
    "comment": ('id,v\n#"\n1,a\n', {"comment": "#"}, True),
    "two for a separator": ('id||v\n1||"a|b"\n', {"sep": "||"}, True),
    "tab": ('id\tv\n1\t"a\n', {"sep": "\\t"}, False),
    "two tabs": ('id\t\tv\n1\t\t"a\n', {"sep": "\\t\\t"}, False),
    "no escape": ('id,v\n1,"a\\"\n2,"b"\n', {"escape": ""}, True),
}


@pytest.mark.sample(2)
@pytest.mark.parametrize("multi_line", ["false", "true"])
@pytest.mark.parametrize("name", QUOTES)
def test_quotes_in_csv_are_closed(read, name, multi_line):
    content, options, is_good = QUOTES[name]

    if is_good:
        assert len(read(content, "csv", "id BIGINT, v STRING", multiLine=multi_line, **options)) == (
            content.strip().count("\n") - content.count("#")
        )
    else:
        with pytest.raises(CorruptRecordError, match=r"a\.csv has a quoted value that is not closed"):
            read(content, "csv", "id BIGINT, v STRING", multiLine=multi_line, **options)


@pytest.mark.in_test_all
def test_line_break_in_a_quoted_value_names_the_option_that_reads_it(read):
    text = 'id,v\n1,"a\nb"\n'

    with pytest.raises(CorruptRecordError) as caught:
        read(text, "csv", "id BIGINT, v STRING")

    assert "`multiLine: true`" in caught.value.advice
    assert [tuple(each) for each in read(text, "csv", "id BIGINT, v STRING", multiLine="true")] == [(1, "a\nb")]


@pytest.mark.in_test_all
def test_long_quoted_values_need_no_stack(read):
    text = 'v\n"' + '""\n' * 200_000 + '"\n' + '"a","b"\n'.replace(",", "\n") * 1000

    assert len(read(text, "csv", "v STRING", multiLine="true", escape='"')) == 2001


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("kind", "text"),
    [
        *(("DATE", '"2024"'), ("DATE", '"2024-01-05 or so"'), ("DATE", "2024"), ("TIMESTAMP", '"12:30"')),
        *(("TIMESTAMP", "1704456000"), ("TIMESTAMP_NTZ", '"2024"'), ("DOUBLE", "1e999"), ("FLOAT", "1e39")),
        *(("DOUBLE", '"1d"'), ("DOUBLE", '"1.5"'), ("DECIMAL(10,2)", '"1,2,34"'), ("BIGINT", '"3"'), ("BIGINT", "3.0")),
        *(("STRING", r'"\ud800"'), ("STRING", r'"\ud800\u0041"'), ("STRING", r'"\udc00"'), ("STRING", r'"\\\udc00"')),
        *(("STRUCT<a: INT>", '{"a": 1, "a": 2}'), ("ARRAY<STRUCT<a: INT>>", '[{"a": 1, "a": 1}]')),
        *(("STRUCT<a: STRUCT<b: INT>>", '{"a": {"b": 1, "b": 2}}'), ("STRUCT<a: DATE>", '{"a": "2024"}')),
        *(("ARRAY<TIMESTAMP>", '["2024-01-05 12:00", "12:30"]'), ("ARRAY<STRUCT<a: DOUBLE>>", '[{"a": 1e999}]')),
        ("STRUCT<a: DOUBLE, b: STRING>", '{"a": 1e999, "b": "info"}'),
        *(
            ("TINYINT", "200"),
            ("TINYINT", "-129"),
            ("ARRAY<TINYINT>", "[1, 128]"),
            ("STRUCT<a: TINYINT>", '{"a": 255}'),
        ),
    ],
)
def test_json_value_of_no_such_type_is_shown(read, kind, text):
    with pytest.raises(CorruptRecordError, match=r"a\.json has a record that does not fit"):
        read(f'{{"id": 1, "v": {text}}}\n', "json", f"id BIGINT, v {kind}")


@pytest.mark.in_test_all
@pytest.mark.parametrize(
    ("kind", "text", "told"),
    [
        ("DATE", '"2024"', "v: expected DATE, found 2024"),
        ("BIGINT", '"two"', "v: expected BIGINT, found two"),
        ("STRUCT<a: DATE>", '{"a": "2024"}', 'v: expected STRUCT<a: DATE>, found {"a":"2024"}'),
    ],
)
def test_json_column_that_does_not_fit_is_named_in_a_long_line(read, kind, text, told):
    line = f'{{"id": 1, "w": "{"x" * 200}", "v": {text}}}\n'

    with pytest.raises(CorruptRecordError, match=re.escape(told)):
        read(line, "json", f"id BIGINT, w STRING, v {kind}")


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        ("DATE", '"2024-01-05"', date(2024, 1, 5)),
        ("DOUBLE", '"NaN"', nan),
        ("DOUBLE", '"-Infinity"', -inf),
        ("DOUBLE", "15E-1", 1.5),
        ("STRUCT<a: TINYINT, b: ARRAY<TINYINT>>", '{"a": 127, "b": [-128, null]}', (127, [-128, None])),
        ("DECIMAL(10,2)", '"1,234.5"', Decimal("1234.50")),
        ("DECIMAL(10,2)", "1234.50", Decimal("1234.50")),
        ("STRING", r'"\ud83d\ude00 \\ud800"', "\U0001f600 \\ud800"),
        ("STRUCT<a: DATE, b: ARRAY<DOUBLE>>", '{"a": "2024-01-05", "b": [1, null]}', (date(2024, 1, 5), [1.0, None])),
        ("ARRAY<STRUCT<a: INT>>", '[{"a": 1}, {"a": 1}, null]', [(1,), (1,), None]),
        ("STRUCT<a: DATE>", "null", None),
        ("STRING", '{"a": 1, "a": 2}', '{"a":1,"a":2}'),
        ("DECIMAL(10,2)", "15E-1", Decimal("1.50")),
    ],
)
def test_json_value_of_a_type_is_its_value(read, kind, text, value):
    assert repr(read(f'{{"v": {text}}}\n', "json", f"v {kind}")) == repr([(value,)]) or read(
        f'{{"v": {text}}}\n', "json", f"v {kind}"
    ) == [(value,)]


NUMBERS = ("1.10", "-0", "1e400", "0.1000000000000000055511151231257827", "1E5", "-1.0e-7", "12345678901234567890", "7")


@pytest.mark.parametrize("kind", ["STRING", "STRUCT<a: STRING, b: DOUBLE>", "ARRAY<STRING>", "MAP<STRING, STRING>"])
def test_json_numbers_are_the_text_that_is_written(read, kind):
    """Each beside texts, names and values that look like numbers."""
    forms = {"STRING": "{}", "STRUCT": '{{"b": 2.50, "a": {}}}', "ARRAY": '["1.10", {}, null]', "MAP": '{{"1.0": {}}}'}
    form = forms[kind.partition("<")[0]]
    lines = (
        f'{{"id":{n}, \'w\' :  "it\'s \\"1.50\\", :2.0", "x":-0.0, "y": 1.50, "v":{form.format(number)} , "z":true}}\n'
        for n, number in enumerate(NUMBERS)
    )

    rows = read("".join(lines), "json", f"id BIGINT, w STRING, x DOUBLE, y DECIMAL(10,2), v {kind}, z STRING")

    values = {
        "STRING": lambda number: number,
        "STRUCT": lambda number: (number, 2.5),
        "ARRAY": lambda number: ["1.10", number, None],
        "MAP": lambda number: {"1.0": number},
    }
    value = values[kind.partition("<")[0]]
    assert sorted(rows) == [
        (n, 'it\'s "1.50", :2.0', -0.0, Decimal("1.50"), value(number), "true") for n, number in enumerate(NUMBERS)
    ]


@pytest.mark.in_test_all
@pytest.mark.parametrize(
    ("text", "value", "options"),
    [
        ('{"a": [1.10, "1.10", -0], "b": null}', '{"a":[1.10,"1.10",-0],"b":null}', {}),
        ("/* 2.0 \" */ 1.10 /* ' */", "1.10", {"allowComments": "true"}),
        ("007", "007", {"allowNumericLeadingZeros": "true"}),
        ("null", None, {}),
    ],
)
def test_json_numbers_inside_a_text_are_what_is_written(read, text, value, options):
    assert read(f'{{"w": 1.0, "v": {text}}}\n', "json", "w STRING, v STRING", **options) == [("1.0", value)]


@pytest.mark.parametrize("text", ["1.2.3", "1.0x", "01.5", "-", "1.5.", "+1.5", '1.5"'])
def test_what_is_no_number_is_no_text_either(read, text):
    with pytest.raises(CorruptRecordError):
        read(f'{{"v": {text}}}\n', "json", "v STRING")


@pytest.mark.sample(1)
@pytest.mark.parametrize("kind", ["DOUBLE", "FLOAT", "STRUCT<a: DOUBLE>"])
def test_nan_in_json_may_lack_quotes_and_infinity_may_not(read, kind):
    """Spark makes the same of Infinity and of 1e999."""

    def text(word: str) -> str:
        return f'{{"v": {{"a": {word}}}}}\n' if kind.startswith("STRUCT") else f'{{"v": {word}}}\n'

    rows = read(text("NaN") + text('"NaN"') + text('"-Infinity"'), "json", f"v {kind}")

    values = [value.a if kind.startswith("STRUCT") else value for (value,) in rows]
    assert repr(values) == repr([nan, nan, -inf])
    for word, options in (("Infinity", {}), ("NaN", {"allowNonNumericNumbers": "false"})):
        with pytest.raises(CorruptRecordError, match=word):
            read(text(word), "json", f"v {kind}", **options)


@pytest.mark.in_test_all
@pytest.mark.parametrize(
    ("kind", "text"), [("BINARY", '"!!"'), ("STRUCT<b: BINARY>", '{"b":"!!"}'), ("ARRAY<BINARY>", '["!!"]')]
)
def test_json_binary_that_is_not_base64_is_named(read, kind, text):
    """Spark reads no field that comes after it in the line."""
    with pytest.raises(CorruptRecordError, match=re.escape(f"v: expected {kind}, found")):
        read(f'{{"v": {text}, "id": 1}}\n', "json", f"id BIGINT, v {kind}")
    with pytest.raises(CorruptRecordError, match="id: expected BIGINT, found x"):
        read('{"v": "YQ==", "id": "x"}\n', "json", "id BIGINT, v BINARY")


@pytest.mark.sample(4)
@pytest.mark.parametrize(
    ("content", "rows"),
    [
        ('[{"id": 1,\n "v": 1.10}, {"v": "[{\\"id\\": 3}]",\n"id": 2}]', [(1, "1.10"), (2, '[{"id": 3}]')]),
        ('\ufeff{"id":\n 1, "v": {"a": [-0, 2.50]}}\n\n', [(1, '{"a":[-0,2.50]}')]),
        ("[]", []),
        ('[{"id": 1}]\n[{"id": 2}]', "the file is not one object"),
        ('{"id": 1}\n{"id": 2}', "the file is not one object"),
        ('"[{\\"id\\": 1}]"', "the file is not one object"),
        ('[{"id": 1}, "{\\"id\\": 2}"]', "the file is not one object"),
        ('[{"id": 1}, null]', "null"),
        ('[[{"id": 1}]]', "the file is not one object"),
        ("12.5", "the file is not one object"),
        ("\n", "the file is not one object"),
        ('[{"v":\n"\\ud800"}]', "half a character"),
        ('[{"id": 1},\n{"id": "two"}]', "id: expected BIGINT, found two"),
        ('[{"id": 1,\n"id": 2}]', '"id":2'),
    ],
)
def test_json_over_several_lines_is_checked_as_lines_are(read, content, rows):
    schema, options = "id BIGINT, v STRING", {"multiLine": "true"}
    if isinstance(rows, list):
        assert read(content, "json", schema, **options) == rows
    else:
        with pytest.raises(CorruptRecordError, match=rf"a\.json has a record that does not fit: .*{rows}"):
            read(content, "json", schema, **options)


@pytest.mark.in_test_all
@pytest.mark.parametrize("word", ["UTF-16", "UTF-8"])
def test_json_over_several_lines_keeps_its_numbers_in_any_encoding(read, word):
    content = '[{"id": 1,\n "v": 1.10}]'.encode(word)

    assert read(content, "json", "id BIGINT, v STRING", multiLine="true", encoding=word) == [(1, "1.10")]


@pytest.mark.in_test_all
def test_unknown_field_of_json_over_several_lines_is_named(read):
    with pytest.raises(SchemaMismatchError, match="'w'"):
        read('[{"id": 1,\n "w": 1}]', "json", "id BIGINT", multiLine="true")


@pytest.mark.in_test_all
def test_bad_record_of_json_over_several_lines_is_kept_with_its_number(lake):
    (lake.root / "raw").mkdir()
    (lake.root / "raw/a.json").write_text('[{"id": 1},\n{"id": "two"},\n{"id": 3}]')
    source = Files("raw", format="json", schema="id BIGINT", options={"multiLine": "true"})
    lake.apply(source=source, errors={})

    lake.refresh()

    assert lake.rows() == [(1,), (3,)]
    errors = lake.sql("SELECT source_position, rule, record FROM {t}", path="orders__errors")
    assert [tuple(row) for row in errors] == [(2, "corrupt_record", '{"id":"two"}')]


def test_nothing_is_published_from_a_quote_that_is_not_closed(lake):
    (lake.root / "raw").mkdir()
    (lake.root / "raw/a.csv").write_text('id,v\n1,"abc\n2,d\n')
    source = Files("raw/*.csv", format="csv", schema="id BIGINT, v STRING", options={"multiLine": "true"})
    lake.apply(source=source, errors={"max_rows": 5})

    with pytest.raises(CorruptRecordError, match="not closed"):
        lake.refresh()


@pytest.mark.in_test_all
def test_misfits_are_kept_in_the_error_table(lake):
    (lake.root / "raw").mkdir()
    (lake.root / "raw/a.csv").write_bytes(b"id,v,w\n1,2024,\xef\xbf\xbd\n2,2024-01-05,\xef\xbf\xbd\n3,2024-01-06,x\n")
    (lake.root / "raw/b.csv").write_bytes(b"id,v,w\n4,2024-01-05,\xe9\n")
    lake.apply(source=Files("raw", format="csv", schema="id BIGINT, v DATE, w STRING"), errors={})

    report = lake.refresh()

    assert lake.rows() == [(2, date(2024, 1, 5), "\ufffd"), (3, date(2024, 1, 6), "x")]
    assert report.rows_rejected == 2
    errors = lake.sql("SELECT source_position, rule, reason FROM {t} ORDER BY rule", path="orders__errors")
    assert [tuple(row) for row in errors] == [
        (1, "corrupt_record", "v: expected DATE, found 2024"),
        (1, "encoding", "bytes that are not in the declared encoding"),
    ]


@pytest.mark.in_test_all
def test_bytes_of_another_encoding_are_found_in_however_many_files(lake, monkeypatch):
    monkeypatch.setattr(csv_text, "_MAX_FILES", 1)
    (lake.root / "raw").mkdir()
    for n in range(3):
        (lake.root / f"raw/{n}.csv").write_bytes(b"id,v\n%d,\xe9\n" % n)
    lake.apply(source=Files("raw", format="csv", schema="id BIGINT, v STRING"), errors={}, guards={"allow_empty": True})

    assert lake.refresh().rows_rejected == 3
