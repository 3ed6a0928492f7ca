"""Main's snapshot at this epoch's fence: main exists and is ours, older epochs fail, its log is read up to the base."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace

from airflow_mv_provider.core import strategy
from airflow_mv_provider.core.definition import schema
from airflow_mv_provider.core.fence import (
    Commit,
    fence_version,
    has_fence,
    has_kept_rows,
    has_publish,
    is_untouched_since,
    last_epoch,
    overtaken_by,
    whole_publish,
)
from airflow_mv_provider.core.progress.published import Published
from airflow_mv_provider.core.state import RefreshState, is_fenced_by_last_publish, is_main_as_published
from airflow_mv_provider.exceptions import (
    EngineError,
    EpochRegressionError,
    FencedError,
    MainMovedError,
    MainRefusedError,
    MainUnsupportedError,
    MvError,
    SchemaMismatchError,
)
from airflow_mv_provider.runner.crash_points import Write, durable
from airflow_mv_provider.runner.steps.approval import may_come_to_wait
from airflow_mv_provider.runner.steps.naming import named
from airflow_mv_provider.runner.steps.publish import note_of
from airflow_mv_provider.runner.steps.work import Work
from airflow_mv_provider.spark import delta, storage
from airflow_mv_provider.spark.delta import NAME_PROPERTY, Detail

log = logging.getLogger(__name__)

_MAX_FENCES = 3


class FencedMain:
    """Main's snapshot at one epoch's fence.

    is_fenced       : no older epoch can write main any more
    needs_no_fence  : this epoch has no fence in main's log: the last publish is one for it
    base            : main's version that chunks are compared with; a new round moves it forward
    is_out_of_reach : main is missing or replaced, its log cannot be read, or it refuses even the fence, so it refuses
                      every commit of an older epoch too. If such a commit succeeds after main was repaired, the next
                      refresh finds it in main's log and compares
    followed        : the first commit of a refresh that began after this one; None unless the database is behind main
    """

    def __init__(self, work: Work) -> None:
        self.is_fenced = False
        self.needs_no_fence = False
        self.base = 0
        self.is_out_of_reach = False
        self.followed: Commit | None = None
        self.properties: Mapping[str, str] = {}
        self._work = work
        self._commits: list[Commit] = []  # main's log up to the fence, at least since the last publish
        self._num_fences = 0
        self._must_commit = False

    def fence(self) -> None:
        """Try to commit the fence once, and read main's log to see whether it is there; no commit if none is needed.

        raises : FencedError, if a later epoch owns main; EpochRegressionError; every error of main or the source
        """
        work = self._work
        state = work.store.state(work.table.id)
        with self._reaching(MainMovedError, MainUnsupportedError):
            self._prepare_main(state)
        since = state.published_version
        if since is None and work.refresh.seal is not None:
            since = 0  # an earlier epoch may have published, and others may have made many commits since
        epoch = work.own.epoch
        commits = self._log_if_unfenced(state)
        failure: MvError | None = None
        if not self.needs_no_fence:
            try:
                with self._reaching(MainRefusedError), durable(Write.FENCE):
                    work.main.fence(note_of(work.table, work.refresh, work.own, "fence", fence_version(epoch)))
            except (FencedError, EngineError, MainMovedError) as error:
                # The fence may have failed, or succeeded with its answer lost: the log decides.
                work.lease.check(is_cancellable=False)
                what = "Shutting earlier processes out raised an error; the table's log shows whether it is done"
                log.info("%s: %s: %s", work.table.name, what, error)
                failure = error
            with self._reaching(MainUnsupportedError):
                commits = work.main.log(since)
        if last_epoch(commits) > epoch:
            raise FencedError(
                work.table.name, "a later process has taken the table over.", epoch=last_epoch(commits), own_epoch=epoch
            )
        self.is_fenced = self.needs_no_fence or has_fence(commits, epoch, work.own.refresh_id)
        self.followed = overtaken_by(commits, work.own.refresh_id, work.store.first_epoch(work.own.refresh_id))
        if work.refresh.seal is None and self._is_of_definition(state) and not is_main_as_published(state, commits):
            self._check_partitions(work.main.detail())
        self.base = commits[0].version
        self._commits = commits
        self._num_fences += 1
        if not self.is_fenced and self._num_fences == _MAX_FENCES:
            if isinstance(failure, EngineError):
                raise failure
            raise EpochRegressionError(
                work.table.name, f"the table's log refused epoch {epoch} although it shows no later one."
            )

    def commit_fence(self) -> None:
        """Make the next step commit a fence: this refresh will leave no other commit in main's log."""
        self.is_fenced, self._must_commit = False, True

    def _log_if_unfenced(self, state: RefreshState) -> list[Commit]:
        """Return main's log if this epoch needs no fence, and set `needs_no_fence`; an empty list otherwise.

        One that may wait for a decision is fenced, so that its files are known to be in use however long that takes.
        """
        self.needs_no_fence = False
        work, is_possible = self._work, state.published_version is not None and state.is_main_trusted
        if self._must_commit or not is_possible or work.refresh.seal is not None or may_come_to_wait(work):
            return []
        with self._reaching(MainUnsupportedError):
            commits = work.main.log(state.published_version)
        self.needs_no_fence = is_fenced_by_last_publish(state, commits, work.own.epoch)
        return commits if self.needs_no_fence else []

    @contextmanager
    def _reaching(self, *refusals: type[MvError]) -> Iterator[None]:
        try:
            yield
        except refusals:
            self.is_out_of_reach = True
            raise

    @property
    def commits(self) -> tuple[Commit, ...]:
        """Main's log up to the fence, newest first, at least since the last publish."""
        return tuple(self._commits)

    @property
    def is_as_published(self) -> bool:
        """True if main's log proves that main at the fence was still as the last publish left it."""
        return is_main_as_published(self._work.store.state(self._work.table.id), self._commits)

    def published(self) -> Published | None:
        """Return what the last publish has left, if main's log proves that main at the base is still like that."""
        work = self._work
        state = work.store.state(work.table.id)
        found = state.published_totals
        if not work.definition.keeps_content(state.published_hash) or self.base != self._commits[0].version:
            return None
        if found is None or found.columns != schema.fingerprint(work.layout.columns):
            return None  # hashes contain no column names: the same values in another column would look unchanged
        return found if is_main_as_published(state, self._commits) else None

    @property
    def holds_publish(self) -> bool:
        """True if main at the fence holds a commit of this refresh; no older epoch can add one after the fence."""
        return has_publish(self._commits, self._work.own.refresh_id)

    @property
    def has_kept_rows(self) -> bool:
        """True if main at the fence holds a commit of this refresh that left out its deletes."""
        return has_kept_rows(self._commits, self._work.own.refresh_id)

    @property
    def whole_publish(self) -> Commit | None:
        """The commit that brought all of this refresh into main; None if main's log alone does not prove one."""
        return whole_publish(self._commits, self._work.own.refresh_id, self.followed)

    @property
    def is_empty(self) -> bool:
        """True if main's log, from its first commit up to the base, proves that main has no rows."""
        if self.base != self._commits[0].version or self._commits[-1].version != 0:
            return False
        return is_untouched_since(self._commits, -1)

    def _prepare_main(self, state: RefreshState) -> None:
        """Create main if it is missing; refuse anything that cannot be this table's main.

        The source is not read after the seal: it may be gone.
        """
        work = self._work
        properties = work.main.properties()
        if properties is not None:
            self._check_identity(properties)
        if work.refresh.seal is not None or self._must_commit:
            if properties is None:
                raise _gone(work.table.name)
            return
        rows = work.unread_source
        columns = schema.columns_of(rows.schema.jsonValue())
        definition = work.definition
        schema.check_source(work.table.name, columns, *definition.named_columns)
        if definition.order_by:
            _ = work.ordered_source  # raises for a missing column before main is created
        if properties is None:
            if storage.has_files(work.spark, work.table.location):
                raise MainUnsupportedError(str(work.table.main), "what is there is not a Delta table.")
            with durable(Write.CREATE_MAIN):
                created = work.main.create(rows.schema, definition.partition_by, delta.tracking(definition))
            self._check_partitions(created)
            properties = created.properties
        elif not self._is_of_definition(state):
            self._check_partitions(work.main.detail())
        self.properties = properties
        if definition.catalog_name is not None and properties.get(NAME_PROPERTY) != definition.catalog_name:
            named(work.main, replace(work.table, definition=definition), properties.get(NAME_PROPERTY))
        if (dropped := work.layout.dropped) and (obstacle := self._rewrite_obstacle(state)):
            raise SchemaMismatchError(
                work.table.name,
                f"column {dropped[0]!r} is not in the source; dropping it rewrites all of the table, and {obstacle}.",
                column=dropped[0],
                hint="Refresh all of the table, or set `on_lost_column: keep`.",
            )

    def _check_identity(self, properties: Mapping[str, str]) -> None:
        """Check that main is the same table as when this refresh began.

        raises : MainMovedError
        """
        work = self._work
        if not work.main.takes(properties):
            problem = "the table was replaced by another table after this refresh began."
            hint = "Nothing was written to that one. Restore the original, or move that one away; then refresh again."
            raise MainMovedError(work.table.name, problem, hint=hint)

    def _rewrite_obstacle(self, state: RefreshState) -> str | None:
        """Return why main cannot be rewritten, None if it can."""
        work = self._work
        if work.definition.adopt and state.published_version is None:
            return "an adopted table is compared first"
        return strategy.replace_obstacle(work.definition, work.refresh.scope)

    def _is_of_definition(self, state: RefreshState) -> bool:
        """True if main had the definition's partition columns at its last publish; its log decides if it still has."""
        is_same = self._work.definition.keeps_content(state.published_hash)
        return is_same and state.published_version is not None and state.is_main_trusted

    def _check_partitions(self, found: Detail | None) -> None:
        work = self._work
        if found is None:
            raise _gone(work.table.name)
        if found.partition_by != work.definition.partition_by:
            raise MainUnsupportedError(
                work.table.name,
                f"the table is partitioned by {_listed(found.partition_by)}, "
                f"the definition by {_listed(work.definition.partition_by)}.",
                hint="Partitions of a table cannot be changed in place: choose another name.",
            )


def _listed(names: tuple[str, ...]) -> str:
    return ", ".join(names) or "nothing"


def _gone(table: str) -> MainMovedError:
    problem = "the table was dropped or moved while it was refreshed."
    return MainMovedError(table, problem, hint="Refresh again; if its warehouse was moved, run `amv relocate` first.")
