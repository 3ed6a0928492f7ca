"""Simulated processes that refresh one table of a simulated Delta, with the real `Store` on SQLite.

A process is a generator that yields before and after every durable write, by the names of `runner/crash_points`, and
once in the middle of a MERGE. At each it can be stopped for as long as one likes, killed, or told that an answer was
lost.

The runner itself is not run here, for two reasons. Its steps are one Spark statement after the other, and to run it
without Spark most of `spark` and `sources` would have to be replaced inside of it; and it asks the database some sixty
times a refresh, of which ten thousand histories would take an hour. What it decides is in `core`, and what it writes in
`metadata`: those are real here. The order in which it does both is told again below, room by room as it stands in
`runner`; `test_differential.py` holds it against real refreshes, durable write by durable write.
"""

from __future__ import annotations

import uuid
from collections.abc import Generator
from dataclasses import dataclass, field, replace

from airflow_mv_provider.core import plan
from airflow_mv_provider.core.batch import mint
from airflow_mv_provider.core.fence import (
    Commit,
    CommitNote,
    LogCheck,
    Move,
    classify_commits,
    fence_version,
    has_fence,
    has_publish,
    last_epoch,
    mark_at,
    next_move,
    next_part_move,
    next_txn_version,
    overtaken_by,
    whole_publish,
)
from airflow_mv_provider.core.frontier import desired_upper
from airflow_mv_provider.core.guard import Counts
from airflow_mv_provider.core.outcome import ErrorReport, Outcome, error_report, outcome_of
from airflow_mv_provider.core.phase import Ending, Phase, Recovery, is_cancellable, on_failure, on_takeover
from airflow_mv_provider.core.progress.chunk import Chunk, part_number
from airflow_mv_provider.core.progress.partition import partition_name
from airflow_mv_provider.core.progress.recorded import PartitionCounts, RecordedChunk, total
from airflow_mv_provider.core.progress.seal import Seal, SealedPartition
from airflow_mv_provider.core.queue import turn
from airflow_mv_provider.core.state import (
    Admission,
    Caller,
    Ownership,
    RefreshRecord,
    RefreshState,
    TableRecord,
    is_main_as_published,
    next_epoch,
)
from airflow_mv_provider.core.strategy import Choice, compare_reason
from airflow_mv_provider.exceptions import (
    EngineError,
    EpochRegressionError,
    FencedError,
    LeaseLostError,
    MainMovedError,
    MetadataUnavailableError,
    MvError,
    OvertakenError,
    RefreshCancelledError,
    RefreshInProgressError,
    SealBrokenError,
    SourceChangedError,
    TransientError,
)
from airflow_mv_provider.metadata.store import Store
from airflow_mv_provider.sources.delta.frontier import DeltaFrontier
from tests.model.delta import Change, Rows, SimulatedDelta, Transaction, corrections

LEASE_MS, HANDOVER_MS = 60_000, 3_600_000
_MAX_ROUNDS, _MAX_TRIES, _MAX_FENCES, _MAX_RACES = 5, 3, 3, 10

Points = Generator[str, None, object]
Given = ErrorReport("MV-ABANDONED", "its process ended", "", True)


@dataclass
class World:
    """What is durable, and what is on its way.

    source  : the rows of each of its versions
    files   : what lies in workspaces, by refresh and name
    orphans : MERGEs that Spark goes on with, though nobody waits for them
    """

    store: Store
    table: TableRecord
    partitions: tuple[int, ...]
    delta: SimulatedDelta = field(default_factory=SimulatedDelta)
    source: list[Rows] = field(default_factory=lambda: [()])
    files: dict[tuple[str, str], object] = field(default_factory=dict)
    orphans: list[Transaction] = field(default_factory=list)
    refreshes: list[str] = field(default_factory=list)

    @property
    def is_progressive(self) -> bool:
        return self.table.definition.publish == "progressive"

    def remove(self, refresh_id: str) -> None:
        self.files = {path: held for path, held in self.files.items() if path[0] != refresh_id}

    def sweep(self, *, knows_all: bool = True) -> None:
        """Remove what ended refreshes have left; what is of unknown ones `core.leftover` judges, after a day."""
        for refresh_id in {path[0] for path in self.files}:
            found = self.store.refresh(refresh_id)
            if found.is_ended if found is not None else not knows_all:
                self.remove(refresh_id)


@dataclass
class Process:
    """One process of a caller. `at` is the point that it has reached; None when it has ended."""

    world: World
    caller: Caller
    at: str | None = "begin"
    error: MvError | None = None
    held: Transaction | None = None
    outcome: object = None

    def __post_init__(self) -> None:
        self._steps = self._refresh()

    def advance(self) -> str | None:
        """Go on to the next point."""
        return self._go(lambda: next(self._steps))

    def until(self, point: str, limit: int = 200) -> bool:
        """Go on to `point`, or to the end; True if it was reached."""
        for _ in range(limit):
            if self.advance() in (None, point):
                return self.at is not None
        raise AssertionError(f"no end of it: {self.at}")

    def finish(self) -> None:
        self.until("the end")

    def lose(self) -> None:
        """Lose the answer to what is being done, or has just been done; a MERGE under way goes on."""
        assert self.at is not None
        write = self.at.split(".")[0]
        is_of_spark = write in ("publish", "fence", "staging", "changes", "staging_delete")
        lost = EngineError("simulated", "lost.") if is_of_spark else MetadataUnavailableError("simulated", "lost.")
        if self.at == "publish.held" and self.held is not None:
            self.world.orphans.append(self.held)
        self._go(lambda: self._steps.throw(lost))

    def die(self) -> None:
        """Die; a MERGE under way goes on."""
        if self.at == "publish.held" and self.held is not None:
            self.world.orphans.append(self.held)
        self._steps.close()
        self.at = None

    def _go(self, step: object) -> str | None:
        if self.at is None:
            return None
        try:
            self.at = step()  # type: ignore[operator]
        except StopIteration as end:
            self.at, self.outcome = None, end.value
        except MvError as error:
            self.at, self.error = None, error
        return self.at

    # -- runner/admission --------------------------------------------------------------------------------------------

    def _refresh(self) -> Points:
        world, caller = self.world, self.caller
        for _ in range(_MAX_RACES):
            state = world.store.state(world.table.id)
            match turn(state, caller.key, ()):
                case Admission.ADOPT:
                    own = yield from self._hand_over(state)
                    if own is not None:
                        return (yield from self._work(own))
                case Admission.TAKE_OVER:
                    yield from self._take_over(state)
                case Admission.START:
                    own = yield from self._start(state)
                    if own is not None:
                        return (yield from self._work(own)) if isinstance(own, Ownership) else own
                case _:
                    raise RefreshInProgressError("simulated", "somebody works.")
        raise RefreshInProgressError("simulated", "others were faster.")

    def _start(self, state: RefreshState) -> Generator[str, None, Ownership | Outcome | None]:
        world, store = self.world, self.world.store
        commits = world.delta.log(state.published_version)
        frontier = DeltaFrontier("source", len(world.source) - 1)
        definition = world.table.definition
        must_compare = compare_reason(
            is_first=state.published_version is None,
            is_forced=False,
            same_definition=state.published_hash == definition.content_hash,
            is_trusted=is_main_as_published(state, commits),
            nondeterminism_reason=None,
        )
        newest = store.newest_binding(world.table.id)
        upper = desired_upper(newest, frontier, state.published_upper, must_compare=must_compare is not None)
        batch = mint(upper, state.published_upper, None)
        if batch is None:
            return Outcome.NOTHING_TO_DO
        choice = Choice("corrections", must_compare or "the source changed", (), "auto")
        refresh = RefreshRecord(uuid.uuid4().hex, world.table.id, definition, (), batch, frontier, choice)
        epoch = next_epoch(state.epoch, last_epoch(commits))
        yield "acquire.before"
        own = store.acquire(state, refresh, self.caller, epoch=epoch, lease_ms=LEASE_MS)
        if own is not None:
            world.refreshes.append(refresh.id)
        yield "acquire.after"
        return own

    def _work(self, own: Ownership) -> Points:
        attempt = Attempt(self, own)
        try:
            yield from attempt.run()
        except MvError as error:
            yield from self._settle(attempt, error, self.caller)
            raise
        return Outcome.PUBLISHED

    # -- runner/recovery ---------------------------------------------------------------------------------------------

    def _hand_over(self, state: RefreshState) -> Generator[str, None, Ownership | None]:
        epoch = next_epoch(state.epoch, last_epoch(self.world.delta.log()))
        yield "hand_over.before"
        own = self.world.store.hand_over(state, self.caller, epoch=epoch, lease_ms=LEASE_MS)
        yield "hand_over.after"
        return own

    def _take_over(self, state: RefreshState) -> Points:
        own = yield from self._hand_over(state)
        if own is None:
            return None
        match on_takeover(state.phase, is_cancel_requested=state.is_cancel_requested):
            case Recovery.RESET:
                yield from self._abandon(own, Outcome.ABANDONED, Given)
            case Recovery.ABANDON:
                yield from self._give_up(own, Outcome.CANCELLED, Given, caller=self.caller)
            case _:
                try:
                    yield from self._work(own)
                except MvError as error:
                    outcome = self.world.store.report(own.refresh_id).outcome
                    is_over = isinstance(error, OvertakenError) and outcome is not Outcome.RUNNING
                    if not is_over and outcome is not Outcome.PUBLISHED:
                        raise
        return None

    def _settle(self, attempt: Attempt, error: MvError, caller: Caller) -> Points:
        if isinstance(error, LeaseLostError | MetadataUnavailableError):
            return None
        world, own = self.world, attempt.own
        try:
            state = world.store.state(world.table.id)
            if (state.refresh_id, state.epoch) != (own.refresh_id, own.epoch):
                return None
            ending = on_failure(
                state.phase,
                error.code,
                is_transient=error.is_transient,
                has_committed=attempt.must_run_forward,
                will_retry=caller.will_retry,
                merging_attempts=world.store.merging_attempts(own.refresh_id),
            )
            if ending is Ending.KEEP:
                world.store.park(own, until_ms=HANDOVER_MS if caller.will_retry else 0)
            elif not attempt.has_tried_publish or attempt.followed is not None:
                is_main_known = attempt.followed is None
                yield from self._abandon(own, outcome_of(error), error_report(error), is_main_known=is_main_known)
            elif (fresh := (yield from self._hand_over(state))) is not None:
                is_final = attempt.must_run_forward
                yield from self._give_up(fresh, outcome_of(error), error_report(error), is_final=is_final)
        except MvError:
            pass
        return None

    def _give_up(
        self,
        own: Ownership,
        outcome: Outcome,
        error: ErrorReport,
        *,
        is_final: bool = False,
        caller: Caller | None = None,
    ) -> Points:
        attempt = Attempt(self, own)
        try:
            is_published = yield from attempt.fence_and_check_log()
            is_published = is_published and not is_final and not self.world.is_progressive
            is_ended = is_published and (yield from attempt.bring_to_end())
        except MvError as problem:
            if caller is not None:
                yield from self._settle(attempt, problem, caller)
            raise
        if not is_ended:
            is_main_known = attempt.followed is None and not is_published
            yield from self._abandon(own, outcome, error, is_main_known=is_main_known)
        return None

    def _abandon(self, own: Ownership, outcome: Outcome, error: ErrorReport, *, is_main_known: bool = True) -> Points:
        yield "normal.before"
        self.world.store.abandon(own, outcome, error, {}, is_main_known=is_main_known)
        yield "normal.after"
        yield "staging_delete.before"
        self.world.remove(own.refresh_id)
        yield "staging_delete.after"
        return None


class Attempt:
    """One epoch's work: runner/attempt, fencing, staging, merging and publish."""

    def __init__(self, process: Process, own: Ownership) -> None:
        self.process, self.world, self.own = process, process.world, own
        found = self.world.store.refresh(own.refresh_id)
        assert found is not None
        self.refresh = found
        state = self.world.store.state(self.world.table.id)
        self.phase, self.published_version = state.phase, state.published_version
        self.chunks, self.recorded = self.world.store.chunks(own.refresh_id)
        self.merge_round, self.has_committed = found.merge_round, found.has_committed
        self.is_fenced, self.base, self.num_fences = False, 0, 0
        self.commits, self.followed = list[Commit](), None
        self.is_unknown, self.is_in_main = found.seal is not None, False
        self.has_tried_before, self.num_tries = False, dict[int, int]()
        if (state.refresh_id, state.epoch) != (own.refresh_id, own.epoch):
            raise LeaseLostError("simulated", "overtaken.")

    @property
    def has_tried_publish(self) -> bool:
        return self.is_unknown or self.is_in_main or self.has_tried_before or bool(self.num_tries)

    @property
    def must_run_forward(self) -> bool:
        return not self.world.is_progressive and self.has_committed

    def check_lease(self, *, is_cancellable: bool) -> None:
        renewal = self.world.store.renew(self.own, lease_ms=LEASE_MS)
        if not renewal.is_owner:
            raise LeaseLostError("simulated", "overtaken.")
        if renewal.is_cancel_requested and is_cancellable:
            raise RefreshCancelledError("simulated", "cancelled.")

    def _can_stop(self) -> bool:
        return is_cancellable(
            self.phase,
            is_progressive=self.world.is_progressive,
            has_committed=self.has_committed,
            has_tried=self.has_tried_publish,
        )

    def run(self) -> Points:
        while self.phase is not Phase.NORMAL:
            steps = plan.remaining(
                self.phase,
                is_fenced=self.is_fenced,
                chunks=self.chunks,
                recorded={chunk.number for chunk in self.recorded},
                committed={chunk.number for chunk in self.recorded if chunk.is_committed},
                is_progressive=self.world.is_progressive,
                is_overtaken=self.followed is not None,
            )
            self.check_lease(is_cancellable=self._can_stop())
            try:
                match steps[0]:
                    case plan.Fence():
                        yield from self._fence()
                    case plan.Conclude():
                        yield from self._conclude()
                    case plan.Stage():
                        yield from self._stage()
                    case plan.Compare(chunk):
                        yield from self._compare(chunk)
                    case plan.PublishPart(chunks):
                        yield from self._publish(chunks)
                    case plan.Publish():
                        yield from self._publish(None)
                    case plan.Clean():
                        yield from self._clean()
            except MvError:
                self.check_lease(is_cancellable=self._can_stop())
                raise
        return None

    def fence_and_check_log(self) -> Generator[str, None, bool]:
        while not self.is_fenced:
            yield from self._fence()
        return self.has_committed or self.is_in_main

    def bring_to_end(self) -> Generator[str, None, bool]:
        try:
            yield from self.run()
        except (LeaseLostError, MetadataUnavailableError):
            raise
        except MvError:
            if self.world.store.state(self.world.table.id).phase is not Phase.MERGING:
                raise
            try:
                yield from self._conclude()
            except OvertakenError:
                return False
            yield from self.run()
        return True

    # -- runner/conclusion -------------------------------------------------------------------------------------------

    def _conclude(self) -> Points:
        whole = None if self.world.is_progressive else whole_publish(self.commits, self.own.refresh_id, self.followed)
        if whole is None or self.refresh.seal is None:
            raise OvertakenError("simulated", "others have followed it.")
        yield "published.before"
        self.world.store.merging.published(
            self.own,
            main_version=whole.version,
            commit=whole.mark,
            counts=total(self.recorded),
            digests=None,
            bytes_main=0,
            seconds={},
            is_main_known=False,
        )
        assert sorted(self.world.delta.rows(whole.version)) == sorted(self.world.source[self._pin()]), "invariant 1"
        self.phase = Phase.CLEANUP
        yield "published.after"
        return None

    # -- runner/fencing ----------------------------------------------------------------------------------------------

    def _fence(self) -> Points:
        delta, epoch = self.world.delta, self.own.epoch
        try:
            yield "fence.before"
            delta.fence(self._note("fence", fence_version(epoch)))
            yield "fence.after"
        except (FencedError, EngineError, MainMovedError):
            self.check_lease(is_cancellable=False)
        commits = delta.log(self.published_version)
        if last_epoch(commits) > epoch:
            raise FencedError("simulated", "a later epoch owns main.")
        self.is_fenced, self.base = has_fence(commits, epoch, self.own.refresh_id), commits[0].version
        self.commits = commits
        self.followed = overtaken_by(commits, self.own.refresh_id, self.world.store.first_epoch(self.own.refresh_id))
        self.num_fences += 1
        if self.is_fenced:
            self.is_unknown, self.is_in_main = False, has_publish(commits, self.own.refresh_id)
        elif self.num_fences == _MAX_FENCES:
            raise EpochRegressionError("simulated", "main's log refused the epoch.")
        return None

    # -- runner/staging ----------------------------------------------------------------------------------------------

    def _stage(self) -> Points:
        world, own = self.world, self.own
        pin = self._pin()
        path = (own.refresh_id, f"staging-{own.epoch}")
        yield "staging.before"
        assert path not in world.files
        world.files[path] = world.source[-1]
        yield "staging.after"
        if len(world.source) - 1 != pin:
            raise SourceChangedError("simulated", "the source is no longer what was pinned.")
        rows = world.source[-1]
        parts = tuple(SealedPartition(name(p), len(held(rows, p)), hash(held(rows, p))) for p in world.partitions)
        chunks = tuple(Chunk(n, (name(p),)) for n, p in enumerate(world.partitions))
        yield "seal.before"
        world.store.merging.seal(own, Seal(path[1], "digests", 64, 1, parts), chunks, {})
        self.phase, self.chunks = Phase.MERGING, chunks
        yield "seal.after"
        self.refresh = replace(self.refresh, seal=Seal(path[1], "digests", 64, 1, parts))
        return None

    def _pin(self) -> int:
        assert isinstance(self.refresh.frontier, DeltaFrontier)
        return self.refresh.frontier.version

    # -- runner/merging, comparison, publish -------------------------------------------------------------------------

    def _compare(self, chunk: Chunk) -> Points:
        world, own = self.world, self.own
        assert self.refresh.seal is not None
        partition = world.partitions[chunk.number]
        staged = world.files.get((own.refresh_id, self.refresh.seal.rows or ""))
        if staged != world.source[self._pin()]:
            raise SealBrokenError("simulated", "staging is gone.")
        desired, actual = held(staged, partition), held(world.delta.rows(self.base), partition)
        found = corrections(desired, actual)
        path = f"changes-{own.epoch}-{self.merge_round}-{chunk.number}" if found else None
        if path is not None:
            yield "changes.before"
            assert (own.refresh_id, path) not in world.files
            world.files[own.refresh_id, path] = found
            yield "changes.after"
        ops = [change.op for change in found]
        counts = Counts(len(desired), len(actual), ops.count("I"), ops.count("U"), ops.count("D"))
        parts = (PartitionCounts(name(partition), counts),)
        record = RecordedChunk(
            *(chunk.number, own.epoch, self.merge_round, self.base, path),
            *(len(found), 0, 1, parts),
        )
        yield "progress.before"
        world.store.merging.record_chunk(own, record, is_progressive=world.is_progressive)
        self.recorded = tuple(sorted((*self.recorded, record), key=lambda c: c.number))
        yield "progress.after"
        return None

    def _look(self, chunks: tuple[RecordedChunk, ...], part: int | None) -> LogCheck:
        base = min(chunk.base_version for chunk in chunks)
        commits = self.world.delta.log(base)
        latest = commits[0].version
        facts = {"refresh_id": self.own.refresh_id, "epoch": self.own.epoch, "merge_round": chunks[0].merge_round}
        standing = classify_commits(commits, base=base, latest=latest, part=part, **facts)  # type: ignore[arg-type]
        if standing.fenced_by is not None:
            raise FencedError("simulated", "a later epoch owns main.")
        return standing

    def _publish(self, of: tuple[Chunk, ...] | None) -> Points:
        """Take one step towards a commit; `of` are the chunks of one part, None for everything."""
        numbers = {chunk.number for chunk in of or self.chunks}
        chunks = tuple(chunk for chunk in self.recorded if chunk.number in numbers)
        part = part_number([chunk.number for chunk in chunks]) if of else None
        standing, counts = self._look(chunks, part), total(chunks)
        if part is None:
            move = next_move(standing, has_changes=bool(counts.changes) and not self.world.is_progressive)
        else:
            move = next_part_move(standing)
        match move:
            case Move.DONE if part is None:
                yield from self._published(standing, counts)
            case Move.DONE:
                version = standing.published[-1].version
                yield "committed.before"
                self.world.store.merging.record_committed(self.own, sorted(numbers), version, counts, 0)
                self.recorded = tuple(
                    replace(c, committed_version=version) if c.number in numbers else c for c in self.recorded
                )
                yield "committed.after"
            case Move.START_OVER:
                yield from self._start_over(standing, counts)
            case Move.MERGE:
                yield from self._merge(chunks, part or 0)
        return None

    def _merge(self, chunks: tuple[RecordedChunk, ...], part: int) -> Points:
        world, process = self.world, self.process
        txn_version = next_txn_version(world.delta.log(), self.own.epoch)
        self.num_tries[part] = self.num_tries.get(part, 0) + 1
        if self.num_tries[part] > _MAX_TRIES:
            raise EpochRegressionError("simulated", "Delta dropped every commit.")
        may_stop = world.is_progressive or not (self.has_committed or self.is_in_main)
        self.check_lease(is_cancellable=may_stop)
        try:
            yield "publish.before"
            changes: list[Change] = []
            for chunk in chunks:
                found = world.files.get((self.own.refresh_id, chunk.path)) if chunk.path else ()
                if found is None:
                    raise SealBrokenError("simulated", "corrections are gone.")
                changes += found  # type: ignore[arg-type]
            note = self._note("publish", txn_version, part)
            process.held = world.delta.start(tuple(changes), note)
            if process.held is not None:
                yield "publish.held"
                world.delta.commit(process.held)
            yield "publish.after"
        except TransientError:
            standing = self._look(chunks, part or None)
            if self.num_tries[part] == _MAX_TRIES and not standing.published and not standing.foreign:
                raise
        finally:
            process.held = None
        return None

    def _published(self, standing: LogCheck, counts: Counts) -> Points:
        version = standing.published[-1].version if standing.published else standing.latest
        yield "published.before"
        self.world.store.merging.published(
            self.own,
            main_version=version,
            commit=mark_at(self.world.delta.log(), version),
            counts=counts,
            is_counted=self.world.is_progressive,
            digests=None,
            bytes_main=0,
            seconds={},
        )
        assert sorted(self.world.delta.rows(version)) == sorted(self.world.source[self._pin()]), "invariant 1"
        self.phase = Phase.CLEANUP
        yield "published.after"
        return None

    def _start_over(self, standing: LogCheck, counts: Counts) -> Points:
        if self.merge_round + 1 >= _MAX_ROUNDS:
            raise MainMovedError("simulated", "others kept changing main.")
        committed = counts if standing.published else Counts() if standing.stragglers else None
        yield "discard.before"
        self.world.store.merging.discard_chunks(self.own, None if self.world.is_progressive else committed, 0)
        yield "discard.after"
        found = self.world.store.refresh(self.own.refresh_id)
        assert found is not None
        self.merge_round, self.has_committed, self.recorded = found.merge_round, found.has_committed, ()
        self.has_tried_before, self.num_tries, self.base = True, {}, standing.latest
        return None

    def _clean(self) -> Points:
        yield "staging_delete.before"
        self.world.remove(self.own.refresh_id)
        yield "staging_delete.after"
        yield "normal.before"
        self.world.store.finish(self.own, {})
        self.phase = Phase.NORMAL
        yield "normal.after"
        return None

    def _note(self, step: str, txn_version: int, part: int = 0) -> CommitNote:
        world = self.world
        return CommitNote(
            world.table.uuid,
            self.own.refresh_id,
            self.own.epoch,
            step,  # type: ignore[arg-type]
            txn_version,
            merge_round=self.merge_round,
            part=part,
            definition_hash=world.table.definition.content_hash,
            is_final=step == "publish" and not part,
        )


def name(partition: int) -> str:
    return partition_name([str(partition)])


def held(rows: object, partition: int) -> Rows:
    return tuple(row for row in rows if row[1] == partition)  # type: ignore[attr-defined]
