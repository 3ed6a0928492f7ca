"""Read-only mode: compute and report the differences, write nothing to main and block no refresh.

A preview acquires no table, sets no fence and stages under its own refresh id, so any number of them may run beside a
refresh. It reports the difference to main's version at the start of the comparison. Its lease protects its workspace
from the sweep for as long as its process lives.
"""

from __future__ import annotations

import uuid
from contextlib import closing
from dataclasses import dataclass, replace

from airflow_mv_provider.core.approval.check import ALL, PART, why_refused
from airflow_mv_provider.core.approval.sample import Sample
from airflow_mv_provider.core.definition import schema
from airflow_mv_provider.core.definition.table import RefreshableTable
from airflow_mv_provider.core.frontier import Frontier
from airflow_mv_provider.core.guard import Counts, refusals
from airflow_mv_provider.core.location import What, Workspace
from airflow_mv_provider.core.outcome import Outcome, RefreshReport, error_report
from airflow_mv_provider.core.progress.chunk import WHOLE
from airflow_mv_provider.core.progress.recorded import PartitionCounts, changed_partitions
from airflow_mv_provider.core.progress.seal import Rejected
from airflow_mv_provider.core.scope.request import Request
from airflow_mv_provider.core.scope.scope import check_scope
from airflow_mv_provider.core.state import Caller, Ownership, RefreshRecord, RefreshState, TableRecord
from airflow_mv_provider.core.strategy import Choice, is_copied
from airflow_mv_provider.exceptions import MvError, StreamReloadError
from airflow_mv_provider.runner.attempt import logging_failed_deletions
from airflow_mv_provider.runner.context import Context
from airflow_mv_provider.runner.pinning import Base, base_of, pinned, read_with_retry
from airflow_mv_provider.runner.steps.checking import referenced
from airflow_mv_provider.runner.steps.error_table import rejected_events
from airflow_mv_provider.runner.steps.recording import recorded_chunks
from airflow_mv_provider.runner.steps.sampling import sample_of
from airflow_mv_provider.runner.steps.work import Places, events_at, evolution_of, lazily, rows_at
from airflow_mv_provider.sources.table_source import TableSource
from airflow_mv_provider.spark import conflicts, delta, rejected, storage
from airflow_mv_provider.spark.compare import feed, hashing, keys, whole
from airflow_mv_provider.spark.delta import Main
from airflow_mv_provider.spark.layout import Layout
from airflow_mv_provider.spark.partitions import check_values, in_scope
from airflow_mv_provider.spark.quality.evaluation import Evaluated, evaluated


@dataclass(frozen=True, slots=True)
class Subject:
    """What an audit compares main with, instead of the source's present state.

    definition : names the source, and how its rows become rows of main
    frontier   : the state of that source
    base       : main's version
    reason     : for the history
    answers    : errors that answer the audit's question; the history does not show them as a failure
    """

    definition: RefreshableTable
    frontier: Frontier
    base: int
    reason: str
    answers: tuple[type[MvError], ...] = ()


@dataclass(frozen=True, slots=True)
class _Differences:
    """The result of a preview.

    schema_changes : sentences on what a refresh would do with columns that main lacks or the source lacks
    """

    partitions: tuple[PartitionCounts, ...]
    rejected: Rejected
    evaluated: Evaluated
    schema_changes: tuple[str, ...] = ()
    sample: Sample | None = None


def preview(
    context: Context, table: TableRecord, caller: Caller, request: Request, subject: Subject | None = None
) -> RefreshReport:
    """Return the differences between the source and main, per partition.

    subject : what is compared instead of the source and main as they are now
    raises  : the errors that a refresh would raise before Merging
    """
    scope, overrides = request.scope, request.overrides
    if subject is not None:
        table = replace(table, definition=subject.definition)
    frontier, base = read_with_retry(
        context.store, table, lambda state: _pinned(context, table, state, request, subject)
    )
    refresh = RefreshRecord(
        id=uuid.uuid4().hex,
        table_id=table.id,
        definition=table.definition,
        overrides=overrides,
        batch=None,
        frontier=frontier,
        choice=Choice("corrections", "read-only: nothing is written" if subject is None else subject.reason),
        scope=scope,
        note=request.note,
    )
    workspace = Workspace(table.warehouse, table.uuid, refresh.id)
    own = context.store.begin_preview(refresh, caller, lease_ms=context.settings.lease_ms)
    try:
        version = None if subject is None else subject.base
        with (
            context.held(own, context.store.renew_preview) as lease,
            closing(context.source_of(table, table.definition)) as source,
        ):
            found = _differences(source, context, table, refresh, workspace, version, base)
            lease.check()  # if the lease was lost, a sweep may have deleted the compared files
        total = sum((p.counts for p in found.partitions), Counts())
        is_whole = scope.is_everything and table.definition.frozen_before is None
        refused = refusals(
            *(table.definition.guards, total, overrides),
            is_everything=is_whole,
            num_partitions=changed_partitions(found.partitions),
            usual=context.store.usual(table, table.definition.guards, is_whole=is_whole),
            nulls=found.evaluated.nulls,
        )
        reason = refresh.choice.reason
        if refused:
            reason = f"guard {refused[0].guard} would refuse: {refused[0].problem}"
        if broken := why_refused(found.evaluated.checks):
            reason = f"a check would refuse: {broken}"
        if subject is not None:
            reason = subject.reason
        context.store.end_preview(
            *(refresh.id, Outcome.DIFFERENCES, reason, total, found.partitions),
            num_errors=found.rejected.num_rows,
            schema_changes=found.schema_changes,
            sample=found.sample,
            checks=found.evaluated.checks,
        )
    except MvError as error:
        is_answer = subject is not None and isinstance(error, subject.answers)
        outcome = Outcome.DIFFERENCES if is_answer else Outcome.FAILED
        context.store.end_preview(refresh.id, outcome, refresh.choice.reason, Counts(), (), error_report(error))
        raise
    finally:
        with logging_failed_deletions(table.name):
            storage.remove(context.spark, workspace)
    return context.store.report(refresh.id)


def _pinned(
    context: Context, table: TableRecord, state: RefreshState, request: Request, subject: Subject | None
) -> tuple[Frontier, Base | None]:
    """Return the state to compare, and what a log is continued from."""
    check_scope(request.scope, table.definition, state.partition_type)
    frontier = _present(context, table, state, request) if subject is None else subject.frontier
    base = base_of(context.store, table, state, state.published_upper) if frontier.continues else None
    if frontier.continues and base is None:
        raise StreamReloadError(table.name, "the position of the last publish is not known any more.")
    return frontier, base


def _present(context: Context, table: TableRecord, state: RefreshState, request: Request) -> Frontier:
    source, main = context.source_of(table, table.definition), Main(context.spark, table.main, table.uuid)
    is_needed = table.definition.source_kind.is_log and main.properties() is not None
    commits = main.log(state.published_version) if is_needed else []  # only a log is pinned by what main has
    return pinned(context.store, table, state, request, source, commits)


def _differences(
    source: TableSource,
    context: Context,
    table: TableRecord,
    refresh: RefreshRecord,
    workspace: Workspace,
    version: int | None,
    base: Base | None,
) -> _Differences:
    is_checked = version is None  # an audit asks what main has, and not what may be published
    main = Main(context.spark, table.main, table.uuid)
    rows = rows_at(source, refresh.frontier, main, base=base)
    columns = schema.columns_of(rows.schema.jsonValue())
    definition = table.definition
    schema.check_source(table.name, columns, *definition.named_columns)
    if definition.order_by:
        rows = rows_at(source, refresh.frontier, main, definition.order_by)
    exists, notes = main.properties() is not None, tuple[str, ...]()
    if exists:
        existing = schema.columns_of(delta.schema_of(context.spark, table.main).jsonValue())
        evolution = evolution_of(definition, columns, existing)
        columns, notes = evolution.columns, evolution.notes
    layout = Layout(definition, columns, refresh.scope)
    places = Places()

    def place(what: What) -> str:
        return places(workspace.at(what, 0))

    check_values(context.spark, layout)
    held = None
    if exists:
        version = main.log()[0].version if version is None else version
        held = in_scope(delta.read(context.spark, table.main, version), layout)
    rows = layout.shaped(conflicts.resolved(in_scope(rows, layout), layout, held))
    if is_copied(definition, source.reader.determinism(refresh.frontier)):
        hashed = feed.copied(rows, layout, place("staging"))
    else:
        hashed = hashing.aligned(rows, layout)
    collected = _rejected(source, main, table, refresh, workspace, base)
    theirs = delta.no_rows(context.spark, hashed.schema) if held is None else layout.shaped(held)
    found = whole.compared(hashed, theirs, layout, None, place, small=context.settings.fingerprint_rows)
    source.reader.verify(refresh.frontier)
    if found.null_keys:
        raise keys.null_key(hashed, definition, found.null_keys)
    if found.written is not None:
        all_rows = theirs if version is None else delta.read(context.spark, table.main, version)
        feed.check_keys(context.spark, layout, found.written, all_rows, are_new_known=True)
        keys.check_storable(definition, found.partitions, hashed)
    results = Evaluated(())
    if is_checked:
        others = referenced(context.store, context.spark, definition)
        results = evaluated(rows, definition, ALL if layout.is_whole else PART, others)
    own = Ownership(table.id, refresh.id, 0)
    recorded = recorded_chunks(WHOLE, found.written, found.partitions, own, base=version or 0)
    counted = {part.partition: part for chunk in recorded for part in chunk.partitions}
    unchanged = (
        PartitionCounts(name, Counts(each.num_rows, each.num_rows))
        for name, each in found.partitions.items()
        if name not in counted
    )
    partitions = tuple(sorted((*counted.values(), *unchanged), key=lambda part: part.partition))
    if held is None:
        return _Differences(partitions, collected, results)
    return _Differences(partitions, collected, results, notes, sample_of(main, layout, recorded, 0))


def _rejected(
    source: TableSource, main: Main, table: TableRecord, refresh: RefreshRecord, workspace: Workspace, base: Base | None
) -> Rejected:
    """Return the records that cannot be rows of main."""
    definition, path = table.definition, workspace.at("errors", 0)
    if definition.errors is not None and definition.source_kind.is_log:
        errors = Main(main.spark, table.main.errors, table.uuid)
        found = rejected_events(source, events_at(source, refresh.frontier, base, lazily), main, errors, base)
        return rejected.keep_events(found, definition, path)
    marked = source.rejected(refresh.frontier)
    return Rejected() if marked is None else rejected.collect(marked, definition, path)
