"""The effects of one process on the small world: what `order` reads and writes, on an immutable `State`.

What is checked at a step, and not of a state, is checked here, where the step is taken.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any, NamedTuple

from airflow_mv_provider.core.frontier import Binding, desired_upper, mint
from airflow_mv_provider.core.scope.continuation import ReadFrom, obstacle, read_from
from airflow_mv_provider.core.state import RefreshState, next_epoch
from airflow_mv_provider.core.strategy import compare_reason
from airflow_mv_provider.exceptions import MvError, SourceReplacedError, StreamGoneError
from airflow_mv_provider.sources.kafka.frontier import (
    KafkaFrontier,
    check_continues,
    check_kept,
    num_offsets,
    spans,
    starts_of,
)
from airflow_mv_provider.sources.kafka.shared import releasable
from tests.model.decisions import abandoned, acquired, advanced, as_state, handed_over, held
from tests.model.exploring import Violated
from tests.model.ingestion import order
from tests.model.ingestion.world import (
    FOREIGN,
    IDLE,
    Design,
    Main,
    Output,
    Refresh,
    Rows,
    State,
    Worker,
    frontier,
    generation_of,
    records,
    rows_at,
    with_output,
)
from tests.model.world import CLEANUP, MERGING, NORMAL, REFRESHING, Row

Own = tuple[int, int]
Batch = tuple[int, KafkaFrontier]


class Seen(NamedTuple):
    """A table as it was looked at."""

    row: Row
    is_paused: bool
    is_held: bool
    since: int


class Facts(NamedTuple):
    """What decides, beside the source's state, what a refresh would do.

    base : what the last publish stands for; None before the first, and after a rollback
    low  : of the topic
    """

    upper: int
    base: KafkaFrontier | None
    newest: Binding | None
    is_trusted: bool
    is_rolled_back: bool
    low: int


def step(design: Design, state: State, number: int, keys: tuple[str, str]) -> tuple[str, State]:
    """Return what the next step of a worker is called, and the state after it."""
    fx = Process(design, state, keys[number])
    said, after = order.step(design, fx, state.workers[number])
    return said, with_worker(fx.state, number, after)


def with_worker(state: State, number: int, worker: Worker) -> State:
    first, second = state.workers
    worker = IDLE if worker.at == "idle" else worker
    return state._replace(workers=(worker, second) if number == 0 else (first, worker))


@cache
def state_of(seen: Seen) -> RefreshState:
    found = as_state(seen.row, is_held=seen.is_held)
    return replace(found, paused_since_ms=1) if seen.is_paused else found


@cache
def assessed(design: Design, facts: Facts, pin: KafkaFrontier, is_reload: bool) -> Batch | str | None:
    """Return the upper that a refresh would bring a table to, and what it stands for; see `Effects.assess`."""
    must_compare = compare_reason(
        is_first=not facts.upper,
        is_forced=is_reload,
        same_definition=True,
        is_trusted=facts.is_trusted,
        nondeterminism_reason=None,
        is_rolled_back=facts.is_rolled_back,
    )
    if design.is_log:
        found = _pinned(design, facts, pin, is_reload)
        if isinstance(found, str):
            return found
        pin = found
        if must_compare is None and facts.base is not None and not num_offsets(spans(facts.base, pin)):
            return None
    upper = desired_upper(facts.newest, pin, facts.upper, must_compare=must_compare is not None)
    batch = mint(upper, facts.upper)
    return None if batch is None else (batch.upper, pin)


def _pinned(design: Design, facts: Facts, pin: KafkaFrontier, is_reload: bool) -> KafkaFrontier | str:
    """Return from where the log is read, as `runner.pinning` finds it, or the code of what is in the way."""
    why = obstacle(
        same_definition=True,
        is_rolled_back=facts.is_rolled_back,
        num_kept=0,
        has_position=facts.base is not None,
    )
    ways = {"is_reload": is_reload, "is_complete": design.is_complete, "is_first": not facts.upper}
    try:
        if read_from("output", **ways, has_rows=False, obstacle=why) is ReadFrom.LOG_START:
            return pin.from_start((facts.low,))
        assert facts.base is not None
        check_continues(facts.base, pin)
        check_kept("topic", spans(facts.base, pin), (facts.low,))
    except MvError as error:
        return error.code
    return pin


class Process:
    """The effects of a process of the caller `key`; `state` is the world after those so far."""

    __slots__ = ("design", "key", "state")

    def __init__(self, design: Design, state: State, key: str) -> None:
        self.design, self.state, self.key = design, state, key

    # -- what is read ------------------------------------------------------------------------------------------------

    def look(self, output: int) -> Seen | None:
        found = self.state.outputs[output]
        if not found.is_registered:
            return None
        return Seen(found.row, found.is_paused, is_waiting(found), found.since)

    def state_of(self, seen: Seen) -> RefreshState:
        return state_of(seen)

    def identity(self, seen: Seen) -> int:
        return seen.since

    def find(self) -> KafkaFrontier:
        return frontier(self.state.topic.generation, self.state.topic.end)

    def assess(self, output: int, seen: Seen, pin: KafkaFrontier, *, is_reload: bool) -> Batch | str | None:
        found = self.state.outputs[output]
        upper, bindings = seen.row.upper, found.bindings
        # Others are forgotten, and so are those of a table that was dropped.
        is_kept = upper in (found.row.upper, len(bindings)) and seen.row.epoch >= found.since
        base = bindings[upper - 1] if upper and is_kept and not found.is_rolled_back else None
        newest = Binding(len(bindings), bindings[-1]) if bindings else None
        facts = Facts(upper, base, newest, not found.main.is_touched, found.is_rolled_back, self.state.topic.low)
        return assessed(self.design, facts, pin, is_reload)

    def tells(self, output: int, code: str) -> None:
        found, topic = self.state.outputs[output], self.state.topic
        if found.is_rolled_back or not found.is_registered:
            return
        is_same = found.frontier is not None and generation_of(found.frontier) == topic.generation
        if is_same and code == StreamGoneError.code:
            raise Violated(f"invariant 16: output {output} has to read what was removed before {topic.low}")
        if is_same or code != SourceReplacedError.code:
            raise Violated(f"invariant 18: {code}, and it can be continued")

    def lower(self, output: int, own: Own) -> int:
        return self._refresh(output).lower

    def is_of(self, output: int, own: Own, pin: KafkaFrontier) -> bool:
        found = self._refresh(output).pin
        return (found.topic_id, found.offsets) == (pin.topic_id, pin.offsets)

    def rows(self, output: int) -> Rows:
        return self.state.outputs[output].published

    def position(self, output: int) -> KafkaFrontier | None:
        return self.state.outputs[output].frontier

    def sealed_position(self, output: int) -> KafkaFrontier | None:
        refresh = self.state.outputs[output].refresh
        return self.position(output) if refresh is None else refresh.pin

    def is_open(self, output: int) -> bool:
        return not self.state.outputs[output].is_paused

    def is_there(self, output: int, own: Own) -> bool:
        """True if what lies between the last publish and the pin can be read once more."""
        found = self.state.outputs[output]
        if not self.design.is_log or found.refresh is None or found.row.refresh != own[0]:
            return True
        return self._read(output, found.refresh.pin) is not None

    # -- the state row -----------------------------------------------------------------------------------------------

    def bind(self, pin: KafkaFrontier) -> None:
        """Change nothing: a run's row is read by people only."""

    def ends_run(self) -> None:
        """Change nothing, as `bind`."""

    def acquire(self, output: int, seen: Seen, batch: Batch) -> Own | None:
        found, (upper, pin) = self.state.outputs[output], batch
        number, epoch = found.number + 1, next_epoch(seen.row.epoch, found.main.epoch)
        row = acquired(found.row, seen.row, number, self.key, epoch)
        if row is None or found.is_paused or not found.is_registered:
            return None
        bindings = found.bindings if upper <= len(found.bindings) else (*found.bindings, pin)
        refresh = Refresh(pin, upper, seen.row.upper)
        self._set(output, row=row, refresh=refresh, bindings=bindings, number=number)
        return number, epoch

    def hand_over(self, output: int, seen: Seen) -> Own | None:
        found = self.state.outputs[output]
        epoch = next_epoch(seen.row.epoch, found.main.epoch)
        row = handed_over(found.row, seen.row, self.key, epoch)
        if row is None or not found.is_registered:
            return None
        self._set(output, row=row)
        return row.refresh, epoch

    def seal(self, output: int, own: Own, staged: Rows) -> bool:
        row = advanced(self.state.outputs[output].row, own, REFRESHING, MERGING)
        if row is None:
            return False
        self._set(output, row=row, refresh=self._refresh(output)._replace(staged=staged))
        return True

    def hold(self, output: int, own: Own) -> bool:
        row = held(self.state.outputs[output].row, own, MERGING)
        if row is None:
            return False
        self._set(output, row=row._replace(left=True), refresh=self._refresh(output)._replace(hold="waits"))
        return True

    def published(self, output: int, own: Own) -> bool:
        found = self.state.outputs[output]
        row = advanced(found.row, own, MERGING, CLEANUP)
        if row is None:
            return False
        refresh, before = self._refresh(output), found.published
        rows = tuple(row for row in found.main.rows if row != FOREIGN) if found.main.is_touched else found.main.rows
        self._check_rows(output, refresh.pin, rows, before)
        row = row._replace(upper=refresh.upper, version=row.version + 1)
        self._set(output, row=row, published=rows, is_rolled_back=False)
        return True

    def _check_rows(self, output: int, pin: KafkaFrontier, rows: Rows, before: Rows) -> None:
        wanted = rows_at(pin, self.state.outputs[output].origin)
        if self.design.is_log and rows != wanted:
            raise Violated(f"invariant 1: output {output} is published as {rows}, up to its frontier it is {wanted}")
        if not self.design.is_log and len(rows) < len(wanted):
            raise Violated(f"invariant 1: output {output} is published as {rows}, and is said to have {wanted}")
        if not self.design.is_log and len(rows) < len(before):
            raise Violated(f"invariant 13: output {output} goes back from {before} to {rows}")

    def finish(self, output: int, own: Own) -> bool:
        return self._ended(output, advanced(self.state.outputs[output].row, own, CLEANUP, NORMAL))

    def abandon(self, output: int, own: Own) -> bool:
        found = self.state.outputs[output]
        row = abandoned(found.row, own)
        if row is not None and found.main.refresh == own[0]:
            raise Violated(f"invariant 9: a refresh of output {output} is abandoned, and main has it")
        return self._ended(output, row)

    def _ended(self, output: int, row: Row | None) -> bool:
        if row is not None:
            self._set(output, row=row, refresh=None)
        return row is not None

    # -- the source and main -----------------------------------------------------------------------------------------

    def stage(self, output: int, own: Own, pin: KafkaFrontier | None) -> Rows | None:
        topic, found = self.state.topic, self.state.outputs[output]
        if found.refresh is None or found.row.refresh != own[0]:
            return ()  # overtaken: what it stages is never sealed
        if not self.design.is_log:
            until = topic.end if pin is None else pin.offsets[0]
            return records(topic.generation, 0, until)
        wanted = found.refresh.pin
        until = wanted if self.design.binds else frontier(topic.generation, topic.end, _begin(wanted))
        staged = self._read(output, until)
        if staged is not None and wanted.begin is not None:
            self._set(output, origin=starts_of(None, wanted)[0])
        return staged

    def _read(self, output: int, until: KafkaFrontier) -> Rows | None:
        """Return the records between the last publish and a state; None if the topic has them no longer."""
        topic, found = self.state.topic, self.state.outputs[output]
        base = None if until.begin is not None else found.frontier
        if not self.design.continues_own and base is not None:
            base = frontier(generation_of(base), self.state.group)
        if generation_of(until) != topic.generation or (base is None and until.begin is None):
            return None
        (start,) = starts_of(base, until)
        if start < topic.low:
            return None
        return records(topic.generation, start, until.offsets[0])

    def fence(self, output: int, own: Own) -> str:
        main = self.state.outputs[output].main
        if main.epoch > own[1]:
            return "later"
        self._set(output, main=main._replace(epoch=own[1]))
        return "in main" if main.refresh == own[0] else "not in main"

    def merge(self, output: int, own: Own, *, is_compared: bool) -> str:
        found = self.state.outputs[output]
        if found.main.epoch > own[1] or found.refresh is None or found.row.refresh != own[0]:
            return "lost"
        if found.main.is_touched and not is_compared:
            return "moved"
        staged, refresh = found.refresh.staged, found.refresh
        assert staged is not None
        continues = self.design.is_log and refresh.pin.begin is None
        self._set(output, main=Main((*found.published, *staged) if continues else staged, own[1], own[0]))
        return "done"

    def release(self, positions: dict[int, KafkaFrontier | None]) -> None:
        """Look which topic it is and commit; Kafka knows a topic by its name, so these are taken for one step."""
        if not self.design.is_log:
            return
        offsets = releasable(dict.fromkeys(positions, "topic"), positions).get("topic")
        if offsets is None:
            return
        read = next(iter(positions.values()))
        if read is not None and generation_of(read) != self.state.topic.generation and self.design.knows_topic:
            return
        self.state = self.state._replace(group=offsets[0])

    # -- how it is written -------------------------------------------------------------------------------------------

    def _refresh(self, output: int) -> Refresh:
        found = self.state.outputs[output].refresh
        assert found is not None
        return found

    def _set(self, output: int, **changes: Any) -> None:
        self.state = with_output(self.state, output, self.state.outputs[output]._replace(**changes))


def _begin(found: KafkaFrontier) -> int | None:
    return None if found.begin is None else found.begin[0]


def is_waiting(output: Output) -> bool:
    """True if its refresh waits for a person's decision."""
    return output.refresh is not None and output.refresh.hold == "waits" and output.row.left
