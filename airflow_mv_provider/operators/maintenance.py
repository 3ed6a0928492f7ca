"""What people do to a table, as tasks: cancel, pause, resume; and end what dead owners left.

    CancelRefreshOperator   ask the refresh under way to stop; main stays as it was
    PauseTableOperator      let no new refresh begin
    ResumeTableOperator     let them begin again
    RecoverTablesOperator   end every refresh whose owner died, remove what ended ones left; needs Spark

They push what was found as a small JSON object. Asking for what is so already succeeds, and says so.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from airflow.sdk import Context

from airflow_mv_provider.core.outcome import Outcome, RefreshReport
from airflow_mv_provider.core.state import Caller, TableRecord
from airflow_mv_provider.exceptions import EngineError
from airflow_mv_provider.hooks.mv import MvHook
from airflow_mv_provider.operators.task import MvOperator

if TYPE_CHECKING:
    from airflow_mv_provider.metadata.store import Store
    from airflow_mv_provider.runner.refresh import Refresher


class _Control(MvOperator):
    """A request that is one write to the metadata database; Spark is not needed.

    table : the name of a registered table
    """

    template_fields: Sequence[str] = ("table",)

    def __init__(self, *, table: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.table = table

    def open_and_work(self, hook: MvHook, context: Context) -> Any:
        """Ask."""
        store = hook.store()
        record = store.table(self.table)
        self.linked_table = record.name
        is_changed = self.ask(store, record, self.caller(context))
        state = store.state(record.id)
        self.log.info("%s: %s; phase %s", record.name, self.said(is_changed=is_changed), state.phase)
        return {
            "table": record.name,
            "changed": is_changed,
            "phase": str(state.phase),
            "refresh_id": state.refresh_id,
        }

    def ask(self, store: Store, table: TableRecord, who: Caller) -> bool:
        """Write the request; False when there was nothing to ask for."""
        raise NotImplementedError

    def said(self, *, is_changed: bool) -> str:
        """Say what came of it."""
        raise NotImplementedError


class CancelRefreshOperator(_Control):
    """Ask the refresh of a table to stop. It does so within one chunk; from its commit on it runs to its end."""

    def ask(self, store: Store, table: TableRecord, who: Caller) -> bool:
        """Write the request for the owner to see."""
        return store.request_cancel(table.id, who.user)

    def said(self, *, is_changed: bool) -> str:
        """Say what came of it."""
        return "asked to stop" if is_changed else "nothing that could be cancelled is under way"


class PauseTableOperator(_Control):
    """Let no new refresh of a table begin. One under way goes on."""

    def ask(self, store: Store, table: TableRecord, who: Caller) -> bool:
        """Pause it."""
        return store.pause(table.id, who.user)

    def said(self, *, is_changed: bool) -> str:
        """Say what came of it."""
        return "paused" if is_changed else "it was paused already"


class ResumeTableOperator(_Control):
    """Let refreshes of a paused table begin again."""

    def ask(self, store: Store, table: TableRecord, who: Caller) -> bool:
        """Resume it."""
        return store.resume(table.id)

    def said(self, *, is_changed: bool) -> str:
        """Say what came of it."""
        return "resumed" if is_changed else "it was not paused"


class RecoverTablesOperator(MvOperator):
    """End every refresh whose owner died, and remove the files that ended refreshes left.

    abandon : a table whose unfinished refresh is given up instead of resumed; nothing else is done then

    The next refresh of a table recovers it too. A sweep that runs now and then is for tables that are refreshed seldom.
    """

    template_fields: Sequence[str] = ("abandon",)

    def __init__(self, *, abandon: str | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.abandon = abandon

    def work(self, refresher: Refresher, context: Context) -> Any:
        """Recover all tables, or give one refresh up.

        raises : EngineError, when one could not be brought to its end now
        """
        who = self.caller(context)
        if self.abandon:
            found = refresher.abandon(self.abandon, who)
            reports: tuple[RefreshReport, ...] = (found,) if found else ()
        else:
            reports = refresher.recover(who)
        for report in reports:
            self.tell(report, "Ended for a dead owner: ")
        left = sorted(report.table for report in reports if report.outcome is Outcome.RUNNING)
        if left:
            raise EngineError("recover", f"{', '.join(left)} could not be brought to an end; see the log above.")
        return {"recovered": [report.refresh_id for report in reports]}
