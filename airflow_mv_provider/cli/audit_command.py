"""`amv audit`: whether main still has the rows that were published, and a repair by an ordinary refresh."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

import click

from airflow_mv_provider.cli.answer import answer_of
from airflow_mv_provider.cli.answering import Answer, answering
from airflow_mv_provider.cli.interruptible import interruptibly
from airflow_mv_provider.cli.opened import opened_refresher
from airflow_mv_provider.cli.options import partition_options, wait_option
from airflow_mv_provider.core.approval.audit import drift_error
from airflow_mv_provider.core.outcome import EXIT_PERSON, Outcome, error_report, exit_code
from airflow_mv_provider.core.scope.request import parse_request
from airflow_mv_provider.report_text.audit_text import audit_text
from airflow_mv_provider.report_text.refresh_text import refresh_text
from airflow_mv_provider.runner.local import command_line_caller
from airflow_mv_provider.runner.settings import Settings


@click.command()
@click.argument("name")
@click.option("--repair", is_flag=True, help="Then refresh what has drifted: compare everything, within the guards.")
@click.option("--note", metavar="TEXT", help="Why, for the history.")
@partition_options
@wait_option
@answering
def audit(settings: Settings, name: str, repair: bool, wait_s: float, **asked: Any) -> Answer:
    """Compare a table with what was published, and with its source as it was then. Exit code 1 if rows differ."""
    request = parse_request(asked)
    with opened_refresher(settings) as refresher:
        caller = command_line_caller()
        found = interruptibly(refresher, lambda: refresher.audit(name, caller, request, is_repair=repair))
        text, document = audit_text(found), found.to_json() | {"repair": None}
        if not found.is_drift:
            return Answer(document, text)
        if not repair:
            error = error_report(drift_error(found))
            return Answer(document | {"error": asdict(error)}, text, error, EXIT_PERSON)
        report = answer_of(refresher, name, caller, lambda: refresher.repair(found, caller, request), wait_s=wait_s)
    if report.outcome is Outcome.PUBLISHED:
        document |= replace(found, repaired_by=report.refresh_id).to_json()
    answer = f"{text}\n\n{refresh_text(report)}"
    return Answer(document | {"repair": report.to_json()}, answer, report.error, exit_code(report))
