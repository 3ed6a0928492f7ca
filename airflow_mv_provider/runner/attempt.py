"""One epoch's work on one refresh: run the remaining steps, one durable step after the other.

    plan.remaining ──▶ first step ──▶ its durable write ──▶ read the durable state ──▶ plan.remaining ──▶ ...

An attempt takes nothing in memory from the attempt before it. It fences main first, so that processes under older
epochs fail, and reads everything else from the database and from main's log. It raises every error; `recovery` decides
what happens to the refresh then.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import assert_never

from airflow_mv_provider.core import plan
from airflow_mv_provider.core.phase import Phase, is_cancellable
from airflow_mv_provider.core.progress.chunk import Chunk
from airflow_mv_provider.core.progress.recorded import DoneChunks
from airflow_mv_provider.exceptions import (
    InterruptedRefreshError,
    LeaseLostError,
    MetadataUnavailableError,
    MvError,
    OvertakenError,
    RefreshHeldError,
    one_line,
)
from airflow_mv_provider.runner.crash_points import Write, durable
from airflow_mv_provider.runner.steps.conclusion import conclude
from airflow_mv_provider.runner.steps.error_table import ErrorTable
from airflow_mv_provider.runner.steps.fencing import FencedMain
from airflow_mv_provider.runner.steps.history import HistoryTable
from airflow_mv_provider.runner.steps.merging import Merging
from airflow_mv_provider.runner.steps.phase_clock import PhaseClock
from airflow_mv_provider.runner.steps.staging import stage
from airflow_mv_provider.runner.steps.work import Work
from airflow_mv_provider.runner.watching import Progress, Watcher
from airflow_mv_provider.spark import storage
from airflow_mv_provider.spark.errors import translated

log = logging.getLogger(__name__)

_MAX_MESSAGE = 500


class Attempt:
    """The steps of one refresh under one epoch."""

    def __init__(self, work: Work, watch: Watcher) -> None:
        self.work = work
        self._watch = watch
        self._clock = PhaseClock()
        self._fenced = FencedMain(work)
        self._errors = ErrorTable(work)
        self._history = HistoryTable(work)
        self._merging = Merging(work, self._fenced, self._errors, self._history, self._clock)
        self._planned: tuple[Chunk, ...] = ()

    def run(self, until: Phase = Phase.NORMAL) -> None:
        """Run the remaining steps up to phase `until`.

        raises : LeaseLostError, RefreshCancelledError, and every error of a step
        """
        done = self.work.store.done(self.work.own.refresh_id)
        while (phase := self._phase()) is not until:
            chunks = self._chunks()
            steps = plan.remaining(
                phase,
                is_fenced=self._fenced.is_fenced,
                chunks=chunks,
                recorded=done.recorded,
                committed=done.committed,
                is_progressive=self.work.is_progressive,
                is_overtaken=self._fenced.followed is not None,
            )
            if not steps:
                return
            self.work.lease.check(is_cancellable=self._is_cancellable(phase))
            self._clock.start(phase)
            try:
                with translated(self.work.table.name):  # a dead server may be noticed between two calls of Spark
                    self._run_step(steps[0], phase, done, len(chunks))
            except RefreshHeldError:
                raise  # the lease has been given up: it must not be renewed
            except MvError:
                # After a cancel's interrupt, or a takeover that removed files: raise that cause, not Spark's error.
                with suppress(MetadataUnavailableError):
                    self.work.lease.check(is_cancellable=self._is_cancellable(phase))
                raise
            finally:
                self._clock.stop()
            if isinstance(steps[0], plan.Clean):
                return
            done = self._done_after(steps[0], done)

    def close(self) -> None:
        """Release what Spark caches for this attempt, and what its source holds."""
        self.work.close_source()
        self.work.forget_rows()

    @property
    def has_tried_publish(self) -> bool:
        """True if a commit of this refresh may have reached main, or may yet reach it."""
        return self._merging.has_tried_publish

    @property
    def must_run_forward(self) -> bool:
        """True if main holds a commit of this refresh that another round must complete, so it cannot be abandoned.

        False for a progressive refresh: the parts committed so far are valid without the rest.
        """
        return not self.work.is_progressive and self._merging.has_committed

    def spent(self) -> dict[str, float]:
        """Return the seconds per phase that no write to the history has recorded; begin again at zero."""
        return self._clock.spent()

    def fence_and_check_log(self) -> bool:
        """Fence main against older epochs; return True if main holds a commit of this refresh."""
        self.work.lease.ignore_cancel()  # this call already ends the refresh, after a cancel or another failure
        with translated(self.work.table.name):
            while not self._fenced.is_fenced:
                self._fence()
            return self._merging.is_published

    @property
    def is_main_known(self) -> bool:
        """False if main's log shows refreshes that the database does not know."""
        return self._fenced.followed is None

    def bring_to_end(self) -> bool:
        """End a refresh that has a commit in main: run its remaining steps, or conclude it from main's log alone.

        returns : False if neither is possible, so that it must be abandoned; the next refresh then compares everything
        raises  : LeaseLostError, MetadataUnavailableError, InterruptedRefreshError; every error of the cleanup
        """
        try:
            self.run()
        except (LeaseLostError, MetadataUnavailableError, InterruptedRefreshError):
            raise
        except MvError as error:
            if self._phase() is Phase.REFRESHING:  # a database restored to before the seal; the pinned source is gone
                log.warning(
                    "%s: its refresh is given up although the table has its changes: %s", self.work.table.name, error
                )
                return False
            if self._phase() is not Phase.MERGING:
                raise
            log.warning("%s: its refresh is ended by what the table's log shows: %s", self.work.table.name, error)
            try:
                conclude(self.work, self._fenced, self._clock)
            except OvertakenError:
                return False
            self.run()
        return True

    def _is_cancellable(self, phase: Phase) -> bool:
        return is_cancellable(
            phase,
            is_progressive=self.work.is_progressive,
            has_committed=self._merging.has_committed,
            has_tried=self._merging.has_tried_publish,
        )

    def _done_after(self, step: plan.Step, before: DoneChunks) -> DoneChunks:
        """Return which chunks are done after a step; all steps together read each chunk a few times."""
        store, refresh_id = self.work.store, self.work.own.refresh_id
        numbers = plan.chunks_of(step)
        return store.done(refresh_id) if numbers is None else store.done_after(refresh_id, before, numbers)

    def _chunks(self) -> tuple[Chunk, ...]:
        """Return the chunks as planned at the seal; none before it. They never change, so they are read only once."""
        if not self._planned:
            self._planned, _ = self.work.store.chunks(self.work.own.refresh_id)
        return self._planned

    def _run_step(self, step: plan.Step, phase: Phase, done: DoneChunks, num_chunks: int) -> None:
        table, own, store = self.work.table.name, self.work.own, self.work.store

        def show(message: str) -> None:
            message = one_line(message, _MAX_MESSAGE)  # a partition's name comes from the source and may hold any text
            log.info("%s refresh %s: %s", table, own.refresh_id, message)
            log.debug("%s refresh %s: epoch %d, step %s", table, own.refresh_id, own.epoch, type(step).__name__)
            self._watch(Progress(table, own.refresh_id, phase, message, len(done.recorded), num_chunks))

        match step:
            case plan.Fence():
                show("making sure that no earlier process can still change the table")
                self._fence()
                self._errors.prepare()
                self._history.prepare(is_in_main=self._fenced.holds_publish)
            case plan.Conclude():
                show("later refreshes have followed it: the table's log shows how it ended")
                conclude(self.work, self._fenced, self._clock)
            case plan.Stage():
                show(f"reading and comparing the source: {self.work.refresh.frontier.describe()}")
                self._stage()
            case plan.Compare(chunk):
                show(f"comparing {_named(chunk)}")
                self._merging.compare(chunk)
            case plan.PublishPart(chunk):
                show(f"publishing the changes of {_named(chunk)}")
                _, (of_chunk,) = store.chunks(own.refresh_id, [chunk.number])
                self._merging.publish_part(of_chunk, is_first=not done.has_commit)
            case plan.Publish():
                is_tried = self.has_tried_publish
                show("looking in the table's log whether it is published" if is_tried else "publishing the changes")
                _, recorded = store.chunks(own.refresh_id)
                self._merging.publish(recorded)
            case plan.Clean():
                show("removing working files")
                self._clean()
            case _:
                assert_never(step)

    def _fence(self) -> None:
        self._fenced.fence()
        if self._fenced.is_fenced:
            self._merging.record_fence_result()

    def _stage(self) -> None:
        work = self.work
        found = stage(work, self._fenced, self._errors)
        with durable(Write.SEAL):
            notes = work.evolution(work.layout.main_columns or ()).notes
            spent = self._clock.spent()
            work.store.merging.seal(
                *(work.own, found.seal, found.chunks, spent, found.frozen, notes),
                recorded=found.recorded,
                is_progressive=work.is_progressive,
                reason=found.reason,
                partition_type=work.layout.partition_type,
            )

    def _clean(self) -> None:
        """Delete this refresh's workspace and what nobody needs of what was kept, then go back to NORMAL."""
        work = self.work
        published = work.store.state(work.table.id).published_totals
        needed = {each.refresh_id for each in published.kept} if published else set()
        with durable(Write.STAGING_DELETE), logging_failed_deletions(work.table.name):
            storage.remove(work.spark, work.workspace)
            mine = {each.refresh_id for each in work.seal.kept} & {work.own.refresh_id}
            for each in sorted({*work.current().outdated_kept, *mine} - needed):
                storage.remove_kept(work.spark, replace(work.workspace, refresh_id=each))
        with durable(Write.NORMAL):
            work.store.finish(work.own, self._clock.spent())

    def _phase(self) -> Phase:
        own = self.work.own
        state = self.work.store.state(self.work.table.id)
        if state.refresh_id != own.refresh_id or state.epoch != own.epoch:
            raise LeaseLostError(self.work.table.name, "this process no longer owns the table.", epoch=own.epoch)
        return state.phase


def _named(chunk: Chunk) -> str:
    if chunk.is_rest:
        return "partitions that the source no longer has"
    if chunk.partitions is None:
        return "the whole table"
    first, last = chunk.partitions[0], chunk.partitions[-1]
    return f"partition {first}" if first == last else f"{len(chunk.partitions)} partitions, {first} to {last}"


@contextmanager
def logging_failed_deletions(table: str) -> Iterator[None]:
    """Log an MvError of a file deletion instead of raising it: a file that stays must not block the table.

    No database row refers to such files, and a sweep tries again.

    raises : InterruptedRefreshError, LeaseLostError
    """
    try:
        yield
    except (InterruptedRefreshError, LeaseLostError):
        raise
    except MvError as error:
        log.warning("%s: files of a refresh were not removed; `amv recover` tries again. %s", table, error)
