"""The parts that all commands of `amv` share: three options, one answer, one exit code.

stdout holds only the answer: text for people, or with --json exactly one object. Progress, logs and errors go to
stderr.
"""

from __future__ import annotations

import functools
import json
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any

import click

from airflow_mv_provider.cli.answer import aside, unexpected, write_output
from airflow_mv_provider.core.outcome import EXIT_DONE, ErrorReport, Outcome, RefreshReport, error_report, exit_code
from airflow_mv_provider.exceptions import InterruptedRefreshError, MvError
from airflow_mv_provider.report_text.refresh_text import error_text
from airflow_mv_provider.runner.server import with_server
from airflow_mv_provider.runner.settings import DATABASE_VARIABLE, WAREHOUSE_VARIABLE, from_environment, secrets_of


@dataclass(frozen=True, slots=True)
class Answer:
    """The result of a command: `document` for programs, `text` for people, `error` for both."""

    document: dict[str, Any]
    text: str = ""
    error: ErrorReport | None = None
    code: int = EXIT_DONE


def answering(function: Callable[..., Answer], *, is_refresh: bool = False) -> Callable[..., None]:
    """Decorate a command with the options that all commands have; the decorated command prints its answer and exits.

    The context's object, if it has one, finds the connections of sources: a `credentials.Lookup`.

    is_refresh : the JSON document is a refresh's report, even if the command fails before a refresh began
    """

    @click.option("--json", "as_json", is_flag=True, help="Print exactly one JSON object.")
    @click.option(
        "--database",
        metavar="URL",
        help=f"Metadata database (or {DATABASE_VARIABLE}, for one with a password; default: SQLite in AIRFLOW_HOME).",
    )
    @click.option("--warehouse", metavar="DIR", help=f"Root of the tables (or {WAREHOUSE_VARIABLE}).")
    @functools.wraps(function)
    def run(*, as_json: bool, database: str | None, warehouse: str | None, **arguments: Any) -> None:
        problem: ErrorReport | None = None
        secrets: tuple[str, ...] = (database,) if database else ()
        answer = Answer({})
        try:
            settings = with_server(from_environment(database_url=database, warehouse=warehouse))
            if connections := click.get_current_context().obj:
                settings = replace(settings, connections=connections)
            secrets = secrets_of(settings)
            answer = function(settings, **arguments)
        except MvError as error:
            problem = error_report(error)
        except KeyboardInterrupt:
            problem = error_report(InterruptedRefreshError("amv", "the command was interrupted."))
        except Exception as error:
            problem = unexpected(error, secrets)
        if problem:
            about = RefreshReport(arguments.get("name") or "", outcome=Outcome.FAILED, error=problem)
            document = about.to_json() if is_refresh else {"error": asdict(problem)}
            answer = Answer(document, error=problem, code=exit_code(about))
        output = json.dumps(answer.document, ensure_ascii=False, default=str) if as_json else answer.text
        if answer.error and not as_json:
            aside(f"amv: {error_text(answer.error)}")
        sys.exit(write_output(output, answer.code))

    return run
