"""The steps of MERGING: judge the sealed corrections, publish them, and compare again if main has changed.

    atomic       judge ─▶ one commit ─▶ published
    progressive  judge ─▶ (the partitions of one chunk: one commit ─▶ recorded)... ─▶ published

Main's log alone decides whether a commit happened. A takeover reads the recorded chunks from the database and their
commits from the log, and continues from there.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace

from airflow_mv_provider.core.definition import schema
from airflow_mv_provider.core.fence import (
    Commit,
    LogCheck,
    Move,
    last_epoch,
    left_out,
    mark_at,
    next_move,
    next_part_move,
    next_txn_version,
)
from airflow_mv_provider.core.guard import Counts
from airflow_mv_provider.core.progress import totals
from airflow_mv_provider.core.progress.chunk import Chunk, part_number
from airflow_mv_provider.core.progress.published import Published
from airflow_mv_provider.core.progress.recorded import RecordedChunk, total
from airflow_mv_provider.core.progress.totals import Totals, with_added
from airflow_mv_provider.exceptions import InterruptedRefreshError, MainMovedError, MvError, SealBrokenError
from airflow_mv_provider.runner.crash_points import Write, durable
from airflow_mv_provider.runner.steps.approval import leaves_out_deletes
from airflow_mv_provider.runner.steps.error_table import ErrorTable
from airflow_mv_provider.runner.steps.fencing import FencedMain
from airflow_mv_provider.runner.steps.history import HistoryTable
from airflow_mv_provider.runner.steps.judge import judge
from airflow_mv_provider.runner.steps.phase_clock import PhaseClock
from airflow_mv_provider.runner.steps.publish import Publisher, size_of_main
from airflow_mv_provider.runner.steps.recording import overwritten, recorded_chunks
from airflow_mv_provider.runner.steps.rewriting import is_rewritten
from airflow_mv_provider.runner.steps.work import Work, totals_of_main
from airflow_mv_provider.spark import delta, partitions, storage
from airflow_mv_provider.spark.compare import hashing, keys, recorded_changes, whole
from airflow_mv_provider.spark.errors import translated
from airflow_mv_provider.spark.layout import Layout

log = logging.getLogger(__name__)

_MAX_ROUNDS = 5


class Merging:
    """The comparison and publication of one attempt's sealed rows."""

    def __init__(
        self, work: Work, fenced: FencedMain, errors: ErrorTable, history: HistoryTable, clock: PhaseClock
    ) -> None:
        self._work = work
        self._fenced = fenced
        self._clock = clock
        self._publisher = Publisher(work, self._may_stop)
        self._errors = errors
        self._history = history
        self._has_tried_before = False
        self._is_in_main = False
        # The owner that sealed may have committed, or may still commit, until our fence is in main's log.
        self._is_unknown = work.refresh.seal is not None
        self._has_replaced_as_sealed = False
        self._again: tuple[RecordedChunk, ...] = ()  # of this round, if main was compared again since the seal

    @property
    def has_tried_publish(self) -> bool:
        """True if a commit of this refresh may have reached main, or may yet reach it."""
        is_unknown = self._is_unknown and not self._fenced.is_out_of_reach
        return is_unknown or self._is_in_main or self._has_tried_before or self._publisher.has_tried

    @property
    def has_committed(self) -> bool:
        """True if main is known to hold a commit of this refresh that another round has to complete."""
        return self._work.current().has_committed

    @property
    def is_published(self) -> bool:
        """True if main is known to hold a commit of this refresh; valid only after the fence."""
        return self.has_committed or self._is_in_main

    def record_fence_result(self) -> None:
        """Store whether main's log at our fence holds a commit of this refresh by an earlier owner."""
        self._is_unknown, self._is_in_main = False, self._fenced.holds_publish

    def compare(self, chunk: Chunk) -> None:
        """Record one chunk's corrections of a new round, or record that main will be replaced."""
        work = self._work
        record = next(each for each in self._compared_again() if each.number == chunk.number)
        log.debug(
            "%s refresh %s epoch %d: chunk %d against version %d: %d rows to change at %s",
            *(work.table.name, work.own.refresh_id, work.own.epoch, chunk.number),
            *(record.base_version, record.num_rows, record.path),
        )
        with durable(Write.PROGRESS):
            work.store.merging.record_chunk(work.own, record, is_progressive=work.is_progressive)

    def publish(self, recorded: Sequence[RecordedChunk]) -> None:
        """Make or confirm the commit of everything; one move per call, and the next call reads main's log again.

        recorded : all chunks; of a progressive refresh, all of them committed
        """
        counts = total(recorded)
        commits, check = self._publisher.check_log(recorded)
        layout = self._work.layout_now()
        # A column that main has to gain or lose is a change, even if no row differs.
        has_changes = (bool(counts.changes) and not self._work.is_progressive) or layout.changes_main
        match next_move(check, has_changes=has_changes):
            case Move.DONE if self._fenced.needs_no_fence and last_epoch(commits) < self._work.own.epoch:
                self._fenced.commit_fence()  # a publish, also one of a former round, is a fence
            case Move.DONE:
                num_kept = left_out(check.published[-1] if check.published else None, counts)
                counts = replace(counts, deleted=counts.deleted - num_kept)
                if self._is_short(check, counts):
                    self._start_over(check, counts)
                    return
                if not (check.published or self.is_published):
                    self._history.check(recorded)
                self._work.lease.ignore_cancel()
                self._errors.publish()
                self._publish_history(recorded, check, is_exact=not num_kept)
                self._published(recorded, commits, check, counts, num_kept)
            case Move.START_OVER:
                self._start_over(check, counts)
            case Move.MERGE:
                is_replaced = self._is_replaced()
                if not self.is_published:  # else what follows completes what was judged, and decided, before
                    judge(self._work, counts, recorded)
                    self._errors.check()
                    self._history.check(recorded)
                if leaves_out_deletes(self._work, has_kept=self._has_kept) and self._leave_out_deletes(recorded):
                    return
                txn_version = next_txn_version(commits, self._work.own.epoch)
                is_small = not is_replaced and self._is_rewritten(layout, counts)
                if is_replaced or is_small:
                    self._has_replaced_as_sealed = self._publisher.replace(
                        layout, self._work.seal, recorded, txn_version, is_small=is_small
                    )
                else:
                    self._publisher.merge(layout, recorded, txn_version)

    def publish_part(self, chunk: RecordedChunk, *, is_first: bool) -> None:
        """Make or record the commit of one chunk; one move per call.

        is_first : no chunk of this refresh is recorded as committed
        """
        part = part_number(chunk.number)
        commits, check = self._publisher.check_log([chunk], part)
        counts = total([chunk])
        match next_part_move(check):
            case Move.DONE if check.lacks(counts):
                self._start_over(check, counts)
            case Move.DONE:
                version, num_bytes = check.published[-1].version, check.bytes_added
                with durable(Write.COMMITTED):
                    self._work.store.merging.record_committed(self._work.own, chunk.number, version, counts, num_bytes)
            case Move.START_OVER:
                self._start_over(check, counts)
            case Move.MERGE:
                if is_first and not self.has_committed:
                    _, recorded = self._work.store.chunks(self._work.own.refresh_id)
                    judge(self._work, total(recorded), recorded)
                    self._errors.check()
                    self._history.check(recorded)
                txn_version = next_txn_version(commits, self._work.own.epoch)
                self._publisher.merge(self._work.layout_now(), [chunk], txn_version, part)

    def _may_stop(self) -> bool:
        return self._work.is_progressive or not self.is_published

    @property
    def _has_kept(self) -> bool:
        """True if main is known to hold a commit of this refresh that left out its deletes.

        Main's log may show it and the database not: a MERGE whose answer was lost may commit after its round was given
        up, and before the fence of the process that takes over.
        """
        is_recorded = self.has_committed and self._work.current().num_kept is not None
        return is_recorded or self._fenced.has_kept_rows

    def _leave_out_deletes(self, recorded: Sequence[RecordedChunk]) -> bool:
        """Record the corrections again without their deletes; False if they have none."""
        work = self._work
        place, epoch, merge_round = work.workspace, work.own.epoch, work.current().merge_round
        with durable(Write.KEEP):
            present = recorded_changes.present_keys(work.main, work.layout, recorded)
            written = (
                recorded_changes.without_deletes(
                    *(work.spark, work.layout, chunk),
                    place.without_deletes(epoch, merge_round, chunk.number),
                    present,
                )
                for chunk in recorded
                if chunk.path is not None
            )
            kept = [each for each in written if each is not None]
            if kept:
                work.store.merging.record_kept(work.own, kept)
        return bool(kept)

    def _compared_again(self) -> tuple[RecordedChunk, ...]:
        """Return the corrections of main as it is at the base, compared with the sealed rows once in this round.

        raises : SealBrokenError, when the rows read now are not the sealed rows; AdoptionError, KeyMovedError
        """
        if self._again:
            return self._again
        work, seal = self._work, self._work.seal
        merge_round, base, layout = work.current().merge_round, self._fenced.base, work.layout
        sealed = {part.partition: part.totals for part in seal.partitions if part.num_rows}
        rows = storage.desired_rows(work.spark, seal, work.source_rows, layout)
        whole_main = delta.read(work.spark, work.table.main, base)
        main = layout.shaped(partitions.in_scope(whole_main, layout))
        if self._is_replaced():
            counts, _ = keys.counted(rows, main, work.definition)
            record = overwritten(work.own, counts, seal.totals, base)
            self._again = (replace(record, merge_round=merge_round),)
            return self._again
        with durable(Write.CHANGES):
            found = whole.compared(
                *(hashing.aligned(rows, layout), main, layout, None, work.unwritten),
                small=work.settings.fingerprint_rows,
            )
        if with_added({}, found.partitions) != sealed:
            raise SealBrokenError(work.table.name, "the source no longer has the rows that were sealed.")
        if work.is_adopting and found.written:
            recorded_changes.check_adoptable(work.spark, layout, found.written)
        if work.must_not_move and found.written:  # another writer may have moved a row since the seal
            recorded_changes.check_unmoved(work.spark, layout, found.written, whole_main)
        chunks, _ = work.store.chunks(work.own.refresh_id)
        with translated(work.table.name):
            num_bytes = storage.num_bytes(work.spark, found.written.path) if found.written else 0
        self._again = recorded_chunks(
            *(chunks, found.written, found.partitions, work.own),
            base=base,
            merge_round=merge_round,
            num_bytes=num_bytes,
        )
        return self._again

    def _is_replaced(self) -> bool:
        """True if this round overwrites main. Later rounds, after foreign commits, merge corrections instead.

        They overwrite too if main has a column that must be dropped, because a MERGE cannot drop columns.
        """
        if self._work.seal.strategy != "replace":
            return False
        now = self._work.current()
        return (now.merge_round == 0 and now.num_kept is None) or bool(self._work.layout_now().dropped)

    def _is_rewritten(self, layout: Layout, counts: Counts) -> bool:
        """True if main, being small, is overwritten with the sealed rows instead of merging the corrections into it."""
        may_rewrite = not (self.is_published or self._has_tried_before)
        return may_rewrite and is_rewritten(self._work, layout, self._fenced.properties, counts)

    def _is_short(self, check: LogCheck, counts: Counts) -> bool:
        """True if the commit has a different number of rows than were sealed, or recorded to be changed."""
        if not check.is_overwritten:
            return not self._work.is_progressive and check.lacks(counts)
        written = check.published[-1].metrics.get("numOutputRows")
        return written is not None and int(written) != self._work.seal.num_rows

    def _publish_history(self, recorded: Sequence[RecordedChunk], check: LogCheck, *, is_exact: bool) -> None:
        version = check.version
        is_proved = not check.is_overwritten or self._has_replaced_as_sealed
        is_exact = is_exact and is_proved and not any(chunk.is_overwrite for chunk in recorded)
        self._history.publish(recorded, check, version, has_corrections=is_exact)

    def _published(
        self,
        recorded: Sequence[RecordedChunk],
        commits: Sequence[Commit],
        check: LogCheck,
        counts: Counts,
        num_unrecorded: int,
    ) -> None:
        """Record that main contains the refresh.

        num_unrecorded : deletes that main's commit has left out and that are still recorded
        """
        work, before = self._work, self._work.current().num_kept
        num_kept = None if before is None and not num_unrecorded else (before or 0) + num_unrecorded
        version = check.version
        is_continued = self._fenced.is_as_published and not work.current().merge_round
        why = self._history.why
        known, parts, are_all = self._known_from_now(recorded, check, has_unrecorded=bool(num_unrecorded))
        with durable(Write.PUBLISHED):
            work.store.merging.published(
                work.own,
                main_version=version,
                commit=mark_at(commits, version),
                counts=counts,
                # The rows of a progressive refresh were counted when each commit was recorded.
                is_counted=work.is_progressive,
                totals=known,
                partitions=parts,
                are_all_partitions=are_all,
                bytes_main=check.bytes_added,
                seconds=self._clock.spent(),
                is_continued=is_continued,
                num_kept=num_kept,
                main_bytes=size_of_main(work, (*self._fenced.commits, *commits), version),
                pauses=work.is_rollback,
                reason=None if why is None else f"{work.refresh.choice.reason}; {why}",
            )

    def _known_from_now(
        self, recorded: Sequence[RecordedChunk], check: LogCheck, *, has_unrecorded: bool
    ) -> tuple[Published | None, dict[str, Totals], bool]:
        """Return what is known of main from now on, the totals of partitions, and whether these are all partitions.

        Nothing is known after an overwrite unless this process has checked that it wrote exactly the sealed rows, and
        where main's commit has left out other deletes than those that are recorded.
        """
        work, seal = self._work, self._work.seal
        if has_unrecorded or (check.is_overwritten and not self._has_replaced_as_sealed):
            return None, {}, True
        before = self._fenced.published() if not work.current().merge_round else None
        known_before = totals_of_main(work, before)
        sealed = {part.partition: part.totals for part in seal.partitions}
        is_as_sealed = work.current().num_kept is None
        is_all = work.layout.is_whole or (self._fenced.is_empty and not work.current().merge_round)
        if is_as_sealed and is_all:
            after = with_added({}, sealed)
        elif known_before is None:
            if not (is_as_sealed and work.refresh.scope.is_everything and seal.strategy != "incremental"):
                return None, {}, True
            # All but the frozen partitions was compared; their rows are read once, or nothing would be known again.
            frozen = self._frozen_totals(check.version)
            if frozen is None:
                return None, {}, True
            after = with_added(frozen, sealed)
        elif is_as_sealed:
            compared = {part.partition for chunk in recorded for part in chunk.partitions}
            after = with_added({}, known_before | {name: sealed.get(name, Totals()) for name in compared})
        else:
            added = recorded_changes.added_by(work.spark, work.layout, recorded)
            if added is None:
                return None, {}, True
            after = with_added(known_before, added)
        is_same_files = seal.files is None and before is not None and seal.is_unchanged
        found = Published(
            work.own.refresh_id,
            totals.total(after.values()),
            schema.fingerprint(seal.columns),
            seal.fingerprints,
            seal.num_shards,
            before.files if is_same_files and before is not None else seal.files,
        )
        if not work.definition.partition_by:
            return found, {}, True
        if known_before is None:
            return found, after, True
        changed = {name for name in {*known_before, *after} if after.get(name) != known_before.get(name)}
        return found, {name: after.get(name, Totals()) for name in changed}, False

    def _frozen_totals(self, version: int) -> dict[str, Totals] | None:
        """Return the totals of main's frozen partitions; None if they cannot be read, which must not keep a publish."""
        try:
            return whole.frozen_totals(delta.read(self._work.spark, self._work.table.main, version), self._work.layout)
        except InterruptedRefreshError:
            raise
        except MvError as error:
            log.info("%s: the totals of its frozen partitions are not known: %s", self._work.table.name, error.problem)
            return None

    def _start_over(self, check: LogCheck, counts: Counts) -> None:
        """Discard the corrections, which were computed against an outdated version of main, and begin a new round.

        raises : MainMovedError, after the last round
        """
        work = self._work
        who = ", ".join(f"{c.operation} at version {c.version}" for c in check.foreign[:3])
        who = who or "its log shows only that our commit changed fewer rows than were recorded"
        if work.current().merge_round + 1 >= _MAX_ROUNDS:
            raise MainMovedError(work.table.name, f"another writer kept changing the table ({who}).")
        log.warning("%s: another writer changed the table (%s); comparing again", work.table.name, who)
        committed = check.changed(counts) if check.published else Counts() if check.stragglers else None
        with durable(Write.DISCARD):
            is_told = not work.is_progressive
            work.store.merging.discard_chunks(
                *(work.own, committed if is_told else None, check.bytes_added),
                keeps_rows=self._has_kept or check.keeps_rows,
            )
        self._has_tried_before = True
        self._publisher = Publisher(work, self._may_stop)
        self._fenced.base = check.latest
        self._again = ()
