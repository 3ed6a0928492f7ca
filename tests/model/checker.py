"""Explore every state of the model, breadth first, and tell the shortest way to one that breaks an invariant.

Beside the steps of the workers there are those of the world, each of which may happen a few times: the source changes,
others write to main, a process dies (its MERGE goes on), a lease runs out, a caller starts a twin, somebody asks for a
cancel, Spark fails, the answer to a MERGE is lost while it goes on, the metadata database is put back to what a backup
holds of it (everybody who works dies with it, MERGEs go on; files and main are what they are).

The twins are alike, so of two states that differ in their names only one is looked at.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

from airflow_mv_provider.core.fence import fence_version
from tests.model.commits import committed
from tests.model.decisions import cancelled, is_believed
from tests.model.design import Design, Worker
from tests.model.ending import merge_failed
from tests.model.process import failed, step, with_worker
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
    Row,
    State,
    Violated,
    appended,
    content,
    latest,
    log_id,
)

_MAY_FAIL = frozenset({"stage", "record", "fence", "merge"})
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
    eager: frozenset[str] = frozenset({"look", "take", "check source", "compare", "changes"})


Labelled = tuple[int | None, str, State]  # the worker that took the step, None for the world


def first_state() -> State:
    """A table whose first refresh was published; the source has changed since."""
    created = Commit("create")
    fence = Commit("fence", (), 1, 1, fence_version(1))
    publish = Commit("publish", tuple(enumerate(SOURCE[1])), 1, 1, fence_version(1) + 1)
    row = Row(epoch=1, upper=1, version=2)
    return State(
        2, log_id((created, fence, publish)), row, None, (1,), ("published",), (), (), (IDLE, IDLE, IDLE), Faults()
    )


@dataclass
class Explored:
    """What an exploration came to. `trace` is the shortest way to the violation, one line a step."""

    num_states: int = 0
    num_steps: int = 0
    depth: int = 0
    violation: str | None = None
    trace: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        found = "every invariant holds" if self.violation is None else self.violation
        lines = [f"{self.num_states:,} states, {self.num_steps:,} steps, {self.depth} deep: {found}"]
        return "\n".join([*lines, *(f"{n:>4}  {line}" for n, line in enumerate(self.trace, 1))])


def explore(design: Design, bounds: Bounds) -> Explored:
    """Visit every state that can be reached, or stop at the first that breaks an invariant."""
    found = Explored()
    start = first_state()
    parents: dict[State, State | None] = {start: None}
    ends_well: set[State] = set()
    level = [start]
    while level and found.violation is None:
        found.depth += 1
        after: list[State] = []
        for state in level:
            reached = state
            try:
                for _, _, raw in successors(design, bounds, state):
                    found.num_steps += 1
                    reached = canonical(raw)
                    if reached not in parents:
                        parents[reached] = state
                        check(design, reached, ends_well)
                        after.append(reached)
                    reached = state
            except Violated as error:
                found.violation = str(error)
                found.trace = _trace(design, bounds, parents, reached, error.step)
                break
        level = after
    found.num_states = len(parents)
    return found


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
                if worker.at == "idle" and state.row.phase != NORMAL and state.row.owner == KEYS[number]:
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
        if faults.lost < each.lost and worker.at == "commit":
            counted = faults._replace(lost=faults.lost + 1)
            orphans = _with_orphan(state, worker)
            after = with_worker(state, number, merge_failed(worker, "MV-ENGINE"), faults=counted, orphans=orphans)
            yield number, "loses the answer to its MERGE, which goes on", after
    for orphan in state.orphans:
        yield None, *_orphaned(design, state, orphan)
    if any(state.outcomes[path[1] - 1] != "running" for path, _ in state.files):  # type: ignore[operator]
        files = tuple((p, f) for p, f in state.files if state.outcomes[p[1] - 1] == "running")  # type: ignore[operator]
        yield None, "a sweep removes what ended refreshes left", state._replace(files=files)
    if not is_calm:
        yield from _of_the_world(each, state)


def _taken(design: Design, state: State, number: int) -> tuple[str, State] | None:
    try:
        return step(design, state, number)
    except Violated as error:
        error.step = (number, f"goes on at: {state.workers[number].at}")
        raise


def _orphaned(design: Design, state: State, orphan: Merge) -> tuple[str, State]:
    left = state._replace(orphans=tuple(each for each in state.orphans if each is not orphan))
    try:
        log = committed(design, state, orphan)
    except Violated as error:
        error.step = (None, "the MERGE that nobody waits for commits")
        raise
    if log is None:
        return "the MERGE that nobody waits for fails", left
    return f"the MERGE that nobody waits for commits version {latest(log)}", left._replace(log=log)


def _may_begin(bounds: Bounds, state: State, number: int) -> bool:
    """True if this process may start; how often a caller starts a twin of itself is bounded."""
    row = state.row
    if number not in bounds.workers:
        return False
    if row.phase != NORMAL and row.owner == KEYS[number]:
        return state.faults.twin < bounds.each.twin
    return True


def _with_orphan(state: State, worker: Worker) -> tuple[Merge, ...]:
    if worker.at != "commit":
        return state.orphans
    return tuple(sorted((*state.orphans, worker.data[0])))


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
    if faults.put_back < each.put_back:
        now = Database(row, state.refresh, state.bindings, state.outcomes)
        if state.backup is None and state.refresh is not None:
            yield None, "a backup is taken", state._replace(backup=now)
        elif state.backup is not None and state.backup != now:
            yield None, "the backup is put back", _put_back(state, state.backup)
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


def _put_back(state: State, backup: Database) -> State:
    """Put the database back. Who worked dies with it; a lease has run out until somebody comes."""
    forgotten = ("forgotten",) * (len(state.outcomes) - len(backup.outcomes))
    under_way = (worker.data[0] for worker in state.workers if worker.at == "commit")
    return state._replace(
        row=backup.row._replace(live=False),
        refresh=backup.refresh,
        bindings=backup.bindings,
        outcomes=(*backup.outcomes, *forgotten),
        workers=(IDLE, IDLE, IDLE),
        orphans=tuple(sorted((*state.orphans, *under_way))),
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
    if is_believed(row, state.log) and content(state.log) != SOURCE[state.bindings[row.upper - 1]]:
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
            if rec and rec.old == content(state.log, rec.base)[rec.number] and rec.new == SOURCE[pin][rec.number]:
                continue
            if rec:
                raise Violated(f"invariant 5: chunk {rec.number} is recorded as {rec.old} to {rec.new}")
    if design.has_fence and row.phase != CLEANUP:
        _check_end(design, state, ends_well)


def _check_end(design: Design, state: State, ends_well: set[State]) -> None:
    """Invariant 10: when everybody dies now, one process alone brings the table to NORMAL and main to the source."""
    faults, row = Faults(put_back=state.faults.put_back), state.row._replace(live=False)
    left = state._replace(workers=(IDLE, IDLE, IDLE), orphans=(), faults=faults, row=row, backup=None)
    met, way = [], list[str]()
    try:
        for _ in range(_PATIENCE):
            if left in ends_well:
                break
            met.append(left)
            stepped = step(design, left, 2)
            if stepped is None:
                raise Violated("invariant 10: the table, left alone, is stuck")
            said, left = stepped
            way.append(said)
            if said == "finds nothing new":
                if content(left.log) != SOURCE[left.source]:
                    raise Violated(f"invariant 10: at rest, and main is {content(left.log)}")
                break
        else:
            raise Violated("invariant 10: the table, left alone, does not come to rest")
    except Violated as error:
        raise Violated(f"{error} (everybody dies; then b {', '.join(way)})") from None
    ends_well.update(met)


# -- traces ----------------------------------------------------------------------------------------------------------


def _trace(
    design: Design,
    bounds: Bounds,
    parents: dict[State, State | None],
    last: State,
    broken_by: tuple[int | None, str] | None,
) -> list[str]:
    """Return the shortest way to `last`, and the step that breaks an invariant there, if it is not the last itself."""
    way = [last]
    while (before := parents[way[-1]]) is not None:
        way.append(before)
    way.reverse()
    names, lines = list(NAMES), []
    for state, after in pairwise(way):
        for number, said, raw in _until_broken(design, bounds, state):
            if canonical(raw) == after:
                lines.append(_line(names, number, said))
                if canonical(raw) is not raw:
                    names[0], names[1] = names[1], names[0]
                break
    return lines if broken_by is None else [*lines, _line(names, *broken_by)]


def _until_broken(design: Design, bounds: Bounds, state: State) -> Iterator[Labelled]:
    with suppress(Violated):
        yield from successors(design, bounds, state)


def _line(names: list[str], number: int | None, said: str) -> str:
    return said if number is None else f"{names[number]} {said}"
