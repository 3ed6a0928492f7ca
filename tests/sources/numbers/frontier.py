"""The state of numbers: how many there are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from airflow_mv_provider.core.frontier import Frontier


@dataclass(frozen=True, slots=True)
class NumbersFrontier(Frontier):
    """The numbers below a bound."""

    type = "numbers"

    below: int

    def describe(self) -> str:
        """See `Frontier`."""
        return f"the numbers below {self.below}"

    def to_json(self) -> dict[str, Any]:
        """See `Frontier`."""
        return {"type": self.type, "below": self.below}

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> Self:
        """See `Frontier`."""
        return cls(stored["below"])
