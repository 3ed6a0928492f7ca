"""What one epoch works on: the refresh, its table, its source and its lease, in one value that its steps share."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from pyspark.sql import DataFrame, SparkSession

from airflow_mv_provider.core import schema
from airflow_mv_provider.core.location import Workspace
from airflow_mv_provider.core.state import Ownership, RefreshRecord, TableRecord
from airflow_mv_provider.core.table import RefreshableTable
from airflow_mv_provider.metadata.store import Store
from airflow_mv_provider.runner.lease import Lease
from airflow_mv_provider.sources.reader import SourceReader
from airflow_mv_provider.spark.delta import Main
from airflow_mv_provider.spark.errors import translated
from airflow_mv_provider.spark.layout import Layout
from airflow_mv_provider.spark.partitions import in_scope


@dataclass(frozen=True)
class Work:
    """One refresh under one epoch.

    spark   : a session of this attempt's own
    refresh : as it was when the attempt began; `current` is what it is now
    """

    store: Store
    spark: SparkSession
    table: TableRecord
    refresh: RefreshRecord
    own: Ownership
    source: SourceReader
    lease: Lease

    @property
    def definition(self) -> RefreshableTable:
        """The definition that the refresh began with."""
        return self.refresh.definition

    @property
    def is_progressive(self) -> bool:
        return self.definition.publish == "progressive"

    @cached_property
    def main(self) -> Main:
        return Main(self.spark, self.table.location, self.table.uuid)

    @property
    def workspace(self) -> Workspace:
        return Workspace(self.table.warehouse, self.table.uuid, self.own.refresh_id)

    @cached_property
    def layout(self) -> Layout:
        """Main's columns; main must be there."""
        with translated(self.table.name):
            found = self.spark.read.format("delta").load(self.table.location).schema
        return Layout(self.definition, schema.columns_of(found.jsonValue()), self.refresh.scope)

    def current(self) -> RefreshRecord:
        """Return the refresh as the database has it now."""
        found = self.store.refresh(self.own.refresh_id)
        assert found is not None
        return found

    def source_rows(self) -> DataFrame:
        """Return the source's rows at the refresh's pin that are in its scope; lazy. Main must be there."""
        return in_scope(self.whole_source(), self.layout)

    def whole_source(self) -> DataFrame:
        """Return all of the source's rows at the refresh's pin; lazy."""
        return self.source.read(self.refresh.frontier)
