"""Whether a table over a query can be incremental, as text."""

from __future__ import annotations

from airflow_mv_provider.core.explanation import Explanation, Following, Obstacle
from airflow_mv_provider.report_text.figures import shown, table


def explanation_text(of: Explanation) -> str:
    """Return whether refreshes of a table can be incremental, and if not, why and how to change that."""
    if of.following is None:
        return f"{of.table}: its source is not a query"
    lines = [f"{of.table}: {_verdict(of, of.following)}"]
    if of.obstacle is not None:
        lines.append(f"  {shown(of.obstacle)}")
    if of.following.obstacle is not None:
        lines += _obstacle(of.following.obstacle)
    followed = [(name, "followed" if found is None else "not followed") for name, found in of.following.inputs]
    lines += [f"  {line}" for line in table(("input", ""), followed, numbers_from=2)[1:]] if followed else []
    seen: list[Obstacle] = []
    for name, found in of.following.inputs:
        if found is not None and found not in seen:
            seen.append(found)
            lines += _obstacle(found, f"{name}: ")
    return "\n".join(lines)


def _verdict(of: Explanation, following: Following) -> str:
    if of.obstacle is not None or following.obstacle is not None:
        return "not incremental"
    how = f"by {', '.join(following.columns)}" if following.columns else "row by row"
    if of.is_incremental:
        return f"incremental, {how}"
    if all(found is not None for _, found in following.inputs):
        return "not incremental"
    return f"incremental for some inputs, {how}"


def _obstacle(found: Obstacle, of: str = "") -> list[str]:
    lines = [f"  {of}{shown(found.reason)}"]
    return [*lines, f"  To make it incremental: {shown(found.advice)}."] if found.advice else lines
