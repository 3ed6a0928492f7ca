"""What a refresh would do, as text."""

from __future__ import annotations

from airflow_mv_provider.core.refresh_plan import RefreshPlan
from airflow_mv_provider.report_text.figures import shown, table


def plan_text(plan: RefreshPlan) -> str:
    """Return what a refresh would do, and the strategies that were estimated."""
    lines = [f"{plan.table}: {plan.strategy}", f"  reason    {shown(plan.reason)}", f"  source    {shown(plan.source)}"]
    if plan.scope:
        lines.append(f"  scope     {shown(plan.scope)}")
    if plan.under_way:
        lines.append(f"  now       {shown(plan.under_way)} is refreshing it")
    if plan.estimates:
        rows = [(e.strategy, "-" if e.seconds is None else f"{e.seconds:.1f} s", e.why) for e in plan.estimates]
        lines += ["", *("  " + line for line in table(("strategy", "expected", "why"), rows, numbers_from=3))]
    return "\n".join(lines)
