"""The difference that a held refresh would publish, or what is kept of a former one's, as text."""

from __future__ import annotations

from airflow_mv_provider.core.approval.difference import Difference, RowChange
from airflow_mv_provider.core.outcome import Outcome
from airflow_mv_provider.report_text.figures import number, outcome_words, shown, value_text
from airflow_mv_provider.report_text.refresh_text import hold_lines, partitions_table


def difference_text(found: Difference) -> str:
    """Return what a refresh changes, and how to decide about it on the command line if it is held."""
    if found.hold is None or found.outcome is not Outcome.RUNNING:
        return "\n".join(difference_lines(found))
    decide = f'{found.table} --hold {found.hold.id} --note "..."'
    return "\n".join([*difference_lines(found), "", f"  amv approve {decide}", f"  amv reject {decide}"])


def difference_lines(found: Difference) -> list[str]:
    """Return what a refresh changes, or would change, as lines."""
    state = "awaiting approval" if found.outcome is Outcome.RUNNING else outcome_words(found.outcome)
    lines = [f"{found.table}: {state}", f"  refresh   {found.refresh_id}"]
    if found.hold is not None:
        lines += [f"  {name:<9} {text}" for name, text in hold_lines(found.hold)]
    lines += [f"  schema    {shown(change)}" for change in found.schema_changes]
    counts = ("inserted", "updated", "deleted", "unchanged")
    rows = ", ".join(f"{number(getattr(found, 'rows_' + each))} {each}" for each in counts)
    if found.is_counted:
        lines.append(f"  rows      {rows}")
    if found.columns:
        by_column = ", ".join(f"{shown(name)} in {number(count)}" for name, count in found.columns.items())
        lines.append(f"  changed   {by_column} of the updates")
    changed = [p for p in found.partitions if p.rows_inserted or p.rows_updated or p.rows_deleted]
    if changed and found.partitions[0].partition != "[]":
        lines += ["", *("  " + line for line in partitions_table(changed))]
    if found.rows:
        lines += ["", *(f"  {line}" for row in found.rows for line in _row(row))]
    elif not found.is_overwritten and found.outcome is not Outcome.RUNNING:
        lines.append("  No changed rows are kept of it; `samples: always` keeps some of every refresh.")
    if found.is_overwritten:
        lines += [
            "",
            "  The table would be overwritten, so single rows are not listed; `strategy: corrections` lists them.",
        ]
    return lines


def _row(row: RowChange) -> list[str]:
    key = ", ".join(f"{shown(name)}={value_text(value)}" for name, value in row.key.items())
    head = f"{row.operation}  {key}"
    if row.operation == "update" and row.before is not None and row.after is not None:
        changes = [(name, row.before.get(name), row.after[name]) for name in row.changed]
        return [head, *(f"        {shown(name)}: {value_text(old)} -> {value_text(new)}" for name, old, new in changes)]
    values = row.after if row.before is None else row.before
    others = {name: value for name, value in (values or {}).items() if name not in row.key}
    return [head + "".join(f", {shown(name)}={value_text(value)}" for name, value in others.items())]
