"""Bring main back to one of its versions, by a refresh whose source is main itself at that version.

So it is fenced, compared, published in one commit and recovered like any other refresh, with the error table that main
had then. The write that records the publish also pauses the table: otherwise the next refresh would bring back at once
what was taken back. That next one, after a `resume`, compares everything.
"""

from __future__ import annotations

from contextlib import closing

from pyspark.sql import functions as F

from airflow_mv_provider.core.approval.rolled_back import definition_of_rollback
from airflow_mv_provider.core.approval.target import version_of
from airflow_mv_provider.core.definition.table import RefreshableTable
from airflow_mv_provider.core.frontier import Frontier
from airflow_mv_provider.core.guard import NAMES as GUARDS
from airflow_mv_provider.core.outcome import RefreshReport
from airflow_mv_provider.core.scope.request import Request
from airflow_mv_provider.core.state import Caller, TableRecord
from airflow_mv_provider.exceptions import ArgumentError, MvError, VersionGoneError
from airflow_mv_provider.runner.admission import Substitute, run
from airflow_mv_provider.runner.context import Context
from airflow_mv_provider.runner.pinning import check_can_start_over
from airflow_mv_provider.runner.steps.error_table import former_version
from airflow_mv_provider.spark import delta
from airflow_mv_provider.spark.delta import Main
from airflow_mv_provider.spark.errors import is_gone, translated

HISTORY = 10_000


def roll_back(context: Context, name: str, to: str, caller: Caller, note: str) -> RefreshReport:
    """Bring main back to a version, and pause the table.

    to     : as `core.approval.target.version_of` reads it
    note   : why, for the history
    cost   : as of a refresh that compares everything; both sides are main
    raises : ArgumentError, if there is no such version; VersionGoneError, if its files or log entries are gone;
             SchemaMismatchError, if its columns cannot become main's; and every other error of a refresh
    """
    table = context.store.table(name)
    check_can_start_over(table, "a rollback")
    version = version_of(name, to, context.store.history(table.id, HISTORY))
    definition = definition_of_rollback(table)
    substitute = Substitute(definition, frontier_at(context, table, definition, version))
    check_readable(context, table, version)
    reason = f"rolled back to version {version}: {note}"
    request = Request(force=True, strategy="corrections", overrides=GUARDS, note=reason[:1000])
    return run(context, name, caller, request, substitute)


def check_readable(context: Context, table: TableRecord, version: int) -> None:
    """Check that all files of main's version, and of the error table's that belongs to it, are there.

    cost   : the footers of their files are read
    raises : VersionGoneError
    """
    main, errors = (Main(context.spark, ref, table.uuid) for ref in (table.main, table.main.errors))
    check_files(main, table.name, version)
    if table.definition.errors is not None and errors.properties() is not None:
        beside = former_version(main, errors, version)
        if beside is not None:
            check_files(errors, table.name, beside)


def check_files(table: Main, name: str, version: int) -> None:
    """Check that all files of a version are there.

    cost   : their footers are read
    raises : VersionGoneError
    """
    try:
        with translated(name):
            delta.read(table.spark, table.ref, version).select(F.input_file_name()).distinct().count()
    except MvError as error:
        if is_gone(error):
            problem = f"{table.ref} cannot be read any more at version {version}: {error.problem}"
            raise VersionGoneError(name, problem) from error
        raise


def frontier_at(context: Context, table: TableRecord, definition: RefreshableTable, version: int) -> Frontier:
    """Return main's state at `version`, as the source of a refresh with the definition of a rollback.

    raises : ArgumentError, if main has no such version
    """
    with translated(table.name), closing(context.source_of(table, definition)) as source:
        newest = source.probe()
    facts = newest.to_json()
    if version > facts["version"]:
        problem = f"the table has no version {version}; its newest is {facts['version']}."
        raise ArgumentError(table.name, problem, hint="`amv history` shows the versions of its refreshes.")
    return type(newest).from_json(facts | {"version": version, "commit": ""})
