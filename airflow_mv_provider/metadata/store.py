"""The writing half of the metadata database: refreshes begin, change hands, end and are forgotten.

    Reader ◀── Control ◀── Store ──▶ registry, queue, merging
    queries    requests    refreshes, and their parts

Each method is one transaction. Each state change is one `UPDATE ... WHERE <what the caller expects>` and a check of
`rowcount`, never a read followed by a write. A method that changes the state of an owned refresh takes the `Ownership`
and raises `LeaseLostError` when the row no longer matches it; the transaction is rolled back.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from sqlalchemy import Connection, Engine, delete, insert, select, update

from airflow_mv_provider.core import claim
from airflow_mv_provider.core.approval.check import CheckResult
from airflow_mv_provider.core.approval.hold import Decision
from airflow_mv_provider.core.approval.sample import Sample
from airflow_mv_provider.core.guard import Counts
from airflow_mv_provider.core.outcome import ErrorReport, Outcome, error_report
from airflow_mv_provider.core.phase import Phase
from airflow_mv_provider.core.progress.recorded import PartitionCounts
from airflow_mv_provider.core.state import (
    Caller,
    Cancelled,
    Ownership,
    RefreshRecord,
    RefreshState,
    Renewal,
    TableRecord,
)
from airflow_mv_provider.exceptions import RefreshCancelledError
from airflow_mv_provider.metadata.audits import Audits
from airflow_mv_provider.metadata.claimed import claimed, end_phase
from airflow_mv_provider.metadata.control import Control
from airflow_mv_provider.metadata.database import Now, database_now, transaction
from airflow_mv_provider.metadata.history.obstacles import Obstacles, passed
from airflow_mv_provider.metadata.history.retention import forget
from airflow_mv_provider.metadata.history.row_answers import RowAnswers
from airflow_mv_provider.metadata.holds import Holds
from airflow_mv_provider.metadata.ingestions import Ingestions
from airflow_mv_provider.metadata.merging import Merging
from airflow_mv_provider.metadata.models import RefreshAttemptRow as Attempt
from airflow_mv_provider.metadata.models import RefreshChunkRow as ChunkRow
from airflow_mv_provider.metadata.models import RefreshProgressRow as Progress
from airflow_mv_provider.metadata.models import RefreshRow as Refresh
from airflow_mv_provider.metadata.models import RefreshStateRow as State
from airflow_mv_provider.metadata.models import RefreshTicketRow as Ticket
from airflow_mv_provider.metadata.queue import Queue, is_first_in_line
from airflow_mv_provider.metadata.registry import Registry
from airflow_mv_provider.metadata.rows import (
    becomes,
    is_lease_live,
    is_owned,
    is_unchanged_from,
    lease,
    most_changed,
    new_owner,
    new_refresh,
    partition_report,
)
from airflow_mv_provider.metadata.samples import Samples
from airflow_mv_provider.metadata.samples import keep as keep_sample
from airflow_mv_provider.metadata.stored_once import bind, define, lock_state

_ENDING_MS = 60_000  # the lease of a process that ends a refresh by its next write


class Store(Control):
    """The database as a process uses it that refreshes tables: it reads, controls, and owns refreshes.

    registry : the tables that are registered
    queue    : the callers that wait for a table
    merging  : the owner's writes from the seal to the publish
    holds    : refreshes that wait for a person's decision
    samples  : some of the rows that refreshes change
    audits   : whether main still has the rows that were published
    obstacles : what keeps refreshes from beginning
    ingestions : runs that read several tables in one state of their source
    row_answers : what has happened to rows that somebody asked about
    now      : the clock that judges leases; the database's own unless a test passes another
    """

    def __init__(self, engine: Engine, now: Now = database_now) -> None:
        super().__init__(engine, now)
        self.registry = Registry(engine, self._now)
        self.queue = Queue(engine, self._now)
        self.merging = Merging(engine, self._now)
        self.holds = Holds(engine, self._now)
        self.samples = Samples(engine, self._now)
        self.audits = Audits(engine)
        self.ingestions = Ingestions(engine, self._now)
        self.obstacles = Obstacles(engine, self._now)
        self.row_answers = RowAnswers(engine, self._now)

    def acquire(
        self, seen: RefreshState, refresh: RefreshRecord, caller: Caller, *, epoch: int, lease_ms: int
    ) -> Ownership | None:
        """Mint and acquire in one step: bind the source, write the refresh's row, take the table.

        returns : None when another caller was faster or comes first, or the table was paused; nothing is written then
        """
        assert refresh.batch is not None
        acquired = claim.acquire(seen, refresh.id, caller.key, epoch)
        owned = new_owner(caller, self._now(), lease_ms)
        with transaction(self.engine) as db:
            taken = db.execute(
                update(State)
                .where(*is_unchanged_from(acquired, seen.table_id, self._now()))
                .where(is_first_in_line(seen.table_id, caller.key, self._now()))
                .values(**becomes(acquired), **owned)
            )
            if taken.rowcount != 1:
                return None
            db.execute(delete(Ticket).where(Ticket.table_id == seen.table_id, Ticket.caller_key == caller.key))
            passed(db, seen.table_id, self._now())
            bind(db, seen.table_id, refresh.batch.upper, refresh.frontier, self._now())
            define(db, seen.table_id, refresh.definition)
            row = new_refresh(refresh, caller, Outcome.RUNNING, self._now())
            db.execute(insert(Refresh).values(**row, phase=Phase.REFRESHING, epoch=epoch))
            self._attempt(db, refresh.id, epoch, Phase.REFRESHING, caller)
        return Ownership(seen.table_id, refresh.id, epoch)

    def hand_over(self, seen: RefreshState, caller: Caller, *, epoch: int, lease_ms: int) -> Ownership | None:
        """Take an unfinished refresh under a new epoch: for its next process, a retry, a twin, or a takeover.

        returns : None when another process was faster
        """
        assert seen.refresh_id is not None
        taken_over = claim.hand_over(seen, caller.key, epoch)
        owned = new_owner(caller, self._now(), lease_ms)
        with transaction(self.engine) as db:
            taken = db.execute(
                update(State)
                .where(*is_unchanged_from(taken_over, seen.table_id, self._now()))
                .values(**becomes(taken_over), **owned)
            )
            if taken.rowcount != 1:
                return None
            db.execute(update(Refresh).where(Refresh.id == seen.refresh_id).values(epoch=epoch))
            self._attempt(db, seen.refresh_id, epoch, seen.phase, caller)
        return Ownership(seen.table_id, seen.refresh_id, epoch)

    def cancel(self, table: TableRecord, caller: Caller) -> Cancelled:
        """Ask a table's refresh to stop, and end it here if no process works on it and nothing of it can be in main."""
        if not self.request_cancel(table.id, caller.user):
            return Cancelled.NOTHING
        seen = self.state(table.id)
        if seen.is_held:
            self.holds.decide(table.id, Decision.REJECTED, caller.user, None)
        if seen.refresh_id is None or (seen.is_lease_live and seen.owner_process):
            return Cancelled.REQUESTED
        # In the name of the owner, whose next process would do the same.
        if self.end_cancelled(table, seen, replace(caller, key=seen.owner_key or caller.key)):
            return Cancelled.ENDED
        return Cancelled.KEPT if seen.is_lease_live and not seen.is_held else Cancelled.LEFT

    def end_cancelled(self, table: TableRecord, seen: RefreshState, caller: Caller) -> bool:
        """End a refresh that is to be cancelled and is not compared yet; False for another, or if somebody was faster.

        Before that no commit of it can reach main, so this needs neither Spark nor main's log: the new epoch bars the
        seal, or the record of a chunk, by an older process. The sweep before the next refresh removes its files.
        """
        if not seen.is_cancel_requested or self.may_have_published(seen):
            return False
        own = self.hand_over(seen, caller, epoch=seen.epoch + 1, lease_ms=_ENDING_MS)
        if own is None:
            return False
        if self.may_have_published(seen):  # its dead owner was not dead, and has compared the last chunk in between
            self.park(own, until_ms=0)
            return False
        error = RefreshCancelledError(table.name, "the refresh was cancelled on request.")
        self.abandon(own, Outcome.CANCELLED, error_report(error), {})
        return True

    def renew(self, own: Ownership, *, lease_ms: int) -> Renewal:
        """Renew the lease and return whether a cancel was requested; never raises for a lost lease."""
        with transaction(self.engine) as db:
            kept = db.execute(update(State).where(*is_owned(own)).values(**lease(self._now(), lease_ms)))
            cancel = db.scalar(select(State.cancel_requested_ms).where(*is_owned(own)))
        return Renewal(kept.rowcount == 1, cancel is not None)

    def park(self, own: Ownership, *, until_ms: int) -> None:
        """Keep the table for the caller's next process without heartbeats; 0 lets any caller take it over."""
        with claimed(self.engine, own, claim.hold(own), self._now()) as db:
            kept = {"owner_process": None} | lease(self._now(), until_ms)
            db.execute(update(State).where(*is_owned(own)).values(**kept))

    def finish(self, own: Ownership, seconds: Mapping[str, float]) -> None:
        """Delete the progress, close the history row, and go from CLEANUP to NORMAL."""
        with claimed(self.engine, own, claim.advance(own, Phase.CLEANUP, Phase.NORMAL), self._now()) as db:
            self._end(db, own, seconds, Outcome.PUBLISHED, None)
            passed(db, own.table_id, self._now())

    def abandon(
        self,
        own: Ownership,
        outcome: Outcome,
        error: ErrorReport | None,
        seconds: Mapping[str, float],
        *,
        is_main_known: bool = True,
    ) -> None:
        """End a refresh that has not published: back to NORMAL, the reason in its history, the lease released.

        is_main_known : main is as the state row describes it; else the next refresh compares everything
        """
        with claimed(self.engine, own, claim.abandon(own), self._now()) as db:
            if not is_main_known:
                db.execute(update(State).where(*is_owned(own)).values(is_main_trusted=False, covered=[]))
            self._end(db, own, seconds, outcome, error)

    def begin_preview(self, refresh: RefreshRecord, caller: Caller, *, lease_ms: int) -> Ownership:
        """Write the history row of a read-only refresh that begins; it owns that row and no table."""
        self.record(refresh, caller, Outcome.RUNNING, is_read_only=True, **lease(self._now(), lease_ms))
        return Ownership(refresh.table_id, refresh.id, 0)

    def renew_preview(self, own: Ownership, *, lease_ms: int) -> Renewal:
        """Renew the lease of a read-only refresh; it is lost when another process has closed its history row."""
        is_open = (Refresh.id == own.refresh_id, Refresh.outcome == Outcome.RUNNING)
        with transaction(self.engine) as db:
            kept = db.execute(update(Refresh).where(*is_open).values(**lease(self._now(), lease_ms)))
        return Renewal(kept.rowcount == 1, False)

    def record(self, refresh: RefreshRecord, caller: Caller, outcome: Outcome, **values: Any) -> None:
        """Write the history row of a refresh that owns no table: nothing to do, or read-only and just begun."""
        finished = None if outcome is Outcome.RUNNING else self._now()
        row = new_refresh(refresh, caller, outcome, self._now()) | values
        with transaction(self.engine) as db:
            lock_state(db, refresh.table_id)
            define(db, refresh.table_id, refresh.definition)
            if outcome is Outcome.NOTHING_TO_DO:
                passed(db, refresh.table_id, self._now())
            db.execute(insert(Refresh).values(**row, phase=Phase.NORMAL, epoch=0, finished_ms=finished))

    def end_preview(
        self,
        refresh_id: str,
        outcome: Outcome,
        reason: str,
        counts: Counts,
        partitions: Sequence[PartitionCounts],
        error: ErrorReport | None = None,
        *,
        num_errors: int = 0,
        schema_changes: Sequence[str] = (),
        sample: Sample | None = None,
        checks: Sequence[CheckResult] = (),
    ) -> None:
        """Close the history row of a read-only refresh with what it found."""
        found = {
            "rows_inserted": counts.inserted,
            "rows_updated": counts.updated,
            "rows_deleted": counts.deleted,
            "rows_unchanged": counts.unchanged,
            "rows_rejected": num_errors,
            "schema_changes": list(schema_changes),
            "checks": [asdict(check) for check in checks],
            "partitions": [partition_report(p.partition, p.counts) for p in most_changed(partitions)],
        }
        ended = {"outcome": outcome, "reason": reason, "finished_ms": self._now()}
        stored = asdict(error) if error else None
        with transaction(self.engine) as db:
            is_open = (Refresh.id == refresh_id, Refresh.outcome == Outcome.RUNNING)  # else it was closed as dead
            is_mine = db.execute(update(Refresh).where(*is_open).values(**ended, **found, error=stored)).rowcount == 1
            if is_mine and sample is not None:
                keep_sample(db, refresh_id, sample)

    def end_stale_previews(self, table_id: int) -> None:
        """Close the history rows of read-only refreshes whose lease has expired: their processes are dead."""
        is_held = is_lease_live(Refresh.lease_expires_ms, Refresh.lease_ms, self._now())
        is_stale = (Refresh.is_read_only, ~is_held)
        running = (Refresh.table_id == table_id, Refresh.outcome == Outcome.RUNNING)
        ended = {"outcome": Outcome.ABANDONED, "finished_ms": self._now()}
        with transaction(self.engine) as db:
            db.execute(update(Refresh).where(*running, *is_stale).values(**ended))

    def forget_history(self, table_id: int, *, older_than_ms: int) -> int:
        """Remove old refreshes from a table's history by the rules of `retention`; return their number."""
        num_forgotten = 0
        while True:
            with transaction(self.engine) as db:
                # As a value: PostgreSQL cannot use an index to compare with a clock that moves during the query.
                before_ms = db.scalars(select(self._now() - older_than_ms)).one()
                found = forget(db, table_id, before_ms)
            num_forgotten += found
            if not found:
                return num_forgotten

    def _attempt(self, db: Connection, refresh_id: str, epoch: int, phase: Phase, caller: Caller) -> None:
        who = {"owner_key": caller.key, "owner_process": caller.process, "started_ms": self._now()}
        none = {"chunks": 0, "phase_seconds": {}}
        db.execute(insert(Attempt).values(refresh_id=refresh_id, epoch=epoch, phase=phase, **who, **none))

    def _end(
        self,
        db: Connection,
        own: Ownership,
        seconds: Mapping[str, float],
        outcome: Outcome,
        error: ErrorReport | None,
    ) -> None:
        for gone in (Progress, ChunkRow):
            db.execute(delete(gone).where(gone.refresh_id == own.refresh_id))
        # Only a process that resumes the refresh needs the seal, and it is large: it names every column.
        ended = {"outcome": outcome, "phase": Phase.NORMAL, "finished_ms": self._now(), "seal": None}
        end_phase(db, own, seconds, **ended, error=asdict(error) if error else None)
