"""The ingestion that a table is an output of: its other tables, and how each of them does."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from airflow_mv_provider.core.health.health import Health
from airflow_mv_provider.core.outcome import ErrorReport
from airflow_mv_provider.core.state import TableRecord
from airflow_mv_provider.metadata.reader import Reader


@dataclass(frozen=True, slots=True)
class IngestionView:
    """An ingestion, as far as the user may see its tables.

    healths : of its tables, by name, this one among them
    others  : the names of the other ones
    problem : why its last run that has ended published nothing upstream; None if it did, or has nothing to publish
    """

    name: str
    healths: tuple[tuple[str, Health], ...]
    others: tuple[str, ...]
    problem: ErrorReport | None = None


def ingestion_of(reader: Reader, table: TableRecord, visible: Callable[[str], bool]) -> IngestionView | None:
    """Return the ingestion that a table is an output of; None if it is a table of its own.

    visible : whether the user may see a table
    """
    mark = table.definition.source.ingested
    if mark is None:
        return None
    marks = {each.name: each.definition.source.ingested for each in reader.tables()}
    names = {each for each, its in marks.items() if its is not None and its.name == mark.name and visible(each)}
    healths = tuple((line.table, line.health) for line in reader.overview().lines if line.table in names)
    last = reader.ingestion_runs(mark.name, is_finished=True)
    others = tuple(each for each, _ in healths if each != table.name)
    return IngestionView(mark.name, healths, others, last[0].error if last else None)
