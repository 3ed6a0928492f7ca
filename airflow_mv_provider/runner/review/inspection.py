"""Read what a refresh that is held would change, from its recorded corrections; nothing is written."""

from __future__ import annotations

from airflow_mv_provider.core.approval.difference import Difference
from airflow_mv_provider.core.approval.hold import Objection
from airflow_mv_provider.core.outcome import PartitionReport
from airflow_mv_provider.core.progress.recorded import total
from airflow_mv_provider.core.state import TableRecord
from airflow_mv_provider.exceptions import NotHeldError
from airflow_mv_provider.runner.context import Context
from airflow_mv_provider.spark.compare import changes
from airflow_mv_provider.spark.compare.samples import row_changes
from airflow_mv_provider.spark.delta import Main
from airflow_mv_provider.spark.layout import Layout


def difference(context: Context, table: TableRecord, limit: int) -> Difference:
    """Return what the refresh of a table that is held would change.

    limit  : how many rows of each operation
    raises : NotHeldError; SealBrokenError, if the corrections are not what was recorded
    """
    state = context.store.state(table.id)
    refresh = context.store.refresh(state.refresh_id) if state.refresh_id and state.is_held else None
    if refresh is None or refresh.seal is None:
        raise NotHeldError(table.name, f"{Objection.NOTHING_HELD}.")
    report = context.store.report(refresh.id)
    _, recorded = context.store.chunks(refresh.id)
    counts = total(recorded)
    layout = Layout(refresh.definition, refresh.seal.columns, refresh.scope)
    is_overwritten = any(chunk.is_overwrite for chunk in recorded)
    rows = []
    if not is_overwritten and limit:
        main = Main(context.spark, table.main, table.uuid)
        found, _ = changes.recorded(context.spark, layout, recorded)
        base = min((chunk.base_version for chunk in recorded), default=0)
        rows = row_changes(main, layout, found, base, limit)
    assert report.hold is not None
    return Difference(
        table=table.name,
        refresh_id=refresh.id,
        hold=report.hold,
        rows_inserted=counts.inserted,
        rows_updated=counts.updated,
        rows_deleted=counts.deleted,
        rows_unchanged=counts.unchanged,
        partitions=tuple(
            PartitionReport(
                each.partition, each.counts.inserted, each.counts.updated, each.counts.deleted, each.counts.unchanged
            )
            for chunk in recorded
            for each in chunk.partitions
        ),
        schema_changes=report.schema_changes,
        is_overwritten=is_overwritten,
        rows=tuple(rows),
    )
