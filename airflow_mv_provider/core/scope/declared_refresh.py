"""What a task of a DAG refreshes, as the DAG's author has written it: what a run of the DAG can ask for besides.

Airflow keeps it with the parsed DAG, so that the page refuses a run that its tasks would refuse, before it is started.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from airflow_mv_provider.core.definition.table import RefreshableTable
from airflow_mv_provider.core.scope.request import (
    AS_USUAL,
    Request,
    check_fits,
    check_note,
    combined,
    parse_request,
    to_params,
)
from airflow_mv_provider.exceptions import ArgumentError

_NO_OPTIONS = "Start it without options; to refresh one of its tables otherwise, use `amv refresh`."


@dataclass(frozen=True, slots=True)
class DeclaredRefresh:
    """One task.

    tables    : names; one, or those of an ingestion
    request   : what the author asks for; templates in it are literal text
    ingestion : its name, if the task refreshes all tables of one; its runs take no options
    """

    tables: tuple[str, ...]
    request: Request = AS_USUAL
    ingestion: str | None = None

    def to_json(self) -> str:
        """Return the stored form, equal for equal values; `from_json` reverses it."""
        facts = {"tables": list(self.tables), "request": to_params(self.request), "ingestion": self.ingestion}
        return json.dumps(facts, sort_keys=True)

    @property
    def fixed(self) -> str | None:
        """What a run cannot change, in words; None if it can choose."""
        if self.ingestion is not None:
            return f"it refreshes all tables of {self.ingestion} in one state, and its runs take no options"
        scope = None if self.request.scope.is_everything else self.request.scope.describe()
        if scope is None and self.request.is_stale_only:
            scope = "only what is stale"
        parts = [scope and f"it refreshes {scope}", "it writes nothing" if self.request.read_only else None]
        return " and ".join(part for part in parts if part) or None

    @property
    def has_scope(self) -> bool:
        """True if its author has chosen which partitions it refreshes."""
        return self.ingestion is not None or self.request.is_stale_only or not self.request.scope.is_everything


def from_json(stored: str) -> DeclaredRefresh:
    """Return what `DeclaredRefresh.to_json` stored.

    raises : ValueError, for anything else; ArgumentError, if this version refuses the request
    """
    facts = json.loads(stored)
    if not isinstance(facts, Mapping) or not isinstance(facts.get("request"), Mapping):
        raise ValueError("no written request")
    return DeclaredRefresh(tuple(facts["tables"]), parse_request(facts["request"]), facts.get("ingestion"))


def check_run(run: Request, tasks: Iterable[DeclaredRefresh], table: RefreshableTable, kind: str | None) -> None:
    """Refuse a run's request as the tasks of its DAG that refresh a table would; as far as is known without Spark.

    tasks  : of the DAG; those of other tables are passed over, and without any for this one only the table counts
    kind   : see `check_fits`
    raises : ArgumentError, FrozenPartitionError
    """
    check_note(run)
    mine = [task for task in tasks if table.name in task.tables]
    for task in mine:
        if task.ingestion is not None:
            check_no_options(run, task.ingestion)
        check_fits(combined(task.request, run), table, kind)
    if not mine:
        check_fits(run, table, kind)


def check_no_options(run: Request, ingestion: str) -> None:
    """Refuse options of a run that refreshes all tables of an ingestion, which would be passed over.

    raises : ArgumentError
    """
    if run != AS_USUAL:
        usual = to_params(AS_USUAL)
        given = ", ".join(name for name, value in to_params(run).items() if value != usual[name])
        problem = f"all its tables are refreshed in one state; a run takes no options, not {given}."
        raise ArgumentError(ingestion, problem, hint=_NO_OPTIONS)
