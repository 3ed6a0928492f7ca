"""Operators that refresh all tables of an ingestion in one state of its source; all need Spark.

    StageIngestionOperator    fixes the state, stages and seals all tables     pushes the run and its refreshes
    PublishIngestedOperator   one for each table: compares, publishes, cleans up
    FinishIngestionOperator   publishes upstream how far all tables are; fails if a table was left behind
    IngestOperator            all of it, in one task

`operators.groups.ingest_group` joins the first three. A table that cannot be staged keeps no other one waiting: its own
task fails, and only that. The operators retry and wait as `operators.task` describes, but for one thing: a table that
another refresh has is left behind, and in one task it is that task which tries all of it again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from airflow.sdk import Asset, Context

from airflow_mv_provider.asset import table_of_asset
from airflow_mv_provider.compat import AirflowFailException, AirflowSkipException
from airflow_mv_provider.core.definition.table import RefreshableTable
from airflow_mv_provider.core.ingestion.report import IngestedTable, IngestionReport
from airflow_mv_provider.core.outcome import ErrorReport, error_of
from airflow_mv_provider.core.phase import Phase
from airflow_mv_provider.core.scope.declared_refresh import DeclaredRefresh, check_no_options
from airflow_mv_provider.core.scope.request import AS_USUAL, parse_request
from airflow_mv_provider.exceptions import RefreshHeldError, RefreshInProgressError
from airflow_mv_provider.operators.refresh import PhaseTask
from airflow_mv_provider.operators.task import RunnerTask, with_asset
from airflow_mv_provider.report_text.ingestion_text import ingestion_text

if TYPE_CHECKING:
    from airflow_mv_provider.runner.refresh import Refresher


class _OfIngestion(RunnerTask):
    """Base of the operators that are about an ingestion as a whole.

    ingestion : its name
    tables    : definitions that are registered each time the task runs
    """

    template_fields: Sequence[str] = ("ingestion",)

    def __init__(self, *, ingestion: str, tables: Sequence[RefreshableTable] = (), **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.ingestion = ingestion
        self.tables = tables

    def check_options(self, context: Context) -> None:
        """Refuse a run with options, such as `read_only`: its tables would be written all the same.

        Raises:
            DefinitionError
        """
        run = parse_request(context["params"], {*self.dag.params, *self.params})
        check_no_options(run, str(self.ingestion))

    def apply(self, refresher: Refresher) -> None:
        """Register the definitions."""
        for each in self.tables:
            refresher.apply(each)

    def log_run(self, report: IngestionReport) -> None:
        """Log what became of each table."""
        self.log.info("%s", ingestion_text(report))


class IngestOperator(_OfIngestion):
    """Refresh all tables of an ingestion in one task, and push the id of the run.

    It fails if a table was left behind, after all others were published. Airflow then emits no asset event, also for
    those, before a later try succeeds: `ingest_group` has a task for each table.

    Args:
        ingestion: Its name.
        tables: Definitions that are registered each time the task runs; their assets are outlets.
    """

    def __init__(self, *, ingestion: str, tables: Sequence[RefreshableTable] = (), **kwargs: Any) -> None:
        for each in tables:
            kwargs["outlets"] = with_asset(kwargs.get("outlets"), each.name)
        super().__init__(ingestion=ingestion, tables=tables, **kwargs)

    @property
    def mv_written(self) -> str | None:
        """Its tables; a run of it takes no options."""
        return DeclaredRefresh(tuple(each.name for each in self.tables), AS_USUAL, str(self.ingestion)).to_json()

    def work(self, refresher: Refresher, context: Context) -> str | None:
        """Refresh all tables.

        Raises:
            The error of a table that was left behind, one that needs a person first.
            DefinitionError: For a run with options.
        """
        self.check_options(context)
        self.apply(refresher)
        report = refresher.ingest(str(self.ingestion), self.caller(context))
        self.log_run(report)
        for each in report.tables:
            if each.refresh_id is not None:
                self.announce(refresher.store.report(each.refresh_id), context)
            elif (before := self.published_before(each.table, context)) is not None:
                self.announce(before, context)
            else:
                self._keep_silent(each.table)
        raise_left_behind(report)
        return report.run_id

    def _keep_silent(self, table: str) -> None:
        self.outlets = [
            each for each in self.outlets or [] if not (isinstance(each, Asset) and table_of_asset(each.uri) == table)
        ]


class StageIngestionOperator(_OfIngestion):
    """Fix one state of an ingestion's source, stage tables in it, and push the run and its refreshes.

    Args:
        names: Of the tables, those that have a task that publishes them; None for all that are registered.

    It fails only if no table can be staged at all; a table that is left behind fails its own task.
    """

    shares_refresh = True
    ends_for_others = True

    def __init__(self, *, names: Sequence[str] | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.names = names

    @property
    def mv_written(self) -> str | None:
        """Its tables; a run of it takes no options."""
        names = [each.name for each in self.tables] if self.names is None else self.names
        return DeclaredRefresh(tuple(names), AS_USUAL, str(self.ingestion)).to_json()

    def work(self, refresher: Refresher, context: Context) -> Any:
        """Stage the tables, and keep them for the tasks that publish them.

        Raises:
            DefinitionError: For a run with options.
        """
        self.check_options(context)
        self.apply(refresher)
        staged = refresher.stage_ingestion(str(self.ingestion), self.caller(context), self.names)
        others = {each.table: asdict(each) for each in staged.tables}
        for name in (*staged.refreshes, *others):
            if (ended := self.published_before(name, context)) is not None:  # before its own refresh began
                self.ended_for_another(ended, context)
        for each in staged.tables:
            self.log.info("%s: %s", each.table, each.outcome if each.error is None else each.error.message)
        if staged.tables and not staged.refreshes and all(each.is_left_behind for each in staged.tables):
            raise_left_behind(IngestionReport(str(self.ingestion), staged.run_id, "", staged.tables))
        return {"run_id": staged.run_id, "refreshes": staged.refreshes, "others": others}


class PublishIngestedOperator(PhaseTask):
    """Publish one table of a staged run.

    Args:
        table: Its name; the table's asset is an outlet.
        staged: `StageIngestionOperator(...).output`.
    """

    template_fields: Sequence[str] = ("staged",)
    until = Phase.NORMAL
    is_repeatable = False  # another one would be of another state than the run's other tables

    def __init__(self, *, table: str, staged: Any, **kwargs: Any) -> None:
        super().__init__(refresh_id=None, table=table, **kwargs)
        self.table = table
        self.staged = staged

    def work(self, refresher: Refresher, context: Context) -> None:
        """Compare and publish.

        Raises:
            AirflowFailException: If the table was left behind.
            AirflowSkipException: If it had nothing to do.
        """
        self.linked_table = self.table
        if not isinstance(self.staged, Mapping):
            raise AirflowFailException("nothing was staged.")
        self.refresh_id = self.staged["refreshes"].get(self.table)
        if self.refresh_id is not None:
            return super().work(refresher, context)
        found = self.staged["others"].get(self.table)
        if found is not None and found["is_in_state"]:
            raise AirflowSkipException(f"{self.table}: its source has not changed.")
        error = (found or {}).get("error") or {}
        why = f"[{error['code']}] {error['message']} {error['hint']}" if error else "the ingestion has no such table."
        raise AirflowFailException(f"{self.table} was left behind: {why}")


class FinishIngestionOperator(_OfIngestion):
    """Publish upstream how far all tables of an ingestion are, and record the run's end.

    Args:
        staged: `StageIngestionOperator(...).output`.
    """

    template_fields: Sequence[str] = ("ingestion", "staged")
    shares_refresh = True

    def __init__(self, *, ingestion: str, staged: Any, **kwargs: Any) -> None:
        super().__init__(ingestion=ingestion, **kwargs)
        self.staged = staged

    def work(self, refresher: Refresher, context: Context) -> str | None:
        """End the run.

        Raises:
            The error of a table that was left behind, and what kept the offsets from being published.
        """
        if not isinstance(self.staged, Mapping):
            if self._was_staging_skipped(context):
                raise AirflowSkipException("the run has left out its ingestion.")
            raise AirflowFailException("nothing was staged.")
        run_id, refreshes = str(self.staged["run_id"]), self.staged["refreshes"]
        report = refresher.finish_ingestion(str(self.ingestion), run_id, refreshes)
        self.log_run(report)
        if report.error is not None:
            raise error_of(report.error)
        if report.left_behind:
            names = ", ".join(each.table for each in report.left_behind)
            raise AirflowFailException(f"left behind: {names}. The logs of their own tasks have the reasons.")
        return run_id

    def _was_staging_skipped(self, context: Context) -> bool:
        """Return whether the group's first task was skipped, as by a branch before it."""
        ti: Any = context["ti"]
        if self.task_group is None:
            return False
        stage = self.task_group.child_id("stage")  # type: ignore[no-untyped-call]
        states = ti.get_task_states(dag_id=ti.dag_id, task_ids=[stage], run_ids=[ti.run_id])
        return str(states.get(ti.run_id, {}).get(stage)) == "skipped"


def raise_left_behind(report: IngestionReport) -> None:
    """Raise why a table was left behind, or why nothing could be published upstream; nothing if all went well."""
    errors = [_why(each) for each in report.left_behind] + ([report.error] if report.error else [])
    if not errors:
        return
    error = error_of(min(errors, key=lambda each: each.is_transient))
    if isinstance(error, RefreshHeldError):  # this task cannot ask: the decision is about one of several tables
        error = RefreshInProgressError(error.where, error.problem, hint=error.advice)
    raise error


def _why(table: IngestedTable) -> ErrorReport:
    known = f"{table.table}: its refresh ended as {table.outcome or 'unknown'}."
    return table.error or ErrorReport("MV-REFRESH-IN-PROGRESS", known, "Run it again.", True)
