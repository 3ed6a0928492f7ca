"""`amv load`, `amv export`: bring rows in from another source once, and write them out as files."""

from __future__ import annotations

import functools
import os
from dataclasses import asdict
from typing import Any

import click

from airflow_mv_provider import definition_file
from airflow_mv_provider.cli.answer import answer_of
from airflow_mv_provider.cli.answering import Answer, answering
from airflow_mv_provider.cli.interruptible import interruptibly
from airflow_mv_provider.cli.opened import opened_refresher, refresh_ids
from airflow_mv_provider.cli.options import wait_option
from airflow_mv_provider.core.guard import NAMES as GUARD_NAMES
from airflow_mv_provider.core.outcome import exit_code
from airflow_mv_provider.core.scope.request import check_note, parse_request
from airflow_mv_provider.exceptions import ArgumentError
from airflow_mv_provider.report_text.figures import number, size
from airflow_mv_provider.report_text.refresh_text import refresh_text
from airflow_mv_provider.runner.local import command_line_caller
from airflow_mv_provider.runner.settings import Settings


@click.command()
@click.argument("name")
@click.option(
    "--from", "file", metavar="FILE.yaml", required=True, type=click.Path(),
    help="Has one key, `source`, written as in a definition.",
)  # fmt: skip
@click.option(
    "--override", "overrides", metavar="GUARD", multiple=True, type=click.Choice(GUARD_NAMES),
    help=f"Override a guard for this load: {', '.join(GUARD_NAMES)}. May be repeated.",
)  # fmt: skip
@click.option("--hold", is_flag=True, help="Wait for `amv approve` before the table is changed.")
@click.option("--note", metavar="TEXT", help="Why, for the history; required with --override.")
@wait_option
@functools.partial(answering, is_refresh=True)
def load(settings: Settings, name: str, file: str, wait_s: float, **asked: Any) -> Answer:
    """Load a table once from another source. The next refresh brings back what its own source holds."""
    source, request = definition_file.load_source(file), parse_request(asked)
    check_note(request)
    with opened_refresher(settings) as refresher:
        caller = command_line_caller()
        report = answer_of(
            refresher, name, caller, lambda: refresher.load(name, source, caller, request), wait_s=wait_s
        )
    return Answer(report.to_json(), refresh_text(report), report.error, exit_code(report))


@click.command()
@click.argument("name")
@click.option("--to", metavar="PATH", required=True, help="Directory for the files of this table alone.")
@click.option("--version", type=click.IntRange(0), help="A version of the table, instead of the one published last.")
@click.option("--refresh", metavar="ID", help="The version that this refresh published.")
@answering
def export(settings: Settings, name: str, to: str, version: int | None, refresh: str | None) -> Answer:
    """Write a table's rows as Parquet files, with a manifest named by version.

    A version that was exported there already is not written again.
    """
    if version is not None and refresh is not None:
        raise ArgumentError("amv export", "--version and --refresh both name a version.", hint="Leave one out.")
    path = to if ":" in to else os.path.abspath(to)
    with opened_refresher(settings) as refresher:
        at = None if version is None else str(version)
        if refresh is not None:
            ids = refresh_ids(refresher.store, name, refresh)
            if len(ids) != 1:
                problem = f"--refresh {refresh[:60]} names {len(ids) or 'no'} refreshes of {name}."
                raise ArgumentError("amv export", problem, hint="Give six digits or more, as `amv history` shows them.")
            (at,) = ids
        found = interruptibly(refresher, lambda: refresher.export(name, path, at))
    manifest = found.manifest
    done = "exported" if found.is_new else "was exported before"
    what = f"{number(manifest.rows)} rows in {number(len(manifest.files))} files, {size(manifest.num_bytes)}"
    document = asdict(manifest) | {"root": found.root, "manifest": found.path, "is_new": found.is_new}
    return Answer(document, f"{name}: version {manifest.version} {done}: {what}\n  manifest  {found.path}")
