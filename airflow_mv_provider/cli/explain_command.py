"""`amv explain`: which tables over queries follow the changes of their inputs, and how to write the others."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from airflow_mv_provider import definition_file
from airflow_mv_provider.cli.answering import Answer, answering
from airflow_mv_provider.cli.interruptible import interruptibly
from airflow_mv_provider.cli.opened import opened_refresher
from airflow_mv_provider.core.definition.table import RefreshableTable
from airflow_mv_provider.core.explanation import Explanation, Following, Obstacle
from airflow_mv_provider.core.outcome import EXIT_DONE, EXIT_PERSON
from airflow_mv_provider.exceptions import InterruptedRefreshError, MvError
from airflow_mv_provider.report_text.explanation_text import explanation_text
from airflow_mv_provider.runner.settings import Settings

if TYPE_CHECKING:
    from airflow_mv_provider.runner.refresh import Refresher


@click.command()
@click.argument("files", metavar="FILE.yaml...", nargs=-1, required=True, type=click.Path())
@answering
def explain(settings: Settings, files: tuple[str, ...]) -> Answer:
    """Show which tables over queries are incremental, and how to write the others. Nothing is registered or refreshed.

    Exit code 1 if one has `strategy: incremental` and is not.
    """
    definitions = definition_file.load_all(files)
    with opened_refresher(settings) as refresher:
        found = interruptibly(refresher, lambda: [_explained(refresher, each) for each in definitions])
    document = [asdict(each) | {"is_incremental": each.is_incremental} for each in found]
    wrong = [
        each.table
        for each, definition in zip(found, definitions, strict=True)
        if each.following is not None and definition.strategy == "incremental" and not each.is_incremental
    ]
    text = "\n\n".join(explanation_text(each) for each in found)
    if wrong:
        text += f"\n\nNot incremental, although `strategy: incremental` asks for it: {', '.join(wrong)}."
    return Answer({"tables": document}, text, code=EXIT_PERSON if wrong else EXIT_DONE)


def _explained(refresher: Refresher, definition: RefreshableTable) -> Explanation:
    """Return the explanation of a table; an error is an obstacle, so that the others are explained too."""
    try:
        return refresher.explain(definition)
    except InterruptedRefreshError:
        raise
    except MvError as error:
        return Explanation(definition.name, Following(obstacle=Obstacle(error.message)))
