"""A sensor that waits until tables follow their sources."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from airflow.sdk import BaseSensorOperator, Context

from airflow_mv_provider.compat import AirflowFailException
from airflow_mv_provider.core.health.health import Health, HealthStatus
from airflow_mv_provider.core.health.health_changes import release_health
from airflow_mv_provider.exceptions import ArgumentError, TableNotFoundError, TerminalError
from airflow_mv_provider.hooks.mv import MvHook
from airflow_mv_provider.links import TableLink
from airflow_mv_provider.report_text.health_text import problem_text


class HealthSensor(BaseSensorOperator):
    """Wait until tables have one of some statuses; reads the metadata database only, never Spark.

    Args:
        table: Name of a registered table.
        ingestion: Instead of it, the name of an ingestion, for all of its tables and the release of its offsets.
        statuses: Created, starting, running, paused, stalled, dropped; default running.
        fails: Fail at once if a table is stalled and a person must act, instead of waiting.
        mv_conn_id: Connection of the metadata database; its default is that of `hooks.mv`.
    """

    template_fields: Sequence[str] = ("table", "ingestion")
    operator_extra_links = (TableLink(),)

    def __init__(
        self,
        *,
        table: str | None = None,
        ingestion: str | None = None,
        statuses: Sequence[str] = (HealthStatus.RUNNING,),
        fails: bool = False,
        mv_conn_id: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if (table is None) == (ingestion is None):
            raise ArgumentError("HealthSensor", "the sensor takes either table or ingestion.")
        self.table, self.ingestion = table, ingestion
        self.statuses = frozenset(HealthStatus(status) for status in statuses)
        self.fails = fails
        self.mv_conn_id = mv_conn_id
        self.linked_table: str | None = None

    def poke(self, context: Context) -> bool:
        """Return True if all tables have one of the statuses now.

        Raises:
            AirflowFailException: If there is no such table, or as `fails` says.
        """
        try:
            healths = self._healths()
        except TerminalError as error:
            raise AirflowFailException(str(error)) from error
        self.linked_table = self.table
        for name, health in healths.items():
            self.log.info("%s is %s. %s", name, health.status, problem_text(health))
            needs_person = health.problem is not None and not health.problem.is_transient
            if self.fails and health.is_stalled and needs_person:
                raise AirflowFailException(f"{name} is stalled: {problem_text(health)}")
        return all(health.status in self.statuses for health in healths.values())

    def _healths(self) -> dict[str, Health]:
        """Return the health of each table that is asked about.

        raises : TableNotFoundError
        """
        with MvHook(self.mv_conn_id).reading() as reader:
            if self.table is not None:
                names = {reader.table(self.table).name}
            else:
                marks = {table.name: table.definition.source.ingested for table in reader.tables()}
                names = {name for name, mark in marks.items() if mark is not None and mark.name == self.ingestion}
            if not names:
                raise TableNotFoundError(str(self.ingestion), "no registered table is an output of this ingestion.")
            found = {line.table: line.health for line in reader.overview().lines if line.table in names}
            for run in reader.ingestion_runs(self.ingestion, is_finished=True) if self.ingestion is not None else ():
                if run.error is not None:
                    found[f"{self.ingestion} (release)"] = release_health(run)
            return found
