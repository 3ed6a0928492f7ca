"""Publish upstream how far all tables of an ingestion are: after they were published, at least once, never read back.

What is committed is the least over all registered tables, paused ones and those that were left behind included. So a
server that removes what was committed never removes what a table still has to read.
"""

from __future__ import annotations

from typing import Any

from airflow_mv_provider.core.frontier import Frontier
from airflow_mv_provider.core.state import TableRecord
from airflow_mv_provider.metadata.store import Store
from airflow_mv_provider.runner.context import Context
from airflow_mv_provider.runner.crash_points import Write, durable
from airflow_mv_provider.runner.ingestion.members import mark_of, members_of, shared_state


def release(context: Context, ingestion: str) -> dict[str, Any] | None:
    """Publish how far all tables of an ingestion are; return what was written, None if it names no group.

    raises : SourceUnavailableError, SourceDeniedError, ConnectionUnknownError
    """
    tables = members_of(context.store, ingestion)
    group = mark_of(tables[0]).group
    if group is None:
        return None
    published = {table.name: published_frontier(context.store, table) for table in tables}
    with durable(Write.RELEASE):
        return shared_state(context, tables).release(group, published)


def published_frontier(store: Store, table: TableRecord) -> Frontier | None:
    """Return the frontier of a table's last publish; None if it has none, or one of another definition."""
    state = store.state(table.id)
    if state.published_version is None or state.published_hash != table.definition.content_hash:
        return None
    binding = store.binding(table.id, state.published_upper)
    return None if binding is None else binding.frontier
