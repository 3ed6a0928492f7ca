"""The state of a source, the counter that stands for it, and the next batch: what one refresh brings into main.

A `Frontier` identifies a source's state; each kind of source has its own, in `sources/<kind>/frontier.py`, or has none.
A `Binding` maps one value of this package's counter to one frontier; it is durable before anything is read at it.
"""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self


class Frontier(ABC):
    """A source's state at one moment, as an immutable value: equal frontiers of one source stand for the same rows."""

    __slots__ = ()

    type: ClassVar[str]  # marks its stored form; no other frontier has it

    @property
    def continues(self) -> bool:
        """True if it stands for the rows of the last publish with what came later, and not for all rows by itself."""
        return False

    def versions(self) -> Mapping[str, str]:
        """Return the version of each input, by the names of `Source.named_paths`, as another program may know it."""
        return {}

    @abstractmethod
    def describe(self) -> str:
        """Return the frontier in words."""

    def since(self, earlier: Frontier) -> str:
        """Return in words what it is, and as far as it knows what has changed since an earlier one."""
        return self.describe()

    @abstractmethod
    def to_json(self) -> dict[str, Any]:
        """Return its stored form, with its `type`; `from_json` reverses it."""

    @classmethod
    @abstractmethod
    def from_json(cls, stored: Mapping[str, Any]) -> Self:
        """Return the frontier that `to_json` stored. The registry finds its class by `type`."""


@dataclass(frozen=True, slots=True)
class NoFrontier(Frontier):
    """A source without versions: its rows may differ at each read."""

    type = "none"

    def describe(self) -> str:
        """See `Frontier`."""
        return "a source without versions"

    def to_json(self) -> dict[str, Any]:
        """See `Frontier`."""
        return {"type": self.type}

    @classmethod
    def from_json(cls, _stored: Mapping[str, Any]) -> Self:
        """See `Frontier`."""
        return cls()


@dataclass(frozen=True, slots=True)
class Binding:
    """This package's version `upper` of a source stands for the source at `frontier`."""

    upper: int
    frontier: Frontier


@dataclass(frozen=True, slots=True)
class BatchDescription:
    """Source versions [lower, upper) that a refresh publishes: main is at `lower`, then at `upper`. Never empty."""

    lower: int
    upper: int

    def __post_init__(self) -> None:
        if not 0 <= self.lower < self.upper:
            raise ValueError(f"a batch needs 0 <= lower < upper, got [{self.lower}, {self.upper})")


def mint(desired: int, persisted: int) -> BatchDescription | None:
    """Describe the next batch, or None while there is nothing to publish.

    desired, persisted : exclusive upper bounds, in source versions
    source             : "mint", Materialize `src/compute/src/sink/materialized_view.rs`
    """
    return BatchDescription(lower=persisted, upper=desired) if desired > persisted else None


def desired_upper(newest: Binding | None, frontier: Frontier, persisted: int, *, must_compare: bool) -> int:
    """Return the exclusive upper bound that stands for `frontier`.

    newest       : the binding with the greatest upper, published or not
    persisted    : upper of the last published batch
    must_compare : main is not trusted, the definition changed, or a person forces it: an unchanged source then gets
                   a new number
    """
    if newest is None:
        return persisted + 1
    if newest.frontier != frontier or isinstance(frontier, NoFrontier):
        return newest.upper + 1
    if must_compare and newest.upper <= persisted:
        return newest.upper + 1
    return newest.upper  # the binding of an abandoned batch stays: the same frontier keeps its number


def fingerprint(frontier: Frontier) -> str:
    """Return 16 hex digits that differ for different frontiers; short enough for a commit's metadata."""
    return hashlib.sha256(json.dumps(frontier.to_json(), sort_keys=True).encode()).hexdigest()[:16]
