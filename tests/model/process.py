"""The effects of one process on the small world: what `order` reads and writes, on an immutable `State`.

What is checked at a step, and not of a state, is checked here, where the step is taken.
"""

from __future__ import annotations

from collections.abc import Callable

from airflow_mv_provider.core import plan
from airflow_mv_provider.core.approval import hold
from airflow_mv_provider.core.approval.hold import Decision
from airflow_mv_provider.core.fence import LogCheck, fence_version
from airflow_mv_provider.core.phase import Ending, Recovery, is_cancellable, on_failure, on_takeover
from airflow_mv_provider.core.progress.history import Way
from airflow_mv_provider.core.state import Admission, next_epoch
from tests.model import ending, order
from tests.model.commits import committed, extended
from tests.model.decisions import (
    abandoned,
    acquired,
    admission,
    advanced,
    epoch_in,
    handed_over,
    held,
    history_plan,
    history_txn_after,
    hold_step,
    is_fence_in,
    is_fenced_by_publish,
    is_history_of,
    is_history_taken,
    is_kept_in,
    is_outdated,
    is_overtaken,
    is_publish_in,
    is_waiting,
    leaves_out_deletes,
    log_check,
    may_have_published,
    minted,
    needs_fence_of_changes,
    needs_history_fence,
    objection,
    published_whole,
    steps_left,
    txn_after,
)
from tests.model.design import AtFence, Design, Own, Published, Target, Worker
from tests.model.exploring import Violated
from tests.model.versions import (
    NO_HISTORY,
    Action,
    HistoryWrite,
    Written,
    actions_to,
    begun,
    check_reached,
    committed_history,
    extended_history,
    history_id,
    newest_txn,
    written_in,
)
from tests.model.world import (
    CLEANUP,
    IDLE,
    KEYS,
    MERGING,
    NORMAL,
    PHASES,
    REFRESHING,
    SOURCE,
    WILL_RETRY,
    Commit,
    Held,
    Merge,
    Path,
    Recorded,
    Refresh,
    Row,
    State,
    commits_of,
    content,
    last_txn,
    latest,
)

Stepped = tuple[str, State]


def step(design: Design, state: State, number: int) -> Stepped | None:
    """Return what the next step of a worker is called, and the state after it; None where it has none."""
    fx = Process(design, state, number)
    found = order.step(design, fx, state.workers[number])
    return None if found is None else (found[0], with_worker(fx.state, number, found[1]))


def failed(design: Design, state: State, number: int) -> Stepped:
    """The step at hand meets an error of the engine."""
    fx = Process(design, state, number)
    after = ending.failing(design, fx, state.workers[number], "MV-ENGINE")
    return "meets an error of the engine", with_worker(fx.state, number, after)


def decided(design: Design, state: State, shown: tuple[int, int], decision: Decision) -> State | None:
    """Record a decision about what was shown, a refresh and its round, as `metadata.holds` does; None if refused."""
    refresh, row = state.refresh, state.row
    found = None if refresh is None else refresh.hold
    if objection(row.refresh, found, shown if design.names_hold else None, decision) is not None:
        return None
    assert refresh is not None
    assert found is not None
    row = row._replace(live=row.live and not row.left, cancel=row.cancel or not decision.is_approval)
    return state._replace(row=row, refresh=refresh._replace(hold=found._replace(decision=decision)))


def ended_by_page(design: Design, state: State) -> State | None:
    """End a cancelled refresh without a live owner, as `Store.end_cancelled` does, without main's log, or None."""
    row, refresh = state.row, state.refresh
    is_worked_on = row.live and any(worker.own == (row.refresh, row.epoch) for worker in state.workers)
    if refresh is None or not row.cancel or is_worked_on:
        return None
    if may_have_published(row.phase, refresh):
        return None
    after = handed_over(row, row, row.owner, row.epoch + 1)
    assert after is not None
    page = Process(design, state._replace(row=after), 0)
    assert page.abandon((after.refresh, after.epoch), "", is_main_known=True)
    return page.state


def with_worker(state: State, number: int, worker: Worker, **changes: object) -> State:
    workers = list(state.workers)
    workers[number] = IDLE if worker.at == "idle" else worker
    return state._replace(workers=tuple(workers), **changes)


class Process:
    """The effects of worker `number`; `state` is the world after those so far."""

    __slots__ = ("design", "number", "state")

    def __init__(self, design: Design, state: State, number: int) -> None:
        self.design, self.state, self.number = design, state, number

    # -- the table's row ---------------------------------------------------------------------------------------------

    def admission(self) -> Admission:
        return admission(self.state.row, KEYS[self.number], self._is_waiting)

    def seen(self) -> Row:
        return self.state.row

    def own_as_told(self) -> Own:
        return self.state.row.refresh, self.state.row.epoch

    def minted(self, seen: Row) -> tuple[int, int] | None:
        is_forced = self.design.is_forced and seen.upper == 1
        return minted(seen, self.state.log, self.state.bindings, self.state.source, is_forced=is_forced)

    def next_epoch(self, seen: Row) -> int:
        return next_epoch(seen.epoch, epoch_in(self.state.log))

    def acquire(self, seen: Row, upper: int, pin: int, epoch: int) -> Own | None:
        state = self.state
        refresh = len(state.outcomes) + 1
        row = acquired(state.row, seen, refresh, KEYS[self.number], epoch)
        if row is None:
            return None
        self._check_new_epoch(epoch)
        bindings = state.bindings if upper <= len(state.bindings) else (*state.bindings, pin)
        outcomes = (*state.outcomes, "running")
        self._become(row=row, refresh=Refresh(pin, upper, epoch), bindings=bindings, outcomes=outcomes)
        return refresh, epoch

    def recovery(self, seen: Row) -> Recovery | None:
        if seen.owner == KEYS[self.number]:
            return None
        return on_takeover(PHASES[seen.phase], is_cancel_requested=seen.cancel)

    def ends_at_once(self, seen: Row) -> bool:
        return seen.cancel and not may_have_published(seen.phase, self._refresh)

    def hand_over(self, seen: Row, epoch: int) -> Own | None:
        if not seen.refresh:
            raise Violated("the hand-over of a refresh that has ended")
        row = handed_over(self.state.row, seen, KEYS[self.number], epoch)
        if row is None:
            return None
        self._check_new_epoch(epoch)
        refresh = self._refresh
        self._become(row=row, refresh=refresh._replace(merging=refresh.merging + (seen.phase == MERGING)))
        return seen.refresh, epoch

    def _check_new_epoch(self, epoch: int) -> None:
        others = [self.state.row.epoch]
        if not self.state.faults.put_back:  # else others may work under epochs that the database has forgotten
            others += [w.own[1] for n, w in enumerate(self.state.workers) if n != self.number and w.own[1]]
        if epoch <= max(others):
            raise Violated(f"invariant 2: epoch {epoch} is not later than all others ({max(others)})")

    def renew(self, own: Own) -> bool | None:
        row = held(self.state.row, own)
        if not self.design.compares_epochs and self.state.row.refresh == own[0]:
            row = self.state.row
        if row is None:
            return None
        self._become(row=row._replace(live=True))
        return row.cancel

    def park(self, own: Own) -> bool:
        row = held(self.state.row, own)
        if row is None:
            return False
        left = row.left or self._refresh.hold is not None  # of no consequence without a hold
        self._become(row=row._replace(live=WILL_RETRY[self.number], left=left))
        return True

    def is_own(self, own: Own) -> bool:
        return (self.state.row.refresh, self.state.row.epoch) == own

    def ending(self, own: Own, code: str) -> Ending:
        refresh = self.state.refresh
        return on_failure(
            PHASES[self.state.row.phase],
            code,
            is_transient=code not in ("MV-CANCELLED", "MV-EPOCH-REGRESSION", "MV-HOLD-EXPIRED"),
            has_committed=self.has_committed(own) and not self.design.is_progressive,
            will_retry=WILL_RETRY[self.number],
            merging_attempts=refresh.merging if refresh else 0,
        )

    # -- the refresh -------------------------------------------------------------------------------------------------

    def next_step(self, own: Own, *, is_fenced: bool, is_overtaken: bool) -> plan.Step:
        refresh, phase = self._refresh, self.state.row.phase
        is_progressive, is_sealed = self.design.is_progressive, bool(refresh.sealed_by)
        return steps_left(phase, is_fenced, refresh.chunks, is_progressive, is_sealed, is_overtaken)[0]

    def is_merging(self, own: Own) -> bool:
        return self.state.row.phase == MERGING

    def is_cancellable(self, own: Own, *, has_tried: bool) -> bool:
        return is_cancellable(
            PHASES[self.state.row.phase],
            is_progressive=self.design.is_progressive,
            has_committed=self.has_committed(own),
            has_tried=has_tried,
        )

    def is_sealed(self, own: Own) -> bool:
        return self.state.refresh is not None and bool(self.state.refresh.sealed_by)

    def has_committed(self, own: Own) -> bool:
        return self.state.refresh is not None and self.state.refresh.has_committed

    def merge_round(self, own: Own) -> int:
        return self._refresh.merge_round

    def recorded(self, own: Own) -> tuple[Recorded, ...]:
        return tuple(rec for rec in self._refresh.chunks if rec)

    # -- a person's decision -----------------------------------------------------------------------------------------

    def outdated_hold(self) -> tuple[int, int] | None:
        state = self.state
        if state.refresh is None or not self._is_waiting or state.row.owner == KEYS[self.number]:
            return None
        held, refresh = state.refresh.hold, state.row.refresh
        assert held is not None
        if not is_outdated(refresh, held, state.refresh.pin, state.source):
            return None
        return refresh, held.merge_round

    def supersede(self, hold: tuple[int, int]) -> None:
        before = self.state
        self.state = decided(self.design, before, hold, Decision.SUPERSEDED) or before
        if self.state is not before and before.refresh is not None and before.refresh.pin == before.source:
            raise Violated("invariant 14: what is held is superseded, and it is not outdated")
        if self.state is not before and not self.design.ends_by_takeover:
            row = abandoned(self.state.row, (self.state.row.refresh, self.state.row.epoch))
            assert row is not None
            self._end((before.row.refresh, before.row.epoch), row, "abandoned")

    def hold_step(self, own: Own) -> hold.Step:
        held, merge_round = self._refresh.hold, self._refresh.merge_round
        if held is not None and held.decision is not None and not self.design.approves_round:
            held = held._replace(merge_round=merge_round)
        return hold_step(own[0], held, merge_round)

    def hold(self, own: Own) -> Decision | str | None:
        row = held(self.state.row, own, MERGING)
        if row is None or self.state.refresh is None:
            return None
        refresh = self.state.refresh
        found = refresh.hold
        if found is None or found.merge_round != refresh.merge_round:
            found = Held(refresh.merge_round)
        if found.decision is None:
            row = row._replace(left=True, live=not found.is_over)
        self._become(row=row, refresh=refresh._replace(hold=found))
        return found.decision or ""

    def deletes_to_leave_out(self, own: Own, *, has_kept: bool) -> tuple[Recorded, ...]:
        refresh = self._refresh
        has_kept = has_kept or (refresh.has_committed and refresh.keeps_rows)
        if not leaves_out_deletes(own[0], refresh.hold, refresh.merge_round, has_kept):
            return ()
        return tuple(rec for rec in self.recorded(own) if rec.path is not None and rec.new == 0)

    def write_kept(self, own: Own, kept: tuple[Recorded, ...]) -> None:
        """Write nothing: a chunk of one row has nothing left."""

    def record_kept(self, own: Own, kept: tuple[Recorded, ...]) -> bool:
        chunks = self._chunks(lambda n, rec: rec._replace(new=rec.old) if rec in kept and rec else rec)
        return self._write(own, held, MERGING, chunks=chunks, keeps_rows=True)

    @property
    def _is_waiting(self) -> bool:
        return is_waiting(self.state.row, self.state.refresh.hold if self.state.refresh else None)

    @property
    def _refresh(self) -> Refresh:
        assert self.state.refresh is not None
        return self.state.refresh

    # -- main's log and its MERGEs -----------------------------------------------------------------------------------

    def latest(self) -> int:
        return latest(self.state.log)

    def fence(self, own: Own) -> bool:
        version = fence_version(own[1])
        if last_txn(self.state.log, 0) >= version:
            return False
        fence = Commit("fence", (), own[0], own[1], version)
        may_keep = any(shown.keeps for shown in self.state.person.approved)
        self._become(log=extended(self.design, self.state.log, fence, may_keep=may_keep))
        return True

    def at_fence(self, own: Own) -> AtFence:
        log, refresh = self.state.log, self.state.refresh
        first = refresh.first if refresh is not None and self.state.row.refresh == own[0] else None
        whole = None if first is None else published_whole(log, own[0], first)
        return AtFence(
            is_later=epoch_in(log) > own[1],
            is_fenced=is_fence_in(log, own),
            base=latest(log),
            is_in_main=is_publish_in(log, own[0]),
            has_kept=is_kept_in(log, own[0]),
            is_overtaken=first is not None and is_overtaken(log, own[0], first),
            whole=-1 if whole is None else whole,
            needs_no_fence=is_fenced_by_publish(self.state.row, log, own[1]),
        )

    def check_log(self, own: Own, chunks: tuple[Recorded, ...], merge_round: int, part: int | None) -> LogCheck:
        base = min(rec.base for rec in chunks)
        return log_check(self.state.log, base, own, merge_round, part, self.design.tells_rounds)

    def is_in_log(self, own: Own) -> bool:
        return epoch_in(self.state.log) == own[1]

    def next_txn(self, own: Own) -> int:
        return txn_after(self.state.log, own[1])

    def start(self, own: Own, part: int, chunks: tuple[Recorded, ...], merge_round: int, txn: int) -> Merge | str:
        changes = []
        for rec in chunks:
            if rec.path is None:
                continue
            found = self._read(self._changes(own, rec))
            if found is None or (self.design.has_own_paths and found != (rec.old, rec.new)):
                return "gone"
            changes.append((rec.number, found[1], found[0]))  # type: ignore[index]
        app = chunks[0].number + 1 if self.design.app == "partition" else 0
        if self.design.app != "none" and last_txn(self.state.log, app) >= txn:
            return "outdated"
        now = content(self.state.log)
        if any(now[number] != old for number, _, old in changes):
            return "unexpected"
        pairs = tuple((number, new) for number, new, _ in changes)
        refresh = self.state.refresh
        keeps = self.design.notes_kept and refresh is not None and refresh.keeps_rows
        base = min(rec.base for rec in chunks)
        return Merge(*own, merge_round, part, txn, app, latest(self.state.log), pairs, keeps, base)

    def commit(self, merge: Merge) -> int | None:
        log = committed(self.design, self.state, merge)
        if log is None:
            return None
        self._become(log=log)
        return latest(log)

    # -- the history beside main -------------------------------------------------------------------------------------

    def has_history(self) -> bool:
        return self.state.history != NO_HISTORY

    def create_history(self) -> None:
        if not self.has_history():
            self._become(history=history_id((Written("create"),)))

    def is_history_taken(self, own: Own) -> bool:
        return is_history_taken(self.state.history, self.state.log, own[1])

    def needs_history_fence(self, own: Own) -> bool:
        found = needs_history_fence if self.design.fences_compares else needs_fence_of_changes
        return found(self.state.history, self.state.log, own)

    def fence_history(self, own: Own) -> bool:
        version = fence_version(own[1])
        if newest_txn(self.state.history) >= version:
            return False
        fence = Written("fence", (), *own, version)
        self._become(history=extended_history(self.state.history, self.state.log, fence))
        return True

    def history_plan(self, own: Own, found: Published) -> Target:
        design, commits = self.design, commits_of(self.state.log)
        has_left_out = any(commits[each].keeps for each in found.commits[-1:])
        has_corrections = not (has_left_out and any(rec.old and not rec.new for rec in found.chunks))
        return history_plan(
            *(self.state.history, self.state.log, own, found.version, found.commits),
            *(has_corrections, design.is_forced, design.minds_others),
        )

    def compare_history(self, target: Target) -> tuple[Action, ...]:
        return actions_to(self.state.history, content(self.state.log, target.version))

    def start_history(
        self, own: Own, found: Published, target: Target, actions: tuple[Action, ...] | None
    ) -> HistoryWrite | str:
        is_begin = target.way is Way.BEGIN
        if is_begin:
            actions = begun(content(self.state.log, target.version))
        elif actions is None and (actions := self._of_recorded(own, found.chunks)) is None:
            return "gone"
        if newest_txn(self.state.history) >= target.txn:
            return "outdated"
        facts = (*own, target.txn, target.version, target.mark, is_begin)
        base = target.base if self.design.notes_base else -1
        return HistoryWrite(Written("history", actions, *facts, base=base), len(written_in(self.state.history)) - 1)

    def _of_recorded(self, own: Own, chunks: tuple[Recorded, ...]) -> tuple[Action, ...] | None:
        """Return the actions of the recorded corrections; None if these are gone."""
        actions = list[Action]()
        for rec in chunks:
            if rec.path is None:
                continue
            found = self._read(self._changes(own, rec))
            if found is None:
                return None
            old, new = found  # type: ignore[misc]
            actions += [("C", rec.number, 0)] if old else []
            actions += [("N", rec.number, new)] if new else []
        return tuple(actions)

    def commit_history(self, write: HistoryWrite) -> bool:
        history = committed_history(self.state.history, self.state.log, write)
        if history is not None:
            self._become(history=history)
        return history is not None

    def is_history_written(self, own: Own) -> bool:
        return is_history_of(self.state.history, own)

    def write_history_ahead(
        self, own: Own, part: int, chunks: tuple[Recorded, ...], merge_round: int, txn: int
    ) -> None:
        actions, version = self._of_recorded(own, chunks) or (), self.latest() + 1
        facts = (*own, history_txn_after(self.state.history, own[1]), version, f"r{own[0]}:{txn}")
        self._become(history=extended_history(self.state.history, self.state.log, Written("history", actions, *facts)))

    # -- the steps' writes -------------------------------------------------------------------------------------------

    def stage(self, own: Own) -> int:
        self._put(self._staging(own), self.state.source)
        return self.state.source

    def is_pinned(self, own: Own) -> bool:
        refresh = self.state.refresh
        return self.state.source == (self.state.bindings[-1] if refresh is None else refresh.pin)

    def compare_staged(self, own: Own, base: int) -> tuple[Recorded, ...] | None:
        staged = self._read(self._staging(own))
        if staged is None:
            return None
        assert isinstance(staged, int)
        old, new = content(self.state.log, base), SOURCE[staged]
        recs = tuple(Recorded(n, own[1], 0, base, *both) for n, both in enumerate(zip(old, new, strict=True)))
        for rec in recs:
            if rec.path is not None:
                self.write_changes(own, rec)
        return recs

    def seal(self, own: Own, recs: tuple[Recorded, ...]) -> bool:
        return self._write(own, advanced, REFRESHING, MERGING, sealed_by=own[1], chunks=recs)

    def compare(self, own: Own, chunk: int, base: int, merge_round: int) -> Recorded | None:
        refresh, row = self.state.refresh, self.state.row
        sealed_by = refresh.sealed_by if refresh is not None and row.refresh == own[0] else own[1]
        staged = self._read(self._staging((own[0], sealed_by)))
        if staged is None or (refresh is not None and self.design.has_own_paths and staged != refresh.pin):
            return None
        assert isinstance(staged, int)
        old, new = content(self.state.log, base)[chunk], SOURCE[staged][chunk]
        return Recorded(chunk, own[1], merge_round, base, old, new)

    def write_changes(self, own: Own, rec: Recorded) -> None:
        self._put(self._changes(own, rec), (rec.old, rec.new))

    def record(self, own: Own, rec: Recorded) -> bool:
        chunks = self._chunks(lambda n, before: rec if n == rec.number else before)
        return self._write(own, held, MERGING, chunks=chunks)

    def commit_recorded(self, own: Own, chunks: tuple[Recorded, ...], version: int) -> bool:
        numbers = {rec.number for rec in chunks}
        after = self._chunks(lambda n, before: before and before._replace(committed=before.committed or n in numbers))
        return self._write(own, held, MERGING, chunks=after)

    def discard(self, own: Own, *, is_published: bool, has_stragglers: bool, keeps_rows: bool) -> bool:
        if self.state.refresh is None:
            return False
        refresh = self._refresh
        is_new = (is_published or has_stragglers) and not self.design.is_progressive
        has_committed = refresh.has_committed or is_new or any(c and c.committed for c in refresh.chunks)
        merge_round, none = refresh.merge_round + 1, (None, None, None)
        facts = {"has_committed": has_committed}
        facts["keeps_rows"] = (refresh.has_committed and refresh.keeps_rows) or keeps_rows
        return self._write(own, held, MERGING, chunks=none, merge_round=merge_round, **facts)

    def published(self, own: Own, version: int) -> bool:
        return self._publish(own, version, version)

    def concluded(self, own: Own, version: int) -> bool:
        return self._publish(own, version, -1)

    def _publish(self, own: Own, version: int, known: int) -> bool:
        if not self._write(own, advanced, MERGING, CLEANUP):
            return False
        if self.design.keeps_history and known >= 0:
            check_reached(self.state.history, self.state.log, version)
        found, sealed = content(self.state.log, version), SOURCE[self._refresh.pin]
        ours = [c for c in commits_of(self.state.log)[: version + 1] if (c.kind, c.refresh) == ("publish", own[0])]
        keeps_rows = self._refresh.keeps_rows or any(c.keeps for c in ours[-1:])
        if any(
            value != wanted and not (keeps_rows and not wanted) for value, wanted in zip(found, sealed, strict=True)
        ):
            raise Violated(f"invariant 1: main at version {version} is {found}, what was sealed is {sealed}")
        self._become(row=self.state.row._replace(upper=self._refresh.upper, version=known, kept=found != sealed))
        return True

    def finish(self, own: Own) -> bool:
        row = self._after(own, advanced, CLEANUP, NORMAL)
        return row is not None and self._end(own, row, "published")

    def abandon(self, own: Own, mode: str, *, is_main_known: bool) -> bool:
        row = self._after(own, abandoned)
        if row is None:
            return False
        is_in_main = any(c.kind == "publish" and c.refresh == own[0] for c in commits_of(self.state.log))
        may_be_forgotten = mode == "give up for good" or self.state.faults.put_back
        if is_in_main and not self.design.is_progressive and not may_be_forgotten:
            raise Violated(f"invariant 9: refresh {own[0]} is abandoned, and main has it")
        return self._end(own, row if is_main_known else row._replace(version=-1), "abandoned")

    def remove_files(self, own: Own) -> None:
        self._become(files=tuple((path, found) for path, found in self.state.files if path[1] != own[0]))

    # -- how a write is made -----------------------------------------------------------------------------------------

    def _become(self, **changes: object) -> None:
        self.state = self.state._replace(**changes)  # type: ignore[arg-type]

    def _write(self, own: Own, claimed: Callable[..., Row | None], *phases: int, **changes: object) -> bool:
        """Change the refresh if the claim holds."""
        row = self._after(own, claimed, *phases)
        if row is None or self.state.refresh is None:
            return False
        self._become(row=row, refresh=self._refresh._replace(**changes))  # type: ignore[arg-type]
        return True

    def _after(self, own: Own, claimed: Callable[..., Row | None], *phases: int) -> Row | None:
        if self.design.compares_epochs or self.state.row.refresh != own[0]:
            return claimed(self.state.row, own, *phases)
        return claimed(self.state.row, (own[0], self.state.row.epoch), *phases)

    def _end(self, own: Own, row: Row, outcome: str) -> bool:
        outcomes = self.state.outcomes
        self._become(row=row, refresh=None, outcomes=(*outcomes[: own[0] - 1], outcome, *outcomes[own[0] :]))
        return True

    def _chunks(self, changed: Callable[[int, Recorded | None], Recorded | None]) -> tuple[Recorded | None, ...]:
        if self.state.refresh is None:
            return ()
        return tuple(changed(number, rec) for number, rec in enumerate(self._refresh.chunks))

    def _staging(self, own: Own) -> Path:
        return "staging", own[0], own[1] if self.design.has_own_paths else 0

    def _changes(self, own: Own, rec: Recorded) -> Path:
        return "changes", own[0], rec.epoch if self.design.has_own_paths else 0, rec.merge_round, rec.number

    def _put(self, path: Path, found: object) -> None:
        self._become(files=tuple(sorted((dict(self.state.files) | {path: found}).items(), key=repr)))

    def _read(self, path: Path) -> object:
        return dict(self.state.files).get(path)
