"""Refresh a table from a DAG: one task per phase, or one task for all of them.

    BeginRefreshOperator    mint, acquire              NORMAL     → REFRESHING   pushes the refresh id
    StageRefreshOperator    fence, stage, seal         REFRESHING → MERGING
    MergeRefreshOperator    compare, judge, publish    MERGING    → CLEANUP
    CleanupRefreshOperator  remove what is outdated    CLEANUP    → NORMAL
    RefreshTableOperator    all of it                  NORMAL     → NORMAL       pushes the refresh id

XCom carries the refresh id and nothing else: everything a task has to know is in the metadata database, written by the
task before it, and each task begins with a hand-over there. So a retried, cleared or doubled task works under an epoch
of its own, and the older one can no longer write.

    there was nothing to do                   begin succeeds, the phases after it are skipped

What it does not do: stop a refresh when its task is killed. A killed task leaves its lease behind, and whoever comes
next takes over when that has expired; cancel a refresh with `CancelRefreshOperator` or `amv cancel`. What errors,
waiting and a kill mean to Airflow is the same for all and told in `operators.task`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from airflow.sdk import Context
from airflow.sdk.exceptions import AirflowSkipException

from airflow_mv_provider import definition_file as definitions
from airflow_mv_provider.core.definition.table import RefreshableTable, RequestedStrategy
from airflow_mv_provider.core.outcome import Outcome, RefreshReport
from airflow_mv_provider.core.phase import Phase
from airflow_mv_provider.core.scope.interval import Grain
from airflow_mv_provider.core.scope.request import Request, check_note, combined, names_scope, parse_request
from airflow_mv_provider.core.scope.scope import asked_scope
from airflow_mv_provider.core.state import Caller
from airflow_mv_provider.exceptions import DefinitionError
from airflow_mv_provider.operators.request import interval_of, was_cleared
from airflow_mv_provider.operators.task import MvOperator, summary, with_asset

if TYPE_CHECKING:
    from airflow_mv_provider.runner.refresh import Refresher

_NOTHING_TO_PUBLISH = frozenset({Outcome.NOTHING_TO_DO, Outcome.DIFFERENCES})


class FirstTask(MvOperator):
    """A task that begins a refresh.

    table           : the name of a registered table, or a definition, which is registered each time the task runs
    definition_file : YAML with the definition, relative to the DAG's file; `table` names one if it holds several
    read_only       : compute and report the differences, write nothing to main
    overrides       : guards set aside
    force           : compare even if the source says that nothing is new
    partitions      : refresh only these: each a value, or the list of all partition columns' values
    partition_from, partition_until : refresh only this half-open range of the first partition column
    interval        : how long one value of the first partition column lasts: refresh only the partitions of the run's
                      own interval, as scheduled runs and backfills have it (see `core.interval`). A run without one
                      refreshes everything that is new
    interval_format : `strftime` format of that column's values; ISO dates without it
    stale_only      : leave out what refreshes of some partitions have brought to the source's state already
    strategy        : how main is brought up to date, instead of as the definition says

    A run's params `read_only`, `overrides` with their `note`, `force`, `scope`, `partitions`, `from`, `until`, `stale`
    and `strategy` are added to the arguments; a scope that was written cannot be changed by a run, an interval can. A
    param that is none of these, and that the DAG does not declare, is refused.
    """

    template_fields: Sequence[str] = ("table", "partitions", "partition_from", "partition_until")
    publishes: ClassVar[bool] = True

    def __init__(
        self,
        *,
        table: str | RefreshableTable | None = None,
        definition_file: str | None = None,
        read_only: bool = False,
        overrides: Sequence[str] = (),
        force: bool = False,
        partitions: Sequence[object] = (),
        partition_from: str | None = None,
        partition_until: str | None = None,
        interval: Grain | None = None,
        interval_format: str | None = None,
        stale_only: bool = False,
        strategy: RequestedStrategy | None = None,
        **kwargs: Any,
    ) -> None:
        name = table.name if isinstance(table, RefreshableTable) else table
        # A mapped task's copies are made when it runs: what Airflow does not know by then cannot be an outlet.
        if self.publishes and not kwargs.get("_airflow_from_mapped"):
            kwargs["outlets"] = with_asset(kwargs.get("outlets"), name)
        super().__init__(**kwargs)
        self.table = name
        self.definition = table if isinstance(table, RefreshableTable) else None
        self.definition_file = definition_file
        # A mistake shows when the DAG is parsed.
        Request(read_only, tuple(overrides), force, is_stale_only=stale_only, strategy=strategy)
        self.strategy = strategy
        self.read_only, self.overrides, self.force, self.stale_only = read_only, overrides, force, stale_only
        self.partitions = partitions
        self.interval, self.interval_format = interval, interval_format
        self.partition_from = partition_from
        self.partition_until = partition_until

    def begin(self, apply: Callable[[RefreshableTable], object], context: Context) -> tuple[str, Request]:
        """Register the definition if this task has one; return the table's name and what is asked for.

        apply  : registers a definition
        raises : DefinitionError and what `apply` raises
        """
        request = self._request(context)
        definition = self.definition or self._from_file()
        if definition is not None:
            apply(definition)
            self.linked_table = definition.name
            return definition.name, request
        if not self.table:
            raise DefinitionError(self.task_id, "it names no table.", hint="Give `table` or `definition_file`.")
        self.linked_table = str(self.table)
        return str(self.table), request

    def _request(self, context: Context) -> Request:
        params = context["params"]
        run = parse_request(params, {*self.dag.params, *self.params})
        check_note(run)
        scope = asked_scope(self.partitions, self.partition_from, self.partition_until)
        if self.interval is not None and not names_scope(params):
            bounds = interval_of(context, self.interval, self.interval_format)
            if bounds is not None:
                scope = asked_scope((), *bounds)
        written = Request(self.read_only, tuple(self.overrides), self.force, scope, self.stale_only, self.strategy)
        return combined(written, run)

    def _from_file(self) -> RefreshableTable | None:
        if self.definition_file is None:
            return None
        path = Path(self.dag.fileloc).parent / self.definition_file
        found = [each for each in definitions.load(path) if self.table in (None, each.name)]
        if len(found) != 1:
            wanted = f"table {self.table!r}" if self.table else "one table"
            raise DefinitionError(
                self.definition_file, f"expected {wanted}, found {len(found)}.", hint="Name one of them in `table`."
            )
        return found[0]


class BeginRefreshOperator(FirstTask):
    """Take the table for a refresh, ending what a dead owner left; push the refresh id.

    Retried or cleared, it adopts its run's unfinished refresh. When there is nothing to do, or in read-only mode, the
    id is that of the history row that says so, and the phases after it are skipped.
    """

    publishes = False

    def work(self, refresher: Refresher, context: Context) -> str | None:
        """Mint and acquire, then keep the table for the next task of this run."""
        name, request = self.begin(refresher.apply, context)
        who = self.caller(context)
        if request.read_only:
            report = refresher.refresh(name, who, request)
            self.tell(report)
            return report.refresh_id
        begun = refresher.begin(name, who, request)
        for refresh_id in begun.recovered:
            self.tell(refresher.store.report(refresh_id), "Ended for a dead owner: ")
        if isinstance(begun, RefreshReport):
            self.tell(begun)
            return begun.refresh_id
        refresher.park(begun)
        self.linked_refresh = begun.own.refresh_id
        return begun.own.refresh_id


class RefreshTableOperator(FirstTask):
    """Refresh a table in one task, all phases in its process; push the refresh id. For small tables."""

    def work(self, refresher: Refresher, context: Context) -> str | None:
        """Bring the table up to date."""
        name, request = self.begin(refresher.apply, context)
        report = refresher.refresh(name, self.caller(context), request)
        for refresh_id in report.recovered:
            if refresh_id != report.refresh_id:
                self.tell(refresher.store.report(refresh_id), "Ended for a dead owner: ")
        self.tell(report)
        self.announce(report, context)
        return report.refresh_id

    def caller(self, context: Context) -> Caller:
        """Return who asks: this task alone."""
        return self.caller_in(context, self.task_id)


class _PhaseTask(MvOperator):
    """A task that goes on with a refresh that another task of its run has begun.

    refresh_id : `BeginRefreshOperator(...).output`
    table      : the table that it publishes, for Airflow to know while the DAG is parsed
    """

    template_fields: Sequence[str] = ("refresh_id",)
    until: ClassVar[Phase]

    def __init__(self, *, refresh_id: Any, table: str | None = None, **kwargs: Any) -> None:
        kwargs["outlets"] = with_asset(kwargs.get("outlets"), table)
        super().__init__(**kwargs)
        self.refresh_id = refresh_id

    def work(self, refresher: Refresher, context: Context) -> None:
        """Go on with the refresh up to the phase that this task ends in."""
        refresh = refresher.store.refresh(self.refresh_id)
        if refresh is not None and refresh.is_ended:
            ended = refresher.store.report(refresh.id)
            self.linked_table, self.linked_refresh = ended.table, ended.refresh_id
            if ended.outcome in _NOTHING_TO_PUBLISH:
                raise AirflowSkipException(summary(ended))
            if ended.outcome is Outcome.PUBLISHED and not was_cleared(context, self.retries):
                # This task died after its last write, or somebody took its refresh over: it is done either way.
                self.log.info("Done already: %s", summary(ended))
                self.announce(ended, context)
                return
        report = refresher.resume(self.refresh_id, self.caller(context), until=self.until)
        self.tell(report)
        self.announce(report, context)


class StageRefreshOperator(_PhaseTask):
    """Read the source once, beside the table, and seal what was read."""

    until = Phase.MERGING


class MergeRefreshOperator(_PhaseTask):
    """Work out what differs, let the guards judge it, and publish it in one commit."""

    until = Phase.CLEANUP


class CleanupRefreshOperator(_PhaseTask):
    """Remove staging, corrections and progress of the refresh, and give the table back."""

    until = Phase.NORMAL
