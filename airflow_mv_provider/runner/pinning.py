"""Pin the source of a refresh: its present state, and for a log also from where it is read."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from airflow_mv_provider.core.approval.rolled_back import definition_of_rollback
from airflow_mv_provider.core.fence import Commit, is_untouched_since
from airflow_mv_provider.core.frontier import Frontier
from airflow_mv_provider.core.scope import continuation
from airflow_mv_provider.core.scope.continuation import ReadFrom
from airflow_mv_provider.core.scope.request import Request, check_read_from
from airflow_mv_provider.core.state import RefreshState, TableRecord
from airflow_mv_provider.exceptions import DefinitionError, MvError
from airflow_mv_provider.metadata.store import Store
from airflow_mv_provider.sources.table_source import TableSource

log = logging.getLogger(__name__)

_T = TypeVar("_T")
_MAX_LOOKS = 5


@dataclass(frozen=True, slots=True)
class Base:
    """What a log is continued from: the frontier of the last publish, and main's version with it."""

    frontier: Frontier
    version: int


def read_with_retry(store: Store, table: TableRecord, look: Callable[[RefreshState], _T]) -> _T:
    """Return what is found by a look that begins with the table's row.

    What was read with an outdated row may be gone: when a refresh publishes, the binding before it is forgotten, from
    which a log would be continued. So an error is one only if no other process has acquired the table meanwhile.

    look   : called again with the new row, if that was the reason for an error; a few times at most
    raises : what `look` raises
    """
    for left in reversed(range(_MAX_LOOKS)):
        state = store.state(table.id)
        try:
            return look(state)
        except MvError as error:
            if not left or store.state(table.id).epoch == state.epoch:
                raise
            log.info("%s: looking again, because another process has changed it meanwhile: %s", table.name, error)
    raise AssertionError("the last look returns or raises")


def pinned(
    store: Store,
    table: TableRecord,
    state: RefreshState,
    request: Request,
    source: TableSource,
    commits: Sequence[Commit],
) -> Frontier:
    """Return the source's present state, as a refresh reads it.

    commits : main's log, newest first; empty if there is no main, and not needed if the source is no log
    raises  : as `check_read_from`, `TableSource.probe`, `continuation.read_from` and `LogReader.check_continues`
    """
    check_read_from(request, table.definition)
    frontier = source.probe(request.overrides)
    if not table.definition.source_kind.is_log:
        return frontier
    base = base_of(store, table, state, state.published_upper)
    why = continuation.obstacle(
        same_definition=table.definition.keeps_content(state.published_hash),
        is_rolled_back=is_rolled_back(table, state),
        num_kept=state.num_kept,
        has_position=base is not None,
    )
    is_first = state.published_version is None
    has_rows = bool(commits) and not (commits[-1].version == 0 and is_untouched_since(commits, -1))
    start = continuation.read_from(
        table.name,
        is_reload=request.reload,
        is_complete=table.definition.source.is_complete,
        is_first=is_first,
        has_rows=has_rows,
        obstacle=why,
    )
    if start is ReadFrom.LOG_START:
        whole: Frontier = source.log.from_start(frontier)
        # Main's rows that a part of the log does not have yet would be deleted.
        return source.log.bounded(None, whole) if is_first and not has_rows and not request.reload else whole
    assert base is not None
    source.log.check_continues(base.frontier, frontier)
    found: Frontier = source.log.bounded(base.frontier, frontier)
    return found


def base_of(store: Store, table: TableRecord, state: RefreshState, upper: int) -> Base | None:
    """Return what a log is continued from, if the last publish ended at `upper`; None if that is not known."""
    binding = store.binding(table.id, upper)
    if binding is None or state.published_version is None:
        return None
    return Base(binding.frontier, state.published_version)


def check_can_start_over(table: TableRecord, what: str) -> None:
    """Refuse what changes main past its log, for a table that could not be refreshed from it afterwards.

    raises : DefinitionError
    """
    definition = table.definition
    if definition.source_kind.is_log and not definition.source.is_complete:
        problem = f"{what} needs a source that is complete: the next refresh has to read it from its start."
        raise DefinitionError(table.name, problem, hint="See `complete` in docs/kafka.md.")


def is_rolled_back(table: TableRecord, state: RefreshState) -> bool:
    """True if main was published last by a rollback."""
    if state.published_hash in (None, table.definition.content_hash):
        return False
    return state.published_hash == definition_of_rollback(table).content_hash
