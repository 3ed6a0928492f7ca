"""An operator that audits a table: whether the table still has the rows that were published; needs Spark."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from airflow.sdk import Context

from airflow_mv_provider.core.approval.audit import drift_error
from airflow_mv_provider.core.outcome import Outcome, RefreshReport
from airflow_mv_provider.core.scope.request import Request
from airflow_mv_provider.core.scope.scope import asked_scope
from airflow_mv_provider.operators.metrics import count_audit
from airflow_mv_provider.operators.task import RunnerTask, with_asset
from airflow_mv_provider.report_text.audit_text import audit_text

if TYPE_CHECKING:
    from airflow_mv_provider.runner.refresh import Refresher


class AuditTableOperator(RunnerTask):
    """Compare the table with what was published and with the source as it was then; fail the task if rows differ.

    Args:
        table: Name of a registered table.
        repair: Refresh what has drifted, comparing everything, by the table's guards; the task then succeeds if that
            refresh publishes, and waits for a decision if it is held.
        partitions: Only these; as of `RefreshTableOperator`.
        fail_on_drift: False lets the task succeed with the result, for a branch that decides.
        note: Why, for the history.

    Pushes whether there is drift, the table's version, the counts of both comparisons, and the refresh that has
    repaired it.
    The audit takes no place in the table's queue and blocks no refresh. A task that is rescheduled while its repair
    waits for the table audits again.
    """

    template_fields: Sequence[str] = ("table", "partitions", "note")

    def __init__(
        self,
        *,
        table: str,
        repair: bool = False,
        partitions: Sequence[Any] = (),
        fail_on_drift: bool = True,
        note: str | None = None,
        **kwargs: Any,
    ) -> None:
        if repair:
            kwargs["outlets"] = with_asset(kwargs.get("outlets"), table)
        super().__init__(**kwargs)
        self.table = table
        self.repair = repair
        self.partitions = partitions
        self.fail_on_drift = fail_on_drift
        self.note = note

    def work(self, refresher: Refresher, context: Context) -> Any:
        """Audit the table, and repair it if asked to.

        Raises:
            DriftError
            DefinitionError
            VersionGoneError
            Every error of a refresh.
        """
        table, caller = str(self.table), self.caller(context)
        self.linked_table = table
        request = Request(scope=asked_scope(self.partitions), note=self.note or None)
        found = refresher.audit(table, caller, request, is_repair=self.repair)
        self.log.info("%s", audit_text(found))
        count_audit(found)
        self.linked_refresh = next((side.refresh_id for side in found.sides if side.refresh_id), None)
        report = RefreshReport(table, outcome=Outcome.NOTHING_TO_DO)
        if found.is_drift and self.repair:
            report = refresher.repair(found, caller, request)
            self.log_refresh(report)
        elif found.is_drift and self.fail_on_drift:
            raise drift_error(found)
        self.announce(report, context)
        return {
            "table": table,
            "drift": found.is_drift,
            "main_version": found.main_version,
            "sides": {str(s.against): {"finding": str(s.finding), **s.counts, "reason": s.reason} for s in found.sides},
            "repaired_by": report.refresh_id,
        }
