"""Links from a task to its table's page and to its refresh; the only module that knows the addresses of these pages."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import quote, urlsplit

from airflow.sdk import BaseOperator, BaseOperatorLink

from airflow_mv_provider.compat import conf

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import TaskInstanceKey

URL_PREFIX = "/mv"  # where `plugins.mv` mounts the page


def page_root() -> str:
    """Return the path of all pages; Airflow prepends the path it is served under to its own links only."""
    return urlsplit(conf.get("api", "base_url", fallback="") or "").path.rstrip("/") + URL_PREFIX


def page_url(table: str | None = None, refresh_id: str | None = None) -> str:
    """Return the address of the list, of a table's page, or of a refresh's; without a host, like Airflow's links.

    Args:
        table: Registered name; None for the list of all tables.
    """
    base = page_root()
    if not table:
        return f"{base}/"
    place = f"{base}/tables/{quote(table, safe='')}"
    return f"{place}/refreshes/{quote(refresh_id, safe='')}" if refresh_id else place


class TableLink(BaseOperatorLink):
    """Link to the page of the table that a task works on."""

    name = "Table"

    def get_link(self, operator: BaseOperator, *, ti_key: TaskInstanceKey) -> str:
        """Return the address of the table's page; the list of all tables if the task ended before it set its table."""
        return page_url(getattr(operator, "linked_table", None))


class HistoryLink(BaseOperatorLink):
    """Link to the page of the refresh that a task worked on."""

    name = "Refresh"

    def get_link(self, operator: BaseOperator, *, ti_key: TaskInstanceKey) -> str:
        """Return the address of the refresh's page; of the table's page or the list if less is known."""
        return page_url(getattr(operator, "linked_table", None), getattr(operator, "linked_refresh", None))
