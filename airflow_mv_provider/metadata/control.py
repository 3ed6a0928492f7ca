"""What people ask of a table: cancel, pause, resume. Control comes before work: the owner's next look sees it."""

from __future__ import annotations

from sqlalchemy import func, update

from airflow_mv_provider.core.phase import Phase
from airflow_mv_provider.metadata.database import transaction
from airflow_mv_provider.metadata.models import RefreshStateRow as State
from airflow_mv_provider.metadata.reader import Reader


class Control(Reader):
    """Requests; each is one transaction and one compare-and-set."""

    def request_cancel(self, table_id: int, user: str | None) -> bool:
        """Ask the refresh under way to stop; False when none is, or when main already has it."""
        cancellable = State.phase.in_((Phase.REFRESHING, Phase.MERGING))
        values = {
            "cancel_requested_ms": func.coalesce(State.cancel_requested_ms, self._now()),
            "cancel_requested_by": user,
        }
        with transaction(self.engine) as db:
            asked = db.execute(update(State).where(State.table_id == table_id, cancellable).values(**values))
        return asked.rowcount == 1

    def pause(self, table_id: int, user: str | None) -> bool:
        """Let no new refresh begin once this has returned; one under way goes on. False when it is paused already."""
        is_open = (State.table_id == table_id, State.paused_ms.is_(None))
        with transaction(self.engine) as db:
            paused = db.execute(update(State).where(*is_open).values(paused_ms=self._now(), paused_by=user))
        return paused.rowcount == 1

    def resume(self, table_id: int) -> bool:
        """Let refreshes begin again; False when it is not paused."""
        is_paused = (State.table_id == table_id, State.paused_ms.is_not(None))
        with transaction(self.engine) as db:
            resumed = db.execute(update(State).where(*is_paused).values(paused_ms=None, paused_by=None))
        return resumed.rowcount == 1
