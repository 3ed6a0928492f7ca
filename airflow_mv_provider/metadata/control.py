"""User requests to a table: cancel, pause, resume, move, drop. The owner finds a request when it next reads the row."""

from __future__ import annotations

from dataclasses import asdict

from sqlalchemy import delete, exc, func, select, update

from airflow_mv_provider.core import claim
from airflow_mv_provider.core.phase import Phase
from airflow_mv_provider.core.progress.digests import PublishedDigests
from airflow_mv_provider.core.state import Caller, RefreshState, TableRecord
from airflow_mv_provider.exceptions import TableConflictError
from airflow_mv_provider.metadata.database import transaction
from airflow_mv_provider.metadata.models import RefreshableTableRow as Table
from airflow_mv_provider.metadata.models import (
    RefreshAttemptRow,
    RefreshChunkRow,
    RefreshDefinitionRow,
    RefreshProgressRow,
    RefreshRow,
    RefreshTicketRow,
    SourceBindingRow,
    SourceFrontierRow,
)
from airflow_mv_provider.metadata.models import RefreshStateRow as State
from airflow_mv_provider.metadata.reader import Reader
from airflow_mv_provider.metadata.rows import becomes, is_around, is_believed


class Control(Reader):
    """Requests; each is one transaction and one compare-and-set."""

    def request_cancel(self, table_id: int, user: str | None) -> bool:
        """Ask the running refresh to stop; False when none is running, or when main already contains it."""
        believed = is_believed(claim.cancel(), table_id, self._now())
        values = {
            "cancel_requested_ms": func.coalesce(State.cancel_requested_ms, self._now()),
            "cancel_requested_by": user,
        }
        with transaction(self.engine) as db:
            asked = db.execute(update(State).where(*believed).values(**values))
        return asked.rowcount == 1

    def bury(self, seen: RefreshState, caller: Caller, note: str) -> bool:
        """Treat a table's owner as dead on a person's word; False when the row is no longer as it was read.

        note : the reason; the history shows it with the attempt of the owner that was declared dead
        """
        buried = claim.bury(seen, caller.key)
        believed = is_believed(buried, seen.table_id, self._now())
        is_theirs = (RefreshAttemptRow.refresh_id == seen.refresh_id, RefreshAttemptRow.epoch == seen.epoch)
        said = f"{caller.user or 'somebody'} said that it was dead: {note}"
        with transaction(self.engine) as db:
            if db.execute(update(State).where(*believed).values(**becomes(buried))).rowcount != 1:
                return False
            db.execute(update(RefreshAttemptRow).where(*is_theirs).values(note=said))
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

    def begin_drop(self, seen: RefreshState) -> bool:
        """Bar new refreshes of a table at rest; only `forget` can follow. False when the row is not as it was read."""
        is_at_rest = (State.table_id == seen.table_id, State.phase == Phase.NORMAL, State.epoch == seen.epoch)
        since = func.coalesce(State.dropping_ms, self._now())
        with transaction(self.engine) as db:
            barred = db.execute(update(State).where(*is_at_rest).values(dropping_ms=since))
        return barred.rowcount == 1

    def relocate(self, seen: RefreshState, new: TableRecord, digests: PublishedDigests | None) -> bool:
        """Register a table at rest at another place; False when the row is not as it was read.

        Its epoch grows, so a caller that has read the old place and not acquired the table yet has to read again.

        digests : those of the last publish, at their new place
        raises  : TableConflictError, when another table is at this place, or around or inside it
        """
        is_at_rest = (State.table_id == new.id, State.phase == Phase.NORMAL, State.epoch == seen.epoch)
        kept = None if digests is None else asdict(digests)
        place = {"warehouse": new.warehouse, "location": new.location, "updated_ms": self._now()}
        try:
            with transaction(self.engine) as db:
                moved = update(State).where(*is_at_rest, State.dropping_ms.is_(None))
                if db.execute(moved.values(epoch=State.epoch + 1, published_digests=kept)).rowcount != 1:
                    return False
                around = select(Table.name).where(is_around(new.location), Table.id != new.id)
                if (other := db.scalar(around)) is not None:
                    raise TableConflictError(new.name, f"{new.location} and main of {other} lie inside each other.")
                db.execute(update(Table).where(Table.id == new.id).values(**place))
        except exc.IntegrityError as error:
            raise TableConflictError(new.name, f"{new.location} holds another refreshable table.") from error
        return True

    def forget(self, table_id: int) -> bool:
        """Remove every row of a table that is being dropped; if it is not, remove nothing and return False."""
        refreshes = select(RefreshRow.id).where(RefreshRow.table_id == table_id)
        is_barred = (State.table_id == table_id, State.phase == Phase.NORMAL, State.dropping_ms.is_not(None))
        try:
            with transaction(self.engine) as db:
                if db.execute(delete(State).where(*is_barred)).rowcount != 1:
                    return False
                for part in (RefreshProgressRow, RefreshChunkRow, RefreshAttemptRow):
                    db.execute(delete(part).where(part.refresh_id.in_(refreshes)))
                for own in (RefreshTicketRow, SourceBindingRow, SourceFrontierRow, RefreshRow, RefreshDefinitionRow):
                    db.execute(delete(own).where(own.table_id == table_id))
                db.execute(delete(Table).where(Table.id == table_id))
        except exc.IntegrityError:
            return False  # a read-only refresh or a waiter has written a row concurrently
        return True
