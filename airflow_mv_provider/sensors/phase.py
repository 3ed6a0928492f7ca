"""A sensor that waits until a table is in a phase of its refresh."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from airflow.sdk import BaseSensorOperator, Context

from airflow_mv_provider.compat import AirflowFailException
from airflow_mv_provider.core.phase import Phase
from airflow_mv_provider.exceptions import TerminalError
from airflow_mv_provider.hooks.mv import MvHook


class TablePhaseSensor(BaseSensorOperator):
    """Wait until a table is in one of `phases`; reads the metadata database only, never Spark.

    NORMAL means that no refresh is running, not that a refresh has succeeded: a table that was never refreshed is in
    NORMAL too.

    Args:
        table: Name of a registered table.
        phases: NORMAL, REFRESHING, MERGING or CLEANUP; default NORMAL.
        mv_conn_id: Connection of the metadata database; its default is that of `hooks.mv`.
    """

    template_fields: Sequence[str] = ("table",)

    def __init__(
        self,
        *,
        table: str,
        phases: Sequence[str] = (Phase.NORMAL,),
        mv_conn_id: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.table = table
        self.phases = frozenset(Phase(phase) for phase in phases)
        self.mv_conn_id = mv_conn_id

    def poke(self, context: Context) -> bool:
        """Return True if the table is in one of the phases now."""
        try:
            with MvHook(self.mv_conn_id).reading() as reader:
                phase = reader.state(reader.table(self.table).id).phase
        except TerminalError as error:
            raise AirflowFailException(str(error)) from error
        self.log.info("%s is in %s", self.table, phase)
        return phase in self.phases
