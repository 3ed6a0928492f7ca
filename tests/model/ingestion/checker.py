"""The steps of an ingestion's model, and its invariants; `exploring` visits every state.

Beside the steps of the two processes there are those of the world, each of which may happen a few times: a record is
sent, retention removes what was released, the topic is made again, a process dies, leases run out, others write to a
main, a guard refuses, a refresh is held and decided, a table is paused, dropped, registered anew, or rolled back.

1     what is published is the topic up to the frontier of the publish: nothing is missing, nothing is there twice
9     a refresh that is given up has not reached main
10    left alone, one run brings all outputs to the present, and releases that
13    an output never goes back
16    no more is released than every published output has; so retention never removes what one of them has to read
17    outputs that a run reports as in its state are in one state
18    no error says of the source what is not so
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from tests.model.exploring import Explored, Explorer, Labelled, Violated
from tests.model.ingestion import order
from tests.model.ingestion.process import Process, Seen, is_waiting, step, with_worker
from tests.model.ingestion.world import (
    FOREIGN,
    IDLE,
    OUTPUTS,
    Design,
    Faults,
    Main,
    Output,
    State,
    Topic,
    Worker,
    first_state,
    frontier,
    generation_of,
    records,
    with_output,
)
from tests.model.world import NORMAL, Row

NAMES = ("p", "q")
_PATIENCE, _RUNS = 100, 6
_ALL = (("run", 0), ("alone", 0), ("alone", 1))


class Bounds(NamedTuple):
    """How often each thing may happen, all but begins together, and what the second process may be.

    keys  : of the callers of the two processes; equal for twins, such as a retry beside its zombie
    eager : steps that are taken together with the one before: a write that counts only if the row is as it was seen, or
            of what nobody else can read or change
    """

    each: Faults
    together: int
    second: tuple[tuple[str, int], ...] = _ALL
    keys: tuple[str, str] = ("a", "b")
    eager: frozenset[str] = frozenset({"bind", "acquire", "hand over", "fence", "seal", "released"})


def explore(design: Design, bounds: Bounds) -> Explored:
    """Visit every state that can be reached, or stop at the first that breaks an invariant."""
    ends_well: set[State] = set()
    return Explorer(
        first_state(),
        lambda state: successors(design, bounds, state),
        lambda state: check(design, state, ends_well),
        NAMES,
    ).explore()


def successors(design: Design, bounds: Bounds, state: State) -> Iterator[Labelled]:
    """Yield every step that can be taken now."""
    is_calm = sum(state.faults) - state.faults.begun >= bounds.together
    for number, worker in enumerate(state.workers):
        if worker.at == "idle":
            yield from _begins(bounds, state, number)
            continue
        try:
            yield number, *_taken(design, bounds, state, number)
        except Violated as error:
            error.step = (number, f"goes on at: {worker.at} (output {worker.output})")
            raise
        if is_calm:
            continue
        if (counted := _more(bounds, state, "crash")) is not None:
            yield number, "dies", with_worker(counted, number, IDLE)
        refresh = state.outputs[worker.output].refresh
        if worker.at == "merge" and refresh is not None and worker.data is None:
            if (counted := _more(bounds, state, "refused")) is not None:
                said, after = order.refused(worker)
                yield number, f"{said} (output {worker.output})", with_worker(counted, number, after)
            if not refresh.hold and (counted := _more(bounds, state, "held")) is not None:
                yield number, "needs a decision", with_worker(counted, number, worker._replace(at="hold"))
    yield from _of_the_person(state)
    yield from _leases_run_out(bounds, state, is_calm=is_calm)
    if not is_calm:
        yield from _of_the_world(design, bounds, state)


def _taken(design: Design, bounds: Bounds, state: State, number: int) -> tuple[str, State]:
    """Take the next step of a process, and those that are taken together with it."""
    told = list[str]()
    while True:
        if state.workers[number].at == "released":
            _check_one_state(state.workers[number])
        said, state = step(design, state, number, bounds.keys)
        told.append(said)
        if state.workers[number].at not in bounds.eager:
            return "; ".join(told), state


def _more(bounds: Bounds, state: State, what: str) -> State | None:
    """Return the state in which something has happened once more; None if it may not."""
    num = getattr(state.faults, what)
    if num >= getattr(bounds.each, what):
        return None
    return state._replace(faults=state.faults._replace(**{what: num + 1}))


def _begins(bounds: Bounds, state: State, number: int) -> Iterator[Labelled]:
    counted = _more(bounds, state, "begun")
    if counted is None:
        return
    for what, output in (("run", 0),) if number == 0 else bounds.second:
        said = {"run": "begins a run", "alone": "begins to refresh", "reload": "begins to reload"}[what]
        said = said if what == "run" else f"{said} output {output} alone"
        yield number, said, with_worker(counted, number, order.begun(what, output))


def _of_the_person(state: State) -> Iterator[Labelled]:
    """What a person does sooner or later: decide, resume, register."""
    for number, output in enumerate(state.outputs):
        if is_waiting(output):
            for is_approved in (True, False):
                said = f"somebody {'approves' if is_approved else 'rejects'} output {number}"
                yield None, said, with_output(state, number, decided(output, is_approved=is_approved))
        if output.is_paused and output.is_registered:
            yield (
                None,
                f"somebody resumes output {number}",
                with_output(state, number, output._replace(is_paused=False)),
            )
        if not output.is_registered:
            yield None, f"somebody registers output {number}", with_output(state, number, registered(output))


def decided(output: Output, *, is_approved: bool) -> Output:
    assert output.refresh is not None
    row = output.row._replace(live=False, cancel=not is_approved)
    return output._replace(row=row, refresh=output.refresh._replace(hold="approved" if is_approved else "rejected"))


def registered(output: Output) -> Output:
    """A new table; it keeps numbers and epochs, so that no process takes it for the old one."""
    epoch = output.row.epoch
    return Output(Row(epoch=epoch), main=Main(epoch=output.main.epoch), number=output.number, since=epoch)


def _leases_run_out(bounds: Bounds, state: State, *, is_calm: bool) -> Iterator[Labelled]:
    """Time passes for all: of the dead at any time, of who is alive as a fault."""
    held = [(n, o) for n, o in enumerate(state.outputs) if o.row.live and o.row.phase != NORMAL and not is_waiting(o)]
    if not held:
        return
    if any((o.row.refresh, o.row.epoch) == w.own[n] for n, o in held for w in state.workers):
        counted = None if is_calm else _more(bounds, state, "expiry")
        if counted is None:
            return
        state = counted
    for number, output in held:
        state = with_output(state, number, output._replace(row=output.row._replace(live=False)))
    yield None, "all leases run out", state


def _of_the_world(design: Design, bounds: Bounds, state: State) -> Iterator[Labelled]:
    topic = state.topic
    if (counted := _more(bounds, state, "sent")) is not None:
        yield None, "a record is sent", counted._replace(topic=topic._replace(end=topic.end + 1))
    if (counted := _more(bounds, state, "made_again")) is not None:
        yield None, "the topic is made again", counted._replace(topic=Topic(topic.generation + 1, 1), group=0)
    gone = min(state.group, topic.end)
    if not design.is_complete and gone > topic.low and (counted := _more(bounds, state, "removed")) is not None:
        yield None, "retention removes what was released", counted._replace(topic=topic._replace(low=gone))
    for number, output in enumerate(state.outputs):
        if not output.is_registered:
            continue
        if not output.main.is_touched and (counted := _more(bounds, state, "others")) is not None:
            main = output.main._replace(rows=(*output.main.rows, FOREIGN), is_touched=True)
            yield None, f"others write to output {number}", with_output(counted, number, output._replace(main=main))
        if not output.is_paused and (counted := _more(bounds, state, "paused")) is not None:
            yield (
                None,
                f"somebody pauses output {number}",
                with_output(counted, number, output._replace(is_paused=True)),
            )
        if output.row.phase != NORMAL:
            continue
        if (counted := _more(bounds, state, "dropped")) is not None:
            gone_one = output._replace(is_registered=False, row=output.row._replace(epoch=output.row.epoch + 1))
            yield None, f"somebody drops output {number}", with_output(counted, number, gone_one)
        is_possible = design.is_complete and not output.is_rolled_back and output.published
        if is_possible and (counted := _more(bounds, state, "rolled_back")) is not None:
            yield None, f"somebody rolls output {number} back", with_output(counted, number, rolled_back(output))


def rolled_back(output: Output) -> Output:
    """Bring main back by a refresh of its own, which is explored elsewhere, and pause the table."""
    rows, number, epoch = output.published[:-1], output.number + 1, output.row.epoch + 1
    row = output.row._replace(epoch=epoch, upper=len(output.bindings) + 1, version=output.row.version + 1)
    return output._replace(
        row=row,
        bindings=(*output.bindings, frontier(0, 0)),  # main's own version: no state of the topic
        main=Main(rows, epoch, number),
        published=rows,
        number=number,
        is_rolled_back=True,
        is_paused=True,
    )


# -- invariants ------------------------------------------------------------------------------------------------------


def check(design: Design, state: State, ends_well: set[State]) -> None:
    """Check what must be true of every state; what must be true of a step is checked where it is taken."""
    for number, output in enumerate(state.outputs):
        if design.is_log and not design.is_complete and output.is_registered and output.frontier is not None:
            is_here = generation_of(output.frontier) == state.topic.generation
            needs = output.frontier.offsets[0] if is_here else 0
            if state.group > needs:
                raise Violated(f"invariant 16: {state.group} is released, and output {number} has to read from {needs}")
        if output.row.phase == NORMAL and not output.main.is_touched and output.main.rows != output.published:
            raise Violated(f"invariant 9: output {number} is {output.main.rows}, published was {output.published}")
        if (output.row.phase == NORMAL) != (output.refresh is None):
            raise Violated("invariant 2: the row and the refresh under way say different things")
    _check_end(design, state, ends_well)


def _check_one_state(worker: Worker) -> None:
    reached = [worker.rows[output] for output in OUTPUTS if worker.found[output] == order.IN_STATE]
    states = {rows[-1:] for rows in reached if rows}  # one that begins where the topic ends has none
    if len(states) > 1:
        raise Violated(f"invariant 17: a run reports one state, and its outputs end with {sorted(states)}")


def _check_end(design: Design, state: State, ends_well: set[State]) -> None:
    """Invariant 10: when everybody dies now, runs of one process bring all outputs to the present.

    A person resumes and approves, starts over what cannot continue where that is possible, and else registers it anew.
    """
    left = state._replace(workers=(IDLE, IDLE), faults=Faults())
    for number in OUTPUTS:
        left = with_output(left, number, _left_alone(left.outputs[number]))
    if left in ends_well:
        return
    met = left
    try:
        for _ in range(_RUNS):
            left, found = _worked(design, left, "run", 0)
            if _is_at_rest(design, left, found):
                break
            for number in OUTPUTS:
                left = _helped(design, left, number)
        else:
            raise Violated("invariant 10: left alone, the outputs do not come to the present")
    except Violated as error:
        raise Violated(f"{error} (after everybody has died)") from None
    ends_well.add(met)


def _left_alone(output: Output) -> Output:
    if is_waiting(output):
        output = decided(output, is_approved=True)
    return output._replace(row=output.row._replace(live=False), is_paused=False)


def _worked(design: Design, state: State, what: str, output: int) -> tuple[State, tuple[str, str]]:
    """Let a process of its own work to its end; return what it has found, too."""
    state, found = with_worker(state, 1, order.begun(what, output)), ("", "")
    for _ in range(_PATIENCE):
        if state.workers[1] is IDLE:
            return state, found
        found = state.workers[1].found
        _, state = step(design, state, 1, ("a", "last"))
    raise Violated(f"invariant 10: no end of it at {state.workers[1].at}")


def _is_at_rest(design: Design, state: State, found: tuple[str, str]) -> bool:
    here = [n for n in OUTPUTS if state.outputs[n].is_registered]
    if any(found[n] != order.IN_STATE for n in here):
        return False
    topic = state.topic
    for number in here:
        output = state.outputs[number]
        if output.main.rows != records(topic.generation, output.origin, topic.end) or output.row.phase != NORMAL:
            raise Violated(f"invariant 10: at rest, and output {number} is {output.main.rows}")
    if design.is_log and here and state.group != topic.end:
        raise Violated(f"invariant 10: at rest, and {state.group} is released of {topic.end}")
    return True


def _helped(design: Design, state: State, number: int) -> State:
    """What a person does about an output that cannot continue."""
    output, fx = state.outputs[number], Process(design, state, "last")
    if not output.is_registered or output.row.phase != NORMAL:
        return state
    seen = Seen(output.row, is_paused=False, is_held=False, since=output.since)
    if not isinstance(fx.assess(number, seen, fx.find(), is_reload=False), str):
        return state
    if design.is_complete:
        return _worked(design, state, "reload", number)[0]
    return with_output(state, number, registered(output))
