"""The health of tables as people read it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from airflow_mv_provider.core.health.health import Health
from airflow_mv_provider.report_text.figures import moment_text, table


def health_text(healths: Mapping[str, Health]) -> str:
    """Return the health of each table, a line each, and below it what to do about those that are stalled."""
    if not healths:
        return "No tables."
    rows = [(name, str(health.status), moment_text(health.since_ms), _code(health)) for name, health in healths.items()]
    lines = table(("table", "status", "since", "problem"), rows, numbers_from=4)
    for name, health in healths.items():
        if health.problem is not None:
            lines.append(f"{name}: {_advice(health)}")
    return "\n".join(lines)


def changes_text(name: str, changes: Sequence[Health]) -> str:
    """Return how the health of a table changed, the newest first."""
    if not changes:
        return f"{name}: no refresh has ended yet."
    rows = [(moment_text(each.since_ms), str(each.status), _code(each), _advice(each)) for each in changes]
    return "\n".join(table(("since", "status", "code", "problem"), rows, numbers_from=4))


def problem_text(health: Health) -> str:
    """Return what is wrong and what to do, with the code that the documents explain; "" if nothing is wrong."""
    return "" if health.problem is None else f"[{health.problem.code}] {_advice(health)}"


def _advice(health: Health) -> str:
    return "" if health.problem is None else f"{health.problem.message} {health.problem.hint}"


def _code(health: Health) -> str:
    return "" if health.problem is None else f"{health.problem.code} ({health.namespace})"
