"""Add the page to Airflow: an application under /mv, an entry in the navigation, and a tab on each DAG."""

from __future__ import annotations

from functools import cache
from typing import Any

from airflow.plugins_manager import AirflowPlugin

from airflow_mv_provider.compat import HAS_OWN_DEADLINES
from airflow_mv_provider.deadlines import TableFreshnessDeadline
from airflow_mv_provider.links import URL_PREFIX, page_root


def views() -> list[dict[str, Any]]:
    """Return the entry in the navigation and the tab on each DAG."""
    root = page_root()
    return [
        {
            "name": "Refreshable tables",
            "href": f"{root}/",
            "destination": "nav",
            "category": "browse",
            "url_route": "refreshable-tables",
        },
        {
            "name": "Tables",
            "href": f"{root}/dags/{{DAG_ID}}",
            "destination": "dag",
            "url_route": "refreshable-tables-of-dag",
        },
    ]


@cache
def _application() -> Any:
    """Create the page's application once: Airflow requests it whenever it lists its plugins."""
    from airflow_mv_provider.api.app import create_app

    return create_app()


class MvPlugin(AirflowPlugin):
    """The plugin. Every Airflow process loads it; only the API server reads `fastapi_apps`, which imports the page."""

    name = "refreshable_tables"
    external_views: list[Any] = views()
    deadline_references: list[Any] = [TableFreshnessDeadline] if HAS_OWN_DEADLINES else []

    @property
    def fastapi_apps(self) -> list[dict[str, Any]]:  # type: ignore[override]  # Airflow only reads it
        """The page's application."""
        return [{"app": _application(), "url_prefix": URL_PREFIX, "name": "Refreshable tables"}]
