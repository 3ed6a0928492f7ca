"""The state of a data source: the result of its version query, if the definition has one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from airflow_mv_provider.core.frontier import Frontier

_MAX_SHOWN = 60


@dataclass(frozen=True, slots=True)
class SparkFrontier(Frontier):
    """A data source at a state or a later one: the token is read before the rows.

    token : equal tokens stand for equal rows, which the definition's author guarantees; None if it has no query
    """

    type = "spark"

    token: str | None

    def versions(self) -> Mapping[str, str]:
        """See `Frontier`."""
        return {} if self.token is None else {"": self.token}

    def describe(self) -> str:
        """See `Frontier`."""
        return "a data source without versions" if self.token is None else f"version {self.token[:_MAX_SHOWN]}"

    def to_json(self) -> dict[str, Any]:
        """See `Frontier`."""
        return {"type": self.type, "token": self.token}

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> Self:
        """See `Frontier`."""
        return cls(stored["token"])
