"""Operators for maintenance: cancel a refresh, pause, resume and roll back a table, recover refreshes of dead owners.

    CancelRefreshOperator   request the running refresh to stop
    PauseTableOperator      prevent new refreshes of a table
    ResumeTableOperator     allow new refreshes of a table again
    RollbackOperator        bring a table back to what it was, and pause it; needs Spark
    RecoverTablesOperator   end every refresh whose owner died, remove files of ended ones; needs Spark

Each operator pushes its result to XCom as a small JSON object. The operators are idempotent: a request that changes
nothing succeeds and reports that.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from airflow.sdk import Context

from airflow_mv_provider.core.outcome import Outcome, RefreshReport
from airflow_mv_provider.core.state import Caller, Cancelled, TableRecord
from airflow_mv_provider.exceptions import (
    ArgumentError,
    EngineError,
    InterruptedRefreshError,
    MetadataUnavailableError,
    MvError,
    TableNotFoundError,
)
from airflow_mv_provider.hooks.mv import MvHook
from airflow_mv_provider.operators.metrics import show_stalled
from airflow_mv_provider.operators.task import MvOperator, RunnerTask, with_asset

if TYPE_CHECKING:
    from airflow_mv_provider.metadata.store import Store
    from airflow_mv_provider.runner.refresh import Refresher


class _Control(MvOperator):
    """Base of operators whose work is one write to the metadata database; needs no Spark.

    table : name of a registered table
    """

    template_fields: Sequence[str] = ("table",)

    def __init__(self, *, table: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.table = table

    def open_and_work(self, hook: MvHook, context: Context) -> Any:
        """Write the request, and return its result."""
        store = hook.store()
        record = store.table(self.table)
        self.linked_table = record.name
        is_changed = self.ask(store, record, self.caller(context))
        state = store.state(record.id)
        self.log.info("%s: %s; phase %s", record.name, self.result(is_changed=is_changed), state.phase)
        return {
            "table": record.name,
            "changed": is_changed,
            "phase": str(state.phase),
            "refresh_id": state.refresh_id,
        }

    @abstractmethod
    def ask(self, store: Store, table: TableRecord, who: Caller) -> bool:
        """Write the request; return False if it changed nothing."""

    @abstractmethod
    def result(self, *, is_changed: bool) -> str:
        """Return the result as text for the log."""


class CancelRefreshOperator(_Control):
    """Request the running refresh of a table to stop.

    The refresh stops within one chunk and leaves the table unchanged; with `publish: progressive`, parts that are
    committed already stay in the table. After its last commit, a refresh runs to its end.

    Args:
        table: Name of a registered table.
    """

    def ask(self, store: Store, table: TableRecord, who: Caller) -> bool:
        """Write the cancel request for the owner to read."""
        return store.cancel(table, who) is not Cancelled.NOTHING

    def result(self, *, is_changed: bool) -> str:
        """Return the result as text for the log."""
        return "cancel requested" if is_changed else "no refresh that can be cancelled is running"


class PauseTableOperator(_Control):
    """Pause a table: no new refresh of it begins. A running refresh continues.

    Args:
        table: Name of a registered table.
    """

    def ask(self, store: Store, table: TableRecord, who: Caller) -> bool:
        """Pause the table."""
        return store.pause(table.id, who.user)

    def result(self, *, is_changed: bool) -> str:
        """Return the result as text for the log."""
        return "paused" if is_changed else "already paused"


class ResumeTableOperator(_Control):
    """Resume a paused table: refreshes of it can begin again.

    Args:
        table: Name of a registered table.
    """

    def ask(self, store: Store, table: TableRecord, who: Caller) -> bool:
        """Resume the table."""
        return store.resume(table.id)

    def result(self, *, is_changed: bool) -> str:
        """Return the result as text for the log."""
        return "resumed" if is_changed else "was not paused"


class RollbackOperator(RunnerTask):
    """Bring a table back to what it was, and pause it: `ResumeTableOperator` lets the next refresh compare everything.

    Args:
        table: Name of a registered table.
        to: A version of the table, a refresh's id, or a time; see `amv rollback`.
        note: Why, for the history.

    The table's asset gets an event. A retry continues the rollback, or finds that it was done.
    """

    reports_lineage = True
    template_fields: Sequence[str] = ("table", "to", "note")

    def __init__(self, *, table: str, to: str, note: str, **kwargs: Any) -> None:
        kwargs["outlets"] = with_asset(kwargs.get("outlets"), table)
        super().__init__(**kwargs)
        self.table = table
        self.to = to
        self.note = note

    def work(self, refresher: Refresher, context: Context) -> Any:
        """Roll the table back; return which refresh did it, and the table's version.

        Raises:
            DefinitionError
            VersionGoneError
            Every error of a refresh.
        """
        if not str(self.note).strip():
            raise ArgumentError(self.task_id, "a rollback needs a reason.", hint="Give `note`.")
        report = self.published_before(self.table, context)  # which paused the table
        if report is None:
            report = refresher.roll_back(self.table, str(self.to), self.caller(context), self.note)
        self.log_refresh(report)
        self.announce(report, context)
        return {"table": self.table, "refresh_id": report.refresh_id, "main_version": report.main_version}


class RecoverTablesOperator(RunnerTask):
    """Recover all tables: end every refresh whose owner died, and remove the files that ended refreshes left.

    Args:
        abandon: Name of a table whose unfinished refresh is abandoned instead of resumed; no other table is
            recovered then.

    The next refresh of a table recovers it too, so a periodic run of this operator is useful for tables that are
    refreshed rarely.
    """

    template_fields: Sequence[str] = ("abandon",)
    ends_for_others = True
    shares_refresh = True  # among a refresh's phases, it ends their refresh without waiting until the lease has expired

    def __init__(self, *, abandon: str | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.abandon = abandon

    def work(self, refresher: Refresher, context: Context) -> Any:
        """Recover all tables, or abandon one refresh.

        A task that fails sends no event. So if some refreshes were published and others could not be ended, this run
        sends the events and warns, and the next one fails.

        Raises:
            EngineError: When a refresh could not be ended now.
            MvError: The first one that kept a table from being recovered.
        """
        who, problems = self.caller(context), list[MvError]()
        if self.abandon:
            found = refresher.abandon(self.abandon, who)
            reports = [found] if found else []
        else:
            reports = self._recovered(refresher, who, problems)
        for report in reports:
            self.ended_for_another(report, context)
        show_stalled(refresher.store.overview().lines)
        left = sorted(report.table for report in reports if report.outcome is Outcome.RUNNING)
        if left:
            hint = "See this task's log."
            problems.append(EngineError("recover", f"{', '.join(left)} could not be ended.", hint=hint))
        if problems and any(report.outcome is Outcome.PUBLISHED for report in reports):
            self.log.warning("Not all tables were recovered; the next run fails for it if it cannot do so either.")
        elif problems:
            raise problems[0]
        return {"recovered": [report.refresh_id for report in reports]}

    @staticmethod
    def _recovered(refresher: Refresher, who: Caller, problems: list[MvError]) -> list[RefreshReport]:
        """Recover each table; return the refreshes that were ended. What keeps one from it is among `problems` then."""
        ended: list[RefreshReport] = []
        for table in refresher.store.tables():
            try:
                ended += refresher.recover(who, name=table.name)
            except TableNotFoundError:
                continue  # dropped meanwhile
            except (MetadataUnavailableError, InterruptedRefreshError):
                raise
            except MvError as error:  # it is in the log
                problems.append(error)
        return ended
