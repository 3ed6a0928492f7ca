"""Whether corrections are merged into main, or a small main is overwritten with the sealed rows instead.

Both publish the same rows in one commit. The fixed cost of a MERGE, several Spark jobs, is most of a small table's
refresh; an overwrite is one job. For a small main both write about the same bytes, because its rows lie in few files. A
MERGE is kept where somebody may rely on its kind of commit.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from airflow_mv_provider.core import cost
from airflow_mv_provider.core.definition.table import RefreshableTable
from airflow_mv_provider.core.guard import Counts
from airflow_mv_provider.core.scope.scope import Scope
from airflow_mv_provider.core.strategy import replace_obstacle

# By these main's readers see which rows have changed: with an overwrite they would see all of them.
_ROW_BY_ROW = ("delta.enableChangeDataFeed", "delta.enableRowTracking")


@dataclass(frozen=True, slots=True)
class RewriteFacts:
    """What decides how one refresh's corrections are published.

    counts          : of all corrections, and of both sides
    properties      : main's table properties
    is_small        : the sealed rows and main take few bytes
    is_readable     : the sealed rows can be read once more
    is_undisturbed  : this owner has sealed them, this is the first round, no decision about them was needed, and main
                      was published before
    changes_columns : main gains or loses a column, or a column's type changes
    has_own_columns : main has columns that the source lacks
    """

    counts: Counts
    properties: Mapping[str, str]
    is_small: bool
    is_readable: bool
    is_undisturbed: bool
    changes_columns: bool
    has_own_columns: bool


def rewrite_obstacle(table: RefreshableTable, scope: Scope, facts: RewriteFacts) -> str | None:
    """Return why the corrections are merged into main; None if main is overwritten with the sealed rows instead."""
    if (obstacle := replace_obstacle(table, scope)) is not None:
        return obstacle
    if table.partition_by:
        return "an overwrite writes files of every partition"
    if not (facts.is_small and cost.is_small(max(facts.counts.desired, facts.counts.main))):
        return "the table is not small"
    if not (facts.counts.updated or facts.counts.deleted):
        return "rows are only added, which readers of the table as a stream can follow"
    if not facts.counts.desired:
        return "no row is left to write"
    if facts.changes_columns or facts.has_own_columns:
        return "the table's columns are not the source's"
    if kept := next((name for name in _ROW_BY_ROW if facts.properties.get(name, "").lower() == "true"), None):
        return f"the table has {kept}"
    if not facts.is_readable:
        return "the sealed rows were not copied, and the source may be another one when it is read again"
    return None if facts.is_undisturbed else "the corrections were recorded before"
