"""The error table beside main: both hold the same refresh's result, or neither does.

    before staging                create the table, or check its identity           prepare
    before main's first commit    check that the collected records are still there  check
    after main's last commit      overwrite the table in one commit                 publish ──▶ PUBLISHED

After main's commit a refresh only runs forward, so the overwrite follows, by the owner at that time. It needs no fence:
each epoch writes under its own transaction version, and Delta drops a write that comes after a later epoch's. Only
main's log decides which epoch owns both tables: the error table's log may hold later epochs if main was restored and
the error table was not.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import cached_property

from pyspark.sql import DataFrame

from airflow_mv_provider.core.fence import Commit, is_untouched_since, last_epoch, next_txn_version, version_beside
from airflow_mv_provider.core.progress.seal import Rejected
from airflow_mv_provider.exceptions import (
    EpochRegressionError,
    FencedError,
    MainNotOursError,
    MainUnsupportedError,
    TransientError,
    VersionGoneError,
)
from airflow_mv_provider.runner.crash_points import Write, durable
from airflow_mv_provider.runner.pinning import Base
from airflow_mv_provider.runner.steps.publish import note_of
from airflow_mv_provider.runner.steps.work import Work
from airflow_mv_provider.sources.table_source import TableSource
from airflow_mv_provider.spark import delta, rejected, storage
from airflow_mv_provider.spark.delta import Main
from airflow_mv_provider.spark.errors import translated
from airflow_mv_provider.spark.layout import struct_type

log = logging.getLogger(__name__)


def former_version(main: Main, errors: Main, version: int) -> int | None:
    """Return the error table's version that belongs to main's; None if it was empty or not there then.

    raises : VersionGoneError, if main's log no longer shows it
    """
    commits = main.log(0)
    found = version_beside(commits, version, errors.log(0))
    if found is None and commits and commits[-1].version > 0:
        problem = f"the table's log no longer shows which records its error table had at version {version}."
        raise VersionGoneError(str(main.ref), problem)
    return found


def rejected_events(source: TableSource, events: DataFrame, main: Main, errors: Main, base: Base | None) -> DataFrame:
    """Return the records of a log that cannot be rows of main, with those that its error table keeps; lazy.

    events : the last event of each key
    base   : what the log is continued from; the error table's version beside main's is continued, too
    raises : VersionGoneError, as `former_version`
    """
    version = None if base is None or errors.properties() is None else former_version(main, errors, base.version)
    former = None if version is None else rejected.former_events(errors, version, source.table)
    return source.log.rejected(events, source.table.key, former)


class ErrorTable:
    """The error table of one refresh's table.

    If the definition has none, `collect` returns an empty result and the other methods do nothing.
    """

    def __init__(self, work: Work) -> None:
        self._work = work

    def prepare(self) -> None:
        """Create the error table if it is missing.

        raises : MainNotOursError, if there is something else at its location
        """
        if self._work.definition.errors is None:
            return
        found = self._table.properties()
        if found is None and not storage.has_files(self._work.spark, self._table.ref.location):
            with durable(Write.CREATE_ERRORS):
                found = self._table.create(struct_type(rejected.columns_of(self._work.definition)), ()).properties
        if found is None or not self._table.takes(found):
            raise MainNotOursError(
                self._work.table.name,
                f"{self._table.ref} is not its error table.",
                hint="Move it away, or leave `errors` out of the definition.",
            )
        self._check_columns()

    def _check_columns(self) -> None:
        work = self._work
        with translated(work.table.name):
            names = delta.schema_of(work.spark, self._table.ref).names
        if names != [column.name for column in rejected.columns_of(work.definition)]:
            problem = f"{self._table.ref} has the columns of another kind of source: {', '.join(names)}."
            raise MainUnsupportedError(work.table.name, problem, hint="Move it away: the next refresh makes a new one.")

    def collect(self) -> Rejected:
        """Write the records that cannot be rows of main into staging.

        cost   : two scans of the source; if records are rejected, one more scan that reads none of its columns
        raises : TooManyErrorsError
        """
        work = self._work
        if work.is_rollback:
            return self._former()
        if work.definition.errors is not None and work.definition.source_kind.is_log:
            return self.collect_events(work.copied_events)
        found = work.source.rejected(work.refresh.frontier)
        if found is None:
            return Rejected()
        with durable(Write.COLLECTED):
            return rejected.collect(found, work.definition, work.workspace.at("errors", work.own.epoch))

    def collect_events(self, events: DataFrame) -> Rejected:
        """Write the records of a log that cannot be rows of main into staging; nothing without an error table.

        events : the last event of each key, as copied
        """
        work = self._work
        if work.definition.errors is None:
            return Rejected()
        found = rejected_events(work.source, events, work.main, self._table, work.base)
        with durable(Write.COLLECTED):
            return rejected.keep_events(found, work.definition, work.workspace.at("errors", work.own.epoch))

    def _former(self) -> Rejected:
        """Write the records into staging that the table had when main was at the version to go back to."""
        work = self._work
        if work.definition.errors is None or self._table.properties() is None:
            return Rejected()
        version = former_version(work.main, self._table, work.refresh.frontier.to_json()["version"])
        if version is None:
            return Rejected()
        with durable(Write.COLLECTED):
            return rejected.collect_former(
                self._table, version, work.definition, work.workspace.at("errors", work.own.epoch)
            )

    def check(self) -> None:
        """Check that the collected records can be published.

        raises : SealBrokenError
        """
        if self._work.definition.errors is not None:
            rejected.check_collected(self._work.spark, self._work.definition, self._work.seal.rejected)

    def publish(self) -> None:
        """Overwrite the error table with this refresh's records in one commit; called after main's commit.

        cost   : one read of the table's log; a commit, unless the table is empty and no record was collected
        raises : FencedError, if a later epoch has written; EpochRegressionError; Delta's own errors
        """
        if self._work.definition.errors is None:
            return
        commits, collected = self._log(), self._work.seal.rejected
        if self._is_published(commits, collected):
            return
        self.prepare()
        self.check()
        work = self._work
        # Each try of an epoch uses the same version until one is committed, so Delta keeps at most one.
        txn_version = next_txn_version(commits, work.own.epoch)
        note = note_of(work.table, work.refresh, work.own, "errors", txn_version, num_errors=collected.num_rows)
        try:
            with durable(Write.ERRORS):
                rejected.publish(self._table, work.definition, collected, note)
        except TransientError as error:
            # The commit may have failed, or succeeded with its answer lost: the log decides.
            log.warning(
                "%s: the commit of the error table raised an error; its log shows whether it succeeded: %s",
                work.table.name,
                error,
            )
            if not self._is_published(self._log(), collected):
                raise
            return
        if not self._is_published(self._log(), collected):
            raise EpochRegressionError(
                work.table.name, f"Delta ignored the errors of epoch {work.own.epoch} as outdated."
            )

    def _log(self) -> list[Commit]:
        """Return the table's newest commits, an empty list if the table does not exist.

        raises : FencedError, if a later epoch has written both here and in main. If main was restored together with the
                 database, main's log has no later epoch, and no process works under one.
        """
        if self._table.properties() is None:
            return []
        work, commits = self._work, self._table.log()
        if (newest := last_epoch(commits)) > work.own.epoch and last_epoch(work.main.log()) > work.own.epoch:
            raise FencedError(work.table.name, "a later process has taken its error table over.", epoch=newest)
        return commits

    def _is_published(self, commits: Sequence[Commit], collected: Rejected) -> bool:
        own = self._work.own
        if not commits:
            return False
        last = next((c for c in commits if c.note is not None), None)
        if last is not None and last.note is not None and last.note.refresh_id == own.refresh_id:
            return True
        was_empty = last is None or (last.note is not None and not last.note.num_errors)
        return was_empty and not collected.num_rows and is_untouched_since(commits, last.version if last else 0)

    @cached_property
    def _table(self) -> Main:
        table = self._work.table
        return Main(self._work.spark, table.main.errors, table.uuid)
