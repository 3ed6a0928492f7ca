"""What a run of an ingestion may do with a table of it, which other refreshes may bring further at the same time.

before the state is fixed   `ends_former`     what a dead owner or the caller's last try has left is of another state
after it, before staging    `check_unmoved`   a table never goes back to the state of a run that began earlier
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


def check_unmoved(table: str, fixed_at: int, published_upper: int) -> None:
    """Check that no other refresh has published a table since the state of a run was fixed: it may be a later state.

    fixed_at, published_upper : how far the table was published then, and is now; in source versions
    raises                    : RefreshInProgressError
    """
    if published_upper != fixed_at:
        problem = "another refresh has published it since the state of this run was fixed."
        raise RefreshInProgressError(table, problem, hint="The next run takes it along.")
