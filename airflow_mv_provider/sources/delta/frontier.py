"""The state of a Delta table: its id and a version."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from airflow_mv_provider.core.frontier import Frontier


@dataclass(frozen=True, slots=True)
class DeltaFrontier(Frontier):
    """A Delta table at a version (inclusive, as Delta counts). The id detects a table dropped and recreated."""

    type = "delta"

    table_id: str
    version: int

    def versions(self) -> Mapping[str, str]:
        """See `Frontier`."""
        return {"": str(self.version)}

    def describe(self) -> str:
        """See `Frontier`."""
        return f"Delta version {self.version}"

    def to_json(self) -> dict[str, Any]:
        """See `Frontier`."""
        return {"type": self.type, "table_id": self.table_id, "version": self.version}

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> Self:
        """See `Frontier`."""
        return cls(stored["table_id"], int(stored["version"]))
