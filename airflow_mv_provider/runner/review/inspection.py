"""Read what a refresh that is held would change, from its recorded corrections, or what is kept of a former one."""

from __future__ import annotations

from airflow_mv_provider.core.approval.difference import Difference
from airflow_mv_provider.core.approval.hold import Objection
from airflow_mv_provider.core.outcome import PartitionReport
from airflow_mv_provider.core.progress.recorded import total
from airflow_mv_provider.core.state import TableRecord
from airflow_mv_provider.exceptions import DefinitionError, NotHeldError
from airflow_mv_provider.metadata.reader import Reader
from airflow_mv_provider.runner.context import Context
from airflow_mv_provider.runner.steps.sampling import changed_rows
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
    main = Main(context.spark, table.main, table.uuid)
    rows, by_column = changed_rows(main, layout, recorded, limit) if limit else ([], None)
    assert report.hold is not None
    return Difference(
        table=table.name,
        refresh_id=refresh.id,
        hold=report.hold,
        outcome=report.outcome,
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
        columns=by_column,
    )


_MIN_ID = 6


def kept_difference(store: Reader, table: TableRecord, refresh_id: str) -> Difference:
    """Return what is kept of the changes of a refresh that has ended, or that is held; needs no Spark.

    refresh_id : at least six digits of it
    raises : DefinitionError
    """
    found = store.refresh_ids(table.id, refresh_id) if len(refresh_id) >= _MIN_ID else ()
    if len(found) != 1:
        problem = f"{refresh_id[:40]!r} names {len(found) or 'no'} refreshes in its history."
        raise DefinitionError(
            table.name, problem, hint=f"`amv history {table.name}` lists them; {_MIN_ID} digits suffice."
        )
    refresh_id = found[0]
    report, sample = store.report(refresh_id), store.sample(refresh_id)
    return Difference(
        table=table.name,
        refresh_id=refresh_id,
        hold=report.hold,
        outcome=report.outcome,
        rows_inserted=report.rows_inserted,
        rows_updated=report.rows_updated,
        rows_deleted=report.rows_deleted,
        rows_unchanged=report.rows_unchanged,
        partitions=report.partitions,
        schema_changes=report.schema_changes,
        is_overwritten=False,
        rows=sample.rows if sample else (),
        columns=sample.columns if sample else None,
    )
