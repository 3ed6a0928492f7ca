"""The history beside main: the versions of main's rows, written after each commit of main.

    with the fence                create the history, or check its identity and columns     prepare
    before main's first commit    check the times of the rows that come, if a column has them  check
    after main's last commit      bring the history to main's version in one commit          publish ──▶ PUBLISHED

After main's commit a refresh only runs forward, so a takeover completes the history or finds it written. It may meet an
earlier process that is still writing. Only where there may be one the history gets a fence of its own, as main has one:
`core.progress.history.needs_fence` decides it from both logs.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property

from pyspark.sql import DataFrame

from airflow_mv_provider.core.definition import schema
from airflow_mv_provider.core.definition.evolution import holds
from airflow_mv_provider.core.definition.history import SOURCE, History
from airflow_mv_provider.core.fence import (
    Commit,
    CommitNote,
    LogCheck,
    Step,
    fence_version,
    last_epoch,
    mark_at,
    next_txn_version,
)
from airflow_mv_provider.core.progress import history as core
from airflow_mv_provider.core.progress.history import Way
from airflow_mv_provider.core.progress.recorded import RecordedChunk, total
from airflow_mv_provider.exceptions import (
    EngineError,
    EpochRegressionError,
    FencedError,
    HistoryError,
    MainMovedError,
    MainRefusedError,
    MvError,
    TransientError,
)
from airflow_mv_provider.runner.crash_points import Write, durable
from airflow_mv_provider.runner.steps.publish import note_of
from airflow_mv_provider.runner.steps.work import Work
from airflow_mv_provider.spark import delta, history, storage
from airflow_mv_provider.spark.compare import corrections, recorded_changes, versions
from airflow_mv_provider.spark.compare.versions import Versions
from airflow_mv_provider.spark.delta import Main
from airflow_mv_provider.spark.errors import translated
from airflow_mv_provider.spark.layout import Layout, columns, struct_type

log = logging.getLogger(__name__)

_MAX_TRIES = 3
_BEGIN_ANEW = "To begin a new one, leave `history` out of the definition for one refresh, and move the old one away."


class HistoryTable:
    """The history of one refresh's table. If the definition has none, all methods do nothing.

    why : what a reader of the report should know of how it was written; None if nothing
    """

    def __init__(self, work: Work) -> None:
        self._work = work
        self.why: str | None = None
        self._is_late = False

    @property
    def is_kept(self) -> bool:
        return self._work.definition.history is not None

    def prepare(self, *, is_in_main: bool) -> None:
        """Create the history if it is missing.

        is_in_main : main has a commit of this refresh, which has to come to its end
        raises     : HistoryError, if it is gone, something else lies there, or it cannot have the table's columns
        """
        work = self._work
        if not self.is_kept:
            return
        own = self._versions(self._columns_to_be())
        problem = own.history.problem(own.columns, work.definition.key)
        if problem is None and own.history.time_column not in (None, *work.layout.names):
            problem = f"the source has no column {own.history.time!r}, from which its versions would be valid"
        if problem is not None:
            raise HistoryError(work.table.name, f"{problem}.", hint="Change `history` in the definition.")
        found = self._table.properties()
        if found is None:
            found = self._created(own, is_in_main=is_in_main)
        if not self._table.takes(found):
            raise HistoryError(
                work.table.name,
                f"{self._table.ref} is not its history.",
                hint="Move it away, or leave `history` out of the definition.",
            )
        self._check_columns(own)

    def _check_columns(self, own: Versions) -> None:
        """Check that the history can have the versions to come."""
        present = history.found_columns(self._work.spark, self._table)
        error = self._column_error(own, present)
        if error is not None and core.has_begun(self._table.log_until(core.shows_last)):
            raise error

    def _column_error(self, own: Versions, present: Mapping[str, schema.Type]) -> HistoryError | None:
        name, key = self._work.table.name, self._work.definition.key
        if wrong := [c.name for c in own.history.own_columns if present.get(c.name.lower()) != c.type]:
            problem = f"{self._table.ref} has no column {wrong[0]!r} as `history` wants it."
            return HistoryError(name, problem, hint=f"Name its columns in `history` as they are. {_BEGIN_ANEW}")
        for column in own.columns:
            is_key = column.name in key
            kept = present.get(column.name.lower(), None if is_key else column.type)
            if kept is None:
                return HistoryError(name, f"its history has no key column {column.name!r}.", hint=_BEGIN_ANEW)
            if kept != column.type and (is_key or not (holds(column.type, kept) or holds(kept, column.type))):
                is_shown, was = schema.shown(column.type), schema.shown(kept)
                problem = f"column {column.name!r} is {is_shown}, in its history {was}."
                return HistoryError(name, problem, hint=f"Give it another name in `select`. {_BEGIN_ANEW}")
        return None

    def _created(self, own: Versions, *, is_in_main: bool) -> dict[str, str]:
        work = self._work
        last = work.store.publish_of(work.store.state(work.table.id))
        was_kept = last is not None and last.definition.history is not None
        if storage.has_files(work.spark, self._table.ref.location) or (was_kept and not is_in_main):
            raise HistoryError(
                work.table.name,
                f"its history is gone: no Delta table is at {self._table.ref}.",
                hint="Restore it. To begin a new one, leave `history` out of the definition for one refresh.",
            )
        if was_kept:
            self._tell("its history was gone, and a new one has begun")
        with durable(Write.CREATE_HISTORY):
            made = self._table.create(struct_type(own.all_columns), [own.history.is_current], history.PROPERTIES)
        return dict(made.properties)

    def check(self, recorded: Sequence[RecordedChunk]) -> None:
        """Check that each row that comes has a time, if a column says from when it is valid; main is unchanged.

        cost   : a scan of the corrections; of all rows for a history that begins
        raises : HistoryError
        """
        work = self._work
        if not self.is_kept:
            return
        own = self._versions(work.layout.columns)
        if own.history.time_column is None:
            return
        if any(chunk.is_overwrite for chunk in recorded) or not self._is_continued():
            rows = storage.desired_rows(work.spark, work.seal, work.source_rows, work.layout)
        else:
            found = recorded_changes.verified(work.spark, work.layout, recorded).rows
            rows = found.where(corrections.brings_row())
        kind = next(c.type for c in own.columns if c.name == own.history.time_column)
        missing, ahead = versions.unfit_times(rows, own, own.history.latest_ms(kind, work.store.now_ms()))
        if not (missing or ahead):
            return
        number, what = (missing, "no time") if missing else (ahead, "a time that is still to come, in UTC,")
        raise HistoryError(
            work.table.name,
            f"{number:,} rows have {what} in column {own.history.time!r}, from which their versions would be valid.",
            hint="Correct them in the source, compute the time in `select`, or choose another `time`.",
        )

    def publish(
        self, recorded: Sequence[RecordedChunk], check: LogCheck, version: int, *, has_corrections: bool
    ) -> None:
        """Bring the history to main's `version` in one commit; called after main's commit.

        recorded        : all chunks of this refresh and round
        check           : what main's log shows of this refresh
        has_corrections : the commits of this refresh have made exactly the recorded changes
        cost            : two logs; a scan of the current versions' keys, and the versions that end and begin
        raises          : FencedError, if a later epoch has taken over; Delta's own errors
        """
        if not self.is_kept:
            return
        work, own = self._work, self._work.own
        for number in range(1, _MAX_TRIES + 1):
            found, main, plan = self._read(check, version, has_corrections=has_corrections)
            if plan.way is Way.NOTHING:
                self._repeat(found)
                if core.is_log_long(main):
                    with durable(Write.HISTORY):
                        self._table.fence(self._told(self._note_of_write(found, main, version)))
                return
            note = self._note_of_write(found, main, version)
            self._tell_how(plan)
            is_of_source = work.definition.history is not None and work.definition.history.time == SOURCE
            self._is_late = is_of_source and note.valid_ms != _time_of(work, main, version)
            try:
                with durable(Write.HISTORY):
                    note = self._write(plan.way, recorded, note)
                    if not (is_written := self._is_written(self._logs()[0])):
                        # Delta makes no commit of a MERGE that changes nothing.
                        self._table.fence(note)
            except MainRefusedError as error:
                raise HistoryError(work.table.name, error.problem, hint=error.advice) from error
            except TransientError as error:
                # The commit may have failed, or succeeded with its answer lost: the log decides.
                log.warning("%s: the commit of its history raised an error: %s", work.table.name, error)
                if number == _MAX_TRIES:
                    raise
                work.lease.check(is_cancellable=False)
                continue
            if not is_written and not self._is_written(self._logs()[0]):
                problem = f"Delta ignored the history of epoch {own.epoch} as outdated."
                raise EpochRegressionError(work.table.name, problem)
            return

    def _read(
        self, check: LogCheck, version: int, *, has_corrections: bool
    ) -> tuple[list[Commit], list[Commit], core.Plan]:
        """Return both logs, and what is to be done; an earlier process that may be writing is shut out before."""
        work = self._work
        failure: MvError | None = None
        for _ in range(_MAX_TRIES):
            found, main = self._logs()
            plan = self._planned(found, main, check, version, has_corrections=has_corrections)
            if plan.way is Way.NOTHING or not core.needs_fence(found, main, work.own.refresh_id, work.own.epoch):
                return found, main, plan
            try:
                with durable(Write.FENCE_HISTORY):
                    self._table.fence(self._note("fence", fence_version(work.own.epoch)))
            except (FencedError, EngineError, MainMovedError) as error:
                # The fence may have failed, or succeeded with its answer lost: the log decides.
                log.warning("%s: the fence of its history raised an error: %s", work.table.name, error)
                work.lease.check(is_cancellable=False)
                failure = None if isinstance(error, FencedError) else error  # nobody has overtaken it, as the log says
        raise failure or EpochRegressionError(work.table.name, "Delta ignored the fence of its history as outdated.")

    def _planned(
        self,
        found: Sequence[Commit],
        main: Sequence[Commit],
        check: LogCheck,
        version: int,
        *,
        has_corrections: bool,
    ) -> core.Plan:
        work = self._work
        return core.planned(
            *(found, main, version, check.published),
            definition_hash=self._written_by,
            has_corrections=has_corrections and not work.layout.left_alone,
            is_forced=work.refresh.is_forced and not self._is_written(found),
        )

    def _note_of_write(self, found: Sequence[Commit], main: Sequence[Commit], version: int) -> CommitNote:
        """Return the note of a commit that brings the history to main's `version`."""
        valid_ms = core.valid_ms(found, _time_of(self._work, main, version))
        note = self._note("history", next_txn_version(found, self._work.own.epoch))
        note = replace(note, definition_hash=self._written_by)
        return note.of_history(version, mark_at(main, version), valid_ms, found[0].version)

    def _tell_how(self, plan: core.Plan) -> None:
        if plan.why is not None:
            self._tell(f"its history was compared: {plan.why}")
        log.info("%s: its history: %s%s", self._work.table.name, plan.way, f", {plan.why}" if plan.why else "")

    def _write(self, way: Way, recorded: Sequence[RecordedChunk], note: CommitNote) -> CommitNote:
        """Write what the history lacks, and return the note of the commit, which may have been none."""
        work, spark, layout = self._work, self._work.spark, self._work.layout
        assert note.reached is not None
        assert note.valid_ms is not None
        own = self._versions(layout.columns, note.valid_ms)
        if way is Way.CHANGES:
            num_changes = total(recorded).changes
            changes = recorded_changes.verified(spark, layout, recorded).rows
            if not num_changes:
                return self._told(note)
            if own.history.follows_corrections:
                return self._merge(versions.actions_of_corrections(changes, own), own, note, num_changes)
            rows = versions.changed_rows(changes, own)
            return self._join(versions.actions_between(self._current(own), rows, own, is_all=False), own, note)
        with translated(work.table.name):
            rows = delta.read(spark, work.table.main, note.reached)
        own = self._versions(own.history.kept(schema.columns_of(rows.schema.jsonValue())), own.valid_ms)
        rows = rows.select(*columns(own.names))
        if not layout.is_whole:  # what another program has doubled outside of the scope stays so
            if versions.has_twice(rows, own):
                note = replace(note, definition_hash="")  # its correction may end one of two: the next one compares
            rows = rows.dropDuplicates(list(work.definition.key))
        if way is Way.BEGIN:
            self._enable(own, is_rewritten=True)
            note = self._told(note)
            history.begin(self._table, rows, own, note)
            return note
        return self._join(versions.actions_between(self._current(own), rows, own, is_all=True), own, note)

    def _join(self, actions: DataFrame, own: Versions, note: CommitNote) -> CommitNote:
        work = self._work
        path, ended = work.unwritten("history"), self._ended(own, note)
        found, number, late = history.kept_actions(work.spark, actions, ended, own, path)
        if late and own.history.time_column is not None:
            self._tell(f"{late:,} versions have a time before the one that they follow, and begin right after it")
        return self._merge(found, own, note, number) if number else self._told(note)

    def _merge(self, actions: DataFrame, own: Versions, note: CommitNote, num_changes: int) -> CommitNote:
        self._enable(own, is_rewritten=False)
        if self._is_late:
            self._tell("the source's time is not after that of the newest versions, and these begin right after it")
        note = self._told(note)
        sizes = {"num_changes": num_changes, "num_rows": self._work.seal.num_rows}
        history.write(self._work.spark, self._table, actions, own, note, **sizes)
        return note

    def _told(self, note: CommitNote) -> CommitNote:
        return replace(note, why=self.why)

    def _enable(self, own: Versions, *, is_rewritten: bool) -> None:
        """Enable the table features that the history needs for columns that it gets; see `Publisher`."""
        work = self._work
        present = delta.schema_of(work.spark, self._table.ref)
        layout = Layout(work.definition, own.columns, main_columns=schema.columns_of(present.jsonValue()))
        needed = delta.features_for(layout, is_rewritten=is_rewritten)
        if needed and not self._table.has(needed):
            self._table.enable(needed)

    def _current(self, own: Versions) -> DataFrame:
        with translated(self._work.table.name):
            return delta.newest(self._work.spark, self._table.ref).where(versions.is_current(own))

    def _ended(self, own: Versions, note: CommitNote) -> DataFrame:
        """Return the versions that had ended when it was decided what to write."""
        assert note.base is not None
        # At a version, a MERGE that reads them does not conflict with whoever compacts or sheds them meanwhile.
        with translated(self._work.table.name):
            return delta.read(self._work.spark, self._table.ref, note.base).where(~versions.is_current(own))

    def _logs(self) -> tuple[list[Commit], list[Commit]]:
        """Return the newest commits of the history and of main, as far back as the history was last written.

        raises : FencedError, if a later epoch has written both
        """
        work = self._work
        found = self._table.log_until(core.shows_last)
        last = core.last_written(found)
        reached = last.note.reached if last is not None and last.note is not None else None
        main = work.main.log(reached or 0)
        if (newest := last_epoch(found)) > work.own.epoch and last_epoch(main) > work.own.epoch:
            raise FencedError(work.table.name, "a later process has taken its history over.", epoch=newest)
        return found, main

    def _is_continued(self) -> bool:
        """True if this refresh's corrections are probably all that the history lacks."""
        state, found = self._work.store.state(self._work.table.id), self._table.log_until(core.shows_last)
        last = core.last_written(found)
        return last is not None and last.note is not None and last.note.reached == state.published_version

    def _tell(self, what: str) -> None:
        if self.why is None or what not in self.why:
            self.why = what if self.why is None else f"{self.why}; {what}"

    def _repeat(self, found: Sequence[Commit]) -> None:
        """Tell what an earlier owner of this refresh, which has written the history, had to tell."""
        last = core.last_written(found)
        note = None if last is None else last.note
        if note is not None and note.refresh_id == self._work.own.refresh_id and note.why is not None:
            self._tell(note.why)

    def _is_written(self, found: Sequence[Commit]) -> bool:
        """True if this refresh has written the history under this epoch."""
        last, own = core.last_written(found), self._work.own
        note = None if last is None else last.note
        return note is not None and (note.refresh_id, note.epoch) == (own.refresh_id, own.epoch)

    def _versions(self, found: Sequence[schema.Column], valid_ms: int = 0) -> Versions:
        work = self._work
        return Versions(work.definition, tuple(found), valid_ms, work.own.refresh_id)

    def _columns_to_be(self) -> tuple[schema.Column, ...]:
        """Return main's columns as this refresh leaves them."""
        layout = self._work.layout
        kept = set(layout.left_alone)
        return (*layout.columns, *History.kept(c for c in layout.main_columns or () if c.name in kept))

    @property
    def _written_by(self) -> str:
        return core.written_by(self._work.definition.content_hash, (c.name for c in self._columns_to_be()))

    def _note(self, step: Step, txn_version: int) -> CommitNote:
        work = self._work
        return note_of(work.table, work.current(), work.own, step, txn_version)

    @cached_property
    def _table(self) -> Main:
        table = self._work.table
        return Main(self._work.spark, table.main.history, table.uuid)


def _time_of(work: Work, main: Sequence[Commit], version: int) -> int:
    """Return from when the versions of this refresh are valid, in milliseconds, unless a column has their times."""
    assert work.definition.history is not None
    at_ms = next((c.at_ms for c in main if c.version == version), None)
    at_ms = work.store.now_ms() if at_ms is None else at_ms
    source_ms = work.refresh.source_ms if work.definition.history.time == SOURCE else None
    return at_ms if source_ms is None else max(0, min(source_ms, at_ms))  # a file's clock may show any time
