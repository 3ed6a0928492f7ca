"""The reading half of the metadata database: the data behind status, history, the pages and the decisions.

Each method opens one transaction; a longer query is a function in the module of its subject.
"""

from __future__ import annotations

from collections.abc import Collection

from sqlalchemy import Engine, Select, func, select
from sqlalchemy.orm import aliased
from sqlalchemy.sql.expression import ColumnElement

from airflow_mv_provider.core import plan
from airflow_mv_provider.core.approval.audit import Audit
from airflow_mv_provider.core.approval.hold import Hold
from airflow_mv_provider.core.approval.sample import Sample
from airflow_mv_provider.core.definition.freshness import MeasuredFrom
from airflow_mv_provider.core.definition.guards import Guards
from airflow_mv_provider.core.freshness.lateness import SourceCheck
from airflow_mv_provider.core.frontier import Binding
from airflow_mv_provider.core.guard import NOTHING_USUAL, Usual, usual
from airflow_mv_provider.core.health.health import Health, Obstacle
from airflow_mv_provider.core.health.health_changes import changes
from airflow_mv_provider.core.ingestion.report import IngestionReport
from airflow_mv_provider.core.outcome import Outcome, RefreshReport
from airflow_mv_provider.core.phase import Phase
from airflow_mv_provider.core.progress.chunk import Chunk
from airflow_mv_provider.core.progress.published import Published
from airflow_mv_provider.core.progress.recorded import DoneChunks, RecordedChunk
from airflow_mv_provider.core.progress.totals import Totals
from airflow_mv_provider.core.queue import Waiter
from airflow_mv_provider.core.scope.ledger import LedgerEntry, ledger
from airflow_mv_provider.core.scope.scope import covered_from_json
from airflow_mv_provider.core.state import RefreshRecord, RefreshState, TableRecord
from airflow_mv_provider.exceptions import TableNotFoundError
from airflow_mv_provider.metadata import queue
from airflow_mv_provider.metadata.audits import last_audit
from airflow_mv_provider.metadata.chunks import chunks, done
from airflow_mv_provider.metadata.database import Now, database_now, transaction
from airflow_mv_provider.metadata.history.coverage import coverings, last_check
from airflow_mv_provider.metadata.history.known_partitions import NUM_REPORTS, KnownPartitions, known_partitions
from airflow_mv_provider.metadata.history.obstacles import ended, obstacles
from airflow_mv_provider.metadata.history.over_time import OverTime, over_time
from airflow_mv_provider.metadata.history.past import past
from airflow_mv_provider.metadata.history.reports import costs, in_history, reports
from airflow_mv_provider.metadata.history.row_answers import RowAnswer, answers, last_answer_id
from airflow_mv_provider.metadata.history.slots import TimeRange
from airflow_mv_provider.metadata.holds import is_held, last_hold
from airflow_mv_provider.metadata.ingestions import run, runs
from airflow_mv_provider.metadata.lineage import RegisteredTables, registered_tables
from airflow_mv_provider.metadata.models import RefreshAttemptRow, RefreshRow, RefreshStateRow
from airflow_mv_provider.metadata.overview import Overview, overview
from airflow_mv_provider.metadata.partition_totals import of_table
from airflow_mv_provider.metadata.refreshes import as_now, binding, refresh
from airflow_mv_provider.metadata.registry import table, tables, tables_with_types
from airflow_mv_provider.metadata.rows import is_owner_live
from airflow_mv_provider.metadata.samples import sample
from airflow_mv_provider.metadata.status import TableStatus, status


class Reader:
    """Read-only queries; each is one transaction.

    now : the clock that judges leases
    """

    def __init__(self, engine: Engine, now: Now = database_now) -> None:
        self.engine = engine
        self._clock = now

    def _now(self) -> ColumnElement[int]:
        return self._clock(self.engine.dialect.name)

    def now_ms(self) -> int:
        """Return the database's time."""
        with transaction(self.engine) as db:
            return db.scalars(select(self._now())).one()

    def tables(self) -> tuple[TableRecord, ...]:
        """Return every registered table, by name."""
        with transaction(self.engine) as db:
            return tables(db)

    def table(self, name: str) -> TableRecord:
        """Return the table registered under `name`.

        raises : TableNotFoundError
        """
        with transaction(self.engine) as db:
            return table(db, name)

    def tables_with_types(self, names: Collection[str]) -> dict[str, tuple[TableRecord, str | None]]:
        """Return the registered tables among `names`, each with the type of its first partition column; one query."""
        with transaction(self.engine) as db:
            return tables_with_types(db, names)

    def state(self, table_id: int) -> RefreshState:
        """Return the table's state row; the same query judges by the same clock whether its lease is live.

        raises : TableNotFoundError, if the table was dropped
        """
        is_live = is_owner_live(self._now()).label("is_lease_live")
        waits = is_held(self._now()).label("is_held")
        query = select(RefreshStateRow.__table__, is_live, waits).where(RefreshStateRow.table_id == table_id)
        with transaction(self.engine) as db:
            row = db.execute(query).one_or_none()
        if row is None:
            raise TableNotFoundError(f"table {table_id}", "the table was dropped.")
        return RefreshState(
            table_id=row.table_id,
            phase=Phase(row.phase),
            epoch=row.epoch,
            refresh_id=row.refresh_id,
            owner_key=row.owner_key,
            owner_process=row.owner_process,
            owned_since_ms=row.owned_since_ms,
            is_lease_live=bool(row.is_lease_live),
            is_cancel_requested=row.cancel_requested_ms is not None,
            published_upper=row.published_upper,
            published_version=row.published_version,
            published_commit=row.published_commit,
            published_hash=row.published_hash,
            published_totals=Published.from_json(row.published_totals) if row.published_totals else None,
            covered=tuple(covered_from_json(each) for each in row.covered),
            is_main_trusted=row.is_main_trusted,
            paused_since_ms=row.paused_ms,
            paused_by=row.paused_by,
            is_dropping=row.dropping_ms is not None,
            partition_type=row.partition_type,
            is_held=bool(row.is_held),
            num_kept=row.num_kept,
            main_bytes=row.main_bytes,
        )

    def waiters(self, table_id: int) -> tuple[Waiter, ...]:
        """Return the callers that wait for a table, in the order in which they are admitted."""
        with transaction(self.engine) as db:
            return queue.waiters(db, table_id, self._now())

    def binding(self, table_id: int, upper: int) -> Binding | None:
        """Return the binding of one version of a table's source; None if it is no longer stored."""
        with transaction(self.engine) as db:
            return binding(db, table_id, upper)

    def newest_binding(self, table_id: int) -> Binding | None:
        """Return the table's binding with the greatest upper, published or not."""
        with transaction(self.engine) as db:
            return binding(db, table_id)

    def refresh(self, refresh_id: str) -> RefreshRecord | None:
        """Return a refresh as recorded, with its seal; None if there is no such refresh."""
        with transaction(self.engine) as db:
            return refresh(db, refresh_id)

    def refresh_ids(self, table_id: int, first: str) -> tuple[str, ...]:
        """Return the ids of a table's refreshes that begin with `first`; two at most."""
        query = select(RefreshRow.id).where(
            RefreshRow.table_id == table_id, RefreshRow.id.startswith(first, autoescape=True)
        )
        with transaction(self.engine) as db:
            return tuple(db.scalars(query.limit(2)))

    def as_now(self, refresh: RefreshRecord) -> RefreshRecord:
        """Return a refresh with the current values of the fields that change as it runs; cheap, read at every step."""
        with transaction(self.engine) as db:
            return as_now(db, refresh)

    def last_hold(self, refresh_id: str) -> Hold | None:
        """Return the newest hold of a refresh for a decision; None if it was never held."""
        with transaction(self.engine) as db:
            return last_hold(db, refresh_id, self._now())

    def sample(self, refresh_id: str) -> Sample | None:
        """Return what is kept of the rows that a refresh changes; None if nothing is."""
        with transaction(self.engine) as db:
            return sample(db, refresh_id)

    def last_audit(self, table_id: int) -> Audit | None:
        """Return a table's newest audit, without partitions and rows; None if there was none."""
        with transaction(self.engine) as db:
            return last_audit(db, table_id)

    def answers_about_rows(self, table_id: int) -> tuple[RowAnswer, ...]:
        """Return what has happened to rows of a table that somebody asked about, newest first."""
        with transaction(self.engine) as db:
            return answers(db, table_id)

    def last_answer_id(self, table_id: int) -> str | None:
        """Return the id of the newest of `answers_about_rows`; None if there is none."""
        with transaction(self.engine) as db:
            return last_answer_id(db, table_id)

    def publish_of(self, state: RefreshState) -> RefreshRecord | None:
        """Return the newest refresh that published what main has; None if the history has none."""
        query = select(RefreshRow.id).where(
            RefreshRow.table_id == state.table_id,
            RefreshRow.upper == state.published_upper,
            RefreshRow.main_version == state.published_version,
        )
        with transaction(self.engine) as db:
            found = db.scalar(query.order_by(RefreshRow.number.desc()).limit(1))
            return None if found is None else refresh(db, found)

    def chunks(
        self, refresh_id: str, numbers: Collection[int] | None = None
    ) -> tuple[tuple[Chunk, ...], tuple[RecordedChunk, ...]]:
        """Return a refresh's chunks as planned, and those whose corrections are recorded; see `chunks.chunks`."""
        with transaction(self.engine) as db:
            return chunks(db, refresh_id, numbers)

    def partition_totals(self, table_id: int) -> dict[str, Totals]:
        """Return the totals of main's natural partitions as of its last publish; see `partition_totals.of_table`."""
        with transaction(self.engine) as db:
            return of_table(db, table_id)

    def done(self, refresh_id: str) -> DoneChunks:
        """Return which chunks of a refresh are recorded, and which main contains."""
        with transaction(self.engine) as db:
            return done(db, refresh_id)

    def done_after(self, refresh_id: str, before: DoneChunks, numbers: Collection[int]) -> DoneChunks:
        """Return `done` after a step of the owner that worked on these chunks, from what it was before the step.

        cost : reads these chunks; all of them only if the step has discarded what was recorded
        """
        with transaction(self.engine) as db:
            after = before.after(numbers, done(db, refresh_id, numbers))
            return done(db, refresh_id) if after is None else after

    def may_have_published(self, seen: RefreshState) -> bool:
        """True if main may have a commit of a table's refresh; see `plan.may_have_published`."""
        if seen.refresh_id is None:
            return False
        with transaction(self.engine) as db:
            found = refresh(db, seen.refresh_id)
            planned, recorded = chunks(db, seen.refresh_id)
        return found is None or plan.may_have_published(
            seen.phase,
            chunks={chunk.number for chunk in planned},
            recorded={chunk.number for chunk in recorded},
            merge_round=found.merge_round,
        )

    def merging_attempts(self, refresh_id: str) -> int:
        """Return how many epochs have worked on a refresh while it was MERGING."""
        query = select(func.count()).where(
            RefreshAttemptRow.refresh_id == refresh_id, RefreshAttemptRow.phase == Phase.MERGING
        )
        with transaction(self.engine) as db:
            return db.scalars(query).one()

    def last_error_code(self, table_id: int) -> str | None:
        """Return the error code of a table's newest refresh that has ended; None if it did not fail."""
        ended = (RefreshRow.table_id == table_id, RefreshRow.finished_ms.is_not(None))
        query = select(RefreshRow.error).where(*ended).order_by(RefreshRow.number.desc())
        with transaction(self.engine) as db:
            found = db.scalars(query.limit(1)).one_or_none()
        return found["code"] if found else None

    def first_epoch(self, refresh_id: str) -> int:
        """Return the epoch under which a refresh began."""
        query = select(func.min(RefreshAttemptRow.epoch)).where(RefreshAttemptRow.refresh_id == refresh_id)
        with transaction(self.engine) as db:
            return db.scalar(query) or 0

    def worked_on(self, owner_key: str) -> str | None:
        """Return the newest refresh that a caller began, or else the newest that it took over; None if neither."""
        began = _begun_by(owner_key)
        took_over = (
            select(RefreshAttemptRow.refresh_id)
            .where(RefreshAttemptRow.owner_key == owner_key)
            .order_by(RefreshAttemptRow.epoch.desc())
            .limit(1)
        )
        with transaction(self.engine) as db:
            return db.scalar(began) or db.scalar(took_over)

    def newest_of(self, owner_key: str, refresh_id: str | None) -> str | None:
        """Return the newest refresh that a caller has begun in place of this one; this one, if there is none.

        refresh_id : None for the first one that its run has begun
        """
        query = _begun_by(owner_key)
        if refresh_id is not None:
            first = aliased(RefreshRow)
            is_newer = (first.id == refresh_id, RefreshRow.table_id == first.table_id, RefreshRow.number > first.number)
            query = query.where(*is_newer)
        with transaction(self.engine) as db:
            return db.scalar(query) or refresh_id

    def report(self, refresh_id: str) -> RefreshReport:
        """Return the report of one refresh, finished or not."""
        return self._reports(RefreshRow.id == refresh_id, 1)[0]

    def reports_of(self, table_id: int, refresh_ids: Collection[str]) -> tuple[RefreshReport, ...]:
        """Return the reports of a table's refreshes with these ids, newest first; unknown ids are left out."""
        if not refresh_ids:
            return ()
        return self._reports((RefreshRow.table_id == table_id) & RefreshRow.id.in_(refresh_ids), len(refresh_ids))

    def history(
        self,
        table_id: int,
        limit: int = 20,
        since_ms: int | None = None,
        *,
        before: str | None = None,
        outcomes: Collection[Outcome] | None = None,
        ended_ms: tuple[int, int] | None = None,
    ) -> tuple[RefreshReport, ...]:
        """Return a table's refreshes, newest first.

        since_ms : only those that began then or later
        before   : only those that began before the refresh with this id; none if there is no such refresh
        ended_ms : only those that ended between these times, the second one excluded
        """
        condition = in_history(table_id, since_ms, before=before, outcomes=outcomes, ended_ms=ended_ms)
        return self._reports(condition, limit)

    def costs(self, table_id: int, limit: int = 20) -> tuple[RefreshReport, ...]:
        """Return the reports from which refresh costs are estimated, newest first; see `reports.costs`."""
        with transaction(self.engine) as db:
            return costs(db, table_id, limit)

    def usual(self, table: TableRecord, guards: Guards, *, is_whole: bool) -> Usual:
        """Return what refreshes of a whole table usually do; nothing unless the guards compare with that.

        is_whole : the refresh that is judged covers the whole table
        """
        if not (is_whole and guards.needs_history):
            return NOTHING_USUAL
        with transaction(self.engine) as db:
            return usual(past(db, table.id))

    def ledger(self, table_id: int, start: str | None = None, end: str | None = None) -> tuple[LedgerEntry, ...]:
        """Return the state of each interval of a table; see `core.scope.ledger`."""
        with transaction(self.engine) as db:
            history = coverings(db, table_id)
            kind = db.scalar(select(RefreshStateRow.partition_type).where(RefreshStateRow.table_id == table_id))
        return ledger(history, kind, start=start, end=end)

    def known_partitions(self, name: str, num_reports: int = NUM_REPORTS) -> KnownPartitions:
        """Return what the history has about a table's partitions; one query.

        num_reports : published refreshes whose partitions are read
        raises      : TableNotFoundError
        """
        with transaction(self.engine) as db:
            return known_partitions(db, name, self._now(), num_reports)

    def over_time(self, name: str, asked: TimeRange) -> OverTime:
        """Return what a table's refreshes have recorded in a range of time, by slots; one query.

        raises : TableNotFoundError
        """
        with transaction(self.engine) as db:
            return over_time(db, name, self._now(), asked)

    def last_check(self, table_id: int) -> tuple[SourceCheck | None, int]:
        """Return the last successful refresh of everything, None if there was none; and the database's time."""
        with transaction(self.engine) as db:
            return last_check(db, table_id), db.scalars(select(self._now())).one()

    def age_s(self, table_id: int, measured_from: MeasuredFrom = MeasuredFrom.CHECK) -> float | None:
        """Return how old a table is, in seconds; None if no refresh of everything has succeeded.

        measured_from : by default main's content is at least as new as that
        """
        found, now_ms = self.last_check(table_id)
        return None if found is None else max(0, now_ms - found.as_of_ms(measured_from)) / 1000

    def status(self, table: TableRecord) -> TableStatus:
        """Return a table's status, with per-partition progress while a refresh is running."""
        state, waiting = self.state(table.id), self.waiters(table.id)
        with transaction(self.engine) as db:
            return status(db, table, state, waiting, self._now())

    def overview(self, name: str | None = None) -> Overview:
        """Return the state of every table, by name, or of the one named; one query, however many there are."""
        with transaction(self.engine) as db:
            return overview(db, self._now(), name)

    def registered_tables(self) -> RegisteredTables:
        """Return every table with its state and what its definition reads; one query, however many there are."""
        with transaction(self.engine) as db:
            return registered_tables(db, self._now())

    def _reports(self, condition: ColumnElement[bool], limit: int) -> tuple[RefreshReport, ...]:
        with transaction(self.engine) as db:
            return reports(db, condition, limit)

    def ingestion_runs(
        self, ingestion: str, limit: int = 1, *, is_finished: bool = False
    ) -> tuple[IngestionReport, ...]:
        """Return the newest runs of an ingestion, or of those that have ended, the newest first."""
        with transaction(self.engine) as db:
            return runs(db, ingestion, limit, is_finished=is_finished)

    def ingestion_run(self, run_id: str) -> IngestionReport | None:
        """Return one run of an ingestion; None if it is not kept."""
        with transaction(self.engine) as db:
            return run(db, run_id)

    def obstacle(self, table_id: int) -> Obstacle | None:
        """Return what keeps refreshes of a table from beginning; None if the newest one began."""
        with transaction(self.engine) as db:
            newest = obstacles(db, table_id, 1)
        return newest[0] if newest and newest[0].ended_ms is None else None

    def health_changes(self, table_id: int, limit: int = 100) -> tuple[Health, ...]:
        """Return how a table's health changed, the newest first.

        limit : that many refreshes, and that many obstacles, are looked at
        """
        with transaction(self.engine) as db:
            return changes(ended(db, table_id, limit), obstacles(db, table_id, limit))


def _begun_by(owner_key: str) -> Select[str]:
    """Return the query of the newest refresh that a caller has begun."""
    return select(RefreshRow.id).where(RefreshRow.owner_key == owner_key).order_by(RefreshRow.number.desc()).limit(1)
