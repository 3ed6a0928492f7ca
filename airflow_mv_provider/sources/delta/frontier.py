"""The state of a Delta table: its id, a version and its commit, and where it lay if it was found by a name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from airflow_mv_provider.core.frontier import Frontier


@dataclass(frozen=True, slots=True)
class DeltaFrontier(Frontier):
    """A Delta table at a version (inclusive, as Delta counts).

    The id detects a table that was dropped and created again, the commit one whose folder was put back from a backup
    and written again up to the same version.

    Attributes:
        location: Where the catalog's name led when it was pinned; None for a table that the definition names by path.
        commit: A digest of the version's file in the log.
    """

    type = "delta"

    table_id: str
    version: int
    location: str | None = None
    commit: str = ""

    def versions(self) -> Mapping[str, str]:
        """See `Frontier`."""
        return {"": str(self.version)}

    def describe(self) -> str:
        """See `Frontier`."""
        return f"Delta version {self.version}"

    def to_json(self) -> dict[str, Any]:
        """See `Frontier`."""
        found: dict[str, Any] = {"type": self.type, "table_id": self.table_id, "version": self.version}
        more = {"location": self.location, "commit": self.commit}
        return found | {name: value for name, value in more.items() if value}

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> Self:
        """See `Frontier`."""
        return cls(stored["table_id"], int(stored["version"]), stored.get("location"), stored.get("commit", ""))
