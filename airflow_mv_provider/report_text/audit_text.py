"""What an audit has found, as text."""

from __future__ import annotations

from airflow_mv_provider.core.approval.audit import Audit, Compared, DriftedRow, Finding
from airflow_mv_provider.report_text.figures import MAX_PARTITIONS, number, partition_text, shown, table, value_text


def audit_text(found: Audit) -> str:
    """Return an audit's result, with partitions and rows that differ."""
    lines = [f"{found.table}: {verdict(found)}"]
    if found.main_version is not None:
        lines.append(f"  version   {found.main_version}")
    if found.scope is not None:
        lines.append(f"  scope     {shown(found.scope)}")
    if found.writes:
        writes = ", ".join(f"{shown(write.operation)} at version {write.version}" for write in found.writes)
        lines.append(f"  written   since it was published: {writes}")
    for side in found.sides:
        lines += _side(side)
    return "\n".join(lines)


def verdict(found: Audit) -> str:
    """Return whether main has drifted."""
    if found.is_drift:
        return "the table has drifted"
    if all(side.finding is Finding.SAME for side in found.sides):
        return "the table is as it was published, and as its source was then"
    return "no drift found, but not everything could be compared"


def finding_text(side: Compared) -> str:
    """Return what one comparison has found, in a line."""
    if side.refresh_id is None:
        return shown(f"{side.finding}: {side.reason}")
    counts = ", ".join(f"{number(count)} {kind}" for kind, count in side.counts.items())
    return shown(f"{side.finding}: rows {counts}, {number(side.rows_same)} the same; {side.reason}")


def _side(side: Compared) -> list[str]:
    lines = ["", f"  against   {shown(side.what)}"]
    if side.scope is not None:
        lines.append(f"  scope     {shown(side.scope)}")
    lines.append(f"  found     {finding_text(side)}")
    if side.refresh_id is not None:
        lines.append(f"  compared  by the read-only refresh {side.refresh_id}")
    if side.partitions and side.partitions[0].partition != "[]":
        lines += ["", *_partitions(side)]
    if side.rows:
        lines += ["", *(f"  {line}" for row in side.rows for line in _row(row))]
    return lines


def _partitions(side: Compared) -> list[str]:
    rows = [
        (partition_text(p.partition), *map(number, (p.rows_missing, p.rows_extra, p.rows_different, p.rows_same)))
        for p in side.partitions[:MAX_PARTITIONS]
    ]
    lines = table(("partition", "missing", "extra", "different", "same"), rows)
    rest = len(side.partitions) - MAX_PARTITIONS
    return [f"  {line}" for line in [*lines, *([f"and {rest} more; --json has them all"] if rest > 0 else [])]]


def _row(row: DriftedRow) -> list[str]:
    key = ", ".join(f"{shown(name)}={value_text(value)}" for name, value in row.key.items())
    if row.main is not None and row.expected is not None:
        values = [(name, row.main.get(name), value) for name, value in row.expected.items()]
        changed = [(name, old, new) for name, old, new in values if old != new]
        lines = [f"        {shown(name)}: {value_text(old)}, expected {value_text(new)}" for name, old, new in changed]
        return [f"{row.kind}  {key}", *lines]
    others = {n: value for n, value in (row.main or row.expected or {}).items() if n not in row.key}
    return [f"{row.kind}  {key}" + "".join(f", {shown(n)}={value_text(value)}" for n, value in others.items())]
