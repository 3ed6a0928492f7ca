"""The definition of one refresh that loads a table from another source; the table keeps its own definition."""

from __future__ import annotations

from airflow_mv_provider.core.definition.table import RefreshableTable, parse_table
from airflow_mv_provider.core.scope.request import Request
from airflow_mv_provider.exceptions import ArgumentError


def definition_of_load(table: RefreshableTable, source: object) -> RefreshableTable:
    """Return the definition of a refresh from another source; key, guards and all else are the table's.

    source : as in a definition, `type` included
    raises : ArgumentError, also if the table cannot have such a source
    """
    return parse_table(table.to_json() | {"source": source})


def request_of_load(request: Request) -> Request:
    """Return what is asked of a load: it compares, since the changes of another source are no changes of main.

    raises : ArgumentError
    """
    if request.read_only or request.is_stale_only or not request.scope.is_everything:
        hint = "Leave it out; `hold` shows the differences before the table is changed."
        raise ArgumentError("load", "a load takes neither `read_only` nor partitions.", hint=hint)
    note = f"loaded from another source: {request.note}" if request.note else "loaded from another source"
    return Request(
        overrides=request.overrides,
        force=True,
        strategy=request.strategy,
        note=note[:1000],
        hold=request.hold,
    )
