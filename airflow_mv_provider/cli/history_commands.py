"""`amv history`, `amv ledger`: what has been refreshed, by refresh and by interval."""

from __future__ import annotations

from dataclasses import asdict

import click

from airflow_mv_provider.cli.answering import Answer, answering
from airflow_mv_provider.cli.opened import opened_store
from airflow_mv_provider.core.approval.target import parse_since
from airflow_mv_provider.report_text.history_text import history_csv, history_text, ledger_text
from airflow_mv_provider.runner.settings import Settings

_MAX_LISTED = 1_000_000


@click.command()
@click.argument("name")
@click.option(
    "--limit", type=click.IntRange(1, _MAX_LISTED),
    help="How many refreshes.  [default: 20; all of them with --since]",
)  # fmt: skip
@click.option("--since", metavar="TIME", help="Only refreshes that began since then, UTC unless it has an offset.")
@click.option("--csv", "as_csv", is_flag=True, help="Print comma-separated values, for a spreadsheet.")
@answering
def history(settings: Settings, name: str, limit: int | None, since: str | None, as_csv: bool) -> Answer:
    """List a table's refreshes, newest first."""
    store = opened_store(settings)
    limit = limit or (20 if since is None else _MAX_LISTED)
    reports = store.history(store.table(name).id, limit, parse_since(name, since))
    text = history_csv(reports) if as_csv else history_text(name, reports)
    return Answer({"table": name, "refreshes": [r.to_json() for r in reports]}, text)


@click.command()
@click.argument("name")
@click.option("--from", "start", metavar="VALUE", help="Only intervals from this value of the first partition column.")
@click.option("--until", "end", metavar="VALUE", help="Only intervals before this one.")
@answering
def ledger(settings: Settings, name: str, start: str | None, end: str | None) -> Answer:
    """Show which intervals of a table are done, failed, running or missing."""
    store = opened_store(settings)
    entries = store.ledger(store.table(name).id, start, end)
    return Answer({"table": name, "intervals": [asdict(each) for each in entries]}, ledger_text(name, entries))
