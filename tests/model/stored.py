"""The effects of one process on the real `Store` and a simulated Delta: what `order` reads and writes.

What an epoch has read of its refresh it keeps, and changes by its own writes: nobody else's can come in between. The
runner asks the database again, some sixty times a refresh, of which ten thousand histories would take an hour.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from airflow_mv_provider.core import plan
from airflow_mv_provider.core.approval import hold
from airflow_mv_provider.core.approval.hold import Decision, is_outdated, keeps_rows, why_held
from airflow_mv_provider.core.fence import (
    Commit,
    CommitNote,
    LogCheck,
    classify_commits,
    fence_version,
    has_fence,
    has_kept_rows,
    has_publish,
    last_epoch,
    left_out,
    mark_at,
    next_txn_version,
    overtaken_by,
    whole_publish,
)
from airflow_mv_provider.core.frontier import BatchDescription, desired_upper, mint
from airflow_mv_provider.core.guard import Counts
from airflow_mv_provider.core.outcome import ErrorReport, Outcome, error_report, outcome_of
from airflow_mv_provider.core.phase import Ending, Phase, Recovery, is_cancellable, on_failure, on_takeover
from airflow_mv_provider.core.progress import history as core_history
from airflow_mv_provider.core.progress.chunk import Chunk
from airflow_mv_provider.core.progress.history import Way
from airflow_mv_provider.core.progress.partition import partition_name
from airflow_mv_provider.core.progress.recorded import KeptRows, PartitionCounts, RecordedChunk, total
from airflow_mv_provider.core.progress.seal import Seal, SealedPartition
from airflow_mv_provider.core.queue import turn
from airflow_mv_provider.core.state import (
    Admission,
    Caller,
    Ownership,
    RefreshRecord,
    RefreshState,
    is_fenced_by_last_publish,
    is_main_as_published,
    next_epoch,
)
from airflow_mv_provider.core.strategy import Choice, compare_reason
from airflow_mv_provider.exceptions import FencedError, LeaseLostError, MainMovedError, MvError
from airflow_mv_provider.sources.delta.frontier import DeltaFrontier
from tests.model.beside import HistoryWrite, SimulatedHistory
from tests.model.delta import Change, Rows, Transaction, corrections
from tests.model.design import AtFence, Own, Published, Target
from tests.model.lake import HANDOVER_MS, LEASE_MS, World

_GIVEN = ErrorReport("MV-ABANDONED", "its process ended", "", True)


class Stored:
    """The effects of one process of a caller.

    is_done : False if the last write met an error, so that nothing comes after it
    held    : the MERGE between its start and its commit
    error   : what the refresh fails with; its history shows it
    is_theirs, taken_over : whether it was another caller's, and what is to become of it then
    """

    refresh: RefreshRecord
    phase: Phase
    published_version: int | None

    def __init__(self, world: World, caller: Caller) -> None:
        self.world, self.caller, self.store = world, caller, world.store
        self.is_done, self.is_theirs = True, False
        self.taken_over: Recovery | None = None
        self.held: Transaction | HistoryWrite | None = None
        self.error: MvError | None = None
        self.chunks: tuple[Chunk, ...] = ()
        self.done: tuple[RecordedChunk, ...] = ()
        self.commits: list[Commit] = []
        self.followed: Commit | None = None
        self._changes_of: dict[int, Any] = {}

    # -- the table's row ---------------------------------------------------------------------------------------------

    def admission(self) -> Admission:
        self._seen = self.store.state(self.world.table.id)
        return turn(self._seen, self.caller.key, ())

    def seen(self) -> RefreshState:
        return self._seen

    def own_as_told(self) -> Own:
        raise AssertionError("what is shipped has an epoch for each process")

    def minted(self, seen: RefreshState) -> tuple[int, int] | None:
        pin = len(self.world.source) - 1
        must_compare = compare_reason(
            is_first=seen.published_version is None,
            is_forced=False,
            same_definition=seen.published_hash == self.world.table.definition.content_hash,
            is_trusted=is_main_as_published(seen, self.world.delta.log(seen.published_version)),
            nondeterminism_reason=None,
            num_kept=seen.num_kept,
        )
        newest = self.store.newest_binding(self.world.table.id)
        frontier, must = DeltaFrontier("source", pin), must_compare is not None
        batch = mint(desired_upper(newest, frontier, seen.published_upper, must_compare=must), seen.published_upper)
        return None if batch is None else (batch.upper, pin)

    def next_epoch(self, seen: RefreshState) -> int:
        return next_epoch(seen.epoch, last_epoch(self.world.delta.log()))

    def acquire(self, seen: RefreshState, upper: int, pin: int, epoch: int) -> Own | None:
        table = self.world.table
        batch, choice = BatchDescription(seen.published_upper, upper), Choice("corrections", "the source changed")
        frontier = DeltaFrontier("source", pin)
        refresh = RefreshRecord(uuid.uuid4().hex, table.id, table.definition, (), batch, frontier, choice)
        own = self.store.acquire(seen, refresh, self.caller, epoch=epoch, lease_ms=LEASE_MS)
        if own is None:
            return None
        self.world.refreshes.append(refresh.id)
        return self._taken(own)

    def recovery(self, seen: RefreshState) -> Recovery | None:
        if self.is_theirs:
            self.taken_over = on_takeover(seen.phase, is_cancel_requested=seen.is_cancel_requested)
        return self.taken_over

    def ends_at_once(self, seen: RefreshState) -> bool:
        return seen.is_cancel_requested and not self.store.may_have_published(seen)

    def hand_over(self, seen: RefreshState, epoch: int) -> Own | None:
        self.is_theirs = seen.owner_key != self.caller.key
        own = self.store.hand_over(seen, self.caller, epoch=epoch, lease_ms=LEASE_MS)
        return None if own is None else self._taken(own)

    def _taken(self, own: Ownership) -> Own:
        """Read what the database has of the refresh; done once, right after the row is this epoch's."""
        found = self.store.refresh(own.refresh_id)
        assert found is not None
        state = self.store.state(self.world.table.id)
        self.refresh, self.phase, self.published_version = found, state.phase, state.published_version
        self.chunks, self.done = self.store.chunks(own.refresh_id)
        self.followed = None
        return own.refresh_id, own.epoch

    def renew(self, own: Own) -> bool | None:
        renewal = self.store.renew(self._own(own), lease_ms=LEASE_MS)
        return renewal.is_cancel_requested if renewal.is_owner else None

    def park(self, own: Own) -> bool:
        return self._write(
            lambda: self.store.park(self._own(own), until_ms=HANDOVER_MS if self.caller.will_retry else 0)
        )

    def is_own(self, own: Own) -> bool:
        self._seen = self.store.state(self.world.table.id)
        return (self._seen.refresh_id, self._seen.epoch) == own

    def ending(self, own: Own, code: str) -> Ending:
        assert self.error is not None
        return on_failure(
            self._seen.phase,
            code,
            is_transient=self.error.is_transient,
            has_committed=self.has_committed(own) and not self.world.is_progressive,
            will_retry=self.caller.will_retry,
            merging_attempts=self.store.merging_attempts(own[0]),
        )

    # -- the refresh -------------------------------------------------------------------------------------------------

    def next_step(self, own: Own, *, is_fenced: bool, is_overtaken: bool) -> plan.Step:
        return plan.remaining(
            self.phase,
            is_fenced=is_fenced,
            chunks=self.chunks,
            recorded={chunk.number for chunk in self.done},
            committed={chunk.number for chunk in self.done if chunk.is_committed},
            is_progressive=self.world.is_progressive,
            is_overtaken=is_overtaken,
        )[0]

    def is_merging(self, own: Own) -> bool:
        return self.store.state(self.world.table.id).phase is Phase.MERGING

    def is_cancellable(self, own: Own, *, has_tried: bool) -> bool:
        committed, is_progressive = self.has_committed(own), self.world.is_progressive
        return is_cancellable(self.phase, is_progressive=is_progressive, has_committed=committed, has_tried=has_tried)

    def is_sealed(self, own: Own) -> bool:
        return self.refresh.seal is not None

    def has_committed(self, own: Own) -> bool:
        return self.refresh.has_committed

    def merge_round(self, own: Own) -> int:
        return self.refresh.merge_round

    def recorded(self, own: Own) -> tuple[RecordedChunk, ...]:
        return self.done

    # -- a person's decision -----------------------------------------------------------------------------------------

    def outdated_hold(self) -> str | None:
        seen, is_allowed = self._seen, self.world.table.definition.when_held == "supersede"
        if not (seen.is_held and is_allowed) or seen.owner_key == self.caller.key or seen.refresh_id is None:
            return None
        last, waiting = self.store.last_hold(seen.refresh_id), self.store.refresh(seen.refresh_id)
        assert last is not None
        assert waiting is not None
        is_same = waiting.frontier == DeltaFrontier("source", len(self.world.source) - 1)
        return last.id if is_outdated(last, is_same_definition=True, is_same_source=is_same) else None

    def supersede(self, hold: str) -> None:
        self.store.holds.decide(self.world.table.id, Decision.SUPERSEDED, self.caller.user, None, hold)

    def hold_step(self, own: Own) -> hold.Step:
        last = self.store.last_hold(own[0])
        facts: dict[str, Any] = {"is_requested": False, "has_changes": True, "changes_columns": False, "refusals": ()}
        return hold.next_step(last, self.refresh.merge_round, why_held("always", **facts, last=last))

    def hold(self, own: Own) -> Decision | str | None:
        hold_ms = self.world.table.definition.hold_for * 1000
        try:
            begun = self.store.holds.begin(self._own(own), self.refresh.merge_round, "held", (), hold_ms=hold_ms)
        except LeaseLostError:
            self.is_done = False
            return None
        return begun.decision or ""

    def deletes_to_leave_out(self, own: Own, *, has_kept: bool) -> tuple[RecordedChunk, ...]:
        has_kept = has_kept or (self.refresh.has_committed and self.refresh.num_kept is not None)
        if not keeps_rows(self.store.last_hold(own[0]), self.refresh.merge_round, has_kept=has_kept):
            return ()
        return tuple(chunk for chunk in self.done if any(change.op == "D" for change in self._changes(own, chunk)))

    def write_kept(self, own: Own, kept: tuple[RecordedChunk, ...]) -> None:
        for chunk in kept:
            path = (own[0], f"kept-{own[1]}-{self.refresh.merge_round}-{chunk.number}")
            assert path not in self.world.files
            self.world.files[path] = tuple(change for change in self._changes(own, chunk) if change.op != "D")

    def record_kept(self, own: Own, kept: tuple[RecordedChunk, ...]) -> bool:
        found = list[KeptRows]()
        for chunk in kept:
            path = f"kept-{own[1]}-{self.refresh.merge_round}-{chunk.number}"
            left = len(self.world.files[own[0], path])  # type: ignore[arg-type]
            deletes = {part.partition: part.counts.deleted for part in chunk.partitions}
            found.append(KeptRows(chunk.number, path if left else None, left, 0, 1, deletes))
        if not self._write(lambda: self.store.merging.record_kept(self._own(own), found)):
            return False
        self.refresh, (_, self.done) = self.store.as_now(self.refresh), self.store.chunks(own[0])
        return True

    def _changes(self, own: Own, chunk: RecordedChunk) -> tuple[Change, ...]:
        return self.world.files.get((own[0], chunk.path), ()) if chunk.path else ()  # type: ignore[return-value]

    # -- main's log and its MERGEs -----------------------------------------------------------------------------------

    def latest(self) -> int:
        return self.world.delta.latest

    def fence(self, own: Own) -> bool:
        version = fence_version(own[1])
        self.world.delta.fence(self._note(own, "fence", version))
        return self.world.delta.last_txn == version

    def at_fence(self, own: Own) -> AtFence:
        self.commits = commits = self.world.delta.log(self.published_version)
        self.followed = overtaken_by(commits, own[0], self.store.first_epoch(own[0]))
        whole = whole_publish(commits, own[0], self.followed)
        return AtFence(
            is_later=last_epoch(commits) > own[1],
            is_fenced=has_fence(commits, own[1], own[0]),
            base=commits[0].version,
            is_in_main=has_publish(commits, own[0]),
            has_kept=has_kept_rows(commits, own[0]),
            is_overtaken=self.followed is not None,
            whole=-1 if whole is None else whole.version,
            needs_no_fence=is_fenced_by_last_publish(self.store.state(self.world.table.id), commits, own[1]),
        )

    def check_log(self, own: Own, chunks: tuple[RecordedChunk, ...], merge_round: int, part: int | None) -> LogCheck:
        base = min(chunk.base_version for chunk in chunks)
        commits = self.world.delta.log(base)
        facts: dict[str, Any] = {"refresh_id": own[0], "epoch": own[1], "merge_round": merge_round}
        return classify_commits(commits, base=base, latest=commits[0].version, part=part, **facts)

    def is_in_log(self, own: Own) -> bool:
        return last_epoch(self.world.delta.log()) == own[1]

    def next_txn(self, own: Own) -> int:
        return next_txn_version(self.world.delta.log(), own[1])

    def start(
        self, own: Own, part: int, chunks: tuple[RecordedChunk, ...], merge_round: int, txn: int
    ) -> Transaction | str:
        changes: list[Change] = []
        for chunk in chunks:
            found = self.world.files.get((own[0], chunk.path)) if chunk.path else ()
            if found is None:
                return self._unless("gone")
            changes += found  # type: ignore[arg-type]
        try:
            self.held = self.world.delta.start(
                tuple(changes), self._note(own, "publish", txn, part, min(chunk.base_version for chunk in chunks))
            )
        except MainMovedError:
            return self._unless("unexpected")
        return self.held or "outdated"

    def commit(self, merge: Transaction) -> int | None:
        self.held = None
        try:
            self.world.delta.commit(merge)
        except (FencedError, MainMovedError):
            self.is_done = False
            return None
        return self.world.delta.latest

    def _unless(self, problem: str) -> str:
        self.is_done = False
        return problem

    # -- the history beside main -------------------------------------------------------------------------------------

    def has_history(self) -> bool:
        return self.world.history is not None

    def create_history(self) -> None:
        self.world.history = SimulatedHistory()

    def is_history_taken(self, own: Own) -> bool:
        return last_epoch(self._history.log()) > own[1] and last_epoch(self.world.delta.log()) > own[1]

    def needs_history_fence(self, own: Own) -> bool:
        return core_history.needs_fence(self._history.log(), self.world.delta.log(), *own)

    def fence_history(self, own: Own) -> bool:
        version = fence_version(own[1])
        self._history.fence(self._note(own, "fence", version))
        return self._history.last_txn == version

    def history_plan(self, own: Own, found: Published) -> Target:
        history, main = self._history.log(), self.world.delta.log()
        ours = [commit for commit in main if commit.version in found.commits]
        is_exact = not left_out(ours[0] if ours else None, total(found.chunks))
        facts = {"definition_hash": self.world.table.definition.content_hash, "has_corrections": is_exact}
        plan = core_history.planned(history, main, found.version, ours, **facts, is_forced=False)
        mark = mark_at(main, found.version)
        return Target(plan.way, found.version, mark, next_txn_version(history, own[1]), history[0].version)

    def compare_history(self, target: Target) -> tuple[Change, ...]:
        return corrections(self.world.delta.rows(target.version), self._history.current())

    def start_history(
        self, own: Own, found: Published, target: Target, actions: tuple[Change, ...] | None
    ) -> HistoryWrite | str:
        if target.way is Way.BEGIN:
            actions = corrections(self.world.delta.rows(target.version), ())
        elif actions is None:
            recorded = [self.world.files.get((own[0], chunk.path)) for chunk in found.chunks if chunk.path]
            if None in recorded:
                return self._unless("gone")
            actions = tuple(change for each in recorded for change in each)  # type: ignore[attr-defined]
        note = self._note(own, "history", target.txn).of_history(target.version, target.mark, None, target.base)
        self.held = write = self._history.start(actions, note)
        return write or "outdated"

    def commit_history(self, write: HistoryWrite) -> bool:
        self.held = None
        try:
            self._history.commit(write)
        except FencedError:
            self.is_done = False
        return self.is_done

    def is_history_written(self, own: Own) -> bool:
        last = core_history.last_written(self._history.log())
        return last is not None and last.note is not None and (last.note.refresh_id, last.note.epoch) == own

    @property
    def _history(self) -> SimulatedHistory:
        assert self.world.history is not None
        return self.world.history

    # -- the steps' writes -------------------------------------------------------------------------------------------

    def stage(self, own: Own) -> int:
        path = (own[0], f"staging-{own[1]}")
        assert path not in self.world.files
        self.world.files[path] = self.world.source[-1]
        return len(self.world.source) - 1

    def is_pinned(self, own: Own) -> bool:
        return len(self.world.source) - 1 == self._pin()

    def compare_staged(self, own: Own, base: int) -> tuple[RecordedChunk, ...] | None:
        staged = self.world.files.get((own[0], f"staging-{own[1]}"))
        if staged != self.world.source[self._pin()]:
            return None
        recs = tuple(self._compared(own, n, staged, base, 0) for n in range(len(self.world.partitions)))
        for rec in recs:
            if rec.path is not None:
                self._found = self._changes_of[rec.number]
                self.write_changes(own, rec)
        return recs

    def seal(self, own: Own, recs: tuple[RecordedChunk, ...]) -> bool:
        rows, world = self.world.source[self._pin()], self.world
        parts = tuple(SealedPartition(name(p), len(held(rows, p)), hash(held(rows, p))) for p in world.partitions)
        chunks = tuple(Chunk(n, (name(p),)) for n, p in enumerate(world.partitions))
        seal, how = Seal(f"staging-{own[1]}", 1, parts), {"recorded": recs, "is_progressive": world.is_progressive}
        if not self._write(lambda: self.store.merging.seal(self._own(own), seal, chunks, {}, **how)):
            return False
        self.phase, self.chunks, self.refresh = Phase.MERGING, chunks, replace(self.refresh, seal=seal)
        self.done = recs
        return True

    def compare(self, own: Own, chunk: int, base: int, merge_round: int) -> RecordedChunk | None:
        world, seal = self.world, self.refresh.seal
        assert seal is not None
        staged = world.files.get((own[0], seal.rows or ""))
        if staged != world.source[self._pin()]:
            return None
        found = self._compared(own, chunk, staged, base, merge_round)
        self._found = self._changes_of[chunk]
        return found

    def _compared(self, own: Own, chunk: int, staged: Any, base: int, merge_round: int) -> RecordedChunk:
        partition = self.world.partitions[chunk]
        desired, actual = held(staged, partition), held(self.world.delta.rows(base), partition)
        self._changes_of[chunk] = found = corrections(desired, actual)
        ops = [change.op for change in found]
        counts = Counts(len(desired), len(actual), ops.count("I"), ops.count("U"), ops.count("D"))
        path = f"changes-{own[1]}-{merge_round}-{chunk}" if found else None
        parts = (PartitionCounts(name(partition), counts),)
        return RecordedChunk(chunk, own[1], merge_round, base, path, len(found), 0, 1, parts, is_whole=False)

    def write_changes(self, own: Own, rec: RecordedChunk) -> None:
        assert (own[0], rec.path or "") not in self.world.files
        self.world.files[own[0], rec.path or ""] = self._found

    def record(self, own: Own, rec: RecordedChunk) -> bool:
        is_progressive = self.world.is_progressive
        if not self._write(lambda: self.store.merging.record_chunk(self._own(own), rec, is_progressive=is_progressive)):
            return False
        self.done = tuple(sorted((*self.done, rec), key=lambda c: c.number))
        return True

    def commit_recorded(self, own: Own, chunks: tuple[RecordedChunk, ...], version: int) -> bool:
        [chunk] = chunks
        merging, counts = self.store.merging, total(chunks)
        if not self._write(lambda: merging.record_committed(self._own(own), chunk.number, version, counts, 0)):
            return False
        self.done = tuple(replace(c, committed_version=version) if c.number == chunk.number else c for c in self.done)
        return True

    def discard(self, own: Own, *, is_published: bool, has_stragglers: bool, keeps_rows: bool) -> bool:
        counts = total(self.done) if is_published else Counts() if has_stragglers else None
        committed = None if self.world.is_progressive else counts
        keeps = keeps_rows or (self.refresh.has_committed and self.refresh.num_kept is not None)
        merging = self.store.merging
        if not self._write(lambda: merging.discard_chunks(self._own(own), committed, 0, keeps_rows=keeps)):
            return False
        self.refresh, self.done = self.store.as_now(self.refresh), ()
        return True

    def published(self, own: Own, version: int) -> bool:
        commit = mark_at(self.world.delta.log(), version)
        return self._publish(own, version, commit=commit, is_counted=self.world.is_progressive)

    def concluded(self, own: Own, version: int) -> bool:
        whole = whole_publish(self.commits, own[0], self.followed)
        assert whole is not None
        return self._publish(own, version, commit=whole.mark, is_main_known=False)

    def _publish(self, own: Own, version: int, **facts: Any) -> bool:
        ours = [c for c in self.world.delta.log() if c.version <= version and has_publish([c], own[0])]
        counts, before = total(self.done), self.refresh.num_kept
        left = left_out(ours[0] if ours else None, counts)
        num_kept = None if before is None and not left else (before or 0) + left
        facts |= {"counts": replace(counts, deleted=counts.deleted - left), "num_kept": num_kept}
        facts |= {"main_version": version, "totals": None, "bytes_main": 0, "seconds": {}}
        if not self._write(lambda: self.store.merging.published(self._own(own), **facts)):
            return False
        rows, source = self.world.delta.rows(version), self.world.source[self._pin()]
        kept = {row[:2] for row in rows} - {row[:2] for row in source} if num_kept else set()
        assert sorted(row for row in rows if row[:2] not in kept) == sorted(source), "invariant 1"
        self.phase = Phase.CLEANUP
        return True

    def finish(self, own: Own) -> bool:
        return self._write(lambda: self.store.finish(self._own(own), {}))

    def abandon(self, own: Own, mode: str, *, is_main_known: bool) -> bool:
        given_up = Outcome.CANCELLED if self.taken_over is Recovery.ABANDON else Outcome.ABANDONED
        outcome = given_up if self.error is None else outcome_of(self.error)
        report = _GIVEN if self.error is None else error_report(self.error)
        return self._write(lambda: self.store.abandon(self._own(own), outcome, report, {}, is_main_known=is_main_known))

    def remove_files(self, own: Own) -> None:
        self.world.remove(own[0])

    # ----------------------------------------------------------------------------------------------------------------

    def _write(self, write: Callable[[], None]) -> bool:
        try:
            write()
        except LeaseLostError:
            self.is_done = False
        return self.is_done

    def _own(self, own: Own) -> Ownership:
        return Ownership(self.world.table.id, *own)

    def _pin(self) -> int:
        assert isinstance(self.refresh.frontier, DeltaFrontier)
        return self.refresh.frontier.version

    def _note(self, own: Own, step: Any, txn_version: int, part: int = 0, base: int | None = None) -> CommitNote:
        table, is_final = self.world.table, step == "publish" and not part
        facts = {"merge_round": self.refresh.merge_round, "part": part, "is_final": is_final, "base": base}
        facts["keeps_rows"] = step == "publish" and self.refresh.num_kept is not None
        return CommitNote(table.uuid, *own, step, txn_version, **facts, definition_hash=table.definition.content_hash)


def name(partition: int) -> str:
    return partition_name([str(partition)])


def held(rows: object, partition: int) -> Rows:
    return tuple(row for row in rows if row[1] == partition)  # type: ignore[attr-defined]
