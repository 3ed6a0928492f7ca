"""Files of a refresh that the database does not know: garbage, once main's log proves it, or somebody else's.

A database that was lost or put back knows nothing of refreshes whose files are still there. It may be the wrong one of
two, so nothing goes that an owner who lives by the other one could still use: such an owner has a later epoch in main's
log than this database knows, or was fenced and followed by somebody's publish.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from airflow_mv_provider.core.fence import Commit, last_epoch

GRACE_MS = 24 * 3_600_000


@dataclass(frozen=True, slots=True)
class Leftover:
    """What one refresh has in its two directories. `newest_ms` is when the last of these files was written."""

    refresh_id: str
    has_workspace: bool
    has_digests: bool
    newest_ms: int

    def is_in_grace(self, now_ms: int) -> bool:
        """True if it is so young that nobody's log has to be asked."""
        return now_ms - self.newest_ms < GRACE_MS


def why_left(leftover: Leftover, commits: Sequence[Commit], *, epoch: int) -> str | None:
    """Say why files that are past their grace are left alone; None where they are proven to be garbage.

    commits : main's whole log; none if main is gone
    epoch   : the last that this database knows of the table
    """
    newest = last_epoch(commits)
    if newest > epoch:
        return f"main's log has epoch {newest}, and this database knows {epoch}: another one may be in use"
    last = max((c.version for c in commits if c.note and c.note.refresh_id == leftover.refresh_id), default=None)
    if last is None:
        return None  # it has never come as far as its fence, or main's log has long forgotten it
    if not any(c.note and c.note.step == "publish" and c.version > last for c in commits):
        return "nothing was published after it, so main may still be what it left"
    return None
