"""One process of the model: what `runner` does between two points at which others may come in.

`step` takes the one next step of a worker. Which one that is, the package decides: `plan.remaining`, `on_takeover`,
`on_failure`, `next_move` and the claims are called, not told again. What is told again is the order in which
`runner/admission`, `attempt`, `fencing`, `merging`, `publish` and `recovery` ask them, and what each step writes. It is
the order of `simulation`, which `test_differential.py` holds against real refreshes.

A `Design` says in what it is weaker than what is shipped; each weakness is an `if` at the place that it concerns.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from airflow_mv_provider.core import plan
from airflow_mv_provider.core.fence import Move, fence_version, next_move, next_part_move
from airflow_mv_provider.core.phase import Ending, Recovery, is_cancellable, on_failure, on_takeover
from airflow_mv_provider.core.progress.chunk import part_number
from airflow_mv_provider.core.state import Admission, next_epoch
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
    Merge,
    Recorded,
    Refresh,
    Row,
    State,
    Violated,
    Worker,
    abandoned,
    acquired,
    admission,
    advanced,
    appended,
    as_state,
    commits_of,
    content,
    epoch_in,
    handed_over,
    held,
    is_fence_in,
    is_overtaken,
    is_publish_in,
    last_txn,
    latest,
    minted,
    published_whole,
    standing,
    steps_left,
    txn_after,
)


class Design(NamedTuple):
    """What is shipped, or in what a design is weaker.

    has_fence             : a new epoch commits to main before it does anything else
    app                   : whose transaction a commit is: the table's, its partition's, or none
    has_own_paths         : staging and changes lie at paths of the epoch's own
    compares_epochs       : writes to the database ask for the epoch, and do not trust a lease that was just seen
    has_epoch_per_process : the next process of a caller takes an epoch of its own
    looks_first           : a refresh that an epoch before may have published is not given up without a look
    tells_rounds          : a commit of a round that was given up is not taken for one of this round
    asks_log              : a refresh that others have followed is concluded from main's log, and not resumed
    settles_its_own       : whoever fails looks whether the refresh still is its own before it settles that
    """

    name: str = "shipped"
    is_progressive: bool = False
    has_fence: bool = True
    app: str = "table"
    has_own_paths: bool = True
    compares_epochs: bool = True
    has_epoch_per_process: bool = True
    looks_first: bool = True
    tells_rounds: bool = True
    asks_log: bool = True
    settles_its_own: bool = True


Stepped = tuple[str, State]


def step(design: Design, state: State, number: int) -> Stepped | None:
    """Return what the next step of a worker is called, and the state after it; None where it has none."""
    worker = state.workers[number]
    return _STEPS[worker.at](design, state, number, worker)


def with_worker(state: State, number: int, worker: Worker, **changes: object) -> State:
    workers = list(state.workers)
    workers[number] = worker
    return state._replace(workers=tuple(workers), **changes)


def epochs_of_others(state: State, number: int) -> list[int]:
    return [w.own[1] for n, w in enumerate(state.workers) if n != number and w.own[1]]


# -- taking the table ------------------------------------------------------------------------------------------------


def _idle(design: Design, state: State, number: int, worker: Worker) -> Stepped | None:
    row = state.row
    match admission(row, KEYS[number]):
        case Admission.START:
            return "looks: the table is at rest", with_worker(state, number, Worker("look", seen=row))
        case Admission.ADOPT if not design.has_epoch_per_process:
            own = (row.refresh, row.epoch)
            return f"goes on under epoch {row.epoch}, as it was told", with_worker(state, number, Worker("run", own))
        case Admission.ADOPT | Admission.TAKE_OVER:
            return f"looks: refresh {row.refresh} is unfinished", with_worker(state, number, Worker("take", seen=row))
        case _:
            return None


def _look(design: Design, state: State, number: int, worker: Worker) -> Stepped:
    assert worker.seen is not None
    found = minted(worker.seen, state.log, state.bindings, state.source)
    if found is None:
        return "finds nothing new", with_worker(state, number, IDLE)
    epoch = next_epoch(worker.seen.epoch, epoch_in(state.log))
    return (
        f"mints upper {found[0]} for the source at {found[1]}",
        with_worker(state, number, worker._replace(at="acquire", data=(*found, epoch))),
    )


def _acquire(design: Design, state: State, number: int, worker: Worker) -> Stepped:
    assert worker.seen is not None
    upper, pin, epoch = worker.data
    refresh = len(state.outcomes) + 1
    row = acquired(state.row, worker.seen, refresh, KEYS[number], epoch)
    if row is None:
        return "is not the first", with_worker(state, number, IDLE)
    _check_new_epoch(state, number, epoch)
    bindings = state.bindings if upper <= len(state.bindings) else (*state.bindings, pin)
    changed = {
        "row": row,
        "refresh": Refresh(pin, upper, epoch),
        "bindings": bindings,
        "outcomes": (*state.outcomes, "running"),
    }
    return (
        f"acquires: refresh {refresh} under epoch {epoch}",
        with_worker(state, number, Worker("run", (refresh, epoch)), **changed),
    )


def _take(design: Design, state: State, number: int, worker: Worker) -> Stepped:
    assert worker.seen is not None
    epoch = next_epoch(worker.seen.epoch, epoch_in(state.log))
    return "reads main's log", with_worker(state, number, worker._replace(at="hand over", data=(epoch,)))


def _hand_over(design: Design, state: State, number: int, worker: Worker) -> Stepped:
    assert worker.seen is not None
    seen, epoch = worker.seen, worker.data[0]
    row = handed_over(state.row, seen, KEYS[number], epoch)
    if row is None:
        return "is not the first", with_worker(state, number, IDLE)
    _check_new_epoch(state, number, epoch)
    assert state.refresh is not None
    refresh = state.refresh._replace(merging=state.refresh.merging + (seen.phase == MERGING))
    own = (seen.refresh, epoch)
    at, mode = "run", worker.mode
    if mode:
        at = "fence"
    elif seen.owner != KEYS[number]:
        match on_takeover(PHASES[seen.phase], is_cancel_requested=seen.cancel):
            case Recovery.RESET:
                at = "abandon"
            case Recovery.ABANDON:
                at, mode = "fence", "give up"
            case _:
                at = "run"
    return (
        f"takes refresh {own[0]} under epoch {epoch}" + (f", to {mode}" if mode else ""),
        with_worker(
            state,
            number,
            Worker(at, own, mode=mode, is_unknown=design.looks_first and bool(refresh.sealed_by)),
            row=row,
            refresh=refresh,
        ),
    )


def _check_new_epoch(state: State, number: int, epoch: int) -> None:
    others = [state.row.epoch]
    if not state.faults.put_back:  # else others may work under epochs that the database has forgotten
        others += epochs_of_others(state, number)
    if epoch <= max(others):
        raise Violated(f"invariant 2: epoch {epoch} is not later than all others ({max(others)})")


# -- one attempt -----------------------------------------------------------------------------------------------------


def _run(design: Design, state: State, number: int, worker: Worker) -> Stepped:
    """Look at what is durable, renew the lease, and go to the first step that is left."""
    row = held(state.row, worker.own)
    if not design.compares_epochs and state.row.refresh == worker.own[0]:
        row = state.row
    if row is None:
        return "sees that it was overtaken", with_worker(state, number, IDLE)
    refresh = state.refresh
    assert refresh is not None
    is_fenced = worker.is_fenced or not design.has_fence
    is_sealed, is_followed = bool(refresh.sealed_by), worker.is_overtaken
    steps = steps_left(row.phase, is_fenced, refresh.chunks, design.is_progressive, is_sealed, is_followed)
    row = row._replace(live=True)
    can_stop = is_cancellable(
        PHASES[row.phase],
        is_progressive=design.is_progressive,
        has_committed=refresh.has_committed,
        has_tried=_has_tried(worker),
    )
    if row.cancel and can_stop:
        return "sees the cancel", _failing(state, number, worker, "MV-CANCELLED", row=row)
    recorded = tuple(c for c in refresh.chunks if c)
    base = worker.base
    match steps[0]:
        case plan.Fence():
            after = worker._replace(at="fence")
        case plan.Conclude():
            after = worker._replace(at="conclude")
        case plan.Stage():
            after = worker._replace(at="stage")
        case plan.Compare(chunk):
            if not design.has_fence and not base:
                base = latest(state.log)
            after = worker._replace(at="compare", base=base, data=(chunk.number, refresh.merge_round))
        case plan.PublishPart(chunks):
            number_of = chunks[0].number
            after = worker._replace(at="publish", data=(part_number([number_of]), recorded, refresh.merge_round))
        case plan.Publish():
            after = worker._replace(at="publish", data=(None, recorded, refresh.merge_round))
        case plan.Clean():
            after = worker._replace(at="clean")
    return f"renews its lease; next: {after.at}", with_worker(state, number, after, row=row)


def _has_tried(worker: Worker) -> bool:
    return worker.has_tried or worker.is_unknown or worker.is_in_main


def _may_stop(design: Design, state: State, worker: Worker) -> bool:
    has_committed = state.refresh is not None and state.refresh.has_committed
    return design.is_progressive or not (has_committed or worker.is_in_main)


def _fence(design: Design, state: State, number: int, worker: Worker) -> Stepped:
    own, log = worker.own, state.log
    if not design.has_fence:
        return "does not fence", with_worker(state, number, worker._replace(at="look at fence"))
    version = fence_version(own[1])
    if last_txn(log, 0) >= version:
        return "is refused its fence", with_worker(state, number, worker._replace(at="look at fence"))
    log = _appended(design, log, Commit("fence", (), own[0], own[1], version))
    said = f"fences main for epoch {own[1]}: version {latest(log)}"
    return said, with_worker(state, number, worker._replace(at="look at fence"), log=log)


def _look_at_fence(design: Design, state: State, number: int, worker: Worker) -> Stepped:
    if epoch_in(state.log) > worker.own[1] and design.has_fence:
        return "sees a later epoch's fence", with_worker(state, number, IDLE)
    is_fenced = is_fence_in(state.log, worker.own) or not design.has_fence
    at = ("look before giving up" if worker.mode else "run") if is_fenced else "fence"
    after = worker._replace(at=at, is_fenced=is_fenced, base=latest(state.log))
    if is_fenced and design.looks_first:
        after = after._replace(is_unknown=False, is_in_main=is_publish_in(state.log, worker.own[0]))
    if is_fenced and design.asks_log and state.refresh is not None and state.row.refresh == worker.own[0]:
        asked = (state.log, worker.own[0], state.refresh.first)
        found = published_whole(*asked)
        after = after._replace(is_overtaken=is_overtaken(*asked), whole=-1 if found is None else found)
    return f"stands on version {after.base}", with_worker(state, number, after)


def _staging(design: Design, own: tuple[int, int]) -> tuple[object, ...]:
    return ("staging", own[0], own[1] if design.has_own_paths else 0)


def _changes(design: Design, refresh: int, rec: Recorded) -> tuple[object, ...]:
    return ("changes", refresh, rec.epoch if design.has_own_paths else 0, rec.merge_round, rec.chunk)


def _put(state: State, path: tuple[object, ...], held_there: object) -> tuple[tuple[tuple[object, ...], object], ...]:
    files = dict(state.files)
    files[path] = held_there
    return tuple(sorted(files.items(), key=repr))


def _read(state: State, path: tuple[object, ...]) -> object:
    return next((found for each, found in state.files if each == path), None)


def _stage(design: Design, state: State, number: int, worker: Worker) -> Stepped:
    files = _put(state, _staging(design, worker.own), state.source)
    after = worker._replace(at="seal", data=(state.source,))
    return f"stages the source, which is at {state.source}", with_worker(state, number, after, files=files)


def _seal(design: Design, state: State, number: int, worker: Worker) -> Stepped:
    refresh = state.refresh
    pin = state.bindings[-1] if refresh is None else refresh.pin
    if state.source != pin:
        return "finds the source changed", _failing(state, number, worker, "MV-SOURCE-CHANGED")
    row = _written(design, state, worker, advanced, REFRESHING, MERGING)
    if row is None or refresh is None:
        return "cannot seal any more", with_worker(state, number, IDLE)
    sealed = refresh._replace(sealed_by=worker.own[1])
    return "seals", with_worker(state, number, worker._replace(at="run", data=()), row=row, refresh=sealed)


def _compare(design: Design, state: State, number: int, worker: Worker) -> Stepped:
    chunk, merge_round = worker.data
    refresh = state.refresh
    sealed_by = refresh.sealed_by if refresh is not None and state.row.refresh == worker.own[0] else worker.own[1]
    staged = _read(state, _staging(design, (worker.own[0], sealed_by)))
    if staged is None or (refresh is not None and design.has_own_paths and staged != refresh.pin):
        return "finds its staging gone", _failing(state, number, worker, "MV-SEAL-BROKEN")
    assert isinstance(staged, int)
    old, new = content(state.log, worker.base)[chunk], SOURCE[staged][chunk]
    rec = Recorded(chunk, worker.own[1], merge_round, worker.base, old, new)
    files = state.files if old == new else _put(state, _changes(design, worker.own[0], rec), (old, new))
    return (
        f"compares chunk {chunk} with version {worker.base}: {old} is to be {new}",
        with_worker(state, number, worker._replace(at="record", data=(rec,)), files=files),
    )


def _record(design: Design, state: State, number: int, worker: Worker) -> Stepped:
    (rec,) = worker.data
    row = _written(design, state, worker, held, MERGING)
    if row is None or state.refresh is None:
        return "cannot record any more", with_worker(state, number, IDLE)
    chunks = list(state.refresh.chunks)
    chunks[rec.chunk] = rec
    refresh = state.refresh._replace(chunks=tuple(chunks))
    after = worker._replace(at="run", data=())
    return f"records chunk {rec.chunk}", with_worker(state, number, after, row=row, refresh=refresh)


# -- compare and append ----------------------------------------------------------------------------------------------


def _publish(design: Design, state: State, number: int, worker: Worker) -> Stepped:
    """Look at main's log and decide."""
    part, recorded, merge_round = worker.data
    concerned = [rec for rec in recorded if part is None or part_number([rec.chunk]) == part]
    base = min(rec.base for rec in concerned)
    found = standing(state.log, base, worker.own, merge_round, part, design.tells_rounds)
    if found.fenced_by is not None and design.has_fence:
        return "sees a later epoch in main's log", with_worker(state, number, IDLE)
    changes = tuple((rec.chunk, rec.new) for rec in concerned if rec.old != rec.new)
    if part is None:
        move = next_move(found, has_changes=bool(changes) and not design.is_progressive)
    else:
        move = next_part_move(found)
    match move:
        case Move.DONE if part is None:
            version = found.published[-1].version if found.published else found.latest
            after = worker._replace(at="published", data=(version,))
            return f"sees that main has it: version {version}", with_worker(state, number, after)
        case Move.DONE:
            after = worker._replace(at="committed", data=(concerned[0].chunk,))
            return f"sees that main has part {part}", with_worker(state, number, after)
        case Move.START_OVER:
            is_new = bool(found.published or found.stragglers) and not design.is_progressive
            after = worker._replace(at="discard", data=(is_new, found.latest))
            return "sees that others changed main", with_worker(state, number, after)
        case _:
            txn = txn_after(state.log, worker.own[1])
            aim = (part or 0, tuple(concerned), merge_round, txn)
            after = worker._replace(at="lease before merge", has_tried=True, data=aim)
            return "decides to merge", with_worker(state, number, after)


def _lease_before_merge(design: Design, state: State, number: int, worker: Worker) -> Stepped:
    row = held(state.row, worker.own)
    if not design.compares_epochs and state.row.refresh == worker.own[0]:
        row = state.row
    if row is None:
        return "sees that it was overtaken", with_worker(state, number, IDLE)
    row = row._replace(live=True)
    if row.cancel and _may_stop(design, state, worker):
        return "sees the cancel before it merges", _failing(state, number, worker, "MV-CANCELLED", row=row)
    return "renews its lease", with_worker(state, number, worker._replace(at="merge"), row=row)


def _merge(design: Design, state: State, number: int, worker: Worker) -> Stepped:
    """Start the MERGE: Delta takes its snapshot and looks at the transaction; the clauses look at the old rows."""
    part, recorded, merge_round, txn = worker.data
    changes = []
    for rec in recorded:
        if rec.old == rec.new:
            continue
        held_there = _read(state, _changes(design, worker.own[0], rec))
        if held_there is None or (design.has_own_paths and held_there != (rec.old, rec.new)):
            return "finds its changes gone", _failing(state, number, worker, "MV-SEAL-BROKEN")
        changes.append((rec.chunk, held_there[1], held_there[0]))  # type: ignore[index]
    app = recorded[0].chunk + 1 if design.app == "partition" else 0
    if design.app != "none" and last_txn(state.log, app) >= txn:
        return "is refused: its transaction is outdated", with_worker(state, number, worker._replace(at="run", data=()))
    now = content(state.log)
    if any(now[chunk] != old for chunk, _, old in changes):
        return "meets a row that it did not expect", with_worker(state, number, worker._replace(at="run", data=()))
    pairs = tuple((chunk, new) for chunk, new, _ in changes)
    merge = Merge(*worker.own, merge_round, part, txn, app, latest(state.log), pairs)
    said = f"starts its MERGE of {dict(pairs)} at version {merge.snapshot}"
    return said, with_worker(state, number, worker._replace(at="commit", data=(merge,)))


def _commit(design: Design, state: State, number: int, worker: Worker) -> Stepped:
    (merge,) = worker.data
    log = committed(design, state, merge)
    after = worker._replace(at="run", data=())
    if log is None:
        return "fails to commit: others were faster", with_worker(state, number, after)
    return f"commits version {latest(log)}", with_worker(state, number, after, log=log)


def committed(design: Design, state: State, merge: Merge) -> int | None:
    """Return main's log with a MERGE committed, or None if Delta refuses it.

    Refused are: another commit of its application meanwhile, a write to a partition that it read, OPTIMIZE.
    """
    touched = {partition for partition, _ in merge.changes}
    for commit in commits_of(state.log)[merge.snapshot + 1 :]:
        is_same_app = bool(commit.epoch) and commit.app == merge.app and design.app != "none"
        if is_same_app or commit.kind == "optimize" or touched & {partition for partition, _ in commit.changes}:
            return None
    if state.outcomes[merge.refresh - 1] != "running" and not state.faults.put_back:
        outcome = state.outcomes[merge.refresh - 1]
        raise Violated(f"invariant 9: refresh {merge.refresh} is {outcome}, and a commit of it reaches main")
    entry = Commit(
        "publish",
        merge.changes,
        merge.refresh,
        merge.epoch,
        merge.txn,
        merge.app,
        merge.merge_round,
        merge.part,
    )
    return _appended(design, state.log, entry)


def _appended(design: Design, log: int, commit: Commit) -> int:
    """Return the log with a commit of ours."""
    after = appended(log, commit)
    if commit.epoch < epoch_in(log):
        raise Violated(f"invariant 6: epoch {commit.epoch} commits after epoch {epoch_in(log)}")
    is_foreign = any(c.kind in ("foreign", "restore") for c in commits_of(after))
    now = content(after)
    if design.is_progressive:
        is_torn = any(value not in column for value, column in zip(now, zip(*SOURCE, strict=True), strict=True))
    else:
        is_torn = now not in SOURCE
    if is_torn and not is_foreign:
        raise Violated(f"invariant 4: a reader sees {now}, which no version of the source is")
    if not design.is_progressive and not is_foreign and SOURCE.index(now) < SOURCE.index(content(log)):
        raise Violated(f"invariant 13: main goes back to the source at {SOURCE.index(now)}")
    return after


def _published(design: Design, state: State, number: int, worker: Worker) -> Stepped:
    (version,) = worker.data
    row = _written(design, state, worker, advanced, MERGING, CLEANUP)
    if row is None or state.refresh is None:
        return "cannot write that it is published", with_worker(state, number, IDLE)
    pin = state.refresh.pin
    if content(state.log, version) != SOURCE[pin]:
        found = content(state.log, version)
        raise Violated(f"invariant 1: main at version {version} is {found}, what was sealed is {SOURCE[pin]}")
    row = row._replace(upper=state.refresh.upper, version=version)
    return f"writes: version {version} is published", with_worker(
        state, number, worker._replace(at="run", data=()), row=row
    )


def _conclude(design: Design, state: State, number: int, worker: Worker) -> Stepped:
    """Write what main's log shows, which nothing else is needed for."""
    refresh = state.refresh
    if worker.whole < 0 or design.is_progressive or refresh is None or not refresh.sealed_by:
        return "sees that others have followed it", _failing(state, number, worker, "MV-OVERTAKEN")
    row = _written(design, state, worker, advanced, MERGING, CLEANUP)
    if row is None:
        return "cannot write that it was published", with_worker(state, number, IDLE)
    if content(state.log, worker.whole) != SOURCE[refresh.pin]:
        found = content(state.log, worker.whole)
        raise Violated(f"invariant 1: main at version {worker.whole} was {found}, sealed was {SOURCE[refresh.pin]}")
    row = row._replace(upper=refresh.upper, version=-1)
    after = worker._replace(at="run", mode="", data=())
    return f"writes: version {worker.whole} was published, main is not known", with_worker(
        state, number, after, row=row
    )


def _committed(design: Design, state: State, number: int, worker: Worker) -> Stepped:
    (chunk,) = worker.data
    row = _written(design, state, worker, held, MERGING)
    if row is None or state.refresh is None:
        return "cannot write that it is committed", with_worker(state, number, IDLE)
    chunks = tuple(c and (c._replace(committed=True) if c.chunk == chunk else c) for c in state.refresh.chunks)
    refresh = state.refresh._replace(chunks=chunks)
    after = worker._replace(at="run", data=())
    return f"writes: chunk {chunk} is committed", with_worker(state, number, after, row=row, refresh=refresh)


def _discard(design: Design, state: State, number: int, worker: Worker) -> Stepped:
    is_new, base = worker.data
    row = _written(design, state, worker, held, MERGING)
    if row is None or state.refresh is None:
        return "cannot discard any more", with_worker(state, number, IDLE)
    refresh = state.refresh
    has_committed = refresh.has_committed or is_new or any(c and c.committed for c in refresh.chunks)
    refresh = refresh._replace(
        chunks=(None, None, None), merge_round=refresh.merge_round + 1, has_committed=has_committed
    )
    after = worker._replace(at="run", base=base, has_tried=True, data=())
    said = f"discards its corrections; round {refresh.merge_round}, from version {base}"
    return said, with_worker(state, number, after, row=row, refresh=refresh)


# -- the end ---------------------------------------------------------------------------------------------------------


def _without(state: State, refresh: int) -> tuple[tuple[tuple[object, ...], object], ...]:
    return tuple((path, found) for path, found in state.files if path[1] != refresh)


def _clean(design: Design, state: State, number: int, worker: Worker) -> Stepped:
    after = worker._replace(at="finish")
    return "removes its files", with_worker(state, number, after, files=_without(state, worker.own[0]))


def _finish(design: Design, state: State, number: int, worker: Worker) -> Stepped:
    row = _written(design, state, worker, advanced, CLEANUP, NORMAL)
    if row is None:
        return "cannot finish any more", with_worker(state, number, IDLE)
    outcomes = _ended(state, worker.own[0], "published")
    return "finishes", with_worker(state, number, IDLE, row=row, refresh=None, outcomes=outcomes)


def _ended(state: State, refresh: int, outcome: str) -> tuple[str, ...]:
    return (*state.outcomes[: refresh - 1], outcome, *state.outcomes[refresh:])


def _abandon(design: Design, state: State, number: int, worker: Worker) -> Stepped:
    row = _abandoned(design, state, worker)
    if row is None:
        return "cannot abandon any more", with_worker(state, number, IDLE)
    is_in_main = any(c.kind == "publish" and c.refresh == worker.own[0] for c in commits_of(state.log))
    may_be_forgotten = worker.mode == "give up for good" or state.faults.put_back
    if is_in_main and not design.is_progressive and not may_be_forgotten:
        raise Violated(f"invariant 9: refresh {worker.own[0]} is abandoned, and main has it")
    if worker.is_overtaken or worker.mode == "bring to its end":
        row = row._replace(version=-1)
    changed = {"row": row, "refresh": None, "outcomes": _ended(state, worker.own[0], "abandoned")}
    return "abandons the refresh", with_worker(state, number, worker._replace(at="sweep", data=()), **changed)


def _abandoned(design: Design, state: State, worker: Worker) -> Row | None:
    if design.compares_epochs or state.row.refresh != worker.own[0]:
        return abandoned(state.row, worker.own)
    return abandoned(state.row, (worker.own[0], state.row.epoch))


def _sweep(design: Design, state: State, number: int, worker: Worker) -> Stepped:
    return "removes its files", with_worker(state, number, IDLE, files=_without(state, worker.own[0]))


def _failing(state: State, number: int, worker: Worker, code: str, **changes: object) -> State:
    if worker.mode == "bring to its end":
        at = "abandon" if code == "MV-OVERTAKEN" else "conclude"
        return with_worker(state, number, worker._replace(at=at, data=()), **changes)
    if worker.mode:
        return with_worker(state, number, IDLE, **changes)
    return with_worker(state, number, worker._replace(at="settle", data=(code,)), **changes)


def failed(design: Design, state: State, number: int) -> Stepped:
    """The step at hand meets an error of the engine; before it is settled the lease is asked once more."""
    worker = state.workers[number]
    row = held(state.row, worker.own)
    if row is None:
        return "meets an error, and sees that it was overtaken", with_worker(state, number, IDLE)
    row = row._replace(live=True)
    return "meets an error of the engine", _failing(state, number, worker, "MV-ENGINE", row=row)


def _settle(design: Design, state: State, number: int, worker: Worker) -> Stepped:
    (code,) = worker.data
    row, refresh = state.row, state.refresh
    if design.settles_its_own and (row.refresh, row.epoch) != worker.own:
        return "sees that it was overtaken", with_worker(state, number, IDLE)
    ending = on_failure(
        PHASES[row.phase],
        code,
        is_transient=code != "MV-CANCELLED",
        has_committed=bool(refresh and refresh.has_committed) and not design.is_progressive,
        will_retry=WILL_RETRY[number],
        merging_attempts=refresh.merging if refresh else 0,
    )
    if ending is Ending.KEEP:
        return "keeps the refresh", with_worker(state, number, worker._replace(at="park", data=()))
    if not _has_tried(worker) or worker.is_overtaken:
        return "gives the refresh up", with_worker(state, number, worker._replace(at="abandon", data=()))
    is_final = bool(refresh and refresh.has_committed) and not design.is_progressive
    if as_state(row).refresh_id is None:
        raise Violated("the hand-over of a refresh that has ended")
    epoch = next_epoch(row.epoch, epoch_in(state.log))
    mode = "give up for good" if is_final else "give up"
    after = Worker("hand over", worker.own, row, mode, data=(epoch,))
    return "wants to give the refresh up", with_worker(state, number, after)


def _park(design: Design, state: State, number: int, worker: Worker) -> Stepped:
    row = held(state.row, worker.own)
    if row is None:
        return "cannot park any more", with_worker(state, number, IDLE)
    return "parks the refresh", with_worker(state, number, IDLE, row=row._replace(live=WILL_RETRY[number]))


def _look_before_giving_up(design: Design, state: State, number: int, worker: Worker) -> Stepped:
    refresh = state.refresh
    if state.row.refresh != worker.own[0] or refresh is None:
        return "sees that the refresh has ended", with_worker(state, number, IDLE)
    is_published = refresh.has_committed or worker.is_in_main
    if not design.looks_first and (recorded := [c for c in refresh.chunks if c]):
        base = min(c.base for c in recorded)
        found = standing(state.log, base, worker.own, refresh.merge_round, None, design.tells_rounds)
        is_published = is_published or bool(found.published)
    if is_published and worker.mode != "give up for good" and not design.is_progressive:
        mode = "bring to its end" if design.asks_log else ""
        return "sees that main has it", with_worker(state, number, worker._replace(at="run", mode=mode, data=()))
    return "sees that it may be given up", with_worker(state, number, worker._replace(at="abandon"))


def _written(
    design: Design, state: State, worker: Worker, claimed: Callable[..., Row | None], *phases: int
) -> Row | None:
    """Return the row after a write of this worker."""
    if design.compares_epochs or state.row.refresh != worker.own[0]:
        return claimed(state.row, worker.own, *phases)
    return claimed(state.row, (worker.own[0], state.row.epoch), *phases)


_STEPS: dict[str, Callable[[Design, State, int, Worker], Stepped | None]] = {
    "idle": _idle,
    "look": _look,
    "acquire": _acquire,
    "take": _take,
    "hand over": _hand_over,
    "run": _run,
    "fence": _fence,
    "look at fence": _look_at_fence,
    "stage": _stage,
    "seal": _seal,
    "compare": _compare,
    "record": _record,
    "publish": _publish,
    "lease before merge": _lease_before_merge,
    "merge": _merge,
    "commit": _commit,
    "published": _published,
    "conclude": _conclude,
    "committed": _committed,
    "discard": _discard,
    "clean": _clean,
    "finish": _finish,
    "abandon": _abandon,
    "sweep": _sweep,
    "settle": _settle,
    "park": _park,
    "look before giving up": _look_before_giving_up,
}
