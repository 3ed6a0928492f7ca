"""Explain whether a table over a query follows the changes of its inputs; the table need not be registered."""

from __future__ import annotations

from contextlib import closing

from airflow_mv_provider.core.changeset import SignedRows
from airflow_mv_provider.core.definition.table import RefreshableTable
from airflow_mv_provider.core.explanation import Explanation
from airflow_mv_provider.core.scope.scope import EVERYTHING
from airflow_mv_provider.core.strategy import MIN_ROWS_FOR_NEW_FILES, Situation, feed_obstacle
from airflow_mv_provider.runner.context import Context
from airflow_mv_provider.runner.registration import warehouse_of
from airflow_mv_provider.sources.reader import ViewReader
from airflow_mv_provider.sources.table_source import open_source
from airflow_mv_provider.spark.errors import translated


def explain(context: Context, definition: RefreshableTable) -> Explanation:
    """Return whether refreshes of a table can be incremental; reads the logs of its inputs, and no row.

    raises : SourceNotFoundError, DefinitionError, UnsafeLocationError, SettingError
    """
    settings = context.settings
    usual = Situation(
        EVERYTHING, MIN_ROWS_FOR_NEW_FILES, must_compare=None, is_known=True, changes=SignedRows(in_files=1)
    )
    obstacle = feed_obstacle(definition, usual, "auto")
    with translated(definition.name):
        source = open_source(
            context.spark, definition, warehouse_of(settings), settings.source_roots, context.connections
        )
        with closing(source):
            if not isinstance(source.reader, ViewReader):
                return Explanation(definition.name, None, obstacle)
            frontier = source.probe()
            obstacle = source.reader.determinism(frontier).nondeterminism_reason or obstacle
            return Explanation(definition.name, source.reader.following(frontier), obstacle)
