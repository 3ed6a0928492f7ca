"""Directories, through SQL alone, so that a Connect client that sees no file can list and remove them too."""

from __future__ import annotations

import uuid

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from airflow_mv_provider.core.identifier import literal, quoted
from airflow_mv_provider.core.location import Workspace, refresh_id_of, table_workspaces
from airflow_mv_provider.spark.errors import condition_of, translated


def remove(spark: SparkSession, workspace: Workspace) -> None:
    """Remove a refresh's workspace with everything in it; nothing happens if it is gone.

    A database created at a location owns the directory, and dropping it removes the tree, on any file system that
    Spark reaches. Only a `Workspace` can be removed: its path is computed and carries our marker.
    """
    name = quoted(f"mv_sweep_{uuid.uuid4().hex}")
    with translated(workspace.root):
        spark.sql(f"CREATE DATABASE {name} LOCATION {literal(workspace.root)}")
        spark.sql(f"DROP DATABASE {name} CASCADE")


def has_files(spark: SparkSession, location: str) -> bool:
    """True if there is a file at or below `location` that Spark does not take for hidden."""
    return bool(_files(spark, location))


def refreshes_with_files(spark: SparkSession, warehouse: str, table_uuid: str) -> set[str]:
    """Return the refreshes that have left files behind in a table's workspaces."""
    listed = _files(spark, table_workspaces(warehouse, table_uuid))
    found = (refresh_id_of(path, warehouse, table_uuid) for path in listed)
    return {refresh_id for refresh_id in found if refresh_id is not None}


def _files(spark: SparkSession, location: str) -> list[str]:
    try:
        return spark.read.format("binaryFile").option("recursiveFileLookup", "true").load(location).inputFiles()
    except PySparkException as error:
        if condition_of(error).startswith("PATH_NOT_FOUND"):
            return []
        with translated(location):
            raise
