"""The params of a DAG that people trigger manually; Airflow builds its trigger form from them.

Airflow validates params against their schemas but accepts unknown ones, and the REST API has no form. Therefore the
task validates everything again (`core.scope.request`). Airflow's form marks a param as required unless its type
includes null. Nothing here reads a database, because Airflow parses a DAG's
file every few seconds.
"""

from __future__ import annotations

from typing import Any

from airflow.sdk import Param

from airflow_mv_provider.core.guard import NAMES as GUARDS
from airflow_mv_provider.core.scope.request import SCOPES
from airflow_mv_provider.core.strategy_names import MEANINGS, REQUESTED, STRATEGIES

_MEANING = {
    "as usual": "As usual: the run's own interval if it has one, else everything",
    "everything": "Everything",
    "range": "A range of partitions: fill in from, until or both",
    "partitions": "Single partitions: list them",
    "stale": "Only what is stale",
}
# Airflow writes the key `null` for None.
_STRATEGY_MEANING: dict[str, str] = {
    "null": "As in its definition",
    "auto": "Whichever is estimated to be fastest",
    **{name: f"{name.capitalize()}: {MEANINGS[name]}" for name in STRATEGIES},
}
_WHAT, _HOW = "Which partitions", "How"


def table_param(default: str | None = None, tables: tuple[str, ...] = ()) -> Param:
    """Return the param that names a table.

    Args:
        tables: Names that the form offers; users may type any other registered name.
    """
    return Param(
        default,
        type="string",
        pattern=r"^\w+(\.\w+){0,2}$",
        maxLength=300,
        examples=list(tables),
        title="Table",
        description="The name of a registered table.",
    )


def refresh_params() -> dict[str, Any]:
    """Return the params of a refresh: its partitions, its mode, and which guards are overridden and why."""
    return {
        "scope": Param(
            "as usual",
            type=["null", "string"],
            enum=list(SCOPES),
            values_display=_MEANING,
            title="Refresh",
            description="Nothing outside is read, changed or deleted.",
            section=_WHAT,
        ),
        "from": _value("From", "The first partition, by the first partition column, such as 2026-01-01."),
        "until": _value("Until", "The first partition that is left out."),
        "partitions": Param(
            [],
            type=["null", "array"],
            items={"type": "string"},
            title="Partitions",
            description="One value per line, such as 2026-01-01.",
            section=_WHAT,
        ),
        "strategy": Param(
            None,
            type=["null", "string"],
            enum=[None, *REQUESTED],
            values_display=_STRATEGY_MEANING,
            title="Strategy",
            description="How the table is brought up to date.",
            section=_HOW,
        ),
        "read_only": Param(
            False,
            type=["null", "boolean"],
            title="Read only",
            description="Compute and report the differences, write nothing.",
            section=_HOW,
        ),
        "force": Param(
            False,
            type=["null", "boolean"],
            title="Force",
            description="Compare even if the source is unchanged.",
            section=_HOW,
        ),
        "hold": Param(
            False,
            type=["null", "boolean"],
            title="Hold",
            description="Compare, then wait for a decision before the table is changed.",
            section=_HOW,
        ),
        "overrides": Param(
            [],
            type=["null", "array"],
            items={"type": "string", "enum": list(GUARDS)},
            examples=list(GUARDS),
            title="Guards to override",
            description="For this run only. Check first why the guard has refused.",
            section=_HOW,
        ),
        "note": Param(
            None,
            type=["null", "string"],
            maxLength=1000,
            title="Why",
            description="Kept in the table's history with your name. Required if a guard is overridden.",
            section=_HOW,
        ),
    }


def _value(title: str, description: str) -> Param:
    return Param(None, type=["null", "string"], maxLength=1000, title=title, description=description, section=_WHAT)
