"""Visit every state of a model that can be reached, breadth first; tell the shortest way to one that is not allowed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

Labelled = tuple[int | None, str, Any]  # the worker that took the step, None for the world; what it did; what became


class Violated(Exception):
    """An invariant does not hold. `step` is the step that breaks it, where it is not taken any more."""

    step: tuple[int | None, str] | None = None


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


@dataclass
class Explorer:
    """A model: where it starts, its steps, and what must be true of each state.

    successors : yields every step that can be taken in a state; raises `Violated` for one that must not
    check      : raises `Violated`
    canonical  : of states that are alike but for the names of the first two workers, the one that is looked at
    names      : of the workers
    """

    start: Any
    successors: Callable[[Any], Iterable[Labelled]]
    check: Callable[[Any], None]
    names: tuple[str, ...]
    canonical: Callable[[Any], Any] = lambda state: state
    _parents: dict[Any, Any] = field(default_factory=dict)

    def explore(self) -> Explored:
        """Visit every state that can be reached, or stop at the first that breaks an invariant."""
        found, parents = Explored(), self._parents
        parents[self.start] = None
        level = [self.start]
        while level and found.violation is None:
            found.depth += 1
            after: list[Any] = []
            for state in level:
                reached = state
                try:
                    for _, _, raw in self.successors(state):
                        found.num_steps += 1
                        reached = self.canonical(raw)
                        if reached not in parents:
                            parents[reached] = state
                            self.check(reached)
                            after.append(reached)
                        reached = state
                except Violated as error:
                    found.violation = str(error)
                    found.trace = self._trace(reached, error.step)
                    break
            level = after
        found.num_states = len(parents)
        return found

    def _trace(self, last: Any, broken_by: tuple[int | None, str] | None) -> list[str]:
        """Return the shortest way to `last`, and the step that breaks an invariant there, if it is not the last."""
        way = [last]
        while (before := self._parents[way[-1]]) is not None:
            way.append(before)
        way.reverse()
        names, lines = list(self.names), []
        for state, after in pairwise(way):
            for number, said, raw in self._until_broken(state):
                if self.canonical(raw) == after:
                    lines.append(_line(names, number, said))
                    if self.canonical(raw) is not raw:
                        names[0], names[1] = names[1], names[0]
                    break
        return lines if broken_by is None else [*lines, _line(names, *broken_by)]

    def _until_broken(self, state: Any) -> Iterator[Labelled]:
        with suppress(Violated):
            yield from self.successors(state)


def _line(names: list[str], number: int | None, said: str) -> str:
    return said if number is None else f"{names[number]} {said}"
