"""`amv ingest`: refresh all tables of an ingestion in one state of its source."""

from __future__ import annotations

import click

from airflow_mv_provider.cli.answering import Answer, answering
from airflow_mv_provider.cli.interruptible import interruptibly
from airflow_mv_provider.cli.opened import opened_refresher
from airflow_mv_provider.core.ingestion.report import exit_code
from airflow_mv_provider.report_text.ingestion_text import ingestion_text
from airflow_mv_provider.runner.local import command_line_caller
from airflow_mv_provider.runner.settings import Settings


@click.command()
@click.argument("name")
@answering
def ingest(settings: Settings, name: str) -> Answer:
    """Refresh all tables of an ingestion in one state of its source.

    All tables are staged before any is published. One that fails, or that another refresh has, is left behind and
    reported. Exit code 0 if all tables are in that state; else 1 or 75, depending on the tables' errors.
    """
    with opened_refresher(settings) as refresher:
        report = interruptibly(refresher, lambda: refresher.ingest(name, command_line_caller()))
    return Answer(report.to_json(), ingestion_text(report), code=exit_code(report))
