"""The report of an ingestion's run as people read it."""

from __future__ import annotations

from airflow_mv_provider.core.ingestion.report import IngestedTable, IngestionReport
from airflow_mv_provider.report_text.figures import number, table


def ingestion_text(report: IngestionReport) -> str:
    """Return a run's state, what became of each table, and why some were left behind."""
    rows = [(each.table, each.output, _outcome(each), *_changes(each)) for each in report.tables]
    lines = [f"{report.ingestion}: {report.state}"]
    lines += table(("table", "output", "result", "inserted", "updated", "deleted"), rows, numbers_from=4)
    for each in report.left_behind:
        if each.error is not None:
            lines.append(f"{each.table}: {each.error.message} {each.error.hint}")
    if report.released:
        lines.append(
            "released upstream: " + "; ".join(f"{topic} {_offsets(at)}" for topic, at in report.released.items())
        )
    if report.error is not None:
        lines.append(f"not released upstream: {report.error.message} {report.error.hint}")
    return "\n".join(lines)


def _outcome(each: IngestedTable) -> str:
    if each.is_in_state:
        return str(each.outcome).replace("_", " ")
    if each.error is not None:
        return f"left behind, {each.error.code}"
    return f"left behind, {each.outcome}"


def _changes(each: IngestedTable) -> tuple[str, str, str]:
    inserted, updated, deleted = each.rows_inserted, each.rows_updated, each.rows_deleted
    return number(inserted), number(updated), number(deleted)


def _offsets(offsets: list[int]) -> str:
    return ", ".join(str(each) for each in offsets[:8]) + (", ..." if len(offsets) > 8 else "")
