"""Compare-and-append: bring the recorded corrections into main in one commit; main's log alone decides the outcome.

    read main's log ──▶ DONE         the commit is there without a foreign commit, or there was nothing to change
                    ──▶ START_OVER   another writer has changed main since the compared version
                    ──▶ MERGE        neither: commit, then read the log again

A commit exception is inconclusive, because the commit may have succeeded with its answer lost. Each try takes its
transaction version from the log, so of two tries for one commit Delta keeps at most one.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

from airflow_mv_provider.core.fence import Commit, CommitNote, LogCheck, Step, classify_commits
from airflow_mv_provider.core.progress.recorded import RecordedChunk
from airflow_mv_provider.core.progress.seal import Seal
from airflow_mv_provider.core.progress.table_size import size_after
from airflow_mv_provider.core.state import Ownership, RefreshRecord, TableRecord
from airflow_mv_provider.exceptions import EpochRegressionError, FencedError, MvError, TransientError
from airflow_mv_provider.runner.crash_points import Write, durable
from airflow_mv_provider.runner.steps.work import Work
from airflow_mv_provider.spark import delta, merge, overwrite, storage
from airflow_mv_provider.spark.layout import Layout

log = logging.getLogger(__name__)

_MAX_TRIES = 3


class Publisher:
    """The commits of one round of one attempt.

    may_stop : returns False once main is known to hold a commit of this refresh, when a cancel comes too late
    """

    def __init__(self, work: Work, may_stop: Callable[[], bool]) -> None:
        self._work = work
        self._may_stop = may_stop
        self._num_tries: Counter[int] = Counter()  # by part

    @property
    def has_tried(self) -> bool:
        return bool(self._num_tries)

    def check_log(self, recorded: Sequence[RecordedChunk], part: int | None = None) -> tuple[list[Commit], LogCheck]:
        """Read and classify main's log since the oldest version that a recorded chunk was compared with.

        part   : the part of a progressive refresh whose commit is looked for; None for any
        raises : FencedError, if a later epoch has written
        """
        work, epoch = self._work, self._work.own.epoch
        base = min(chunk.base_version for chunk in recorded)
        commits = work.main.log(base)
        check = classify_commits(
            commits,
            base=base,
            latest=commits[0].version,
            refresh_id=work.own.refresh_id,
            epoch=epoch,
            merge_round=recorded[0].merge_round,
            part=part,
        )
        log.debug(
            "%s refresh %s epoch %d: main since version %d: latest %d, %d commits of ours, %d of others, fenced by %s",
            *(work.table.name, work.own.refresh_id, epoch, base, check.latest),
            *(len(check.published), len(check.foreign), check.fenced_by),
        )
        if check.fenced_by is not None:
            raise FencedError(
                work.table.name, "a later process has taken the table over.", epoch=check.fenced_by, own_epoch=epoch
            )
        return commits, check

    def merge(self, layout: Layout, recorded: Sequence[RecordedChunk], txn_version: int, part: int = 0) -> None:
        """Try the commit once; the next read of main's log decides its outcome.

        raises : the commit's own error, if the last try left nothing in the log; EpochRegressionError, if Delta
                 dropped every try without an error
        """
        work, note = self._work, self._note(recorded, txn_version, part)

        def commit() -> None:
            self._enable(delta.features_for(layout, is_rewritten=False))
            is_retry = self._num_tries[part] > 1 or work.store.merging_attempts(work.own.refresh_id) > 1
            merge.publish(work.spark, work.main, layout, recorded, note, is_retry=is_retry)

        self._try(recorded, part, commit)

    def replace(
        self,
        layout: Layout,
        seal: Seal,
        recorded: Sequence[RecordedChunk],
        txn_version: int,
        *,
        is_small: bool = False,
    ) -> bool:
        """Try once to overwrite main; the next read of main's log decides its outcome.

        is_small : the rows are written to one file
        returns  : True if this try wrote rows and they are exactly the sealed ones
        raises   : as `merge` does
        """
        work, seen = self._work, list[bool]()
        note = self._note(recorded, txn_version, 0)

        def commit() -> None:
            self._enable(delta.features_for(layout, is_rewritten=True))
            rows = storage.desired_rows(work.spark, seal, work.source_rows, layout)
            seen.append(overwrite.publish(work.main, layout, seal, rows, note, is_small=is_small))

        self._try(recorded, 0, commit)
        return seen == [True]

    def _enable(self, needed: Mapping[str, str]) -> None:
        """Enable the table features that a commit needs, right before it: a refused refresh then locks out no reader.

        With them the change data feed, if the definition wants one and main was created without. The fence does not
        stop an ALTER. An ALTER of an outdated owner changes no row and no type. A commit that conflicts with it fails
        like any conflict with another writer, and is retried.
        """
        features = {**needed, **delta.tracking(self._work.definition)}
        if features and not self._work.main.has(features):
            with durable(Write.FEATURES):
                self._work.main.enable(features)

    def _note(self, recorded: Sequence[RecordedChunk], txn_version: int, part: int) -> CommitNote:
        work, refresh = self._work, self._work.current()
        note = note_of(work.table, refresh, work.own, "publish", txn_version, num_chunks=len(recorded), part=part)
        base = min(chunk.base_version for chunk in recorded)
        return replace(note, keeps_rows=refresh.num_kept is not None, base=base)

    def _try(self, recorded: Sequence[RecordedChunk], part: int, commit: Callable[[], None]) -> None:
        work = self._work
        self._num_tries[part] += 1
        num_tries = self._num_tries[part]
        if num_tries > _MAX_TRIES:
            raise EpochRegressionError(
                work.table.name, f"Delta ignored the commits of epoch {work.own.epoch} as outdated."
            )
        work.lease.check(is_cancellable=self._may_stop())
        work.lease.ignore_cancel()
        try:
            with durable(Write.PUBLISH):
                commit()
        except TransientError as error:
            log.warning(
                "%s: the commit raised an error; the table's log shows whether it succeeded: %s", work.table.name, error
            )
            _, check = self.check_log(recorded, part or None)
            if num_tries == _MAX_TRIES and not check.published and not check.foreign:
                raise


def size_of_main(work: Work, commits: Iterable[Commit], version: int) -> int | None:
    """Return how many bytes of files main has at a version, for people; None if that cannot be found out.

    commits : of main, at least since the last publish
    """
    state = work.store.state(work.table.id)
    found = size_after(state.published_version, state.main_bytes, commits, version)
    if found is None:
        with suppress(MvError):
            asked = work.main.detail()  # half a second, once: the next publish counts on from there
            found = asked.num_bytes if asked else None
    return found


def note_of(
    table: TableRecord,
    refresh: RefreshRecord,
    own: Ownership,
    step: Step,
    txn_version: int,
    *,
    num_chunks: int = 0,
    part: int = 0,
    num_errors: int = 0,
) -> CommitNote:
    """Return the note that a commit of this refresh carries in its userMetadata."""
    assert refresh.batch is not None
    return CommitNote(
        table_uuid=table.uuid,
        refresh_id=own.refresh_id,
        epoch=own.epoch,
        step=step,
        txn_version=txn_version,
        merge_round=refresh.merge_round,
        chunks=num_chunks,
        part=part,
        upper=refresh.batch.upper,
        definition_hash=refresh.definition.content_hash,
        is_final=step == "publish" and not part,
        num_errors=num_errors,
    )
