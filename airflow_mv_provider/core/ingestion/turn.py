"""What a run of an ingestion may do with a table of it, which other refreshes may bring further at the same time.

before the state is fixed   `ends_former`      what a dead owner or the caller's last try has left is of another state
after it                    `check_can_begin`  a table never goes back to the state of a run that began earlier, and is
                                               never read in that state for a refresh that is of another one
"""

from __future__ import annotations

from airflow_mv_provider.core.state import Admission, RefreshState, admit
from airflow_mv_provider.exceptions import RefreshInProgressError


def ends_former(state: RefreshState, caller_key: str) -> bool:
    """True if a run ends a table's unfinished refresh; a paused table's is ended only if it is the caller's own."""
    match admit(state, caller_key):
        case Admission.ADOPT:
            return True
        case Admission.TAKE_OVER:
            return state.paused_since_ms is None
        case _:
            return False


def check_can_begin(table: str, fixed_at: int, state: RefreshState, caller_key: str) -> None:
    """Check that a table can be brought to the state that a run has fixed.

    fixed_at : how far the table was published before that, in source versions
    state    : the table as it is acquired from; an earlier look proves nothing, because others may come in between
    raises   : RefreshInProgressError, if another refresh has published it since, maybe in a later state; or if another
               process of the same caller, a retry or the one before it, refreshes it in a state of its own
    """
    hint = "The next run of the ingestion publishes it."
    if state.published_upper != fixed_at:
        problem = "another refresh published the table after this run had fixed its state."
        raise RefreshInProgressError(table, problem, hint=hint)
    if admit(state, caller_key) is Admission.ADOPT:
        problem = "another process of the same caller refreshes it in a state of its own."
        raise RefreshInProgressError(table, problem, hint=hint)
