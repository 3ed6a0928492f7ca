"""Load a table once from another source, by a refresh whose recorded definition has that source.

So it is fenced, compared, guarded, held, published and recovered like any other refresh. The table's own definition
stays as it is. Main was then published with another one, so the next refresh compares everything, and brings back what
the definition's source holds.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace

from airflow_mv_provider.core.approval.rolled_back import is_rollback
from airflow_mv_provider.core.outcome import RefreshReport
from airflow_mv_provider.core.scope.request import Request
from airflow_mv_provider.core.state import Caller
from airflow_mv_provider.core.transfer.load import definition_of_load, request_of_load
from airflow_mv_provider.exceptions import ArgumentError
from airflow_mv_provider.runner.admission import Substitute, run
from airflow_mv_provider.runner.context import Context
from airflow_mv_provider.runner.pinning import check_can_start_over
from airflow_mv_provider.spark.errors import translated


def load(context: Context, name: str, source: object, caller: Caller, request: Request) -> RefreshReport:
    """Bring a table to the rows of another source, all phases in this process.

    source  : as in a definition
    request : see `request_of_load`
    cost    : as of a refresh that compares everything
    raises  : ArgumentError, UnsafeLocationError, and every other error of a refresh
    """
    table = context.store.table(name)
    definition, asked = definition_of_load(table.definition, source), request_of_load(request)
    if is_rollback(definition, table):
        raise ArgumentError(name, "the source would be the table itself.", hint="See `amv rollback`.")
    check_can_start_over(table, "a load")
    with translated(name), closing(context.source_of(table, definition)) as found:
        frontier = found.probe(asked.overrides)
        if frontier.continues:
            check_can_start_over(replace(table, definition=definition), "a load")
            frontier = found.log.from_start(frontier)
    return run(context, name, caller, asked, Substitute(definition, frontier))
