"""The key of a task of Airflow that asks for refreshes: the same for every task, try and duplicate of one refresh."""

from __future__ import annotations

_KIND = "airflow"


def key_of(dag_id: str, scope: str | None, map_index: int | None, run_id: str) -> str:
    """Return the key.

    Args:
        scope: Distinguishes refreshes within one run: the id of the phase tasks' group, or of a task with all phases.
    """
    return f"{_KIND}:{dag_id}:{scope or ''}:{map_index}:{run_id}"  # the run id comes last: it alone may hold a colon


def run_of(owner_key: str | None) -> tuple[str, str] | None:
    """Return the DAG id and the run id in a key; None for other callers."""
    kind, *found = (owner_key or "").split(":", 4)
    return (found[0], found[3]) if kind == _KIND and len(found) == 4 else None


def is_of(owner_key: str | None, task_id: str, map_index: int) -> bool:
    """True if a task of the run in a key works on that owner's refresh.

    The key names the group of the phases' tasks, the one task that has all phases, or nothing.
    """
    _, _, scope, index, *_ = [*(owner_key or "").split(":", 4), "", "", "", ""]
    return index == str(map_index) and (not scope or task_id == scope or task_id.startswith(f"{scope}."))
