"""The order in which a run of an ingestion takes its steps, told once: the checker and the replay run it.

`step` takes one step of a process, which others can come before and after: it reads, or it writes once. Told again is
the order of `runner/ingestion/group_run` and, where it is about more than one table, of `runner/admission`:

    former · since ─▶ find · bind ─▶ each output: begin · acquire · stage · seal ─▶ each output: publish · hand over ·
    fence · merge · published · normal ─▶ read · release · released

What is decided is decided by the package: `core.queue.turn`, `core.ingestion.turn`, `core.phase.on_takeover`, and
behind `Effects` what a source says about its states. A weakness of a `Design` is an `if` at the place that it concerns.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from airflow_mv_provider.core.ingestion.turn import check_can_begin, ends_former
from airflow_mv_provider.core.phase import Phase, Recovery, on_takeover
from airflow_mv_provider.core.queue import turn
from airflow_mv_provider.core.state import Admission, RefreshState
from airflow_mv_provider.exceptions import RefreshInProgressError
from tests.model.ingestion.world import IDLE, OUTPUTS, Design, Worker

Stepped = tuple[str, Worker]
SEALED, IN_STATE, LEFT = "sealed", "in state", "left behind"


class Effects(Protocol):
    """What one process reads and writes. A write that needs ownership returns False where it is lost."""

    key: str

    def look(self, output: int) -> Any: ...  # the table's row; None if it is not registered
    def state_of(self, seen: Any) -> RefreshState: ...
    def identity(self, seen: Any) -> int: ...  # which table it is; one that is registered anew is another
    def find(self) -> Any: ...  # the state of the source
    def bind(self, pin: Any) -> None: ...
    def assess(self, output: int, seen: Any, pin: Any, *, is_reload: bool) -> Any: ...  # an upper with what it stands
    #     for, None if nothing is new, or the code of an error
    def tells(self, output: int, code: str) -> None: ...  # a person reads it
    def acquire(self, output: int, seen: Any, batch: Any) -> Any: ...
    def hand_over(self, output: int, seen: Any) -> Any: ...
    def lower(self, output: int, own: Any) -> int: ...  # the upper that a refresh continues from
    def is_of(self, output: int, own: Any, pin: Any) -> bool: ...
    def stage(self, output: int, own: Any, pin: Any) -> Any: ...  # None if its records are gone
    def seal(self, output: int, own: Any, staged: Any) -> bool: ...
    def fence(self, output: int, own: Any) -> str: ...  # "later", "in main", "not in main"
    def merge(self, output: int, own: Any, *, is_compared: bool) -> str: ...  # "done", "moved", "lost"
    def is_there(self, output: int, own: Any) -> bool: ...  # what the source has for it can be read once more
    def hold(self, output: int, own: Any) -> bool: ...
    def published(self, output: int, own: Any) -> bool: ...
    def finish(self, output: int, own: Any) -> bool: ...
    def abandon(self, output: int, own: Any) -> bool: ...
    def rows(self, output: int) -> Any: ...  # of the last publish
    def position(self, output: int) -> Any: ...  # of the last publish; None if it has none
    def sealed_position(self, output: int) -> Any: ...
    def is_open(self, output: int) -> bool: ...
    def release(self, positions: dict[int, Any]) -> None: ...
    def ends_run(self) -> None: ...


def step(design: Design, fx: Effects, worker: Worker) -> Stepped:
    """Return what the next step of a process is called, and the process after it."""
    said, after = STEPS[worker.at](design, fx, worker)
    return said if worker.at in _OF_ALL else f"{said} (output {worker.output})", after


def begun(what: str, output: int) -> Worker:
    """Return a process that begins."""
    return Worker("former", what) if what == "run" else Worker("look", what, output)


def refused(worker: Worker) -> Stepped:
    """A guard refuses what is to be merged."""
    return "is refused by a guard", worker._replace(at="abandon", data="failed")


# -- the way of a run through its outputs ------------------------------------------------------------------------------


def _to(design: Design, worker: Worker, at: str, output: int) -> Worker:
    """Go to the next output for which there is something to do, or on."""
    worker = worker._replace(then="", seen=None, data=None)
    for number in OUTPUTS[output:]:
        has_work = {"former": True, "begin": not worker.found[number], "publish": worker.found[number] == SEALED}
        if has_work[at]:
            first = "check" if at == "begin" and not design.checks_as_it_begins else at
            return worker._replace(at=first, output=number)
    match at:
        case "former":
            return worker._replace(at="find", output=0)
        case "begin" if design.releases == "when sealed":
            return worker._replace(at="release sealed", output=0)
        case "begin":
            return _to(design, worker, "publish", 0)
        case _ if design.releases == "when sealed":
            return worker._replace(at="released", output=0)
        case _:
            return worker._replace(at="read", output=0, data=())


def _becomes(worker: Worker, found: str, rows: Any = None) -> Worker:
    all_found, all_rows = list(worker.found), list(worker.rows)
    all_found[worker.output], all_rows[worker.output] = found, rows
    return worker._replace(found=tuple(all_found), rows=tuple(all_rows))


def _owning(worker: Worker, own: Any) -> Worker:
    owned = list(worker.own)
    owned[worker.output] = own
    return worker._replace(own=tuple(owned))


def _over(design: Design, fx: Effects, worker: Worker, how: str) -> Worker:
    """The refresh of an output has ended, or is not this process's any more: go to where its end was wanted.

    how : published, abandoned, failed, lost or held
    """
    worker, is_well = _owning(worker, None), how in ("published", "abandoned")
    match worker.then:
        case "since" | "begin" | "look" if is_well:
            return worker._replace(at=worker.then, then="", seen=None, data=None)
        case "since":
            return _to(design, _becomes(worker, LEFT), "former", worker.output + 1)
        case "begin" | "seal":
            return _to(design, _becomes(worker, LEFT), "begin", worker.output + 1)
        case "publish":
            return _to(
                design,
                worker if worker.found[worker.output] != SEALED else _becomes(worker, LEFT),
                "publish",
                worker.output + 1,
            )
        case _:
            return IDLE


# -- before the state is fixed -----------------------------------------------------------------------------------------


def _former(design: Design, fx: Effects, worker: Worker) -> Stepped:
    """End what a dead owner, or the caller's last try, has left."""
    seen = fx.look(worker.output)
    if seen is None:
        return "has no such table", _to(design, _becomes(worker, LEFT), "former", worker.output + 1)
    if ends_former(fx.state_of(seen), fx.key):
        return "sees an unfinished refresh", worker._replace(at="hand over", then="since", seen=seen)
    return "looks at the table", _since_known(design, fx, worker, seen)


def _since(design: Design, fx: Effects, worker: Worker) -> Stepped:
    seen = fx.look(worker.output)
    if seen is None:
        return "has no such table", _to(design, _becomes(worker, LEFT), "former", worker.output + 1)
    return "looks at the table again", _since_known(design, fx, worker, seen)


def _since_known(design: Design, fx: Effects, worker: Worker, seen: Any) -> Worker:
    since = list(worker.since)
    since[worker.output] = (fx.identity(seen), fx.state_of(seen).published_upper)
    return _to(design, worker._replace(since=tuple(since)), "former", worker.output + 1)


def _find(design: Design, fx: Effects, worker: Worker) -> Stepped:
    pin = fx.find()
    return f"fixes the state: {pin.describe()}", worker._replace(at="bind", pin=pin)


def _bind(design: Design, fx: Effects, worker: Worker) -> Stepped:
    fx.bind(worker.pin)
    return "binds the run", _to(design, worker, "begin", 0)


# -- stage each output -------------------------------------------------------------------------------------------------


def _check(design: Design, fx: Effects, worker: Worker) -> Stepped:
    """Before it begins: what is seen here may have changed when the table is acquired."""
    seen = fx.look(worker.output)
    if seen is None or (fx.identity(seen), fx.state_of(seen).published_upper) != worker.since[worker.output]:
        return "leaves it behind: others were faster", _left_behind(design, worker)
    return "sees it where it was", worker._replace(at="begin")


def _begin(design: Design, fx: Effects, worker: Worker) -> Stepped:
    seen = fx.look(worker.output)
    if seen is None:
        return "has no such table", _left_behind(design, worker)
    state = fx.state_of(seen)
    if design.checks_as_it_begins and not _can_begin(fx, worker, seen, state):
        return "leaves it behind: others were faster", _left_behind(design, worker)
    match admission := turn(state, fx.key, ()):
        case Admission.WAIT | Admission.PAUSED:
            return f"leaves it behind: {admission}", _left_behind(design, worker)
        case Admission.TAKE_OVER:
            return "sees a dead owner's refresh", worker._replace(at="hand over", then="begin", seen=seen)
        case Admission.ADOPT:
            return "sees a refresh of its caller", worker._replace(at="hand over", then="seal", seen=seen)
    pin = worker.pin if design.fixes_one_state else fx.find()
    batch = fx.assess(worker.output, seen, pin, is_reload=False)
    if batch is None:
        rows = fx.rows(worker.output)
        return "has nothing to do", _to(design, _becomes(worker, IN_STATE, rows), "begin", worker.output + 1)
    if isinstance(batch, str):
        if design.asks_again and _has_moved(fx, worker.output, seen):
            return "looks again: others were faster", worker
        fx.tells(worker.output, batch)
        return f"leaves it behind: {batch}", _left_behind(design, worker)
    return f"mints upper {batch[0]}", worker._replace(at="acquire", then="seal", seen=seen, data=batch)


def _has_moved(fx: Effects, output: int, seen: Any) -> bool:
    """True if the row has changed since it was read: what was found with it says nothing about the table."""
    now = fx.look(output)
    return now is None or fx.state_of(now).epoch != fx.state_of(seen).epoch


def _left_behind(design: Design, worker: Worker) -> Worker:
    return _to(design, _becomes(worker, LEFT), "begin", worker.output + 1)


def _can_begin(fx: Effects, worker: Worker, seen: Any, state: RefreshState) -> bool:
    identity, fixed_at = worker.since[worker.output]
    try:
        check_can_begin("output", fixed_at, state, fx.key)
    except RefreshInProgressError:
        return False
    return bool(fx.identity(seen) == identity)


def _acquire(design: Design, fx: Effects, worker: Worker) -> Stepped:
    own = fx.acquire(worker.output, worker.seen, worker.data)
    if own is None:
        again = {"seal": "begin", "alone": "look"}[worker.then]
        return "is not the first", worker._replace(at=again, then="", seen=None, data=None)
    return "acquires", _acquired(design, fx, _owning(worker, own))


def _acquired(design: Design, fx: Effects, worker: Worker) -> Worker:
    own, output = worker.own[worker.output], worker.output
    worker = worker._replace(at="stage", seen=None, data=None)
    is_checked = worker.then == "seal" and not design.checks_as_it_begins
    if is_checked and fx.lower(output, own) != worker.since[output][1]:
        return worker._replace(at="abandon", data="failed")
    return worker


def _stage(design: Design, fx: Effects, worker: Worker) -> Stepped:
    staged = fx.stage(worker.output, worker.own[worker.output], worker.pin if worker.what == "run" else None)
    if staged is None:
        return "cannot read its records", worker._replace(at="abandon", data="failed")
    return f"stages {staged}", worker._replace(at="seal", data=staged)


def _seal(design: Design, fx: Effects, worker: Worker) -> Stepped:
    if not fx.seal(worker.output, worker.own[worker.output], worker.data):
        return "is overtaken", _over(design, fx, worker, "lost")
    if worker.then == "seal":
        return "seals", _to(design, _becomes(worker, SEALED), "begin", worker.output + 1)
    return "seals", worker._replace(at="merge", data=None)


# -- publish each output -----------------------------------------------------------------------------------------------


def _publish(design: Design, fx: Effects, worker: Worker) -> Stepped:
    seen = fx.look(worker.output)
    state = None if seen is None else fx.state_of(seen)
    if state is None or (state.refresh_id, state.epoch) != _ids(worker.own[worker.output]):
        return "is overtaken", _over(design, fx, worker._replace(then="publish"), "lost")
    return "goes on with what is sealed", worker._replace(at="hand over", then="publish", seen=seen)


def _ids(own: Any) -> tuple[str, int]:
    return (f"r{own[0]}" if isinstance(own[0], int) else own[0]), own[1]


def _hand_over(design: Design, fx: Effects, worker: Worker) -> Stepped:
    state = fx.state_of(worker.seen)
    own = fx.hand_over(worker.output, worker.seen)
    if own is None:
        again = {"alone": "look", "look": "look", "seal": "begin"}.get(worker.then, worker.then)
        if worker.then == "publish":
            return "is not the first", _over(design, fx, worker, "lost")
        return "is not the first", worker._replace(at=again, then="", seen=None)
    worker = _owning(worker, own)._replace(seen=None, data=None)
    return "takes its refresh", _taken(design, fx, worker, state)


def _taken(design: Design, fx: Effects, worker: Worker, state: RefreshState) -> Worker:
    recovery = on_takeover(state.phase, is_cancel_requested=state.is_cancel_requested)
    is_adopted = worker.then in ("seal", "alone", "publish")
    match recovery:
        case Recovery.FINISH:
            return worker._replace(at="normal")
        case Recovery.RESET if is_adopted and not state.is_cancel_requested:
            return _acquired(design, fx, worker)
        case Recovery.RESET:
            return worker._replace(at="abandon", data="abandoned")
        case Recovery.ABANDON:
            return worker._replace(at="fence", data="abandoned")
        case _ if worker.then == "seal" and state.phase is Phase.MERGING:
            return _to(design, _becomes(worker, SEALED), "begin", worker.output + 1)
        case _:
            return worker._replace(at="fence")


def _fence(design: Design, fx: Effects, worker: Worker) -> Stepped:
    match fx.fence(worker.output, worker.own[worker.output]):
        case "later":
            return "sees a later epoch", _over(design, fx, worker, "lost")
        case "in main":
            return "fences main, which has it", worker._replace(at="published", data=None)
    return "fences main", worker._replace(at="abandon" if worker.data else "merge")


def _merge(design: Design, fx: Effects, worker: Worker) -> Stepped:
    match fx.merge(worker.output, worker.own[worker.output], is_compared=worker.data == "compared"):
        case "lost":
            return "is refused by a later epoch's fence", _over(design, fx, worker, "lost")
        case "moved":
            return "sees that others changed main", worker._replace(at="read again")
    return "merges", worker._replace(at="published", data=None)


def _read_again(design: Design, fx: Effects, worker: Worker) -> Stepped:
    if not fx.is_there(worker.output, worker.own[worker.output]):
        return "cannot read its records again", worker._replace(at="abandon", data="failed")
    return "compares with its records again", worker._replace(at="merge", data="compared")


def _hold(design: Design, fx: Effects, worker: Worker) -> Stepped:
    how = "held" if fx.hold(worker.output, worker.own[worker.output]) else "lost"
    return "holds it for a decision" if how == "held" else "is overtaken", _over(design, fx, worker, how)


def _published(design: Design, fx: Effects, worker: Worker) -> Stepped:
    own = worker.own[worker.output]
    if not fx.published(worker.output, own):
        return "is overtaken", _over(design, fx, worker, "lost")
    after = worker._replace(at="normal")
    if worker.then == "publish":
        is_of_state = not design.fixes_one_state or fx.is_of(worker.output, own, worker.pin)
        after = _becomes(after, IN_STATE, fx.rows(worker.output)) if is_of_state else _becomes(after, LEFT)
    return "writes that it is published", after


def _normal(design: Design, fx: Effects, worker: Worker) -> Stepped:
    how = "published" if fx.finish(worker.output, worker.own[worker.output]) else "lost"
    return "finishes" if how == "published" else "is overtaken", _over(design, fx, worker, how)


def _abandon(design: Design, fx: Effects, worker: Worker) -> Stepped:
    how = worker.data if fx.abandon(worker.output, worker.own[worker.output]) else "lost"
    return "is overtaken" if how == "lost" else "gives it up", _over(design, fx, worker, how)


# -- release -----------------------------------------------------------------------------------------------------------


def _read(design: Design, fx: Effects, worker: Worker) -> Stepped:
    """Read how far one output is published; who is a member was read before the first."""
    members = worker.data[0] if worker.data else tuple(n for n in OUTPUTS if fx.look(n) is not None)
    known = dict(worker.data[1]) if worker.data else {}
    if worker.output in members:
        if fx.look(worker.output) is None:
            return "cannot tell how far it is", worker._replace(at="released", output=0, data=None)
        known[worker.output] = fx.position(worker.output)
    data = (members, tuple(known.items()))
    if worker.output + 1 < len(OUTPUTS):
        return "reads how far it is", worker._replace(output=worker.output + 1, data=data)
    return "reads how far it is", worker._replace(at="release", output=0, data=data)


def _release(design: Design, fx: Effects, worker: Worker) -> Stepped:
    known = dict(worker.data[1])
    match design.release_of:
        case "the first":
            known = {0: max((each for each in known.values() if each), key=lambda each: each.offsets, default=None)}
        case "the run's":
            known = {output: each for output, each in known.items() if worker.found[output] == IN_STATE}
        case "open":
            known = {output: each for output, each in known.items() if fx.is_open(output)}
    fx.release(known)
    return "releases", worker._replace(at="released", data=None)


def _release_sealed(design: Design, fx: Effects, worker: Worker) -> Stepped:
    fx.release({output: fx.sealed_position(output) for output in OUTPUTS if fx.look(output) is not None})
    return "releases what is sealed", _to(design, worker, "publish", 0)


def _released(design: Design, fx: Effects, worker: Worker) -> Stepped:
    fx.ends_run()
    return f"ends its run: {', '.join(worker.found)}", IDLE


# -- one output alone, as `amv refresh` does ---------------------------------------------------------------------------


def _look(design: Design, fx: Effects, worker: Worker) -> Stepped:
    seen = fx.look(worker.output)
    if seen is None:
        return "has no such table", IDLE
    match turn(fx.state_of(seen), fx.key, ()):
        case Admission.START:
            return "looks: the table is at rest", worker._replace(at="probe", seen=seen)
        case Admission.ADOPT:
            return "looks: its own is unfinished", worker._replace(at="hand over", then="alone", seen=seen)
        case Admission.TAKE_OVER:
            return "looks: a dead owner's is unfinished", worker._replace(at="hand over", then="look", seen=seen)
    return "is turned away", IDLE


def _probe(design: Design, fx: Effects, worker: Worker) -> Stepped:
    pin = fx.find()
    batch = fx.assess(worker.output, worker.seen, pin, is_reload=worker.what == "reload")
    if isinstance(batch, str):
        if design.asks_again and _has_moved(fx, worker.output, worker.seen):
            return "looks again: others were faster", worker._replace(at="look", seen=None)
        fx.tells(worker.output, batch)
        return f"fails: {batch}", IDLE
    if batch is None:
        return "has nothing to do", IDLE
    return f"mints upper {batch[0]}", worker._replace(at="acquire", then="alone", data=batch, pin=pin)


_OF_ALL = frozenset({"find", "bind", "release", "release sealed", "released"})
STEPS: dict[str, Callable[[Design, Effects, Worker], Stepped]] = {
    "former": _former,
    "since": _since,
    "find": _find,
    "bind": _bind,
    "check": _check,
    "begin": _begin,
    "acquire": _acquire,
    "stage": _stage,
    "seal": _seal,
    "publish": _publish,
    "hand over": _hand_over,
    "fence": _fence,
    "merge": _merge,
    "read again": _read_again,
    "hold": _hold,
    "published": _published,
    "normal": _normal,
    "abandon": _abandon,
    "read": _read,
    "release": _release,
    "release sealed": _release_sealed,
    "released": _released,
    "look": _look,
    "probe": _probe,
}
