"""Simulated processes that refresh one table of a simulated Delta, with the real `Store` on SQLite.

A process stops before and after every durable write, by the names of `runner/crash_points`, and once in the middle of a
MERGE. At each it can be left for as long as one likes, killed, or told that an answer was lost. The steps between are
those of `order`, which the checker explores too.

The runner itself is not run here: its steps are one Spark statement after the other, and to run it without Spark most
of `spark` and `sources` would have to be replaced inside of it. What it decides is in `core`, and what it writes in
`metadata`: those are real here. `test_differential.py` holds the order against real refreshes, durable write by durable
write.
"""

from __future__ import annotations

from airflow_mv_provider import exceptions
from airflow_mv_provider.core.outcome import Outcome
from airflow_mv_provider.core.phase import Recovery
from airflow_mv_provider.core.state import Caller
from airflow_mv_provider.exceptions import MetadataUnavailableError, MvError
from tests.model import ending, order
from tests.model.beside import HistoryWrite
from tests.model.delta import Transaction
from tests.model.design import Design, Worker
from tests.model.lake import World
from tests.model.stored import Stored

# The steps that write, by the names of `runner/crash_points`.
WRITES = {
    **{"acquire": "acquire", "hand over": "hand_over", "fence": "fence", "stage": "staging", "seal": "seal"},
    **{"changes": "changes", "record": "progress", "merge": "publish", "committed": "committed"},
    **{"create history": "create_history", "fence history": "fence_history", "merge history": "history"},
    **{"hold": "hold", "supersede": "decide", "record kept": "keep"},
    **{"discard": "discard", "published": "published", "concluded": "published"},
    **{"clean": "staging_delete", "sweep": "staging_delete", "finish": "normal", "abandon": "normal"},
}
_OF_SPARK = ("publish", "fence", "staging", "changes", "staging_delete", "create_history", "fence_history", "history")
_HELD = {"commit": "publish.held", "commit history": "history.held"}
_MAX_RACES = 10
_ERRORS = {
    each.code: each for each in vars(exceptions).values() if isinstance(each, type) and issubclass(each, MvError)
}


class Process:
    """One process of a caller. `at` is the point that it has reached; None when it has ended."""

    def __init__(self, world: World, caller: Caller) -> None:
        self.world, self.caller = world, caller
        self.at: str | None = "begin"
        self.error: MvError | None = None
        self.outcome: Outcome | None = None
        of = world.table.definition
        self._design = Design(
            is_progressive=world.is_progressive, holds=of.approval == "always", keeps_history=of.history is not None
        )
        self._fx, self._worker, self._num_races = Stored(world, caller), Worker(), 0

    @property
    def held(self) -> Transaction | HistoryWrite | None:
        return self._fx.held

    def advance(self) -> str | None:
        """Go on to the next point."""
        if self.at is not None:
            self._go_on(self.at)
        return self.at

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
        write, _, when = self.at.partition(".")
        code = "MV-ENGINE" if write in _OF_SPARK else "MV-DATABASE-UNAVAILABLE"
        self._leave_merge()
        before = self._worker if when in ("before", "held") else self._written
        self._meet(before, code)
        self._to_next_point()

    def die(self) -> None:
        """Die; a MERGE under way goes on."""
        self._leave_merge()
        self.at = None

    def _leave_merge(self) -> None:
        if self._fx.held is not None:
            self.world.orphans.append(self._fx.held)
            self._fx.held = None

    # ----------------------------------------------------------------------------------------------------------------

    def _go_on(self, point: str) -> None:
        """Write, if the process is right before that, and go on to the next point."""
        write, _, when = point.partition(".")
        if when in ("before", "held"):
            before, self._fx.is_done = self._worker, True
            self._step()
            if self._worker.at in _HELD:
                self.at = _HELD[self._worker.at]
                return
            if self._fx.is_done:
                self._written, self.at = before, f"{write}.after"
                return
        self._to_next_point()

    def _to_next_point(self) -> None:
        while (write := WRITES.get(self._worker.at)) is None:
            if self._worker.at == "idle" and not self._begins():
                self.at = None
                return
            self._step()
        self.at = f"{write}.before"

    def _step(self) -> None:
        before = self._worker
        try:
            found = order.step(self._design, self._fx, before)
        except MetadataUnavailableError:
            self._fx.is_done = False
            self._meet(before, MetadataUnavailableError.code)
            return
        if found is None:
            self._worker = ending.ended("MV-REFRESH-IN-PROGRESS")
        else:
            self._become(found[1])

    def _meet(self, before: Worker, code: str) -> None:
        """Meet an error of Spark or of the database at a step."""
        try:
            self._become(ending.interrupted(self._design, self._fx, before, code))
        except MetadataUnavailableError:
            self._become(ending.ended(MetadataUnavailableError.code))

    def _become(self, after: Worker) -> None:
        if after.at == "settle":
            self._fx.error = _ERRORS[after.data[0]]("simulated", "it failed.")
        self._worker = after

    def _begins(self) -> bool:
        """Begin, or begin again after a lost race or a takeover, as a caller does; False if the process has ended."""
        why = self._worker.data[0] if self._worker.data else ending.AGAIN
        error = self._fx.error
        if error is None and why not in (ending.AGAIN, ending.NOTHING_NEW, ending.OVER):
            error = _ERRORS[why]("simulated", "it failed.")
        if error is not None and not self._is_over(error):
            self.error = error
            return False
        if error is None and why == ending.NOTHING_NEW:
            self.outcome = Outcome.NOTHING_TO_DO
        elif error is None and why == ending.OVER and not self._fx.is_theirs:
            self.outcome = Outcome.PUBLISHED
        elif self._num_races == _MAX_RACES:
            self.error = exceptions.RefreshInProgressError("simulated", "others were faster.")
        else:
            self._fx, self._worker, self._num_races = Stored(self.world, self.caller), Worker(), self._num_races + 1
            return True
        return False

    def _is_over(self, error: MvError) -> bool:
        """True if the refresh that was taken over has ended, though its last steps failed."""
        if self._fx.taken_over is not Recovery.RESUME and self._fx.taken_over is not Recovery.FINISH:
            return False
        try:
            outcome = self.world.store.report(self._fx.refresh.id).outcome
        except MetadataUnavailableError:
            return False
        is_overtaken = isinstance(error, exceptions.OvertakenError) and outcome is not Outcome.RUNNING
        return is_overtaken or outcome is Outcome.PUBLISHED
