"""The steps of MERGING: compare chunk by chunk, judge, publish, and start over if main has changed.

    atomic       compare every chunk ─▶ judge the exact counts ─▶ one commit ─▶ published
    progressive  judge by keys ─▶ (compare the chunks of some partitions ─▶ one commit ─▶ recorded)... ─▶ published

Main's log alone decides whether a commit happened. A takeover reads the recorded chunks from the database and their
commits from the log, and continues from there.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace

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
from airflow_mv_provider.core.progress.chunk import Chunk, part_number
from airflow_mv_provider.core.progress.digests import PublishedDigests, digests_to_keep
from airflow_mv_provider.core.progress.recorded import RecordedChunk, total
from airflow_mv_provider.core.progress.seal import Seal
from airflow_mv_provider.exceptions import MainMovedError
from airflow_mv_provider.runner.crash_points import Write, durable
from airflow_mv_provider.runner.steps.approval import leaves_out_deletes, may_be_held
from airflow_mv_provider.runner.steps.comparison import Comparison, recorded_chunk
from airflow_mv_provider.runner.steps.error_table import ErrorTable
from airflow_mv_provider.runner.steps.fencing import FencedMain
from airflow_mv_provider.runner.steps.judge import Judge
from airflow_mv_provider.runner.steps.phase_clock import PhaseClock
from airflow_mv_provider.runner.steps.publish import Publisher, size_of_main
from airflow_mv_provider.runner.steps.rewriting import is_rewritten
from airflow_mv_provider.runner.steps.work import Work
from airflow_mv_provider.spark.compare import changes, digests, recorded_changes
from airflow_mv_provider.spark.compare.buckets import Buckets
from airflow_mv_provider.spark.layout import Layout

log = logging.getLogger(__name__)

_MAX_ROUNDS = 5


class Merging:
    """The comparison and publication of one attempt's sealed rows."""

    def __init__(self, work: Work, fenced: FencedMain, errors: ErrorTable, clock: PhaseClock) -> None:
        self._work = work
        self._fenced = fenced
        self._clock = clock
        self._publisher = Publisher(work, self._may_stop)
        self._errors = errors
        self._has_tried_before = False
        self._is_in_main = False
        # The owner that sealed may have committed, or may still commit, until our fence is in main's log.
        self._is_unknown = work.refresh.seal is not None
        self._has_replaced_as_sealed = False
        self._comparison: Comparison | None = None  # of the seal with main at the base
        self._judge = Judge(work, fenced, self._compared, self._is_replaced)

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

    def record_comparison(self, seal: Seal, buckets: Buckets | None) -> None:
        """Keep the buckets in which the seal and main differ, as far as staging has computed them."""
        self._comparison = self._new_comparison(seal, buckets)

    def compare(self, chunk: Chunk) -> None:
        """Compute one chunk's corrections and record them, or record that main will be replaced."""
        work = self._work
        merge_round = work.current().merge_round
        record = self._known(chunk) if merge_round == 0 or self._is_replaced() else None
        if record is None:
            record = self._compared().compare(chunk, merge_round)
        log.debug(
            "%s refresh %s epoch %d: chunk %d against version %d: %d rows to change at %s",
            *(work.table.name, work.own.refresh_id, work.own.epoch, chunk.number),
            *(record.base_version, record.num_rows, record.path),
        )
        with durable(Write.PROGRESS):
            self._work.store.merging.record_chunk(self._work.own, record, is_progressive=self._work.is_progressive)

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
            case Move.DONE if self._fenced.is_spared and last_epoch(commits) < self._work.own.epoch:
                self._fenced.commit_fence()  # a publish, also one of a former round, is a fence
            case Move.DONE:
                num_kept = left_out(check.published[-1] if check.published else None, counts)
                counts = replace(counts, deleted=counts.deleted - num_kept)
                if self._is_short(check, counts):
                    self._start_over(check, counts)
                    return
                self._work.lease.ignore_cancel()
                self._errors.publish()
                self._published(recorded, commits, check, counts, num_kept)
            case Move.START_OVER:
                self._start_over(check, counts)
            case Move.MERGE:
                is_replaced = self._is_replaced()
                if not self.is_published:  # else what follows completes what was judged, and decided, before
                    if is_replaced and not self._fenced.is_empty:
                        may_publish = self._judge.by_keys(is_counted=may_be_held(self._work))
                    else:
                        may_publish = self._judge.by_counts(counts, recorded)
                    if not may_publish:
                        self._list_rows()
                        return
                    self._errors.check()
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

    def publish_part(self, chunks: Sequence[RecordedChunk], *, is_first: bool) -> None:
        """Make or record the commit of some chunks, which together are whole partitions; one move per call.

        is_first : no chunk of this refresh is recorded as committed
        """
        numbers = [chunk.number for chunk in chunks]
        part = part_number(numbers)
        commits, check = self._publisher.check_log(chunks, part)
        counts = total(chunks)
        match next_part_move(check):
            case Move.DONE if check.lacks(counts):
                self._start_over(check, counts)
            case Move.DONE:
                version, num_bytes = check.published[-1].version, check.bytes_added
                with durable(Write.COMMITTED):
                    self._work.store.merging.record_committed(self._work.own, numbers, version, counts, num_bytes)
            case Move.START_OVER:
                self._start_over(check, counts)
            case Move.MERGE:
                if is_first and not self.has_committed:
                    self._judge.by_keys()
                    self._errors.check()
                txn_version = next_txn_version(commits, self._work.own.epoch)
                self._publisher.merge(self._work.layout_now(), chunks, txn_version, part)

    def close(self) -> None:
        """Release what Spark caches for the comparison."""
        if self._comparison is not None:
            self._comparison.close()
            self._comparison = None

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
                    *(work.spark, work.layout, work.seal.num_buckets, chunk),
                    place.kept(epoch, merge_round, chunk.number),
                    present,
                )
                for chunk in recorded
                if chunk.path is not None
            )
            kept = [each for each in written if each is not None]
            if kept:
                work.store.merging.record_kept(work.own, kept)
        return bool(kept)

    def _list_rows(self) -> None:
        """Begin a round that compares row by row instead of overwriting main: a person decides about rows."""
        work = self._work
        log.info("%s: its changes need a decision, so they are compared row by row", work.table.name)
        with durable(Write.DISCARD):
            work.store.merging.discard_chunks(work.own, None, 0)
        self._publisher = Publisher(work, self._may_stop)

    def _known(self, chunk: Chunk) -> RecordedChunk | None:
        """Return the record of a chunk that needs no comparison of rows; None if the chunk must be compared."""
        work, seal, published = self._work, self._work.seal, self._fenced.published_totals()
        if published is not None and seal.is_as(published.path):
            found = changes.nothing(seal, chunk)  # no row differs, so not even its digests are read again
        elif seal.strategy == "replace":
            # An empty main has no rows to compare with.
            found = changes.replacement(seal, None if self._fenced.is_empty else self._compared().buckets)
        elif seal.changes is not None and published is not None:  # of main as it still is
            found = changes.staged(work.spark, work.layout, seal, published)
        else:
            return None
        merge_round = work.current().merge_round
        return recorded_chunk(
            chunk, found, epoch=work.own.epoch, merge_round=merge_round, base_version=self._fenced.base
        )

    def _is_replaced(self) -> bool:
        """True if this round overwrites main. Later rounds, after foreign commits, merge corrections instead.

        They overwrite too if main has a column that must be dropped, because a MERGE cannot drop columns.
        """
        if self._work.seal.strategy != "replace":
            return False
        return self._work.current().merge_round == 0 or bool(self._work.layout_now().dropped)

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

    def _compared(self) -> Comparison:
        if self._comparison is None:
            self._comparison = self._new_comparison(self._work.seal)
        return self._comparison

    def _new_comparison(self, seal: Seal, buckets: Buckets | None = None) -> Comparison:
        work = self._work
        return Comparison(
            work.main,
            work.layout,
            seal,
            work.source_rows,
            work.workspace,
            work.own.epoch,
            self._fenced.base,
            self._fenced.published_digests(),
            is_adopting=work.definition.adopt and work.store.state(work.table.id).published_version is None,
            buckets=buckets,
        )

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
        version = check.published[-1].version if check.published else check.latest
        is_continued = self._fenced.is_as_published and not work.current().merge_round
        if num_kept is None:
            kept = self._digests_to_keep(self._work.seal, is_overwritten=check.is_overwritten)
        else:
            kept = None if num_unrecorded else self._digests_with_kept_rows(recorded)
        with durable(Write.PUBLISHED):
            work.store.merging.published(
                work.own,
                main_version=version,
                commit=mark_at(commits, version),
                counts=counts,
                # The rows of a progressive refresh were counted when each commit was recorded.
                is_counted=work.is_progressive,
                digests=kept,
                bytes_main=check.bytes_added,
                seconds=self._clock.spent(),
                is_continued=is_continued,
                num_kept=num_kept,
                main_bytes=size_of_main(work, (*self._fenced.commits, *commits), version),
                pauses=work.is_rollback,
            )
        self.close()  # before CLEANUP deletes the files behind Spark's cache

    def _digests_to_keep(self, seal: Seal, *, is_overwritten: bool) -> PublishedDigests | None:
        """Return the digests of main as it is now; None if the known digests do not cover all of main.

        None also after an overwrite unless this process has checked that it wrote exactly the sealed rows.
        """
        work = self._work
        if is_overwritten and not self._has_replaced_as_sealed:
            return None
        last = work.store.state(work.table.id).published_digests
        if last is not None and seal.is_as(last.path):
            return last  # no row differed
        if work.refresh.scope.is_everything:
            return digests_to_keep(seal, work.own.refresh_id)
        before = self._fenced.published_digests()
        if before is None or before.num_buckets != seal.num_buckets:
            return None
        path = work.unwritten(work.workspace.digests(work.own.epoch))
        found = digests.merged(work.spark, work.layout, before, seal, path)
        return replace(found, refresh_id=work.own.refresh_id) if found else None

    def _digests_with_kept_rows(self, recorded: Sequence[RecordedChunk]) -> PublishedDigests | None:
        """Return the digests of main with the recorded corrections, deletes left out; None if they are unknown."""
        work, before = self._work, self._fenced.published_digests()
        if before is None or not work.refresh.scope.is_everything:
            return None
        if not any(chunk.path for chunk in recorded):
            return before
        found = recorded_changes.verified(work.spark, work.layout, recorded).rows
        path = work.unwritten(work.workspace.digests(work.own.epoch))
        after = digests.corrected(work.spark, work.layout, before, found, path)
        return None if after is None else replace(after, refresh_id=work.own.refresh_id)

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
        self.close()
