"""`python -m airflow_mv_provider.cli.driver TABLE`: one refresh in its own program, as spark-submit runs it.

Under spark-submit it uses the submitted session, otherwise the embedded local one. stdout holds only the answer;
progress and warnings go to stderr. The database's address comes from AMV_DATABASE_URL or from the file that
AMV_DATABASE_URL_FILE names, never from an argument, because arguments are visible to other users.
"""

from __future__ import annotations

import io
import json
import os
import sys
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from airflow_mv_provider.cli.answer import aside, refresh_answer, unexpected, write_output
from airflow_mv_provider.cli.opened import opened_store
from airflow_mv_provider.cli.options import request_options, wait_option
from airflow_mv_provider.cli.progress_bar import watcher
from airflow_mv_provider.core.guard import NAMES as GUARD_NAMES
from airflow_mv_provider.core.outcome import Outcome, RefreshReport, exit_code, failed
from airflow_mv_provider.core.scope.request import check_note, parse_request
from airflow_mv_provider.core.state import Caller
from airflow_mv_provider.exceptions import MvError
from airflow_mv_provider.report_text.refresh_text import error_text, refresh_text
from airflow_mv_provider.runner.local import command_line_caller
from airflow_mv_provider.runner.settings import from_environment, secrets_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@click.command()
@click.argument("name", metavar="TABLE")
@click.option("--read-only", is_flag=True, help="Compute and report the differences; write nothing to the table.")
@click.option("--override", "overrides", metavar="GUARD", multiple=True, type=click.Choice(GUARD_NAMES))
@click.option("--hold", is_flag=True, help="Wait for `amv approve` before the table is changed.")
@request_options
@wait_option
@click.option("--note", metavar="TEXT", help="The reason, for the history; required with --override.")
@click.option("--request", metavar="JSON", help="The request as a run's params, instead of single options.")
@click.option("--caller", metavar="JSON", help="The caller: a key that is the same for every try, trigger, user.")
@click.option("--json", "as_json", is_flag=True, help="Print exactly one JSON object.")
def main(name: str, wait_s: float, as_json: bool, request: str | None, caller: str | None, **asked: Any) -> None:
    """Bring TABLE up to date with its source. The database is named by AMV_DATABASE_URL or AMV_DATABASE_URL_FILE."""
    is_typed = request is None  # by a person; a submitted request's note was checked by its submitter, or is in a DAG
    report = _report(name, asked if request is None else _object(request), _object(caller), wait_s, is_typed=is_typed)
    if report.error and not as_json:
        aside(error_text(report.error))
    output = json.dumps(report.to_json(), ensure_ascii=False) if as_json else refresh_text(report)
    sys.exit(write_output(output, exit_code(report)))


def _object(text: str | None) -> dict[str, Any]:
    if text is None:
        return {}
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise click.UsageError("--request and --caller take one JSON object each.")
    return found


def _caller(given: Mapping[str, Any], *, is_submitted: bool) -> Caller:
    """Return the caller: the submitter if --caller names it, under its own key, else this command."""
    own = replace(command_line_caller(), trigger="spark-submit" if is_submitted else "command line")
    names = ("key", "trigger", "user")
    # Not `will_retry`: this process parks no table for the next try, which must see that no process works on it.
    return replace(own, **{name: given[name] for name in names if isinstance(given.get(name), str)})


def _report(
    name: str, asked: Mapping[str, Any], who: Mapping[str, Any], wait_s: float, *, is_typed: bool
) -> RefreshReport:
    secrets: tuple[str, ...] = ()
    try:
        request = parse_request(asked)
        if is_typed:
            check_note(request)
        settings = from_environment()
        secrets = secrets_of(settings)
        store = opened_store(settings)
        from airflow_mv_provider.runner.refresh import Refresher

        is_submitted = "PYSPARK_GATEWAY_PORT" in os.environ  # set by spark-submit for its Python program
        caller = _caller(who, is_submitted=is_submitted)
        with watcher() as watch:
            refresher = Refresher(store, settings, _submitted if is_submitted else None, watch)
            return refresh_answer(refresher, name, caller, request, wait_s=wait_s)
    except MvError as error:
        return failed(RefreshReport(name), error)
    except Exception as error:
        return RefreshReport(name, outcome=Outcome.FAILED, error=unexpected(error, secrets))


def _submitted() -> SparkSession:
    from airflow_mv_provider.spark.session import submitted_session

    session = submitted_session()
    sys.stderr = _SubmittersStderr(session.sparkContext._jvm)
    return session


class _SubmittersStderr(io.TextIOBase):
    """spark-submit's own stderr, through the JVM: it sends its Python program's stdout and stderr both to stdout."""

    def __init__(self, jvm: Any) -> None:
        self._print = jvm.System.err.print

    def write(self, text: str) -> int:
        if not isinstance(text, str):  # click asks by writing b"" whether a stream takes bytes, which Java would print
            raise TypeError("a text stream takes str")
        self._print(text)
        return len(text)


if __name__ == "__main__":
    main()
