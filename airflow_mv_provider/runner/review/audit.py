"""Audit a table: compare main with what was published, and with the source as it was when that was published.

Both are read-only refreshes: of main itself at the version of the last publish, as a rollback reads it, and of the
source at the frontier that is bound to that publish. So nothing is acquired, fenced or written, and each that compares
rows has its line in the history, with its samples. If the log proves that no other writer has committed, no row is
read for the first.
"""

from __future__ import annotations

import uuid
from contextlib import closing
from dataclasses import dataclass, replace

from airflow_mv_provider.core.approval import audit as core
from airflow_mv_provider.core.approval.audit import Against, Audit, Compared, Finding
from airflow_mv_provider.core.approval.rolled_back import definition_of_itself, with_sensitive
from airflow_mv_provider.core.definition import schema
from airflow_mv_provider.core.definition.table import RefreshableTable
from airflow_mv_provider.core.fence import Commit
from airflow_mv_provider.core.frontier import Frontier
from airflow_mv_provider.core.progress.history import last_written
from airflow_mv_provider.core.scope.request import Request
from airflow_mv_provider.core.scope.scope import Scope, check_scope
from airflow_mv_provider.core.state import Caller, RefreshRecord, RefreshState, TableRecord
from airflow_mv_provider.exceptions import (
    FrozenPartitionError,
    NotPublishedError,
    SchemaMismatchError,
    SourceChangedError,
    SourceFileError,
    SourceNotFoundError,
    SourceRegressedError,
    SourceReplacedError,
    StreamGoneError,
    VersionGoneError,
)
from airflow_mv_provider.metadata.rows import iso
from airflow_mv_provider.runner.context import Context
from airflow_mv_provider.runner.preview import Subject, preview
from airflow_mv_provider.runner.review.rollback import check_files, frontier_at
from airflow_mv_provider.spark import delta
from airflow_mv_provider.spark.compare import versions
from airflow_mv_provider.spark.delta import Main
from airflow_mv_provider.spark.errors import translated
from airflow_mv_provider.spark.layout import Layout
from airflow_mv_provider.spark.partitions import check_values

# Errors of a source that is no longer as it was published.
_GONE = (
    *(SourceChangedError, SourceFileError, SourceNotFoundError),
    *(SourceReplacedError, SourceRegressedError, StreamGoneError),
)

_CHANGED = "the source has changed since, and cannot be read as it was"


@dataclass(frozen=True, slots=True)
class _Work:
    """One audit.

    state   : read after the log
    commits : main's log, newest first
    version : of main, which both are compared with
    publish : the refresh that published last; None if the history does not have it
    """

    context: Context
    table: TableRecord
    caller: Caller
    request: Request
    main: Main
    state: RefreshState
    commits: tuple[Commit, ...]
    version: int
    publish: RefreshRecord | None


def audit(context: Context, name: str, caller: Caller, request: Request) -> Audit:
    """Compare main with what was published and with the source as it was then; keep the result for the table's page.

    request : its `scope` names the partitions, its `note` goes into the history
    cost    : the rows of both sides that a read-only refresh reads, once for each of the two
    raises  : NotPublishedError; ArgumentError, for a wrong scope; VersionGoneError, if neither of
              the two can be read any more, or main itself cannot; every other error of a read-only refresh
    """
    store = context.store
    table = store.table(name)
    state = store.state(table.id)
    if state.published_version is None:
        raise NotPublishedError(name, "the table was never published: there is nothing to compare.")
    check_scope(request.scope, definition_of_itself(table), state.partition_type)
    with translated(name):
        work = _begun(context, table, caller, request)
        found = _main_is_gone() if work is None else (_with_published(work), _with_source(work), *_with_history(work))
    scope = None if request.scope.is_everything else request.scope.describe()
    version = None if work is None else work.version
    writes = () if work is None else core.writes_since(work.state, work.commits, work.version)
    at_ms = store.now_ms()
    done = Audit(uuid.uuid4().hex, name, iso(at_ms), caller.user, version, scope, writes, found)
    if not done.has_compared:
        why = "; ".join(f"{side.against}: {side.reason}" for side in found)
        raise VersionGoneError(name, f"there is nothing to compare it with: {why}.", hint="Refresh the table.")
    store.audits.keep(table.id, done, at_ms)
    return done


def _begun(context: Context, table: TableRecord, caller: Caller, request: Request) -> _Work | None:
    """Return what the audit works on; None if main is gone.

    The state is read after the log: what a refresh has published meanwhile is known to it.

    raises : ArgumentError, if the scope names what is no value of its column
    """
    store, main = context.store, Main(context.spark, table.main, table.uuid)
    if main.properties() is None:
        return None
    columns = schema.columns_of(delta.schema_of(main.spark, main.ref).jsonValue())
    if set(table.definition.partition_by) <= {column.name for column in columns}:
        check_values(main.spark, Layout(definition_of_itself(table), columns, request.scope))
    commits = main.log(store.state(table.id).published_version)
    state = store.state(table.id)
    if state.published_version is not None and commits[0].version < state.published_version:
        commits = main.log(state.published_version)
    version = core.audited_version(state, commits)
    publish = store.publish_of(state)
    return _Work(context, table, caller, request, main, state, tuple(commits), version, publish)


def _main_is_gone() -> tuple[Compared, ...]:
    return (
        Compared(
            Against.PUBLISHED, Finding.DRIFT, "the table as published", "the table is gone: no Delta table is there"
        ),
        Compared(Against.SOURCE, Finding.UNKNOWN, "the source as published", "the table is gone"),
    )


def _with_published(work: _Work) -> Compared:
    """Compare main with its version of the last publish."""
    version = work.state.published_version
    assert version is not None
    what = core.published_text(version, None if work.publish is None else work.publish.scope)
    if (obstacle := core.published_obstacle(work.state, work.commits)) is not None:
        return Compared(Against.PUBLISHED, Finding.UNKNOWN, what, obstacle)
    if not core.writes_since(work.state, work.commits, work.version):
        return Compared(Against.PUBLISHED, Finding.SAME, what, "the table's log has no commit since that changes rows")
    try:
        check_files(work.main, work.table.name, version)
    except VersionGoneError as error:
        _check_main(work)
        return Compared(Against.PUBLISHED, Finding.UNKNOWN, what, error.problem)
    definition = _marked(work, definition_of_itself(_of(work, work.publish)))
    frontier = frontier_at(work.context, work.table, definition, version)
    subject = Subject(definition, frontier, work.version, f"audit against {what}", (SchemaMismatchError,))
    try:
        return _compared(work, Against.PUBLISHED, what, subject, work.request.scope)
    except _GONE:
        _check_main(work)
        raise


def _with_source(work: _Work) -> Compared:
    """Compare main with the source at the state that the last publish brought."""
    try:
        return _with_pinned(work)
    except FrozenPartitionError as error:
        return _not_compared("the source as published", error.problem)
    except _GONE as error:
        _check_main(work)  # the error may be about main's own files
        return _not_compared("the source as published", error.problem)


def _with_history(work: _Work) -> tuple[Compared, ...]:
    """Compare the current versions of the table's history with main at the version that it has reached."""
    table, spark = work.table, work.main.spark
    was_kept = work.publish is None or work.publish.definition.history is not None
    if table.definition.history is None or not was_kept or not work.request.scope.is_everything:
        return ()
    found = Main(spark, table.main.history, table.uuid)
    if not found.is_ours:
        gone = "the history is gone, or another table is there"
        return (Compared(Against.HISTORY, Finding.DRIFT, "its history", gone),)
    commits = found.log_until(lambda commits: last_written(commits) is not None)
    last = last_written(commits)
    reached = last.note.reached if last is not None and last.note is not None else None
    if reached is None:
        return (Compared(Against.HISTORY, Finding.UNKNOWN, "its history", "the history has no version yet"),)
    what = f"its history, which has version {reached} of the table"
    try:
        check_files(work.main, table.name, reached)
    except VersionGoneError as error:
        return (Compared(Against.HISTORY, Finding.UNKNOWN, what, error.problem),)
    rows = delta.read(spark, table.main, reached)
    kept = table.definition.history.kept(schema.columns_of(rows.schema.jsonValue()))
    of = versions.Versions(table.definition, kept, 0, "")
    seen = versions.differences(delta.read(spark, found.ref, commits[0].version), rows, of)
    keeps_deleted = table.definition.history.deletes == "keep"
    counts = (seen.missing, seen.extra, seen.different, seen.same, seen.overlapping)
    return (core.of_history(what, *counts, keeps_deleted=keeps_deleted),)


def _with_pinned(work: _Work) -> Compared:
    store, publish = work.context.store, work.publish
    binding = store.binding(work.table.id, work.state.published_upper)
    what = "the source as published" if binding is None else f"the source as published: {binding.frontier.describe()}"
    obstacle = core.source_obstacle(publish, has_pin=binding is not None)
    if publish is None or binding is None or obstacle is not None:
        return _not_compared(what, obstacle or "")
    part = core.part_at_pin(publish.scope, work.request.scope, has_covered=bool(work.state.covered))
    if part is None:
        return _not_compared(what, "the partitions have different states of the source; refresh all of the table")
    table, definition = _of(work, publish), _marked(work, publish.definition)
    read_at = _readable(work, definition, binding.frontier)
    if isinstance(read_at, str):
        return _not_compared(what, read_at)
    subject = Subject(definition, read_at, work.version, f"audit against {what}", (*_GONE, SchemaMismatchError))
    found = _compared(replace(work, table=table), Against.SOURCE, what, subject, part, num_kept=work.state.num_kept)
    if not definition.source_kind.is_repeatable and _readable(work, definition, binding.frontier) != read_at:
        return _not_compared(what, "the source changed while it was read")
    return found


def _readable(work: _Work, definition: RefreshableTable, pin: Frontier) -> Frontier | str:
    """Return the frontier at which the source is read as it was at `pin`, or why that is not possible.

    A kind that cannot be read again at a frontier still has that state if it has not changed since.
    """
    kind = definition.source_kind
    with closing(work.context.source_of(work.table, definition)) as source:
        if (reason := source.reader.determinism(pin).nondeterminism_reason) is not None:
            return f"the source cannot be read again as it was: {reason}"
        if kind.is_repeatable:
            return pin
        now = source.probe()
        if kind.is_log:
            from_start: Frontier = source.log.from_start(now)
            return from_start if pin in (now, from_start) else _CHANGED
        return pin if now == pin else _CHANGED


def _compared(
    work: _Work, against: Against, what: str, subject: Subject, scope: Scope, *, num_kept: int = 0
) -> Compared:
    request = Request(read_only=True, scope=scope, note=work.request.note)
    try:
        report = preview(work.context, work.table, work.caller, request, subject)
    except SchemaMismatchError as error:
        return Compared(against, Finding.DRIFT, what, f"the columns differ: {error.problem}")
    sample = work.context.store.sample(report.refresh_id or "")
    return core.compared(against, what, report, sample, scope, num_kept=num_kept)


def _check_main(work: _Work) -> None:
    """Check that main can be read at the version that is looked at.

    raises : VersionGoneError
    """
    check_files(work.main, work.table.name, work.version)


def _of(work: _Work, publish: RefreshRecord | None) -> TableRecord:
    """Return the table with the definition that it was published with."""
    return work.table if publish is None else replace(work.table, definition=publish.definition)


def _marked(work: _Work, definition: RefreshableTable) -> RefreshableTable:
    return with_sensitive(definition, work.table, delta.schema_of(work.main.spark, work.main.ref).names)


def _not_compared(what: str, reason: str) -> Compared:
    return Compared(Against.SOURCE, Finding.UNKNOWN, what, reason)
