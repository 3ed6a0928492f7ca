"""`amv health`: whether tables follow their sources, and what keeps them from it."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from airflow_mv_provider.cli.answering import Answer, answering
from airflow_mv_provider.cli.opened import opened_store
from airflow_mv_provider.core.health.health import Health, exit_code
from airflow_mv_provider.core.health.health_changes import release_changes, release_health
from airflow_mv_provider.exceptions import ArgumentError
from airflow_mv_provider.report_text.health_text import changes_text, health_text
from airflow_mv_provider.runner.settings import Settings

if TYPE_CHECKING:
    from airflow_mv_provider.metadata.store import Store

_MAX_RUNS = 100  # as many as are kept


@click.command()
@click.argument("name", required=False)
@click.option("--history", is_flag=True, help="Show how the health of one table changed, or of an ingestion's tables.")
@answering
def health(settings: Settings, name: str | None, history: bool) -> Answer:
    """Show whether tables follow their sources: all, one, or those of an ingestion.

    Exit code 0 if no table is stalled; 75 if a retry may end what stalls them, 1 if a person must act.
    """
    store = opened_store(settings)
    if history:
        if name is None:
            problem = "--history is about one table, or an ingestion."
            raise ArgumentError("amv health", problem, hint="Name the table or the ingestion.")
        return _history(store, name)
    healths = _healths(store, name)
    found = {"tables": [{"table": each} | document(health) for each, health in healths.items()]}
    return Answer(found, health_text(healths), code=exit_code(healths.values()))


def document(health: Health) -> dict[str, Any]:
    """Return a health as a JSON object."""
    problem = None if health.problem is None else asdict(health.problem) | {"namespace": health.namespace}
    return {"status": health.status, "since_ms": health.since_ms, "problem": problem}


def _history(store: Store, name: str) -> Answer:
    """Return how the health of a table changed, or of an ingestion's tables and of its release."""
    mine = [table for table, mark in _marks(store).items() if mark == name]
    if not mine:
        changes = store.health_changes(store.table(name).id)
        return Answer({"table": name, "changes": [document(each) for each in changes]}, changes_text(name, changes))
    found = {table: store.health_changes(store.table(table).id) for table in mine}
    found[_release(name)] = release_changes(store.ingestion_runs(name, _MAX_RUNS, is_finished=True))
    shown = [{"table": table, "changes": [document(each) for each in changes]} for table, changes in found.items()]
    text = "\n\n".join(
        f"{table}\n{changes_text(table, changes)}" if changes else changes_text(table, changes)
        for table, changes in found.items()
    )
    return Answer({"ingestion": name, "tables": shown}, text)


def _healths(store: Store, name: str | None) -> dict[str, Health]:
    """Return the health of each table, and under an ingestion's own name why it could not be released upstream."""
    lines = {line.table: line.health for line in store.overview().lines}
    if name is None:
        return lines | _unreleased(store, {mark for mark in _marks(store).values() if mark is not None})
    if name in lines:
        return {name: lines[name]}
    mine = {table: lines[table] for table, mark in _marks(store).items() if mark == name and table in lines}
    if not mine:
        store.table(name)  # raises that there is none of this name
    return mine | _unreleased(store, {name})


def _marks(store: Store) -> dict[str, str | None]:
    found = ((table.name, table.definition.source.ingested) for table in store.tables())
    return {name: None if mark is None else mark.name for name, mark in found}


def _unreleased(store: Store, ingestions: set[str]) -> dict[str, Health]:
    newest = {name: run for name in sorted(ingestions) for run in store.ingestion_runs(name, is_finished=True)}
    return {_release(name): release_health(run) for name, run in newest.items() if run.error is not None}


def _release(ingestion: str) -> str:
    return f"{ingestion} (release)"
