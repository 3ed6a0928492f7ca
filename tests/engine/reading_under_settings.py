"""Read files and compute SQL in a session whose settings somebody else has chosen: `python -m … FOLDER ADDRESS`.

    {"old": "1500-02-28 1500-02-28 12:00:00", "partition": "int 1", ...}

The files are written by Arrow and fastavro, which do not name a calendar in them.
"""

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

OLD = datetime(1500, 2, 28, 12, tzinfo=UTC)
# What is read: rows of files, or SQL.
FILES = {
    "old": ("old.parquet", "parquet", "CAST(d AS STRING), CAST(t AS STRING)"),
    "int96": ("int96.parquet", "parquet", "CAST(t AS STRING)"),
    "avro": ("old.avro", "avro", "CAST(d AS STRING)"),
    "binary": ("binary.parquet", "parquet", "typeof(v)"),
    "local": ("local.parquet", "parquet", "typeof(t)"),
    "partition": ("partitioned", "text", "typeof(p), p"),
    "date": ("dates.csv", "csv", "CAST(d AS STRING)"),
    "time": ("times.csv", "csv", "typeof(t), CAST(t AS STRING)"),
}
SQL = {
    "decoded": "decode(X'61FF', 'UTF-8')",
    "encoded": "hex(encode('a', 'ISO-8859-2'))",
    "quotes": '"a" FROM (SELECT 1 AS a)',
    "escaped": r"length('\n')",
    "regex": "`a.` FROM (SELECT 1 AS a1)",
    "keys": "map_values(map(1, 'a', 1, 'b'))",
    "text": "CAST(array(1, NULL) AS STRING)",
    "deviation": "stddev_samp(a) FROM (SELECT 1.0D AS a)",
    "joined": "typeof(concat(X'41', X'42'))",
    "literal": "typeof(timestamp'2024-01-01 00:00:00')",
    "quotient": "CAST(1 AS DECIMAL(38,10)) / CAST(3 AS DECIMAL(38,10))",
    "partial": 'from_json(\'{"a": {"b": "x", "c": 1}}\', \'a STRUCT<b: INT, c: INT>\').a.c',
}
EXPECTED = {
    "old": "1500-02-28 1500-02-28 12:00:00",
    "int96": "1500-02-28 12:00:00",
    "avro": "1500-02-28",
    "binary": "binary",
    "local": "timestamp_ntz",
    "partition": "int 1",
    "date": "CorruptRecordError",
    "time": "timestamp 2024-02-29 22:00:00",
    "decoded": "FileEncodingError",
    "encoded": "DefinitionError",
    "quotes": "a",
    "escaped": "1",
    "regex": "DefinitionError",
    "keys": "EngineError",
    "text": "[1, null]",
    "deviation": "None",
    "joined": "binary",
    "literal": "timestamp",
    "quotient": "0.333333",
    "partial": "1",
}
# Names of settings with values that change one of these; a server or spark-defaults.conf may have each.
HARMFUL = {
    "spark.sql.parquet.datetimeRebaseModeInRead": ("LEGACY", "old"),
    "spark.sql.parquet.int96RebaseModeInRead": ("LEGACY", "int96"),
    "spark.sql.parquet.int96AsTimestamp": ("false", "int96"),
    "spark.sql.avro.datetimeRebaseModeInRead": ("LEGACY", "avro"),
    "spark.sql.parquet.binaryAsString": ("true", "binary"),
    "spark.sql.parquet.inferTimestampNTZ.enabled": ("false", "local"),
    "spark.sql.sources.partitionColumnTypeInference.enabled": ("false", "partition"),
    "spark.sql.legacy.timeParserPolicy": ("LEGACY", "date"),
    "spark.sql.timestampType": ("TIMESTAMP_NTZ", "time"),
    "spark.sql.legacy.codingErrorAction": ("true", "decoded"),
    "spark.sql.legacy.javaCharsets": ("true", "encoded"),
    "spark.sql.ansi.doubleQuotedIdentifiers": ("true", "quotes"),
    "spark.sql.parser.escapedStringLiterals": ("true", "escaped"),
    "spark.sql.parser.quotedRegexColumnNames": ("true", "regex"),
    "spark.sql.mapKeyDedupPolicy": ("LAST_WIN", "keys"),
    "spark.sql.legacy.castComplexTypesToString.enabled": ("true", "text"),
    "spark.sql.legacy.statisticalAggregate": ("true", "deviation"),
    "spark.sql.function.concatBinaryAsString": ("true", "joined"),
    "spark.sql.decimalOperations.allowPrecisionLoss": ("false", "quotient"),
    "spark.sql.json.enablePartialResults": ("false", "partial"),
}
_SCHEMAS = {"dates.csv": "id BIGINT, d DATE", "times.csv": "id BIGINT, t TIMESTAMP"}


def write(folder: Path) -> None:
    import fastavro
    import pyarrow as pa
    import pyarrow.parquet as pq

    at = pa.array([OLD], pa.timestamp("us", "UTC"))
    pq.write_table(pa.table({"d": pa.array([OLD.date()]), "t": at}), folder / "old.parquet")
    pq.write_table(pa.table({"t": at}), folder / "int96.parquet", use_deprecated_int96_timestamps=True)
    pq.write_table(pa.table({"v": pa.array([b"a"])}), folder / "binary.parquet")
    pq.write_table(pa.table({"t": pa.array([OLD.replace(tzinfo=None)], pa.timestamp("us"))}), folder / "local.parquet")
    day = {"type": "record", "name": "row", "fields": [{"name": "d", "type": {"type": "int", "logicalType": "date"}}]}
    with (folder / "old.avro").open("wb") as file:
        fastavro.writer(file, fastavro.parse_schema(day), [{"d": OLD.date()}])
    (folder / "partitioned/p=01").mkdir(parents=True)
    (folder / "partitioned/p=01/a.txt").write_text("a\n")
    (folder / "dates.csv").write_text("id,d\n1,2024-02-30\n")
    (folder / "times.csv").write_text("id,t\n1,2024-03-01T00:00:00+02:00\n")


def read(spark: Any, folder: Path, name: str) -> str:
    """Return what a session reads under a name, or the class of the error."""
    from airflow_mv_provider import Files
    from airflow_mv_provider.sources.spark.model import SparkSource
    from airflow_mv_provider.sources.table_source import open_source
    from airflow_mv_provider.spark.errors import translated
    from tests.conftest import a_table

    try:
        with translated("source"):
            if name in SQL:
                (row,) = spark.sql(f"SELECT {SQL[name]}").collect()
            else:
                file, format_, columns = FILES[name]
                options = {"dateFormat": "yyyy-MM-dd"} if name == "date" else {}
                source: Any = (
                    SparkSource(format_, path=file)
                    if format_ in ("avro", "text")
                    else Files(file, format=format_, schema=_SCHEMAS.get(file), options=options)  # type: ignore[arg-type]
                )
                reader = open_source(spark, a_table(source=source), str(folder)).reader
                (row,) = reader.read(reader.probe()).selectExpr(*columns.split(", ")).collect()
    except Exception as error:
        return type(error).__name__
    return " ".join(map(str, row))


def read_all(spark: Any, folder: Path) -> dict[str, str]:
    return {name: read(spark, folder, name) for name in (*FILES, *SQL)}


if __name__ == "__main__":
    from airflow_mv_provider.spark.session import connect_session, isolated

    print(json.dumps(read_all(isolated(connect_session(sys.argv[2])), Path(sys.argv[1]))))
