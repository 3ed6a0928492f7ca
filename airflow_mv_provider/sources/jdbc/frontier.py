"""The state of a database: which one it is, and a token that changes with every change of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from airflow_mv_provider.core.frontier import Frontier


@dataclass(frozen=True, slots=True)
class JdbcFrontier(Frontier):
    """A database at a state or a later one: rows are read after the token, so they may be newer, never older.

    database : identifies the database; another one that answers at the same address has another value
    token    : equal tokens of one database stand for the same rows of all its tables
    obstacle : why equal tokens do not stand for the same rows of the source; None if they do
    relation : changes whenever rows of the table may change that no transaction has written: it was truncated,
               rewritten or altered; None if that is not known
    moment   : when it was looked at, for a source that may change at any time; None if the token shows changes
    """

    type = "jdbc"

    database: str
    token: str
    obstacle: str | None = None
    relation: str | None = None
    moment: str | None = None

    def versions(self) -> Mapping[str, str]:
        """See `Frontier`."""
        return {"": self.token}

    def describe(self) -> str:
        """See `Frontier`."""
        return f"{self.database.partition(' ')[0]} at {self.token.partition(' ')[0]}"

    def to_json(self) -> dict[str, Any]:
        """See `Frontier`."""
        found = {"type": self.type, "database": self.database, "token": self.token, "obstacle": self.obstacle}
        return found | {"relation": self.relation, "moment": self.moment}

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> Self:
        """See `Frontier`."""
        known = (stored["database"], stored["token"], stored["obstacle"])
        return cls(*known, stored.get("relation"), stored.get("moment"))
