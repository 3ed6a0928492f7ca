"""A sensor that waits until a table is fresh enough."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

from airflow.sdk import BaseSensorOperator, Context

from airflow_mv_provider.compat import AirflowFailException
from airflow_mv_provider.core.definition.freshness import Freshness, MeasuredFrom
from airflow_mv_provider.core.moment import time_of
from airflow_mv_provider.exceptions import ArgumentError, TerminalError
from airflow_mv_provider.hooks.mv import MvHook
from airflow_mv_provider.links import TableLink


class TableFreshnessSensor(BaseSensorOperator):
    """Wait until a table is fresh: a successful refresh of the whole table has checked the source recently enough.

    Refreshes of some partitions do not count. The sensor reads the metadata database only, never Spark. Of `max_age`
    and `since` at most one may be given; without both it waits for the table's own freshness target.

    Args:
        table: Name of a registered table.
        max_age: Longest age, by the database's clock.
        since: Earliest time from which the age may count, such as "{{ data_interval_end }}"; ISO 8601, UTC if it has
            no zone.
        measured_from: "check", the time at which a refresh last looked at the source, even if it found nothing new;
            or "source", the time of the source's state that the table has. By default as for the table's own target,
            and "check" with `max_age` or `since`.
        mv_conn_id: Connection of the metadata database; its default is that of `hooks.mv`.
    """

    template_fields: Sequence[str] = ("table", "since")
    operator_extra_links = (TableLink(),)

    def __init__(
        self,
        *,
        table: str,
        max_age: timedelta | None = None,
        since: str | None = None,
        measured_from: Literal["check", "source"] | None = None,
        mv_conn_id: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if max_age is not None and since is not None:
            raise ArgumentError("TableFreshnessSensor", "the sensor takes max_age or since, not both.")
        self.table, self.max_age, self.since = table, max_age, since
        self.measured_from = None if measured_from is None else MeasuredFrom(measured_from)
        self.mv_conn_id = mv_conn_id
        self.linked_table: str | None = None

    def poke(self, context: Context) -> bool:
        """Return True if the table is fresh enough now."""
        try:
            with MvHook(self.mv_conn_id).reading() as reader:
                table = reader.table(self.table)
                own = table.definition.freshness
                age_s = reader.age_s(table.id, self._measured_from(own))
            limit = self._limit(own)
        except TerminalError as error:
            raise AirflowFailException(str(error)) from error
        self.linked_table = self.table
        shown = (
            "has never been refreshed"
            if age_s is None
            else f"is {age_s:,.0f} s old, measured from the {self._measured_from(own)}"
        )
        self.log.info("%s %s; required: at most %s s", self.table, shown, f"{limit.total_seconds():,.0f}")
        return age_s is not None and age_s <= limit.total_seconds()

    def _measured_from(self, own: Freshness | None) -> MeasuredFrom:
        if self.measured_from is not None:
            return self.measured_from
        is_own = own is not None and self.max_age is None and self.since is None
        return own.measured_from if own is not None and is_own else MeasuredFrom.CHECK

    def _limit(self, freshness: Freshness | None) -> timedelta:
        if self.max_age is not None:
            return self.max_age
        if self.since is not None:
            since = time_of(self.since)
            if since is None:
                raise ArgumentError("since", f"{self.since[:80]!r} is not an ISO 8601 time.")
            return datetime.now(UTC) - since
        if freshness is None:
            problem = f"{self.table} has no freshness target."
            raise ArgumentError("TableFreshnessSensor", problem, hint="Give max_age or since, or define one.")
        return timedelta(seconds=freshness.target)
