"""Refuse files that belong to a table whose own log decides which of them count.

Such a table keeps files of rows that were deleted or replaced, of writes that were not committed, or lists of deleted
rows beside them. Reading all files of its folders would publish these rows.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from airflow_mv_provider.core.location import is_inside
from airflow_mv_provider.exceptions import DefinitionError
from airflow_mv_provider.sources.files.hidden_files import folder_of, is_glob, is_partition, partition_folders
from airflow_mv_provider.sources.place import literal_path
from airflow_mv_provider.spark.errors import condition_of, translated
from airflow_mv_provider.spark.session import is_remote

_DELTA, _HUDI, _ICEBERG, _SINK = "_delta_log", ".hoodie", "metadata/*.metadata.json", "_spark_metadata"
_BY_NAME = (
    "Read it with `type: spark`, `format: {}` and its path, if it is in no catalog, or with `type: function` by its"
    " name: `return spark.table(...)`. Spark needs the jar of that format."
)
_LOGS = {
    _DELTA: ("is a Delta table", "Use `type: delta` with this path."),
    _ICEBERG: ("is an Iceberg table", _BY_NAME.format("iceberg")),
    _HUDI: ("is a Hudi table", _BY_NAME.format("hudi")),
    _SINK: ("was written by a stream of Spark", "Use this folder itself as the path: Spark then reads its log."),
}
# Hive's tables with ACID have folders instead of a log: of rows that came, and of rows that were deleted.
_ACID = re.compile(
    r"(.*)/(?:base_\d{7,}|(?:delete_)?delta_\d{7,}_\d{7,}(?:_\d{4,})?)(?:_v\d+)?/(?:[^/]*/)*(?:bucket_|\d{6}_)\d+[^/]*"
)
_MAX_FOLDERS = 100  # partition folders that are searched: in an object store each look is slow


def check_no_table(spark: SparkSession, location: str, roots: Sequence[str], paths: Iterable[str]) -> None:
    """Refuse a path whose files are those of a table with a log, in a folder above them or their own.

    Args:
        location: Of the source; a path or a glob.
        roots: The folders that the source may lie in; nothing is looked for above them.
        paths: All files below the paths that the glob matches.

    Raises:
        DefinitionError: With the type of source that follows the log.

    Cost:
        A look into each folder from the root to the files, and into up to 100 partition folders.
    """
    paths = list(paths)
    for path in paths:
        if found := _ACID.fullmatch(path):
            raise _refused(found[1], "is a transactional (ACID) table of Hive", "Have Hive write its rows elsewhere.")
    for folder in _folders(location, roots, paths):
        for log in _logs_in(spark, folder):
            is_read_by_log = log == _SINK and folder == location.rstrip("/")
            if not is_read_by_log and not is_inside(location, f"{folder}/{log.partition('/')[0]}"):
                raise _refused(folder, *_LOGS[log])


def _refused(table: str, what: str, hint: str) -> DefinitionError:
    problem = f"{table} {what}: its files alone do not show which of their rows were deleted or replaced."
    return DefinitionError("source", problem, hint=hint)


def _folders(location: str, roots: Sequence[str], paths: Sequence[str]) -> list[str]:
    """Return the folders that a table could begin in, the upper ones first."""
    fixed = folder_of(location) if is_glob(location) else location.rstrip("/")
    found = set(_upwards(fixed, roots))
    for folder in {path.rpartition("/")[0] for path in paths}:
        below = folder.removeprefix(fixed).strip("/").split("/") if folder != fixed else []
        at = fixed
        for name in below:
            if is_partition(name):
                break
            at = f"{at}/{name}"
            found.add(at)
    return sorted(
        found | set(partition_folders(location, paths)[:_MAX_FOLDERS]), key=lambda each: (each.count("/"), each)
    )


def _upwards(folder: str, roots: Sequence[str]) -> Iterator[str]:
    while folder and any(is_inside(folder, root) for root in roots):
        yield folder
        folder = folder.rpartition("/")[0]


def _logs_in(spark: SparkSession, folder: str) -> list[str]:
    literal = literal_path(folder)
    if not _exists(spark, f"{literal}/{{{','.join(_LOGS)}}}"):
        return []
    return [log for log in _LOGS if _exists(spark, f"{literal}/{log}")]


def _exists(spark: SparkSession, pattern: str) -> bool:
    """True if there is a file or folder that a glob matches, whatever its name."""
    with translated("source"):
        if not is_remote(spark):
            path = spark._jvm.org.apache.hadoop.fs.Path(pattern)  # type: ignore[union-attr]
            conf = spark._jsparkSession.sessionState().newHadoopConf()
            return bool(path.getFileSystem(conf).globStatus(path))
        try:
            _ = spark.read.format("binaryFile").load(pattern).schema
        except PySparkException as error:
            if condition_of(error).startswith("PATH_NOT_FOUND"):
                return False
            raise
    return True
