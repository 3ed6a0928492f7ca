"""Files of refreshes that are not in the database: garbage if main's log proves it, otherwise perhaps still in use.

A database that was lost or restored has no record of refreshes whose files still exist. It may also be the wrong one of
two databases, so files stay that an owner in the other one could still use. Such an owner either has a later epoch in
main's log than this database records, or another refresh has fenced it and published, and its files are garbage.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from airflow_mv_provider.core.fence import Commit, last_epoch

GRACE_MS = 24 * 3_600_000


@dataclass(frozen=True, slots=True)
class Leftover:
    """The files of one refresh in its directories.

    has_kept  : some are among those that are kept for the next refresh
    newest_ms : when the last of these files was written
    """

    refresh_id: str
    has_workspace: bool
    has_kept: bool
    newest_ms: int

    def is_in_grace(self, now_ms: int) -> bool:
        """True if its files are so new that they are kept without a look at main's log."""
        return now_ms - self.newest_ms < GRACE_MS


def why_left(leftover: Leftover, commits: Sequence[Commit], *, epoch: int) -> str | None:
    """Return why files past their grace period are kept; None if they are proven to be garbage.

    commits : main's whole log; empty if main is gone
    epoch   : the last epoch of the table in this database
    """
    newest = last_epoch(commits)
    if newest > epoch:
        return f"the table's log is at epoch {newest}, this database at {epoch}: a second database may be in use"
    last = max((c.version for c in commits if c.note and c.note.refresh_id == leftover.refresh_id), default=None)
    if last is None:
        return None  # the refresh never wrote its fence, or main's log no longer contains it
    if not any(c.note and c.note.step == "publish" and c.version > last for c in commits):
        return "no later refresh has published, so it may still be in use"
    return None
