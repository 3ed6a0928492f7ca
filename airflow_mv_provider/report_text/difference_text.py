"""The difference that a held refresh would publish, as text."""

from __future__ import annotations

import json
from typing import Any

from airflow_mv_provider.core.approval.difference import Difference, RowChange
from airflow_mv_provider.report_text.figures import number, shown
from airflow_mv_provider.report_text.refresh_text import hold_lines, partitions_table

_MAX_VALUE = 80


def difference_text(found: Difference) -> str:
    """Return what a refresh that is held would change, and how to decide about it on the command line."""
    decide = f'{found.table} --hold {found.hold.id} --note "..."'
    return "\n".join([*difference_lines(found), "", f"  amv approve {decide}", f"  amv reject {decide}"])


def difference_lines(found: Difference) -> list[str]:
    """Return what a refresh that is held would change, as lines."""
    lines = [f"{found.table}: held for a decision", f"  refresh   {found.refresh_id}"]
    lines += [f"  {name:<9} {text}" for name, text in hold_lines(found.hold)]
    lines += [f"  schema    {shown(change)}" for change in found.schema_changes]
    counts = ("inserted", "updated", "deleted", "unchanged")
    rows = ", ".join(f"{number(getattr(found, 'rows_' + each))} {each}" for each in counts)
    lines.append(f"  rows      {rows}")
    changed = [p for p in found.partitions if p.rows_inserted or p.rows_updated or p.rows_deleted]
    if changed and found.partitions[0].partition != "[]":
        lines += ["", *("  " + line for line in partitions_table(changed))]
    if found.rows:
        lines += ["", *(f"  {line}" for row in found.rows for line in _row(row))]
    if found.is_overwritten:
        lines += [
            "",
            "  The table would be overwritten, so single rows are not listed; `strategy: corrections` lists them.",
        ]
    return lines


def _row(row: RowChange) -> list[str]:
    key = ", ".join(f"{shown(name)}={_value(value)}" for name, value in row.key.items())
    head = f"{row.operation}  {key}"
    if row.operation == "update" and row.before is not None and row.after is not None:
        changes = [(name, row.before.get(name), row.after[name]) for name in row.changed]
        return [head, *(f"        {shown(name)}: {_value(old)} -> {_value(new)}" for name, old, new in changes)]
    values = row.after if row.before is None else row.before
    others = {name: value for name, value in (values or {}).items() if name not in row.key}
    return [head + "".join(f", {shown(name)}={_value(value)}" for name, value in others.items())]


def _value(value: Any) -> str:
    text = "NULL" if value is None else json.dumps(value, ensure_ascii=False)
    return shown(text if len(text) <= _MAX_VALUE else text[: _MAX_VALUE - 3] + "...")
