"""Find the lines of one csv or json file that hold the rows with a key, as the source's own options read them.

    numbered lines of the file ──▶ without header, comments, empty lines ──▶ parsed, projected ──▶ those with the key

A line is what Spark's reader takes for one: it ends with `lineSep`, by default with \\n, \\r\\n or \\r. The first
one is 1, and all count: header, comments and blank ones too. Of a compressed file the lines are those of its text.

Spark reads a large file in blocks, and numbers the lines of each: lines before a block are counted by block.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from airflow_mv_provider.core.definition.identifier import quoted
from airflow_mv_provider.sources.files import csv_lines, csv_text, json_lines, positions
from airflow_mv_provider.sources.files.model import Files
from airflow_mv_provider.sources.place import literal_path
from airflow_mv_provider.sources.texts import decoded, encoding, is_multi_line, is_utf_8, texts
from airflow_mv_provider.spark import marking

MAX_BYTES = 1 << 30
_BLOCK, _NUMBER, _ROW = "_mv_block", "_mv_number", "_mv_row"
_IN_BLOCK = (1 << 33) - 1  # the part of `monotonically_increasing_id` that counts the rows of a partition


def obstacle(source: Files) -> str | None:
    """Return why the line of a row in a file of this source cannot be known for certain; None if it can."""
    if not source.is_text:
        return f"a file of {source.format} has no lines"
    if is_multi_line(source.options):
        return "a record may span several lines (multiLine)"
    if not is_utf_8(source.options) and encoding(source.options).upper() not in csv_text.SINGLE_BYTE:
        return f"lines of text in {encoding(source.options)} are not counted"
    if "_position" in positions.named_in(source.select or ()):
        return "select uses _position"
    return None


def found(
    spark: SparkSession,
    source: Files,
    declared: StructType,
    path: str,
    place: Sequence[Column],
    project: Callable[[DataFrame, Sequence[str]], DataFrame],
    condition: Column,
    names: Sequence[str],
    at_most: int,
) -> list[tuple[int, dict[str, Any]]] | None:
    """Return the first lines whose row fulfils a condition: the number of each, and the row's columns `names`.

    source  : without an `obstacle`
    place   : columns that `project` needs beside the record
    project : applies the definition's projection, and keeps the additional columns
    returns : None if the lines could not be counted
    cost    : three scans of the file, in one of which every line is parsed
    raises  : while it runs: whatever the projection raises for a row
    """
    options, is_csv = source.options, source.format == "csv"
    text = decoded(F.col("value"), options)
    lines = texts(spark, [literal_path(path)], options).select(
        (text if is_csv else F.ltrim(text, F.lit("\ufeff"))).alias("text"),
        (F.is_valid_utf8("value") if is_utf_8(options) else F.lit(True)).alias("is_decoded"),
        F.col(marking.BLOCK).alias(_BLOCK),
        F.monotonically_increasing_id().alias(_NUMBER),
        *place,
    )
    has_text, comment = F.col("text") != "", options.get("comment") if is_csv else None
    records = lines.where(has_text & ~F.col("text").startswith(comment) if comment else has_text)
    if is_csv and options.get("header", "true").lower() == "true":
        first = records.where(F.col(_BLOCK) == 0).agg(F.min(_NUMBER)).collect()[0][0]
        if first is None:
            return []
        records = records.where((F.col(_BLOCK) > 0) | (F.col(_NUMBER) > first))
    parsed = (csv_lines if is_csv else json_lines).judged(records, declared, options)
    rows = parsed.where(F.col("broken").isNull()).select(
        *(F.col(f"record.{quoted(name)}") for name in declared.names), *lines.columns[2:]
    )
    wanted = F.to_json(F.struct(*(quoted(name) for name in names)), {"ignoreNullFields": "false"}).alias(_ROW)
    matching = project(rows, (_BLOCK, _NUMBER)).where(condition).select(_BLOCK, _NUMBER, wanted)
    chosen = matching.orderBy(_BLOCK, _NUMBER).limit(at_most).collect()
    before = _lines_before(lines) if chosen else {}
    if before is None or not all(row[_BLOCK] in before for row in chosen):
        return None
    return [
        (before[block] + (number & _IN_BLOCK) + 1, json.loads(row, parse_float=str)) for block, number, row in chosen
    ]


def _lines_before(lines: DataFrame) -> dict[int, int] | None:
    """Return the number of lines before each block of a file; None if a block does not begin a partition."""
    by_block = lines.groupBy(_BLOCK).agg(F.count("*").alias("n"), F.min(_NUMBER).alias("first"))
    before, seen = dict[int, int](), 0
    for block, num_lines, first in sorted(by_block.collect()):
        if first & _IN_BLOCK:  # Spark gives each block of one file a partition; otherwise its numbers do not begin at 0
            return None
        before[block] = seen
        seen += num_lines
    return before
