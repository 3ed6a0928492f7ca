"""What a refresh would do, as text."""

from __future__ import annotations

from airflow_mv_provider.core.changeset import Units
from airflow_mv_provider.core.refresh_plan import RefreshPlan
from airflow_mv_provider.report_text.figures import number, shown, size, table


def plan_text(plan: RefreshPlan, *, with_sql: bool = False) -> str:
    """Return what a refresh would do, and the strategies that were estimated.

    Args:
        with_sql: Add the queries that find what has to be computed again.
    """
    lines = [f"{plan.table}: {plan.strategy}", f"  reason    {shown(plan.reason)}", f"  source    {shown(plan.source)}"]
    if plan.scope:
        lines.append(f"  scope     {shown(plan.scope)}")
    if plan.under_way:
        lines.append(f"  now       {shown(plan.under_way)} is refreshing it")
    if plan.estimates:
        rows = [(e.strategy, "-" if e.seconds is None else f"{e.seconds:.1f} s", e.why) for e in plan.estimates]
        lines += ["", *("  " + line for line in table(("strategy", "expected", "why"), rows, numbers_from=3))]
    if plan.units is not None:
        lines += _units(plan.units, next((e.num_units for e in plan.estimates if e.num_units is not None), None))
        if with_sql:
            lines += ["", "\n\n".join(f"{sql};" for sql in plan.units.queries)]
    elif with_sql:
        lines += ["", "  Nothing of a query is looked for, so there is no SQL to show."]
    return "\n".join(lines)


def _units(units: Units, expected: int | None) -> list[str]:
    about = "" if expected is None else f": about {number(expected)}"
    lines = ["", f"  touched by {', '.join(units.columns)}{about}"]
    rows = [
        (
            each.name,
            "unknown" if each.num_changed is None else number(each.num_changed),
            "-" if each.num_rows is None else number(each.num_rows),
            "unknown" if each.num_bytes is None else size(each.num_bytes),
        )
        for each in units.inputs
    ]
    return [*lines, *("  " + line for line in table(("input", "changed, at most", "rows", "size"), rows))]
