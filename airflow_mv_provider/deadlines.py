"""Airflow's deadline alerts for tables with a freshness target: the deadline of a run is when its table becomes late.

    with DAG("refresh_orders", deadline=freshness_deadline(table, AsyncCallback(alert)), ...):

When a run is created, Airflow's scheduler asks `TableFreshnessDeadline` from when the table's age counts, and adds the
target. If the run has not ended by then, the callback is called. A run of a table that is late already misses its
deadline at once. Airflow knows deadlines of runs only: where no run is created, `sensors.freshness` or
`dags/maintenance.py` notices.
"""

from __future__ import annotations

import logging
import threading
from contextlib import suppress
from copy import copy
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from airflow_mv_provider.compat import (
    HAS_OWN_DEADLINES,
    AirflowException,
    BaseDeadlineReference,
    Callback,
    DeadlineAlert,
    needs,
)
from airflow_mv_provider.core.definition.freshness import MeasuredFrom
from airflow_mv_provider.core.definition.table import RefreshableTable
from airflow_mv_provider.exceptions import DefinitionError, MvError, TableNotFoundError

if TYPE_CHECKING:
    from airflow_mv_provider.metadata.reader import Reader

_NOTIFIER = "airflow_mv_provider.notifications.FreshnessNotifier"
_PATIENCE_S = 5.0  # the scheduler creates no other run meanwhile
log = logging.getLogger(__name__)


class TableFreshnessDeadline(BaseDeadlineReference):
    """The time from which a table's age counts, as a deadline's reference. The plugin makes it known to Airflow.

    Args:
        table: Its name; it need not be registered before its first run.
        mv_conn_id: See `hooks.mv`.
    """

    def __init__(self, table: str = "", measured_from: str = MeasuredFrom.CHECK, mv_conn_id: str | None = None) -> None:
        self.table, self.measured_from, self.mv_conn_id = table, MeasuredFrom(measured_from), mv_conn_id

    def _evaluate_with(self, *, session: Any, **_kwargs: Any) -> datetime | None:
        """Return the time; now if no refresh of everything has succeeded; None, and no deadline, if it is unknown.

        It runs in the scheduler, so no error leaves it, and it looks in a thread of its own: in the scheduler's thread,
        Airflow would look a connection up in the very session that is creating the run, and end it.
        """
        found: list[datetime] = []
        thread = threading.Thread(target=self._look, args=(found,), name="mv-deadline", daemon=True)
        thread.start()
        thread.join(_PATIENCE_S)
        if thread.is_alive():
            log.warning("%s: its run has no deadline: the database has not said its age in time.", self.table)
        return next(iter(found), None)

    def _look(self, found: list[datetime]) -> None:
        from airflow_mv_provider.hooks.mv import MvHook

        try:
            with MvHook(self.mv_conn_id).reading() as reader:
                found.append(datetime.fromtimestamp(self._as_of_ms(reader) / 1000, UTC))
        except (MvError, AirflowException) as error:
            log.warning("%s: its run has no deadline, because its age is not known: %s", self.table, error)

    def _as_of_ms(self, reader: Reader) -> int:
        with suppress(TableNotFoundError):
            last_check, _ = reader.last_check(reader.table(self.table).id)
            if last_check is not None:
                return last_check.as_of_ms(self.measured_from)
        return reader.now_ms()

    def serialize_reference(self) -> dict[str, Any]:
        """Return it as Airflow stores it with the DAG."""
        facts = {"table": self.table, "measured_from": str(self.measured_from), "mv_conn_id": self.mv_conn_id}
        return {**super().serialize_reference(), **facts}

    @classmethod
    def deserialize_reference(cls, reference_data: dict[str, Any]) -> TableFreshnessDeadline:
        """Return what `serialize_reference` stored."""
        return cls(*(reference_data[name] for name in ("table", "measured_from", "mv_conn_id")))


def freshness_deadline(table: RefreshableTable, callback: Callback, *, mv_conn_id: str | None = None) -> DeadlineAlert:
    """Return the deadline alert of a table's DAG: each run is to end before the table is late.

    Args:
        callback: Such as `AsyncCallback(FreshnessNotifier, {"http_conn_id": "alerts"})`, which is told the table.

    Raises:
        DefinitionError: If the table has no freshness target.
        DependencyError: Before Airflow 3.2, which takes no deadline of a plugin.
    """
    needs(HAS_OWN_DEADLINES, "deadlines of plugins", "3.2", "Leave `on_late` out, and use TableFreshnessSensor.")
    if table.freshness is None:
        raise DefinitionError(
            table.name, "the table has no freshness target.", hint="Add `freshness: {target: 1h}` to it."
        )
    reference = TableFreshnessDeadline(table.name, table.freshness.measured_from, mv_conn_id)
    if callback.path == _NOTIFIER:  # one is given for all tables of a file
        callback = copy(callback)
        callback.kwargs = {**callback.kwargs, "table": table.name}
    return DeadlineAlert(reference, timedelta(seconds=table.freshness.target), callback, name=f"{table.name} is late")
