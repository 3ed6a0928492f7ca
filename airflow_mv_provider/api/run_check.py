"""What a person can ask of a run: what the authors of its DAG have fixed, and what its tasks would refuse later.

A run's params are those of all tasks of its DAG, so each table that the DAG refreshes is looked at.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from airflow_mv_provider.api.words import listed
from airflow_mv_provider.core.scope.declared_refresh import DeclaredRefresh, check_run
from airflow_mv_provider.core.scope.request import Request, parse_request
from airflow_mv_provider.core.state import TableRecord
from airflow_mv_provider.exceptions import ArgumentError, FrozenPartitionError, MvError
from airflow_mv_provider.report_text.figures import shown

NOT_UNDERSTOOD = "This is not understood: a JSON object is expected."
_MOST = 10  # problems that are said one by one


@dataclass(frozen=True, slots=True)
class Choices:
    """What a run of one of a table's DAGs leaves open.

    fixed         : what the authors have fixed, in words, by DAG
    takes_scope   : a run of at least one DAG can choose partitions
    takes_options : a run of at least one DAG can choose anything
    """

    fixed: Mapping[str, str]
    takes_scope: bool
    takes_options: bool


@dataclass(frozen=True, slots=True)
class Refreshed:
    """A table that a run refreshes.

    kind  : type of its first partition column, as `check_fits` takes it
    tasks : those of the run's DAG, as far as they are known
    """

    table: TableRecord
    kind: str | None
    tasks: Sequence[DeclaredRefresh]


def choices(table: str, dag_ids: Iterable[str], tasks: Mapping[str, Sequence[DeclaredRefresh]]) -> Choices:
    """Return what runs of a table's DAGs leave open.

    tasks : by DAG
    """
    of_table = {dag_id: [task for task in tasks.get(dag_id, ()) if table in task.tables] for dag_id in dag_ids}
    fixed = {dag_id: "; ".join(each.fixed for each in mine if each.fixed) for dag_id, mine in of_table.items()}
    return Choices(
        fixed={dag_id: text for dag_id, text in fixed.items() if text},
        takes_scope=any(not mine or not all(task.has_scope for task in mine) for mine in of_table.values()),
        takes_options=any(not mine or not all(task.ingestion for task in mine) for mine in of_table.values()),
    )


@dataclass(frozen=True, slots=True)
class Problems:
    """What is wrong with a run's params.

    of_asked  : of the tables that the person has named, or of all; such a run is not started
    of_others : of tables that the run refreshes as well; their tasks would fail, and no other
    """

    of_asked: tuple[str, ...]
    of_others: tuple[str, ...] = ()


def problems(conf: str, refreshed: Sequence[Refreshed], asked: Sequence[str]) -> Problems:
    """Return what is wrong with a run's params, and for which tables.

    conf  : the params, a JSON object as text
    asked : the tables that the person has named
    """
    try:
        params = json.loads(conf)
        if not isinstance(params, dict):
            raise ValueError("no object")
        request = parse_request(params)
    except ValueError:
        return Problems((NOT_UNDERSTOOD,))
    except (ArgumentError, FrozenPartitionError) as error:
        return Problems((_text(error),))
    tables: dict[str, list[str]] = defaultdict(list)  # by what is wrong with them
    for each in refreshed:
        if (problem := _problem(request, each)) is not None:
            tables[problem].append(each.table.name)
    of_asked = [(problem, names) for problem, names in tables.items() if set(names) & set(asked)]
    of_others = [each for each in tables.items() if each not in of_asked]
    return Problems(
        _first([p if names == list(asked) else f"{shown(listed(names))}: {p}" for p, names in of_asked]),
        _first([f"{shown(listed(names))}, which the run refreshes as well: {p}" for p, names in of_others]),
    )


def _first(texts: Sequence[str]) -> tuple[str, ...]:
    rest = len(texts) - _MOST
    return tuple(texts) if rest <= 0 else (*texts[:_MOST], f"And {rest:,} more.")


def _problem(request: Request, each: Refreshed) -> str | None:
    try:
        check_run(request, each.tasks, each.table.definition, each.kind)
    except (ArgumentError, FrozenPartitionError) as error:
        return _text(error).removeprefix(f"{shown(each.table.name)}: ")
    return None


def _text(error: MvError) -> str:
    return shown(f"{error.message} {error.advice}".strip())
