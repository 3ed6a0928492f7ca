"""What a refresh that is held would change, and what a former one has changed: as recorded, kept, or compared again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from airflow_mv_provider.core.approval.difference import Difference
from airflow_mv_provider.core.approval.hold import Objection
from airflow_mv_provider.core.approval.rolled_back import definition_of_itself, with_sensitive
from airflow_mv_provider.core.approval.sample import Sample
from airflow_mv_provider.core.fence import Commit, Span, published_span
from airflow_mv_provider.core.outcome import Outcome, PartitionReport
from airflow_mv_provider.core.progress.recorded import total
from airflow_mv_provider.core.scope.request import Request
from airflow_mv_provider.core.state import Caller, RefreshRecord, TableRecord
from airflow_mv_provider.exceptions import ArgumentError, MvError, NotHeldError, SchemaMismatchError, VersionGoneError
from airflow_mv_provider.metadata.reader import Reader
from airflow_mv_provider.runner.context import Context
from airflow_mv_provider.runner.preview import Subject, preview
from airflow_mv_provider.runner.review.rollback import check_files, frontier_at
from airflow_mv_provider.runner.steps.sampling import changed_rows
from airflow_mv_provider.spark import delta
from airflow_mv_provider.spark.delta import Main
from airflow_mv_provider.spark.errors import translated
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


def past_difference(context: Context, table: TableRecord, refresh_id: str, caller: Caller) -> Difference:
    """Return what a former refresh has changed, with some rows.

    If none are kept of a published one, main as it left it is compared with main as it found it, and what this finds is
    kept with it. The comparison is a read-only refresh in the table's history.

    refresh_id : at least six digits of it
    cost   : nothing if rows are kept; else what a read-only refresh costs whose source is main
    raises : ArgumentError; VersionGoneError, if one of the two versions cannot be read any more, or has other columns
             than main has now; every other error of a read-only refresh
    """
    known = kept_difference(context.store, table, refresh_id)
    has_changed = known.rows_inserted or known.rows_updated or known.rows_deleted
    if known.rows or known.outcome is not Outcome.PUBLISHED or not has_changed:
        return known
    main = Main(context.spark, table.main, table.uuid)
    refresh = context.store.refresh(known.refresh_id)

    def span_in(commits: Sequence[Commit]) -> Span | None:
        return published_span(commits, known.refresh_id)

    with translated(table.name):
        span = span_in(main.log_until(lambda commits: span_in(commits) is not None))
        if span is None or refresh is None:
            raise VersionGoneError(
                table.name, f"the table's log no longer has the commits of refresh {known.refresh_id}."
            )
        found = _compared(context, table, refresh, span, caller)
    if found is not None:
        context.store.samples.keep_past(refresh.id, found)
    return kept_difference(context.store, table, refresh.id)


def _compared(
    context: Context, table: TableRecord, refresh: RefreshRecord, span: Span, caller: Caller
) -> Sample | None:
    main = Main(context.spark, table.main, table.uuid)
    what = f"the table at version {span.after}, as refresh {refresh.id} left it, against version {span.before}"
    if span.is_mixed:
        what += "; other programs have written in between"
    present = delta.schema_of(main.spark, main.ref).names
    then = replace(table, definition=refresh.definition)
    definition = with_sensitive(definition_of_itself(then), table, present)
    try:
        subject = Subject(definition, frontier_at(context, then, definition, span.after), span.before, what)
        report = preview(context, then, caller, Request(read_only=True, scope=refresh.scope), subject)
    except SchemaMismatchError as error:
        raise VersionGoneError(table.name, f"the columns were different then: {error.problem}") from error
    except MvError:
        for version in (span.after, span.before):
            check_files(main, table.name, version)
        raise
    return context.store.sample(report.refresh_id or "")


_MIN_ID = 6


def kept_difference(store: Reader, table: TableRecord, refresh_id: str) -> Difference:
    """Return what is kept of the changes of a refresh that has ended, or that is held; needs no Spark.

    refresh_id : at least six digits of it
    raises : ArgumentError
    """
    found = store.refresh_ids(table.id, refresh_id) if len(refresh_id) >= _MIN_ID else ()
    if len(found) != 1:
        problem = f"{refresh_id[:40]!r} names {len(found) or 'no'} refreshes in its history."
        raise ArgumentError(
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
