"""Operators that refresh a table: one task per phase, or one task for all of them.

    BeginRefreshOperator    mint, acquire              NORMAL     → REFRESHING   pushes the refresh id
    StageRefreshOperator    fence, stage, seal         REFRESHING → MERGING
    MergeRefreshOperator    compare, judge, publish    MERGING    → CLEANUP      may wait for a person's decision
    CleanupRefreshOperator  remove the workspace       CLEANUP    → NORMAL
    RefreshTableOperator    all phases                 NORMAL     → NORMAL       pushes the refresh id

XCom carries only the refresh id. All other state is in the metadata database, written by the preceding task, and each
task begins with a hand-over there. Therefore a retried, cleared or duplicate task works under an epoch of its own, and
the older task can no longer write. If there is nothing to do, begin succeeds and the phases after it are skipped.

What the operators do not do: killing a task does not cancel its refresh. A killed task leaves its lease behind, and the
next caller takes over when the lease has expired. To cancel a refresh, use `CancelRefreshOperator` or `amv cancel`.
`operators.task` describes how all operators map errors, waiting and kills to Airflow's task states.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypedDict

from airflow.sdk import Context, XComArg

from airflow_mv_provider import definition_file as definitions
from airflow_mv_provider.compat import AirflowSkipException
from airflow_mv_provider.core.definition.table import RefreshableTable
from airflow_mv_provider.core.outcome import Outcome, RefreshReport, error_of
from airflow_mv_provider.core.phase import Phase
from airflow_mv_provider.core.scope.declared_refresh import DeclaredRefresh
from airflow_mv_provider.core.scope.interval import Grain
from airflow_mv_provider.core.scope.request import Request, check_note, combined, names_scope, parse_request
from airflow_mv_provider.core.scope.scope import asked_scope
from airflow_mv_provider.core.strategy_names import RequestedStrategy
from airflow_mv_provider.exceptions import ArgumentError, RefreshFinishedError
from airflow_mv_provider.operators.dag_run import had_ended, interval_of, was_cleared
from airflow_mv_provider.operators.task import MvOperator, RunnerTask, summary, with_asset

if TYPE_CHECKING:
    from airflow_mv_provider.runner.refresh import Refresher

_NOTHING_TO_PUBLISH = frozenset({Outcome.NOTHING_TO_DO, Outcome.DIFFERENCES})


RefreshOptions = TypedDict(
    "RefreshOptions",
    {
        "partitions": Sequence[object],
        "from": str | None,
        "until": str | None,
        "stale": bool,
        "strategy": RequestedStrategy | None,
        "read_only": bool,
        "force": bool,
        "reload": bool,
        "hold": bool,
        "overrides": Sequence[str],
        "note": str | None,
    },
    total=False,
)
"""The options of a refresh; a run's params have the same names.

partitions    Refresh only these: each a value, or the list of all partition columns' values.
from, until   Refresh only partitions whose first column is at least, or below this.
stale         Leave out partitions that partial refreshes have already brought to the source's present state.
strategy      How the table is brought up to date; default as in the definition.
read_only     Compute and report the differences, write nothing to the table.
force         Compare even if the source reports no change.
reload        Read a log, such as a topic, from its start.
hold          Wait for a person's decision before the table is changed.
overrides     Names of guards to override.
note          Why, for the history.
"""


class FirstTask(MvOperator):
    """Base of the operators that begin a refresh.

    Args:
        table: Name of a registered table, or a definition, which is registered each time the task runs.
        definition_file: YAML file with the definition, relative to the DAG's file; `table` selects one of several
            tables.
        options: What is refreshed and how, as `RefreshOptions`: `{"partitions": ["{{ ds }}"], "read_only": True}`.
        interval: Duration of one value of the first partition column: refresh only the partitions of the run's own
            interval, which scheduled runs and backfills have (see `core.scope.interval`). A run without one
            refreshes everything that is new.
        interval_format: `strftime` format of that column's values; default ISO dates.

    A run's params, which have the options' names, are added to the options. A run cannot change the partitions or the
    range that the options have; it can replace the interval. Other params are refused unless the DAG or the task
    declares them.
    """

    template_fields: Sequence[str] = ("table", "options")
    publishes: ClassVar[bool] = True

    def __init__(
        self,
        *,
        table: str | RefreshableTable | None = None,
        definition_file: str | None = None,
        options: RefreshOptions | None = None,
        interval: Grain | None = None,
        interval_format: str | None = None,
        **kwargs: Any,
    ) -> None:
        name = table.name if isinstance(table, RefreshableTable) else table
        if self.publishes:
            kwargs["outlets"] = with_asset(kwargs.get("outlets"), name)
        super().__init__(**kwargs)
        self.table = name
        self.definition = table if isinstance(table, RefreshableTable) else None
        self.definition_file = definition_file
        parse_request(_known(options))  # checks them while the DAG is parsed
        self.options = options
        self.interval, self.interval_format = interval, interval_format

    def begin(self, apply: Callable[[RefreshableTable], object], context: Context) -> tuple[str, Request]:
        """Register the definition if this task has one; return the table's name and the request.

        Args:
            apply: Registers a definition.

        Raises:
            ArgumentError, DefinitionError, and the errors of `apply`.
        """
        request = self._request(context)
        definition = self.definition or self._from_file()
        if definition is not None:
            apply(definition)
            self.linked_table = definition.name
            return definition.name, request
        if not self.table:
            raise ArgumentError(self.task_id, "the task names no table.", hint="Give `table` or `definition_file`.")
        self.linked_table = str(self.table)
        return str(self.table), request

    @property
    def mv_written(self) -> str | None:
        """What this task refreshes, as its author has written it; None if that is known only at run time."""
        if not isinstance(self.table, str) or _known(self.options) != dict(self.options or {}):
            return None  # the table is named in the definition file, or another task returns an option
        with suppress(ArgumentError):
            return DeclaredRefresh((self.table,), self._written()).to_json()
        return None

    def _written(self) -> Request:
        return parse_request(self.options or {})

    def _request(self, context: Context) -> Request:
        params = context["params"]
        run = parse_request(params, {*self.dag.params, *self.params})
        check_note(run)
        written = self._written()
        if self.interval is not None and not names_scope(params):
            bounds = interval_of(context, self.interval, self.interval_format)
            if bounds is not None:
                written = replace(written, scope=asked_scope((), *bounds))
        return combined(written, run)

    def _from_file(self) -> RefreshableTable | None:
        if self.definition_file is None:
            return None
        path = Path(self.dag.fileloc).parent / self.definition_file
        found = [each for each in definitions.load(path) if self.table in (None, each.name)]
        if len(found) != 1:
            wanted = f"table {self.table!r}" if self.table else "one table"
            raise ArgumentError(
                self.definition_file, f"expected {wanted}, found {len(found)}.", hint="Name one of them in `table`."
            )
        return found[0]


def _known(options: RefreshOptions | None) -> dict[str, Any]:
    """Return the options that are known while the DAG is parsed: all but what other tasks return."""
    if _is_result(options):
        return {}
    return {name: value for name, value in (options or {}).items() if not _is_result(value)}


def _is_result(value: object) -> bool:
    return isinstance(value, XComArg) or (isinstance(value, list | tuple) and any(map(_is_result, value)))


class BeginRefreshOperator(FirstTask, RunnerTask):
    """Begin a refresh of a table: acquire the table, end the refresh of a dead owner, and push the refresh id.

    A retried or cleared task continues its run's unfinished refresh. If there is nothing to do, or in read-only mode,
    the id is that of the history entry with this outcome, and the phases after this task are skipped.

    Arguments: see `FirstTask`.
    """

    publishes = False
    ends_for_others = True
    shares_refresh = True

    def work(self, refresher: Refresher, context: Context) -> str | None:
        """Mint and acquire, then hold the table for the next task of this run."""
        name, request = self.begin(refresher.apply, context)
        who = self.caller(context)
        if request.read_only:
            report = refresher.refresh(name, who, request)
            self.log_refresh(report)
            return report.refresh_id
        acquired = refresher.begin(name, who, request)
        for refresh_id in acquired.recovered:
            self.ended_for_another(refresher.store.report(refresh_id), context)
        if isinstance(acquired, RefreshReport):
            self.log_refresh(acquired)
            return acquired.refresh_id
        refresher.park(acquired)
        self.linked_refresh = acquired.own.refresh_id
        return acquired.own.refresh_id


class RefreshTableOperator(FirstTask, RunnerTask):
    """Refresh a table in one task, with all phases in its process, and push the refresh id; for small tables.

    Arguments: see `FirstTask`.
    """

    reports_lineage = True

    def work(self, refresher: Refresher, context: Context) -> str | None:
        """Bring the table up to date."""
        name, request = self.begin(refresher.apply, context)
        report = refresher.refresh(name, self.caller(context), request)
        for refresh_id in report.recovered:
            if refresh_id != report.refresh_id:
                self.log_refresh(refresher.store.report(refresh_id), "Ended the refresh of a dead owner: ")
        self.log_refresh(report)
        self.announce(report, context)
        return report.refresh_id


class PhaseTask(RunnerTask):
    """Base of the operators that continue a refresh that another task of the same run has begun.

    Args:
        refresh_id: `BeginRefreshOperator(...).output`.
        table: Name of the table that the task publishes; makes the table's asset an outlet while the DAG is parsed.
    """

    template_fields: Sequence[str] = ("refresh_id",)
    shares_refresh = True
    until: ClassVar[Phase]
    is_repeatable: ClassVar[bool] = True  # in place of a refresh that has failed, it begins one as the first task did

    def __init__(self, *, refresh_id: Any, table: str | None = None, **kwargs: Any) -> None:
        kwargs["outlets"] = with_asset(kwargs.get("outlets"), table)
        super().__init__(**kwargs)
        self.refresh_id = refresh_id

    def work(self, refresher: Refresher, context: Context) -> None:
        """Continue the refresh up to the phase in which this task ends.

        An earlier try, or the task before it, may have begun another one in its place.

        Raises:
            AirflowSkipException: If there is nothing to publish.
            RefreshFinishedError: If no refresh was begun.
        """
        who = self.caller(context)
        refresh_id = refresher.store.newest_of(who.key, self.refresh_id)
        if refresh_id is None:
            problem = "the first task has begun no refresh. Was it marked as success?"
            raise RefreshFinishedError(self.task_id, problem)
        refresh = refresher.store.refresh(refresh_id)
        if refresh is not None and refresh.is_ended:
            ended = refresher.store.report(refresh.id)
            self.linked_table, self.linked_refresh = ended.table, ended.refresh_id
            if ended.outcome in _NOTHING_TO_PUBLISH:
                raise AirflowSkipException(summary(ended))
            is_cleared = was_cleared(context, self.retries) and had_ended(context, ended.finished_at)
            if ended.outcome is Outcome.PUBLISHED and not is_cleared:
                # This task died after its last write, or another owner took over its refresh: it is done either way.
                self.log.info("Already done: %s", summary(ended))
                self.announce(ended, context)
                return
            if ended.outcome is Outcome.CANCELLED and ended.error is not None and not is_cleared:
                raise error_of(ended.error)  # it was ended while this task was waiting for its turn
        report = refresher.resume(refresh_id, who, until=self.until, is_repeatable=self.is_repeatable)
        if report.outcome in _NOTHING_TO_PUBLISH:
            raise AirflowSkipException(summary(report))
        self.log_refresh(report)
        self.announce(report, context)


class StageRefreshOperator(PhaseTask):
    """Stage a refresh: read the source once into staging, beside the table, and seal the staged rows.

    Args:
        refresh_id: `BeginRefreshOperator(...).output`.
    """

    until = Phase.MERGING


class MergeRefreshOperator(PhaseTask):
    """Merge a refresh: compute the differences, check the guards, and publish the differences.

    The publish is one commit, or several with `publish: progressive`.

    Args:
        refresh_id: `BeginRefreshOperator(...).output`.
        table: Name of the table that the task publishes.
    """

    reports_lineage = True
    until = Phase.CLEANUP


class CleanupRefreshOperator(PhaseTask):
    """Clean up after a refresh: remove its staging, corrections and progress, and release the table.

    Args:
        refresh_id: `BeginRefreshOperator(...).output`.
    """

    until = Phase.NORMAL
