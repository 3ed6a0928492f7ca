"""How the rows of one table are named and ordered, and which of them a refresh looks at."""

from __future__ import annotations

from dataclasses import dataclass

from airflow_mv_provider.core import schema
from airflow_mv_provider.core.scope import EVERYTHING, Scope
from airflow_mv_provider.core.table import RefreshableTable


@dataclass(frozen=True, slots=True)
class Layout:
    """How rows of one table are named: the definition, and main's columns in main's order.

    scope : the partitions that are looked at; frozen ones never are
    """

    table: RefreshableTable
    columns: tuple[schema.Column, ...]
    scope: Scope = EVERYTHING

    @property
    def is_whole(self) -> bool:
        """True if every row of main is looked at."""
        return self.scope.is_everything and self.table.frozen_before is None

    @property
    def names(self) -> list[str]:
        return [c.name for c in self.columns]

    def column(self, name: str) -> schema.Column:
        """Return one of main's columns."""
        return next(c for c in self.columns if c.name == name)
