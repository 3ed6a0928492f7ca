"""What a refresh changes, or would change: counts, partitions, and some of the rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from airflow_mv_provider.core.outcome import HoldReport, Outcome, PartitionReport


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
    """The corrections of a held refresh, exactly as an approval publishes them, or what is kept of a former one.

    hold           : None if it was never held
    outcome        : of the refresh; "running" while it is held
    is_overwritten : main would be overwritten, so its changed rows are counted but not listed
    rows           : some of each operation; values of sensitive columns as hashes
    columns        : for each column how many updates change it; None if that was not counted
    """

    table: str
    refresh_id: str
    hold: HoldReport | None
    outcome: Outcome
    rows_inserted: int
    rows_updated: int
    rows_deleted: int
    rows_unchanged: int
    partitions: tuple[PartitionReport, ...]
    schema_changes: tuple[str, ...]
    is_overwritten: bool
    rows: tuple[RowChange, ...]
    columns: Mapping[str, int] | None = None

    @property
    def is_counted(self) -> bool:
        """False for a former refresh that was refused or cancelled: its counts are not in the history."""
        counts = (self.rows_inserted, self.rows_updated, self.rows_deleted, self.rows_unchanged)
        return any(counts) or not self.rows
