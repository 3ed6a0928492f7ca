"""`amv why` and `amv history-of`: what has happened to one row and who did it, and the versions that are kept of it."""

from __future__ import annotations

from typing import Any

import click

from airflow_mv_provider.cli.answering import Answer, answering
from airflow_mv_provider.cli.interruptible import interruptibly
from airflow_mv_provider.cli.opened import opened_refresher
from airflow_mv_provider.report_text.row_history_text import row_history_text, row_versions_text
from airflow_mv_provider.runner.settings import Settings


@click.command()
@click.argument("name")
@click.argument("key", metavar="COLUMN=VALUE...", nargs=-1)
@click.option("--column", metavar="COLUMN", help="Only what has changed this column.")
@click.option(
    "--last", default=20, show_default=True, type=click.IntRange(1, 1000),
    help="How many commits that may have changed rows to look at, newest first.",
)  # fmt: skip
@click.option("--since", metavar="TIME", help="Only commits since then, UTC unless it has an offset.")
@answering
def why(settings: Settings, name: str, key: tuple[str, ...], **bounds: Any) -> Answer:
    """Show what has changed one row, when, and who or what did it. The row is named by its key: order_id=5."""
    with opened_refresher(settings) as refresher:
        found = interruptibly(refresher, lambda: refresher.row_history(name, key, **bounds))
    return Answer(found.to_json(), row_history_text(found))


@click.command("history-of")
@click.argument("name")
@click.argument("key", metavar="COLUMN=VALUE...", nargs=-1)
@answering
def history_of(settings: Settings, name: str, key: tuple[str, ...]) -> Answer:
    """Show the versions of one row that the table's history keeps, oldest first. The row is named by its key."""
    with opened_refresher(settings) as refresher:
        found = interruptibly(refresher, lambda: refresher.row_versions(name, key))
    return Answer(found.to_json(), row_versions_text(found))
