"""Requests to a table: cancel, pause, resume, declare its owner dead, end the lease of a caller that is gone.

The owner finds a request when it next reads the row.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from sqlalchemy import func, update

from airflow_mv_provider.core import claim
from airflow_mv_provider.core.state import Caller, RefreshState
from airflow_mv_provider.metadata.database import transaction
from airflow_mv_provider.metadata.models import RefreshAttemptRow
from airflow_mv_provider.metadata.models import RefreshStateRow as State
from airflow_mv_provider.metadata.reader import Reader
from airflow_mv_provider.metadata.rows import becomes, is_unchanged_from

log = logging.getLogger(__name__)


class Control(Reader):
    """Requests; each is one transaction and one compare-and-set."""

    def request_cancel(self, table_id: int, user: str | None) -> bool:
        """Ask the running refresh to stop; False when none is running, or when main already contains it."""
        expected = is_unchanged_from(claim.cancel(), table_id, self._now())
        values = {
            "cancel_requested_ms": func.coalesce(State.cancel_requested_ms, self._now()),
            "cancel_requested_by": user,
        }
        with transaction(self.engine) as db:
            asked = db.execute(update(State).where(*expected).values(**values))
        return asked.rowcount == 1

    def declare_dead(self, seen: RefreshState, caller: Caller, note: str) -> bool:
        """Treat a table's owner as dead on a person's word; False when the row is no longer as it was read.

        note : the reason; the history shows it with the attempt of the owner that was declared dead
        """
        declared = f"declared dead by {caller.user or 'an unnamed user'}: {note}"
        return self._end_work(claim.declare_dead(seen, caller.key), seen, declared)

    def freed(self, seen: RefreshState, is_gone: Callable[[str], bool]) -> RefreshState:
        """Return a table's row, after ending the lease of a refresh that is kept for a caller who is gone.

        is_gone : returns whether no process of the caller with this key will come any more; called only if one is
                  waited for
        """
        if not seen.is_kept or seen.owner_key is None or not is_gone(seen.owner_key):
            return seen
        log.warning("refresh %s: its caller's run has ended, so nobody is waited for", seen.refresh_id)
        self._end_work(claim.end_lease(seen), seen, "its run has ended without it")
        return self.state(seen.table_id)

    def _end_work(self, asked: claim.Claim, seen: RefreshState, note: str) -> bool:
        expected = is_unchanged_from(asked, seen.table_id, self._now())
        is_theirs = (RefreshAttemptRow.refresh_id == seen.refresh_id, RefreshAttemptRow.epoch == seen.epoch)
        with transaction(self.engine) as db:
            if db.execute(update(State).where(*expected).values(**becomes(asked))).rowcount != 1:
                return False
            db.execute(update(RefreshAttemptRow).where(*is_theirs).values(note=note))
        return True

    def pause(self, table_id: int, user: str | None) -> bool:
        """Prevent new refreshes from the return on; a running one continues. False when it is paused already."""
        is_open = (State.table_id == table_id, State.paused_ms.is_(None))
        with transaction(self.engine) as db:
            paused = db.execute(update(State).where(*is_open).values(paused_ms=self._now(), paused_by=user))
        return paused.rowcount == 1

    def resume(self, table_id: int) -> bool:
        """Allow new refreshes again; False when it is not paused."""
        is_paused = (State.table_id == table_id, State.paused_ms.is_not(None))
        with transaction(self.engine) as db:
            resumed = db.execute(update(State).where(*is_paused).values(paused_ms=None, paused_by=None))
        return resumed.rowcount == 1
