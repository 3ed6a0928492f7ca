"""Whether a table is compared by one join of its rows' keys and hashes, without digests.

Digests pay where most of them are expected to be as published: the rows of their buckets are then not read again. For
few rows, writing and comparing digests takes longer than reading both sides. Only the totals of such a table are kept
with its publish; a later refresh that needs its digests computes them from main.
"""

from __future__ import annotations

from airflow_mv_provider.core.definition.table import RefreshableTable
from airflow_mv_provider.core.progress.digests import PublishedDigests
from airflow_mv_provider.core.scope.scope import Scope
from airflow_mv_provider.core.strategy import Choice, keeps_file_sums, replace_obstacle

_MAX_ROWS = 200_000  # measured by `benchmarks/turns.py joined`


def join_obstacle(
    table: RefreshableTable, scope: Scope, choice: Choice, published: PublishedDigests | None, *, is_evolving: bool
) -> str | None:
    """Return why the source is digested; None if its rows and main's are joined at once.

    published   : what the last publish left, known to match main's present rows
    is_evolving : main gains or loses a column, or a column's type changes
    """
    if (obstacle := replace_obstacle(table, scope)) is not None:
        return obstacle
    if choice.strategy == "replace" or choice.wanted == "replace":
        return "the table is to be overwritten"
    if table.is_partitioned:
        return "each partition is compared for itself"
    if published is None:
        return "the table may not be as it was published"
    if not published.num_rows:
        return "the table is empty, so every row of the source is new"
    if not may_join(published):
        return "the table is large"
    if table.source_kind.identifies_files and keeps_file_sums(choice, published.num_rows):
        return "the sums of its source's files are kept"
    return "the table's columns change" if is_evolving else None


def may_join(published: PublishedDigests) -> bool:
    """True if main has so few rows that digests of them can be had at any time."""
    return published.num_rows <= _MAX_ROWS
