"""The Airflow asset that stands for a refreshable table.

A task that publishes a table has this asset among its outlets. So Airflow itself can list the DAGs that declare a
table, from their parsed files alone, without a separate registry. A DAG's tag would be too short for a table's name.
"""

from __future__ import annotations

ASSET_PREFIX = "mv://table/"
_SOURCE_PREFIX = "mv://source/"
ROW_ANSWERS_URI = "mv://rows/answers"
"""The asset among the outlets of tasks that report what has happened to a row, by which the page finds their DAGs."""


def asset_uri(table: str) -> str:
    """Return the URI of the asset that stands for `table`, by the name it is registered under."""
    return ASSET_PREFIX + table


def table_of_asset(uri: str) -> str | None:
    """Return the table that an asset stands for; None if it is not this package's."""
    return uri[len(ASSET_PREFIX) :] or None if uri.startswith(ASSET_PREFIX) else None


def source_asset_uri(path: str) -> str:
    """Return the URI of the asset that stands for a Delta table which tables read, by its path in their definitions."""
    return _SOURCE_PREFIX + path.lstrip("/")
