"""Refuse Parquet files whose columns are not those that their footer describes in Spark's words.

Spark writes its schema into each footer, and when it infers columns it prefers that text to the file's own schema. A
program that copies the text and changes the columns, as pyarrow does, leaves it stale: Spark then omits a column that
was added, and reads NULL for one that was renamed.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from pyspark.sql import SparkSession

from airflow_mv_provider.exceptions import SchemaMismatchError
from airflow_mv_provider.sources.files.frontier import SourceFile
from airflow_mv_provider.spark.errors import translated
from airflow_mv_provider.spark.session import is_remote

_DESCRIPTION = "org.apache.spark.sql.parquet.row.metadata"
_NUM_THREADS, _NUM_KEPT = 32, 500  # they wait for an object store; footers that are in memory at once


def check_names(spark: SparkSession, files: Sequence[SourceFile]) -> None:
    """Refuse files with a column or field that only one of both schemas has; capitals do not matter, as to Spark.

    raises : SchemaMismatchError, with one of the files
    cost   : the footer of every file, read by Spark's driver; a Connect client cannot read them, and checks nothing
    """
    if is_remote(spark):
        return
    with translated("source"):
        for path, described, own in _schemas(spark, files):
            if names := _differences(json.loads(described), json.loads(own)):
                problem = f"{path} has other columns than Spark's description in its footer: {', '.join(names)}."
                hint = f"Write it again without {_DESCRIPTION}, which pyarrow keeps in the metadata of a table."
                raise SchemaMismatchError("source", problem, hint=hint)


def _schemas(spark: SparkSession, files: Sequence[SourceFile]) -> Iterator[tuple[str, str, str]]:
    """Give the path, Spark's description and the file's own schema in the same form, of files that have both."""
    jvm, state = spark._jvm, spark._jsparkSession.sessionState()
    hadoop, parquet = jvm.org.apache.hadoop.fs, jvm.org.apache.parquet.hadoop  # type: ignore[union-attr]
    converter = jvm.org.apache.spark.sql.execution.datasources.parquet.ParquetToSparkSchemaConverter(state.conf())  # type: ignore[union-attr]
    conf = state.newHadoopConf()
    conf.setInt("parquet.metadata.read.parallelism", _NUM_THREADS)
    for start in range(0, len(files), _NUM_KEPT):
        some = files[start : start + _NUM_KEPT]
        statuses = [
            hadoop.FileStatus(file.num_bytes, False, 0, 0, file.modified_ms, hadoop.Path(file.path)) for file in some
        ]
        footers = parquet.ParquetFileReader.readAllFootersInParallel(conf, statuses, True)
        for file, footer in zip(some, footers, strict=True):
            found = footer.getParquetMetadata().getFileMetaData()
            if (described := found.getKeyValueMetaData().get(_DESCRIPTION)) is not None:
                yield file.path, described, converter.convert(found.getSchema()).json()


def _differences(one: Any, other: Any) -> list[str]:
    """Return the names of columns or fields that only one of two types, in Spark's JSON, has."""
    one, other = _inner(one), _inner(other)
    if one is None or other is None:  # an interval is a number in the file
        return []
    if alone := sorted(one.keys() ^ other.keys()):
        return alone
    return [name for key in one for name in _differences(one[key], other[key])]


def _inner(kind: Any) -> dict[str, Any] | None:
    """Return the types that one is made of, by name; None if it is made of none."""
    match kind:
        case {"type": "struct", "fields": fields}:
            return {field["name"].lower(): field["type"] for field in fields}
        case {"type": "array", "elementType": element}:
            return {"element": element}
        case {"type": "map", "keyType": key, "valueType": value}:
            return {"key": key, "value": value}
    return None
