"""The steps of one table's model, and its invariants; `exploring` visits every state.

Beside the steps of the workers there are those of the world, each of which may happen a few times: the source changes,
others write to main, a process dies (its MERGE goes on), a lease runs out, a caller starts a twin, somebody asks for a
cancel, Spark fails, the answer to a MERGE is lost while it goes on, the metadata database is put back to what a backup
holds of it (everybody who works dies with it, MERGEs go on; files and main are what they are). After a cancel the page
may end the refresh by itself, where no process works on it and it is not compared yet.

The twins are alike, so of two states that differ in their names only one is looked at.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from airflow_mv_provider.core.approval.hold import Decision
from airflow_mv_provider.core.fence import fence_version
from tests.model.commits import committed
from tests.model.decisions import cancelled, is_believed, is_waiting
from tests.model.design import Design, Worker
from tests.model.ending import interrupted
from tests.model.exploring import Explored, Explorer, Labelled, Violated
from tests.model.process import Process, decided, ended_by_page, failed, step, with_worker
from tests.model.versions import (
    NO_HISTORY,
    HistoryWrite,
    Written,
    begun,
    check_reached,
    committed_history,
    history_id,
    last_reached,
    written_in,
)
from tests.model.world import (
    CLEANUP,
    FOREIGN,
    IDLE,
    KEYS,
    MERGING,
    NAMES,
    NORMAL,
    SOURCE,
    Commit,
    Database,
    Faults,
    Merge,
    Person,
    Row,
    Shown,
    State,
    Values,
    appended,
    commits_of,
    content,
    latest,
    log_id,
)

_MAY_FAIL = frozenset({"stage", "record", "fence", "merge", "fence history"})
_IN_FLIGHT = frozenset({"commit", "commit history"})
_PATIENCE = 300  # steps of a process that nobody disturbs


class Bounds(NamedTuple):
    """How often each kind of fault may happen, all of them together, and which processes there are.

    eager : steps that are taken together with the one before, because nothing that comes in between makes another
            difference than when it comes before both. What is looked at counts only as long as the row is as it was
            seen; a comparison reads a version and a seal, which stay what they are, and writes where nobody else does
    """

    each: Faults
    together: int
    workers: tuple[int, ...] = (0, 1, 2)
    eager: frozenset[str] = frozenset({"look", "take", "check source", "compare", "changes", "keep", "check history"})
    decisions: int = 0  # how many a person makes
    history: str = "none"  # or "begun", with the first refresh; or "outdated": begun, and its log does not tell that


def first_state(bounds: Bounds) -> State:
    """A table whose first refresh was published; the source has changed since."""
    created = Commit("create")
    fence = Commit("fence", (), 1, 1, fence_version(1))
    publish = Commit("publish", tuple(enumerate(SOURCE[1])), 1, 1, fence_version(1) + 1)
    row = Row(epoch=1, upper=1, version=2)
    source = 1 if bounds.history == "outdated" else 2  # there only the history is to be brought up to date
    return State(
        *(source, log_id((created, fence, publish)), row, None, (1,), ("published",)),
        *((), (), (IDLE, IDLE, IDLE), Faults()),
        history=NO_HISTORY if bounds.history == "none" else _first_history(bounds, publish),
    )


def _first_history(bounds: Bounds, publish: Commit) -> int:
    """Return a history that was begun with the first refresh."""
    first, mark = fence_version(1), f"r{publish.refresh}:{publish.txn}"
    begin = Written("history", begun(SOURCE[1]), 1, 1, first + 1, 2, mark, begins=True)
    commits = (Written("create"), Written("fence", (), 1, 1, first), begin)
    return history_id((*commits, Written("unseen", (("X", 1, 0),))) if bounds.history == "outdated" else commits)


def explore(design: Design, bounds: Bounds) -> Explored:
    """Visit every state that can be reached, or stop at the first that breaks an invariant."""
    ends_well: set[State] = set()
    return Explorer(
        first_state(bounds),
        lambda state: successors(design, bounds, state),
        lambda state: check(design, state, ends_well),
        NAMES,
        canonical,
    ).explore()


def successors(design: Design, bounds: Bounds, state: State) -> Iterator[Labelled]:
    """Yield every step that can be taken now."""
    faults, each = state.faults, bounds.each
    is_calm = sum(faults) >= bounds.together
    for number, worker in enumerate(state.workers):
        if worker.at != "idle" or _may_begin(bounds, state, number):
            stepped = _taken(design, state, number)
            if stepped is not None:
                said, after = stepped
                while after.workers[number].at in bounds.eager and (more := step(design, after, number)) is not None:
                    said, after = f"{said}; {more[0]}", more[1]
                if worker.at == "idle" and _is_twin(state.row, number):
                    after = after._replace(faults=faults._replace(twin=faults.twin + 1))
                yield number, said, after
        if worker.at == "idle" or is_calm:
            continue
        if faults.crash < each.crash:
            counted = faults._replace(crash=faults.crash + 1)
            orphans = _with_orphan(state, worker)
            yield number, "dies", with_worker(state, number, IDLE, faults=counted, orphans=orphans)
        if faults.error < each.error and worker.at in _MAY_FAIL and not worker.mode:
            said, after = failed(design, state, number)
            yield number, said, after._replace(faults=faults._replace(error=faults.error + 1))
        if faults.lost < each.lost and worker.at in _IN_FLIGHT:
            counted = faults._replace(lost=faults.lost + 1)
            orphans, fx = _with_orphan(state, worker), Process(design, state, number)
            lost = interrupted(design, fx, worker, "MV-ENGINE")
            after = with_worker(state, number, lost, faults=counted, orphans=orphans)
            what = "its MERGE" if worker.at == "commit" else "its write to the history"
            yield number, f"loses the answer to {what}, which goes on", after
    for orphan in state.orphans:
        yield None, *_orphaned(design, state, orphan)
    if any(state.outcomes[path[1] - 1] != "running" for path, _ in state.files):  # type: ignore[operator]
        files = tuple((p, f) for p, f in state.files if state.outcomes[p[1] - 1] == "running")  # type: ignore[operator]
        yield None, "a sweep removes what ended refreshes left", state._replace(files=files)
    yield from _of_the_page(design, state)
    yield from _of_the_person(design, bounds, state)
    if not is_calm:
        yield from _of_the_world(each, state)


def _taken(design: Design, state: State, number: int) -> tuple[str, State] | None:
    try:
        return step(design, state, number)
    except Violated as error:
        error.step = (number, f"goes on at: {state.workers[number].at}")
        raise


def _of_the_page(design: Design, state: State) -> Iterator[Labelled]:
    """What the page does by itself after a cancel, where no process works and nothing can be in main."""
    said = "the page ends the cancelled refresh"
    try:
        after = ended_by_page(design, state)
    except Violated as error:
        error.step = (None, said)
        raise
    if after is not None:
        yield None, said, after


def _orphaned(design: Design, state: State, orphan: Merge | HistoryWrite) -> tuple[str, State]:
    left = state._replace(orphans=tuple(each for each in state.orphans if each is not orphan))
    if isinstance(orphan, HistoryWrite):
        return _history_orphaned(state, left, orphan)
    try:
        log = committed(design, state, orphan)
    except Violated as error:
        error.step = (None, "the MERGE that nobody waits for commits")
        raise
    if log is None:
        return "the MERGE that nobody waits for fails", left
    return f"the MERGE that nobody waits for commits version {latest(log)}", left._replace(log=log)


def _history_orphaned(state: State, left: State, orphan: HistoryWrite) -> tuple[str, State]:
    try:
        history = committed_history(state.history, state.log, orphan)
    except Violated as error:
        error.step = (None, "the write to the history that nobody waits for commits")
        raise
    if history is None:
        return "the write to the history that nobody waits for fails", left
    return "the write to the history that nobody waits for commits", left._replace(history=history)


def _may_begin(bounds: Bounds, state: State, number: int) -> bool:
    """True if this process may start; how often a caller starts a twin of itself is bounded."""
    if number not in bounds.workers:
        return False
    return not _is_twin(state.row, number) or state.faults.twin < bounds.each.twin


def _is_twin(row: Row, number: int) -> bool:
    """True if a process that starts now is beside another one of its caller; no process works on what is held."""
    return row.phase != NORMAL and row.owner == KEYS[number] and not row.left


def _with_orphan(state: State, worker: Worker) -> tuple[Merge | HistoryWrite, ...]:
    if worker.at not in _IN_FLIGHT:
        return state.orphans
    return tuple(sorted((*state.orphans, worker.data[0]), key=repr))


def _of_the_world(each: Faults, state: State) -> Iterator[Labelled]:
    faults, row = state.faults, state.row
    if faults.source < each.source and state.source + 1 < len(SOURCE):
        counted = faults._replace(source=faults.source + 1)
        yield None, f"the source changes to {state.source + 1}", state._replace(source=state.source + 1, faults=counted)
    if faults.expiry < each.expiry and row.live and row.phase != NORMAL:
        counted = faults._replace(expiry=faults.expiry + 1)
        yield None, "the lease runs out", state._replace(row=row._replace(live=False), faults=counted)
    if faults.cancel < each.cancel and not row.cancel and (asked := cancelled(row)) is not None:
        counted = faults._replace(cancel=faults.cancel + 1)
        yield None, "somebody asks for a cancel", state._replace(row=asked, faults=counted)
    held = state.refresh and state.refresh.hold
    if faults.too_late < each.too_late and held and not held.decision and not held.is_over:
        yield None, "the time to decide is up", _too_late(state, faults._replace(too_late=faults.too_late + 1))
    if faults.put_back < each.put_back:
        now = Database(row, state.refresh, state.bindings, state.outcomes)
        if state.backup is None and state.refresh is not None:
            yield None, "a backup is taken", state._replace(backup=now)
        elif state.backup is not None and state.backup != now:
            yield None, "the backup is put back", _put_back(state, state.backup)
    if faults.drift < each.drift and state.history != NO_HISTORY:
        yield from _drifts(state._replace(faults=faults._replace(drift=faults.drift + 1)))
    if faults.foreign < each.foreign:
        counted = faults._replace(foreign=faults.foreign + 1)
        now = content(state.log)
        written = [
            Commit("foreign", ((0, FOREIGN),)),
            Commit("foreign", ((1, FOREIGN),)),
            Commit("optimize"),
            Commit("restore", tuple((p, 0) for p in range(3) if now[p])),
        ]
        for commit in written:
            log = appended(state.log, commit)
            yield None, f"others: {commit.kind} {dict(commit.changes)}", state._replace(log=log, faults=counted)


def _drifts(state: State) -> Iterator[Labelled]:
    """Others change the history: what is current of a row is gone."""
    for partition in range(3):
        history = history_id((*written_in(state.history), Written("foreign", (("X", partition, 0),))))
        yield None, f"others: a current version of {partition} is deleted", state._replace(history=history)


def _too_late(state: State, faults: Faults) -> State:
    assert state.refresh is not None
    assert state.refresh.hold is not None
    refresh = state.refresh._replace(hold=state.refresh.hold._replace(is_over=True))
    return state._replace(
        row=state.row._replace(live=state.row.live and not state.row.left), refresh=refresh, faults=faults
    )


def _of_the_person(design: Design, bounds: Bounds, state: State) -> Iterator[Labelled]:
    """What a person may do: look at what is held, and decide about what was looked at last, however long ago."""
    person, now = state.person, _shown(state)
    if person.num_decided == bounds.decisions:
        return
    if now is not None and person.shown != now:
        yield None, f"a person looks at {dict(now.changes)}", state._replace(person=person._replace(shown=now))
    if person.shown is None:
        return
    for decision in (Decision.APPROVED, Decision.WITHOUT_DELETES, Decision.REJECTED):
        after = _decided(design, state, decision)
        if after is not None:
            yield None, f"the person decides: {decision}", after


def _shown(state: State) -> Shown | None:
    """Return what `amv diff` shows of a refresh that is held; None if none is, or if it is being compared again."""
    refresh, row = state.refresh, state.row
    if refresh is None or refresh.hold is None or not is_waiting(row, refresh.hold) or None in refresh.chunks:
        return None
    changes = tuple((rec.number, rec.new) for rec in refresh.chunks if rec and rec.path is not None)
    return Shown(row.refresh, refresh.merge_round, changes)


def _decided(design: Design, state: State, decision: Decision) -> State | None:
    person, shown = state.person, state.person.shown
    assert shown is not None
    after = decided(design, state, shown[:2], decision)
    if after is None:
        return None
    if decision is Decision.WITHOUT_DELETES:
        shown = shown._replace(keeps=True, changes=tuple(each for each in shown.changes if each[1]))
    approved = tuple(sorted({*person.approved, shown})) if decision.is_approval else person.approved
    return after._replace(person=Person(None, person.num_decided + 1, approved))


def _put_back(state: State, backup: Database) -> State:
    """Put the database back. Who worked dies with it; a lease has run out until somebody comes."""
    forgotten = ("forgotten",) * (len(state.outcomes) - len(backup.outcomes))
    under_way = (worker.data[0] for worker in state.workers if worker.at in _IN_FLIGHT)
    return state._replace(
        row=backup.row._replace(live=False),
        refresh=backup.refresh,
        bindings=backup.bindings,
        outcomes=(*backup.outcomes, *forgotten),
        workers=(IDLE, IDLE, IDLE),
        orphans=tuple(sorted((*state.orphans, *under_way), key=repr)),
        backup=None,
        faults=state.faults._replace(put_back=state.faults.put_back + 1),
    )


def canonical(state: State) -> State:
    """Return the one of two states, alike but for the twins' names, that is looked at."""
    first, second, other = state.workers
    return state if first is second or _rank(first) <= _rank(second) else state._replace(workers=(second, first, other))


def _rank(worker: Worker) -> int:
    return hash(worker)


# -- invariants ------------------------------------------------------------------------------------------------------


def check(design: Design, state: State, ends_well: set[State]) -> None:
    """Check what must be true of every state; what must be true of a step is checked where it is taken.

    ends_well : states of a table left alone that are known to come to their end
    """
    row = state.row
    if is_believed(row, state.log) and not _agrees(row, content(state.log), SOURCE[state.bindings[row.upper - 1]]):
        raise Violated(f"invariant 11: main is taken for upper {row.upper}, and is {content(state.log)}")
    if (row.phase == NORMAL) != (state.refresh is None) or bool(row.refresh) != (row.phase != NORMAL):
        raise Violated("invariant 2: the row and the refresh under way say different things")
    if row.phase == MERGING and state.refresh is not None and not state.faults.put_back:
        kept = {path for path, _ in state.files}
        pin = state.refresh.pin
        epoch = state.refresh.sealed_by if design.has_own_paths else 0
        if (staged := dict(state.files).get(("staging", row.refresh, epoch))) != pin:
            raise Violated(f"invariant 8: what was sealed was the source at {pin}, and staging holds {staged}")
        for rec in state.refresh.chunks:
            epoch = rec.epoch if rec and design.has_own_paths else 0
            path = rec and ("changes", row.refresh, epoch, rec.merge_round, rec.number)
            if rec and rec.old != rec.new and path not in kept:
                raise Violated(f"invariant 8: the recorded changes of chunk {rec.number} are gone")
            wanted = rec and SOURCE[pin][rec.number]
            is_kept = state.refresh.keeps_rows and not wanted
            if rec and rec.old == content(state.log, rec.base)[rec.number] and (rec.new == wanted or is_kept):
                continue
            if rec:
                raise Violated(f"invariant 5: chunk {rec.number} is recorded as {rec.old} to {rec.new}")
    if design.keeps_history:
        _check_history(state)
    if design.has_fence and row.phase != CLEANUP:
        _check_end(design, state, ends_well)
        if state.refresh is not None and state.refresh.hold is not None:
            _check_end_undecided(design, state)


def _check_history(state: State) -> None:
    """Invariant 20: whoever takes main for published finds the history at its version, as long as both are left alone.

    A table whose history is still to be begun has none.
    """
    row = state.row
    is_still_to_begin = row.upper == 1 and last_reached(state.history) is None
    if row.phase in (NORMAL, CLEANUP) and is_believed(row, state.log) and not is_still_to_begin:
        check_reached(state.history, state.log, row.version)


def _agrees(row: Row, now: Values, source: Values) -> bool:
    """True if main is the source, but for rows that the last publish has kept as somebody has decided."""
    return all(value == wanted or (row.kept and not wanted) for value, wanted in zip(now, source, strict=True))


def _left_alone(state: State) -> State:
    """Return a state in which everybody has died."""
    faults, row = Faults(put_back=state.faults.put_back), state.row._replace(live=False)
    person = Person(None, 0, state.person.approved)
    return state._replace(workers=(IDLE, IDLE, IDLE), orphans=(), faults=faults, row=row, backup=None, person=person)


def _check_end_undecided(design: Design, state: State) -> None:
    """Invariant 10 of a hold: if nobody decides in time, the table comes to NORMAL, and main stays as it is."""
    assert state.refresh is not None
    left = _left_alone(state)
    if not state.refresh.hold.decision and not state.refresh.hold.is_over:
        left = _too_late(left, left.faults)
    before = len(commits_of(state.log))
    for _ in range(_PATIENCE):
        if left.row.phase == NORMAL:
            break
        stepped = step(design, left, 2)
        if stepped is None and left.refresh is not None and is_waiting(left.row, left.refresh.hold):
            stepped = "it is too late", _too_late(left, left.faults)
        if stepped is None:
            raise Violated("invariant 10: the table is stuck with a hold about which nobody decides")
        left = stepped[1]
    else:
        raise Violated("invariant 10: a hold about which nobody decides does not end")
    is_in_main = any((c.kind, c.refresh) == ("publish", state.row.refresh) for c in commits_of(state.log))
    has_decision = state.refresh.hold.decision is not None or is_in_main
    written = [c for c in commits_of(left.log)[before:] if c.kind == "publish"]
    if written and not has_decision:
        raise Violated("invariant 14: a refresh about which nobody has decided changes main")


def _check_end(design: Design, state: State, ends_well: set[State]) -> None:
    """Invariant 10: when everybody dies now, one process alone brings the table to NORMAL and main to the source.

    Where a refresh is held, a person looks and approves.
    """
    left = _left_alone(state)
    met, way = [], list[str]()
    try:
        for _ in range(_PATIENCE):
            if left in ends_well:
                break
            met.append(left)
            stepped = step(design, left, 2)
            if stepped is None and (shown := _shown(left)) is not None:
                looked = left._replace(person=left.person._replace(shown=shown))
                after = _decided(design, looked, Decision.APPROVED)
                stepped = None if after is None else ("is approved", after)
            if stepped is None:
                raise Violated("invariant 10: the table, left alone, is stuck")
            said, left = stepped
            way.append(said)
            if said == "finds nothing new":
                if content(left.log) != SOURCE[left.source]:
                    raise Violated(f"invariant 10: at rest, and main is {content(left.log)}")
                if design.keeps_history:
                    _check_history(left)
                break
        else:
            raise Violated("invariant 10: the table, left alone, does not come to rest")
    except Violated as error:
        raise Violated(f"{error} (everybody dies; then b {', '.join(way)})") from None
    ends_well.update(met)
