"""What a refresh that is held would change: counts, partitions, and some of the rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from airflow_mv_provider.core.outcome import HoldReport, PartitionReport


@dataclass(frozen=True, slots=True)
class RowChange:
    """One row that would change, its values as in JSON.

    operation : "insert", "update" or "delete"
    before    : main's row; None for an insert
    after     : the row that main would have; None for a delete
    """

    operation: str
    key: dict[str, Any]
    before: dict[str, Any] | None
    after: dict[str, Any] | None

    @property
    def changed(self) -> tuple[str, ...]:
        """The columns that an update changes."""
        if self.before is None or self.after is None:
            return ()
        return tuple(name for name in self.after if name not in self.before or self.after[name] != self.before[name])


@dataclass(frozen=True, slots=True)
class Difference:
    """The corrections of a refresh that is held, exactly as an approval publishes them.

    is_overwritten : main would be overwritten, so its changed rows are counted but not listed
    rows           : some of each operation
    """

    table: str
    refresh_id: str
    hold: HoldReport
    rows_inserted: int
    rows_updated: int
    rows_deleted: int
    rows_unchanged: int
    partitions: tuple[PartitionReport, ...]
    schema_changes: tuple[str, ...]
    is_overwritten: bool
    rows: tuple[RowChange, ...]
