"""`amv diff`, `amv approve`, `amv reject`, `amv rollback`: see what a refresh would change, decide, take it back."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from airflow_mv_provider.cli.answering import Answer, answering
from airflow_mv_provider.cli.interruptible import interruptibly
from airflow_mv_provider.cli.opened import opened_refresher, refresh_ids
from airflow_mv_provider.core.approval.hold import Decision
from airflow_mv_provider.core.outcome import EXIT_DONE, RefreshReport, exit_code
from airflow_mv_provider.exceptions import ArgumentError
from airflow_mv_provider.report_text.difference_text import difference_text
from airflow_mv_provider.report_text.refresh_text import refresh_text
from airflow_mv_provider.runner.local import command_line_caller
from airflow_mv_provider.runner.settings import Settings

if TYPE_CHECKING:
    from airflow_mv_provider.core.approval.difference import Difference
    from airflow_mv_provider.runner.refresh import Refresher


def _decision_options(function: Any) -> Any:
    for option in (
        click.option("--note", metavar="TEXT", help="Why, for the history; required."),
        click.option(
            "--hold",
            "hold_id",
            metavar="ID",
            help="Decide only if the pending approval still has this id, which `amv diff` prints.",
        ),
    ):
        function = option(function)
    return click.argument("name")(function)


@click.command()
@click.argument("name")
@click.option(
    "--limit",
    default=20,
    show_default=True,
    type=click.IntRange(0, 1000),
    help="Rows to show of each kind: inserted, updated, deleted.",
)
@click.option("--refresh", "refresh_id", metavar="ID", help="An earlier refresh instead: up to 20 rows of each kind.")
@answering
def diff(settings: Settings, name: str, limit: int, refresh_id: str | None) -> Answer:
    """Show what a table's pending refresh would change, or what an earlier refresh has changed."""

    def found_by(refresher: Refresher) -> Difference:
        if refresh_id is None:
            return refresher.difference(name, limit)
        return refresher.past_difference(name, refresh_id, command_line_caller())

    with opened_refresher(settings) as refresher:
        found = interruptibly(refresher, lambda: found_by(refresher))
    return Answer(asdict(found), difference_text(found))


@click.command()
@_decision_options
@click.option("--without-deletes", is_flag=True, help="Keep the rows that would be deleted; publish all else.")
@answering
def approve(settings: Settings, name: str, note: str | None, hold_id: str | None, without_deletes: bool) -> Answer:
    """Approve a table's pending refresh: exactly what `amv diff` shows is published, now."""
    decision = Decision.WITHOUT_DELETES if without_deletes else Decision.APPROVED
    report = _decided(settings, name, decision, note, hold_id)
    return Answer(report.to_json(), refresh_text(report), report.error, exit_code(report))


@click.command()
@_decision_options
@answering
def reject(settings: Settings, name: str, note: str | None, hold_id: str | None) -> Answer:
    """Reject a table's pending refresh: the table stays as it is."""
    report = _decided(settings, name, Decision.REJECTED, note, hold_id)
    return Answer(report.to_json(), refresh_text(report), code=EXIT_DONE)


@click.command()
@click.argument("name")
@click.option("--to", metavar="WHEN", required=True, help="A version of the table, a refresh's id, or a time (UTC).")
@click.option("--note", metavar="TEXT", help="Why, for the history; required.")
@answering
def rollback(settings: Settings, name: str, to: str, note: str | None) -> Answer:
    """Bring a table back to an earlier version, and pause it.

    After `amv resume` the next refresh brings the source's rows again.
    """
    if not (note or "").strip():
        raise ArgumentError("amv rollback", "a rollback needs a reason.", hint='Add --note "...".')
    with opened_refresher(settings) as refresher:
        caller = command_line_caller()
        # The first digits of an id may all be decimal ones, which would be a version.
        ids = refresh_ids(refresher.store, name, to) if to.isdecimal() else []
        when = ids[0] if len(ids) == 1 else to
        report = interruptibly(refresher, lambda: refresher.roll_back(name, when, caller, note or ""))
    text = f"{refresh_text(report)}\n  paused    until `amv resume {name}`"
    return Answer(report.to_json(), text, report.error, exit_code(report))


def _decided(settings: Settings, name: str, decision: Decision, note: str | None, hold_id: str | None) -> RefreshReport:
    if not (note or "").strip():
        command = "amv approve" if decision.is_approval else "amv reject"
        raise ArgumentError(command, "a decision needs a reason.", hint='Add --note "...".')
    with opened_refresher(settings) as refresher:
        caller = command_line_caller()
        return interruptibly(refresher, lambda: refresher.decide(name, decision, caller, note, hold_id))
