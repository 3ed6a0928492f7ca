"""The state of a query's inputs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from airflow_mv_provider.core.frontier import Frontier
from airflow_mv_provider.sources.delta.frontier import DeltaFrontier


@dataclass(frozen=True, slots=True)
class QueryFrontier(Frontier):
    """The inputs of a query, each at its own frontier, sorted by name."""

    type = "query"

    inputs: tuple[tuple[str, DeltaFrontier], ...]

    def versions(self) -> Mapping[str, str]:
        """See `Frontier`."""
        return {name: str(at.version) for name, at in self.inputs}

    def describe(self) -> str:
        """See `Frontier`."""
        return ", ".join(f"{name} at {at.describe()}" for name, at in self.inputs)

    def to_json(self) -> dict[str, Any]:
        """See `Frontier`."""
        return {"type": self.type, "inputs": [[name, at.to_json()] for name, at in self.inputs]}

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> Self:
        """See `Frontier`."""
        return cls(tuple((name, DeltaFrontier.from_json(at)) for name, at in stored["inputs"]))
