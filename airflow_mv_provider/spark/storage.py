"""Workspace storage: write Parquet files once, read them as recorded, and remove them.

The files are not Delta: a table with one version and one writer needs no log, and the log would cost more than the rows
of most refreshes. Readers compare counts and digests with what was recorded, which detects missing or changed files.
All access goes through Spark, so that a Connect client without access to the files can do it too.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Sequence
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from airflow_mv_provider.core.definition.identifier import literal, quoted
from airflow_mv_provider.core.definition.schema import Column
from airflow_mv_provider.core.leftover import Leftover
from airflow_mv_provider.core.location import (
    MainPlace,
    Workspace,
    is_kept,
    refresh_id_of,
    table_workspaces,
)
from airflow_mv_provider.core.progress.seal import Seal
from airflow_mv_provider.core.transfer.export import ExportPlace
from airflow_mv_provider.exceptions import EngineError, SealBrokenError
from airflow_mv_provider.spark.errors import condition_of, first_line, translated
from airflow_mv_provider.spark.layout import Layout, struct_type
from airflow_mv_provider.spark.session import is_remote

log = logging.getLogger(__name__)


def write(rows: DataFrame, path: str) -> None:
    """Write rows to a directory that does not exist yet."""
    writer = rows.write.mode("error")  # Spark Connect accepts only this name of the mode
    # Files are moved once, by their tasks, not twice: what a lost task may leave here is found when they are read back.
    writer.option("mapreduce.fileoutputcommitter.algorithm.version", "2").parquet(path)


def append(rows: DataFrame, path: str) -> None:
    """Write more rows to a directory that this attempt has written; columns that they lack read back as NULL."""
    rows.write.mode("append").option("mapreduce.fileoutputcommitter.algorithm.version", "2").parquet(path)


def read(spark: SparkSession, where: str, path: str, columns: Sequence[Column]) -> DataFrame:
    """Return the rows written at `path`; lazy.

    columns : the columns as they were written
    raises  : SealBrokenError, when the directory is missing
    """
    try:
        rows = spark.read.schema(struct_type(columns)).parquet(path)
        _ = rows.schema  # Spark Connect does not check the path before this
        return rows
    except PySparkException as error:
        with translated(where):
            if condition_of(error).startswith("PATH_NOT_FOUND"):
                raise SealBrokenError(where, f"{path} is gone.") from error
            raise


def desired_rows(spark: SparkSession, seal: Seal, read_source: Callable[[], DataFrame], layout: Layout) -> DataFrame:
    """Return the rows to merge: the staged copy, or the source read again at its pin; neither aligned nor hashed."""
    return read_source() if seal.rows is None else read(spark, layout.table.name, seal.rows, layout.columns)


def num_bytes(spark: SparkSession, path: str) -> int:
    """Return the size of the files at `path`."""
    if not is_remote(spark):
        files, place = _hadoop(spark, path)
        return int(files.getContentSummary(place).getLength())
    files = spark.read.format("binaryFile").option("pathGlobFilter", "*.parquet").load(path)
    return int(files.agg(F.coalesce(F.sum("length"), F.lit(0))).collect()[0][0])


def remove(spark: SparkSession, workspace: Workspace) -> None:
    """Remove a refresh's workspace with everything in it; does nothing if it is missing.

    Only a `Workspace` can be removed: its path is computed and contains this package's marker.
    """
    _remove(spark, workspace.root)


def remove_kept(spark: SparkSession, workspace: Workspace) -> None:
    """Remove what a refresh has kept for the next one; does nothing if it is missing."""
    _remove(spark, workspace.kept_root)


def remove_table_workspaces(spark: SparkSession, warehouse: str, table_uuid: str) -> None:
    """Remove the workspaces of all refreshes, and what they have kept, of one table, which is being dropped."""
    anything_of_it = Workspace(warehouse, table_uuid, "0" * 32)  # rejects an invalid table UUID
    _remove(spark, table_workspaces(anything_of_it.warehouse, anything_of_it.table_uuid))


def remove_main(spark: SparkSession, place: MainPlace) -> None:
    """Remove main itself, with everything below it; the caller has verified that it has the table's UUID."""
    _remove(spark, place.location)


def remove_errors(spark: SparkSession, place: MainPlace) -> None:
    """Remove main's error table; the caller has verified that it has the table's UUID."""
    _remove(spark, place.errors)


def remove_history(spark: SparkSession, place: MainPlace) -> None:
    """Remove main's history; the caller has verified that it has the table's UUID."""
    _remove(spark, place.history)


def remove_export(spark: SparkSession, place: ExportPlace) -> None:
    """Remove the rows that one attempt of an export wrote; no manifest may name them."""
    _remove(spark, place.rows)


def _remove(spark: SparkSession, path: str) -> None:
    """Remove a directory with its content, hidden files included; of a link only the link. Needs the right to write."""
    with translated(path):
        if not is_remote(spark):
            _delete(spark, path)
            return
        try:
            # A Connect client has no file system, but a database owns its directory: dropping it removes the tree.
            name = quoted(f"mv_sweep_{uuid.uuid4().hex}")
            spark.sql(f"CREATE DATABASE {name} LOCATION {literal(path)}")
            spark.sql(f"DROP DATABASE {name} CASCADE")
        except PySparkException as error:
            log.info("The catalog forbids to remove %s by a database: %s", path, first_line(str(error)))
            _empty(spark, path)


def _delete(spark: SparkSession, path: str) -> None:
    """Delete a directory through Hadoop, which reports no error for what it could not delete on a local disk."""
    files, place = _hadoop(spark, path)
    if not files.delete(place, True) and files.exists(place):
        raise EngineError(path, "the path cannot be removed.", hint="Check the permissions there.")


def _hadoop(spark: SparkSession, path: str) -> tuple[Any, Any]:
    """Return the file system of a path, and the path in it; not over Spark Connect."""
    assert spark._jvm is not None
    place = spark._jvm.org.apache.hadoop.fs.Path(path)
    return place.getFileSystem(spark._jsparkSession.sessionState().newHadoopConf()), place


def _empty(spark: SparkSession, path: str) -> None:
    """Overwrite a directory with no rows: only the empty directory is left, and on an object store not even that."""
    nothing = spark.range(0).withColumn("p", F.col("id"))  # an empty write makes no file if it is partitioned
    writer = nothing.write.mode("overwrite").partitionBy("p").option("partitionOverwriteMode", "static")
    writer.option("mapreduce.fileoutputcommitter.marksuccessfuljobs", "false").parquet(path)


def has_files(spark: SparkSession, location: str) -> bool:
    """True if there is a file at or below `location` that Spark does not treat as hidden."""
    return bool(_files(spark, location))


def leftovers(spark: SparkSession, warehouse: str, table_uuid: str) -> list[Leftover]:
    """Return what refreshes have left behind, one `Leftover` per refresh id."""
    found: dict[str, Leftover] = {}
    for path, written_ms in _files_with_times(spark, table_workspaces(warehouse, table_uuid)):
        if refresh_id := refresh_id_of(path, table_uuid):
            before, is_of_kept = found.get(refresh_id, Leftover(refresh_id, False, False, 0)), is_kept(path, table_uuid)
            found[refresh_id] = Leftover(
                refresh_id,
                before.has_workspace or not is_of_kept,
                before.has_kept or is_of_kept,
                max(written_ms, before.newest_ms),
            )
    return [found[refresh_id] for refresh_id in sorted(found)]


def _files_with_times(spark: SparkSession, location: str) -> list[tuple[str, int]]:
    if not has_files(spark, location):
        return []
    files = spark.read.format("binaryFile").option("recursiveFileLookup", "true").load(location)
    with translated(location):
        return [tuple(row) for row in files.select("path", F.expr("unix_millis(modificationTime)")).collect()]


def _files(spark: SparkSession, location: str) -> list[str]:
    try:
        return spark.read.format("binaryFile").option("recursiveFileLookup", "true").load(location).inputFiles()
    except PySparkException as error:
        if condition_of(error).startswith("PATH_NOT_FOUND"):
            return []
        with translated(location):
            raise
