"""Find the file of a source that a row of main came from, where the source's rows are kept by file."""

from __future__ import annotations

from pyspark.sql import functions as F

from airflow_mv_provider.core.definition import schema
from airflow_mv_provider.core.location import Workspace, files_of
from airflow_mv_provider.core.state import TableRecord
from airflow_mv_provider.exceptions import InterruptedRefreshError, MvError
from airflow_mv_provider.runner.context import Context
from airflow_mv_provider.spark import delta, marking
from airflow_mv_provider.spark.compare import file_sums
from airflow_mv_provider.spark.compare.one_row import OneRow
from airflow_mv_provider.spark.errors import translated
from airflow_mv_provider.spark.layout import Layout


def file_of(context: Context, table: TableRecord, one: OneRow) -> str | None:
    """Return the path of the file that had the row when main was published last; None if that was not kept.

    cost : two small scans, of the list of files, and of the row groups of the copies whose statistics may have the key
    """
    published = context.store.state(table.id).published_digests
    if published is None or published.path is None or not table.definition.source_kind.identifies_files:
        return None
    spark = context.spark
    files = file_sums.read(spark, table.name, files_of(published.path))
    layout = Layout(table.definition, schema.columns_of(delta.schema_of(spark, table.main).jsonValue()))
    try:
        place = Workspace(table.warehouse, table.uuid, published.refresh_id)
        rows = file_sums.rows_of(spark, files.values(), layout, place)
        if rows is None:
            return None
        with translated(table.name):
            path = marking.plain_path(F.col(marking.IN_FILE))
            found = rows.where(one.condition).select(path).limit(1).collect()
    except InterruptedRefreshError:
        raise
    except MvError:
        return None  # a copy is gone or damaged: the row's file is not known then
    return found[0][0] if found else None
