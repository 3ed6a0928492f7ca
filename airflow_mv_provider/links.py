"""Links from a task to its table's page and to its refresh, and the one place that knows how these pages are called."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import quote, urlsplit

from airflow.sdk import BaseOperator, BaseOperatorLink, conf

if TYPE_CHECKING:
    from airflow.sdk.types import TaskInstanceKey

URL_PREFIX = "/mv"  # where `plugins.mv` mounts the page


def page_url(table: str | None = None, refresh_id: str | None = None) -> str:
    """Return the address of the page, of a table's page, or of one refresh on it; without host, as Airflow's own are.

    table : its registered name; None for the list of all
    """
    # Airflow's own links know the path it is served under, those of others do not.
    base = urlsplit(conf.get("api", "base_url", fallback="") or "").path.rstrip("/") + URL_PREFIX
    if not table:
        return f"{base}/"
    place = f"{base}/tables/{quote(table, safe='')}"
    return f"{place}#{refresh_id}" if refresh_id else place


class TableLink(BaseOperatorLink):
    """The page of the table that a task works on."""

    name = "Table"

    def get_link(self, operator: BaseOperator, *, ti_key: TaskInstanceKey) -> str:
        """Return the table's page; the list of all tables for a task that ended before it named one."""
        return page_url(getattr(operator, "linked_table", None))


class HistoryLink(BaseOperatorLink):
    """The refresh that a task worked on, in its table's history."""

    name = "Refresh"

    def get_link(self, operator: BaseOperator, *, ti_key: TaskInstanceKey) -> str:
        """Return the refresh on its table's page, or as much of it as is known."""
        return page_url(getattr(operator, "linked_table", None), getattr(operator, "linked_refresh", None))
