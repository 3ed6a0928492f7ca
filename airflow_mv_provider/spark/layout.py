"""How the rows of one table are named and ordered, wherever they are read from."""

from __future__ import annotations

from dataclasses import dataclass

from airflow_mv_provider.core import schema
from airflow_mv_provider.core.table import RefreshableTable


@dataclass(frozen=True, slots=True)
class Layout:
    """How rows of one table are named: the definition, and main's columns in main's order."""

    table: RefreshableTable
    columns: tuple[schema.Column, ...]

    @property
    def names(self) -> list[str]:
        return [c.name for c in self.columns]

    def column(self, name: str) -> schema.Column:
        """Return one of main's columns."""
        return next(c for c in self.columns if c.name == name)
