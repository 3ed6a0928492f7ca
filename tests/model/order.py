"""The order in which one process takes its steps, told once: the checker and the simulation run it.

`step` takes one step of a process, which others can come before and after: it reads, or it writes once. What is read
and written lies behind `Effects`: small values in `process`, the real `Store` and a simulated Delta in `stored`. The
decisions are the package's own: `core.plan`, `core.fence`, `core.phase`, `core.claim`. Told again is the order in which
`runner/admission`, `attempt` and `steps` ask them, in `ending` that of `recovery`; `test_differential.py` holds it
against real refreshes.

A weakness of a `Design` is an `if` at the place that it concerns, here or in `ending` or `process`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from airflow_mv_provider.core import plan
from airflow_mv_provider.core.approval import hold
from airflow_mv_provider.core.approval.hold import Decision
from airflow_mv_provider.core.fence import Move, next_move, next_part_move
from airflow_mv_provider.core.phase import Recovery
from airflow_mv_provider.core.progress.chunk import part_number
from airflow_mv_provider.core.state import Admission
from tests.model import history
from tests.model.design import AtFence, Design, Effects, Published, Worker
from tests.model.ending import (
    AGAIN,
    HELD,
    LOST,
    MAX_TRIES,
    NOTHING_NEW,
    OVER,
    Stepped,
    abandon,
    can_stop,
    ended,
    fail,
    failing,
    look_before_giving_up,
    merge_failed,
    park,
    settle,
    sweep,
)

MAX_ROUNDS, MAX_FENCES = 5, 3


def step(design: Design, fx: Effects, worker: Worker) -> Stepped | None:
    """Return what the next step of a process is called, and the process after it; None if it has none."""
    return STEPS[worker.at](design, fx, worker)


# -- runner/admission: take the table ----------------------------------------------------------------------------------


def _idle(design: Design, fx: Effects, worker: Worker) -> Stepped | None:
    admission = fx.admission()
    if design.holds and (outdated := fx.outdated_hold()) is not None:
        return "looks: what is held is outdated", Worker("supersede", data=(outdated,))
    match admission:
        case Admission.START:
            return "looks: the table is at rest", Worker("look", seen=fx.seen())
        case Admission.ADOPT if not design.has_epoch_per_process:
            own = fx.own_as_told()
            return f"goes on under epoch {own[1]}, as it was told", Worker("run", own)
        case Admission.ADOPT | Admission.TAKE_OVER:
            return "looks: a refresh is unfinished", Worker("take", seen=fx.seen())
        case _:
            return None


def _supersede(design: Design, fx: Effects, worker: Worker) -> Stepped:
    fx.supersede(*worker.data)
    return "supersedes what is held", ended(AGAIN)


def _look(design: Design, fx: Effects, worker: Worker) -> Stepped:
    found = fx.minted(worker.seen)
    if found is None:
        return "finds nothing new", ended(NOTHING_NEW)
    epoch = fx.next_epoch(worker.seen)
    said = f"mints upper {found[0]} for the source at {found[1]}"
    return said, worker._replace(at="acquire", data=(*found, epoch))


def _acquire(design: Design, fx: Effects, worker: Worker) -> Stepped:
    own = fx.acquire(worker.seen, *worker.data)
    if own is None:
        return "is not the first", ended(AGAIN)
    return f"acquires: refresh {own[0]} under epoch {own[1]}", Worker("run", own)


def _take(design: Design, fx: Effects, worker: Worker) -> Stepped:
    return "reads main's log", worker._replace(at="hand over", data=(fx.next_epoch(worker.seen),))


def _hand_over(design: Design, fx: Effects, worker: Worker) -> Stepped:
    own = fx.hand_over(worker.seen, *worker.data)
    if own is None:
        return "is not the first", ended(AGAIN)
    at, mode = "fence" if worker.mode else "run", worker.mode
    if not mode:
        match fx.recovery(worker.seen):
            case None if fx.ends_at_once(worker.seen):
                at = "abandon"
            case Recovery.RESET:
                at = "abandon"
            case Recovery.ABANDON:
                at, mode = "fence", "give up"
    is_unknown = design.looks_first and fx.is_sealed(own)
    said = f"takes refresh {own[0]} under epoch {own[1]}" + (f", to {mode}" if mode else "")
    return said, Worker(at, own, mode=mode, is_unknown=is_unknown)


# -- runner/attempt: one step after the other --------------------------------------------------------------------------


def _run(design: Design, fx: Effects, worker: Worker) -> Stepped:
    """Renew the lease and go to the first step that is left."""
    is_cancelled = fx.renew(worker.own)
    if is_cancelled is None:
        return "sees that it was overtaken", ended(LOST)
    if is_cancelled and can_stop(fx, worker):
        return "sees the cancel", fail(fx, worker, "MV-CANCELLED")
    own, base = worker.own, worker.base
    is_fenced = worker.is_fenced or not design.has_fence
    match fx.next_step(own, is_fenced=is_fenced, is_overtaken=worker.is_overtaken):
        case plan.Fence():
            may_be_spared = design.spares_fence and design.has_fence and not design.holds and not fx.is_sealed(own)
            after = worker._replace(at="ask" if may_be_spared else "fence")
        case plan.Conclude():
            after = worker._replace(at="conclude")
        case plan.Stage():
            after = worker._replace(at="stage")
        case plan.Compare(chunk):
            if not design.has_fence and not base:
                base = fx.latest()
            after = worker._replace(at="compare", base=base, data=(chunk.number, fx.merge_round(own)))
        case plan.PublishPart(chunk):
            part = part_number(chunk.number)
            after = worker._replace(at="publish", data=(part, fx.recorded(own), fx.merge_round(own)))
        case plan.Publish():
            after = worker._replace(at="publish", data=(None, fx.recorded(own), fx.merge_round(own)))
        case plan.Clean():
            after = worker._replace(at="clean")
    return f"renews its lease; next: {after.at}", after


# -- runner/steps/fencing, staging, comparison -------------------------------------------------------------------------


def _ask(design: Design, fx: Effects, worker: Worker) -> Stepped:
    """Look whether the last publish is a fence for this epoch, too."""
    found = fx.at_fence(worker.own)
    if not found.needs_no_fence:
        return "needs a fence", worker._replace(at="fence")
    said = f"needs no fence, and stands on version {found.base}"
    return said, _standing(design, fx, worker._replace(needs_no_fence=True), found)


def _fence(design: Design, fx: Effects, worker: Worker) -> Stepped:
    after = worker._replace(at="look at fence")
    if not design.has_fence:
        return "does not fence", after
    if not fx.fence(worker.own):
        return "is refused its fence", after
    return f"fences main for epoch {worker.own[1]}: version {fx.latest()}", after


def _look_at_fence(design: Design, fx: Effects, worker: Worker) -> Stepped:
    found = fx.at_fence(worker.own)
    if found.is_later and design.has_fence:
        return "sees a later epoch's fence", failing(design, fx, worker, "MV-FENCED")
    if not found.is_fenced and design.has_fence:
        if worker.num_fences + 1 == MAX_FENCES:
            return "has no fence in the end", failing(design, fx, worker, "MV-EPOCH-REGRESSION")
        return "has no fence yet", worker._replace(at="fence", num_fences=worker.num_fences + 1)
    return f"stands on version {found.base}", _standing(design, fx, worker, found)


def _standing(design: Design, fx: Effects, worker: Worker, found: AtFence) -> Worker:
    at = "look before giving up" if worker.mode else "run"
    if at == "run" and design.keeps_history and not fx.has_history():
        at = "create history"
    is_fenced = found.is_fenced or worker.needs_no_fence
    after = worker._replace(at=at, is_fenced=is_fenced, base=found.base, num_fences=0)
    if design.looks_first:
        after = after._replace(is_unknown=False, is_in_main=found.is_in_main)
    if design.looks_for_kept:
        after = after._replace(has_kept=found.has_kept)
    if design.asks_log:
        after = after._replace(is_overtaken=found.is_overtaken, whole=found.whole)
    return after


def _stage(design: Design, fx: Effects, worker: Worker) -> Stepped:
    version = fx.stage(worker.own)
    return f"stages the source, which is at {version}", worker._replace(at="check source")


def _check_source(design: Design, fx: Effects, worker: Worker) -> Stepped:
    if not fx.is_pinned(worker.own):
        return "finds the source changed", failing(design, fx, worker, "MV-SOURCE-CHANGED")
    return "finds the source as it was pinned", worker._replace(at="compare staged")


def _compare_staged(design: Design, fx: Effects, worker: Worker) -> Stepped:
    base = worker.base or (0 if design.has_fence else fx.latest())
    recs = fx.compare_staged(worker.own, base)
    if recs is None:
        return "finds its staging gone", failing(design, fx, worker, "MV-SEAL-BROKEN")
    return f"compares what it has staged with version {base}", worker._replace(at="seal", base=base, data=recs)


def _seal(design: Design, fx: Effects, worker: Worker) -> Stepped:
    return _written(worker, "seals", is_written=fx.seal(worker.own, worker.data))


def _compare(design: Design, fx: Effects, worker: Worker) -> Stepped:
    chunk, merge_round = worker.data
    rec = fx.compare(worker.own, chunk, worker.base, merge_round)
    if rec is None:
        return "finds its staging gone", failing(design, fx, worker, "MV-SEAL-BROKEN")
    at = "record" if rec.path is None else "changes"
    return f"compares chunk {chunk} with version {worker.base}: {rec}", worker._replace(at=at, data=(rec,))


def _changes(design: Design, fx: Effects, worker: Worker) -> Stepped:
    fx.write_changes(worker.own, *worker.data)
    return "writes the changes", worker._replace(at="record")


def _record(design: Design, fx: Effects, worker: Worker) -> Stepped:
    (rec,) = worker.data
    return _written(worker, f"records chunk {rec.number}", is_written=fx.record(worker.own, rec))


def _written(worker: Worker, said: str, *, is_written: bool, **changes: Any) -> Stepped:
    if not is_written:
        return f"is overtaken before it {said}", ended(LOST)
    return said, worker._replace(at="run", data=(), **changes)


# -- runner/steps/merging, publish: compare and append -----------------------------------------------------------------


def _publish(design: Design, fx: Effects, worker: Worker) -> Stepped:
    """Look at main's log and decide."""
    part, recorded, merge_round = worker.data
    chunks = tuple(rec for rec in recorded if part is None or part_number(rec.number) == part)
    found = fx.check_log(worker.own, chunks, merge_round, part)
    if found.fenced_by is not None and design.has_fence:
        return "sees a later epoch in main's log", failing(design, fx, worker, "MV-FENCED")
    if part is None:
        has_changes = any(rec.path is not None for rec in chunks) and not design.is_progressive
        move = next_move(found, has_changes=has_changes)
    else:
        move = next_part_move(found)
    match move:
        case Move.DONE if part is None and worker.needs_no_fence and not fx.is_in_log(worker.own):
            after = worker._replace(at="fence", is_fenced=False, needs_no_fence=False, data=())
            return "has nothing to commit, and needs a fence", after
        case Move.DONE if part is None:
            version = found.published[-1].version if found.published else found.latest
            ours = Published(version, tuple(commit.version for commit in found.published), chunks)
            after = {"at": "history", "data": (ours, 1)} if design.keeps_history else {"data": (version,)}
            return f"sees that main has it: version {version}", worker._replace(**({"at": "published"} | after))
        case Move.DONE:
            after = worker._replace(at="committed", data=(chunks, found.published[-1].version))
            return f"sees that main has part {part}", after
        case Move.START_OVER if merge_round + 1 >= MAX_ROUNDS:
            return "sees others change main again", failing(design, fx, worker, "MV-MAIN-MOVED")
        case Move.START_OVER:
            return "sees that others changed main", worker._replace(
                at="discard",
                data=(found.latest, bool(found.published), bool(found.stragglers), found.keeps_rows or worker.has_kept),
            )
        case _ if design.holds and not _is_in_main(design, fx, worker):
            match fx.hold_step(worker.own):
                case hold.Step.HOLD:
                    return "needs a decision", worker._replace(at="hold")
                case hold.Step.EXPIRE:
                    return "sees that nobody has decided in time", failing(design, fx, worker, "MV-HOLD-EXPIRED")
                case hold.Step.STOP:
                    return "sees that the refresh was rejected", failing(design, fx, worker, "MV-CANCELLED")
    return _to_merge(design, fx, worker)


def _is_in_main(design: Design, fx: Effects, worker: Worker) -> bool:
    return fx.has_committed(worker.own) or (design.completes_unasked and worker.is_in_main)


def _to_merge(design: Design, fx: Effects, worker: Worker) -> Stepped:
    part, recorded, merge_round = worker.data
    if design.holds and (kept := fx.deletes_to_leave_out(worker.own, has_kept=worker.has_kept)):
        return "is to leave out the deletes", worker._replace(at="keep", data=(kept,))
    chunks = tuple(rec for rec in recorded if part is None or part_number(rec.number) == part)
    aim = (part or 0, chunks, merge_round, fx.next_txn(worker.own))
    after = worker._replace(at="lease before merge", has_tried=True, num_tries=worker.num_tries + 1, data=aim)
    if worker.num_tries == MAX_TRIES:
        return "has tried often enough", failing(design, fx, worker, worker.last_error or "MV-EPOCH-REGRESSION")
    return "decides to merge", after


def _hold(design: Design, fx: Effects, worker: Worker) -> Stepped:
    """Leave the refresh to a person, unless it has been decided in this moment."""
    found = fx.hold(worker.own)
    if found is None:
        return "is overtaken before it holds", ended(LOST)
    if not found:
        return "holds the refresh for a decision", ended(HELD)
    if not Decision(found).is_approval:
        return "sees that it has just been refused", failing(design, fx, worker, "MV-CANCELLED")
    return f"sees that it has just been {found}", _to_merge(design, fx, worker)[1]


def _keep(design: Design, fx: Effects, worker: Worker) -> Stepped:
    fx.write_kept(worker.own, *worker.data)
    return "writes the changes without their deletes", worker._replace(at="record kept")


def _record_kept(design: Design, fx: Effects, worker: Worker) -> Stepped:
    return _written(worker, "records them", is_written=fx.record_kept(worker.own, *worker.data))


def _lease_before_merge(design: Design, fx: Effects, worker: Worker) -> Stepped:
    is_cancelled = fx.renew(worker.own)
    if is_cancelled is None:
        return "sees that it was overtaken", ended(LOST)
    may_stop = design.is_progressive or not (fx.has_committed(worker.own) or worker.is_in_main)
    if is_cancelled and may_stop:
        return "sees the cancel before it merges", fail(fx, worker, "MV-CANCELLED")
    is_ahead = design.keeps_history and not design.writes_history_after
    return "renews its lease", worker._replace(at="history ahead" if is_ahead else "merge")


def _merge(design: Design, fx: Effects, worker: Worker) -> Stepped:
    """Start the MERGE: Delta takes its snapshot and looks at the transaction; the clauses look at the old rows."""
    merge = fx.start(worker.own, *worker.data)
    match merge:
        case "gone":
            return "finds its changes gone", failing(design, fx, worker, "MV-SEAL-BROKEN")
        case "outdated":
            return "is refused: its transaction is outdated", worker._replace(at="run", data=())
        case "unexpected":
            return "meets a row that it did not expect", merge_failed(worker, "MV-MAIN-MOVED")
    return f"starts its MERGE of {merge}", worker._replace(at="commit", data=(merge,))


def _commit(design: Design, fx: Effects, worker: Worker) -> Stepped:
    version = fx.commit(*worker.data)
    if version is None:
        return "fails to commit: others were faster", merge_failed(worker, "MV-MAIN-MOVED")
    return f"commits version {version}", worker._replace(at="run", data=())


def _committed(design: Design, fx: Effects, worker: Worker) -> Stepped:
    chunks, version = worker.data
    is_written = fx.commit_recorded(worker.own, chunks, version)
    return _written(worker, f"writes: chunk {chunks[0].number} is committed", is_written=is_written, num_tries=0)


def _discard(design: Design, fx: Effects, worker: Worker) -> Stepped:
    base, *facts = worker.data
    said = f"discards its corrections; another round, from version {base}"
    seen = dict(zip(("is_published", "has_stragglers", "keeps_rows"), facts, strict=True))
    is_written = fx.discard(worker.own, **seen)
    return _written(worker, said, is_written=is_written, base=base, has_tried=True, num_tries=0)


def _published(design: Design, fx: Effects, worker: Worker) -> Stepped:
    (version,) = worker.data
    is_written = fx.published(worker.own, version)
    return _written(worker, f"writes: version {version} is published", is_written=is_written)


# -- runner/steps/conclusion, runner/attempt ---------------------------------------------------------------------------


def _conclude(design: Design, fx: Effects, worker: Worker) -> Stepped:
    """Look whether main's log alone proves that main had all of it."""
    if worker.whole < 0 or design.is_progressive or not fx.is_sealed(worker.own):
        return "sees that others have followed it", failing(design, fx, worker, "MV-OVERTAKEN")
    return "sees that main has had it", worker._replace(at="concluded")


def _concluded(design: Design, fx: Effects, worker: Worker) -> Stepped:
    said = f"writes: version {worker.whole} was published, main is not known"
    return _written(worker, said, is_written=fx.concluded(worker.own, worker.whole), mode="")


def _clean(design: Design, fx: Effects, worker: Worker) -> Stepped:
    fx.remove_files(worker.own)
    return "removes its files", worker._replace(at="finish")


def _finish(design: Design, fx: Effects, worker: Worker) -> Stepped:
    return "finishes", ended(OVER if fx.finish(worker.own) else LOST)


STEPS: dict[str, Callable[[Design, Effects, Worker], Stepped | None]] = {
    "idle": _idle,
    "supersede": _supersede,
    "look": _look,
    "acquire": _acquire,
    "take": _take,
    "hand over": _hand_over,
    "run": _run,
    "ask": _ask,
    "fence": _fence,
    "look at fence": _look_at_fence,
    "stage": _stage,
    "check source": _check_source,
    "compare staged": _compare_staged,
    "seal": _seal,
    "compare": _compare,
    "changes": _changes,
    "record": _record,
    "publish": _publish,
    "hold": _hold,
    "keep": _keep,
    "record kept": _record_kept,
    "lease before merge": _lease_before_merge,
    "merge": _merge,
    "commit": _commit,
    **history.STEPS,
    "committed": _committed,
    "discard": _discard,
    "published": _published,
    "conclude": _conclude,
    "concluded": _concluded,
    "clean": _clean,
    "finish": _finish,
    "settle": settle,
    "park": park,
    "look before giving up": look_before_giving_up,
    "abandon": abandon,
    "sweep": sweep,
}
