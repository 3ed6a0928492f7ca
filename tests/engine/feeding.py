"""A Delta source with a change feed, and its changes."""

from __future__ import annotations

from typing import Any

from airflow_mv_provider.core.outcome import Outcome

FEED = "ALTER TABLE {t} SET TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true')"
ROWS = "SELECT id, CAST(id % 3 AS INT) AS p, concat('v', id) AS v FROM range(60)"
RAW = {"type": "delta", "path": "raw/orders"}


def with_feed(lake: Any) -> None:
    lake.write(ROWS)
    lake.sql(FEED, path="raw/orders")


def feed_off(lake: Any) -> None:
    lake.sql(FEED.replace("'true'", "'false'"), path="raw/orders")


def published_with_a_feed(prepared: Any) -> Any:
    """Return a lake whose table was published once, from a source that keeps a change data feed."""

    def build(lake: Any) -> None:
        with_feed(lake)
        lake.apply(guards={"max_deleted_fraction": 1.0})
        lake.refresh()

    return prepared("with feed", build)


def change(table, *statements):
    for statement in statements or (
        "UPDATE {t} SET v = 'late' WHERE id IN (3, 4)",
        "DELETE FROM {t} WHERE id = 9",
        "INSERT INTO {t} VALUES (1000, 7, 'new'), (1001, 7, 'gone again')",
        "DELETE FROM {t} WHERE id = 1001",
        "UPDATE {t} SET v = 'later' WHERE id = 3",
    ):
        table.sql(statement, path="raw/orders")


def followed(table: Any) -> None:
    """Changes of the source come into main, which is not compared; a refresh that compares it finds nothing to do."""
    change(table)

    report = table.refresh()

    assert (report.strategy, report.outcome) == ("incremental", Outcome.PUBLISHED)
    assert (report.rows_inserted, report.rows_updated, report.rows_deleted, report.rows_unchanged) == (1, 2, 1, 57)
    assert table.rows("orders") == table.rows("raw/orders")
    kept = table.published()
    again = table.refresh(force=True)
    assert (again.strategy, again.rows_inserted + again.rows_updated + again.rows_deleted) == ("corrections", 0)
    assert table.published() == kept
    assert table.workspaces() == []
