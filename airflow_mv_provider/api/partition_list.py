"""A table's partitions as its page lists them: filters, order and pages; and the intervals that are not done."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from airflow_mv_provider.core.outcome import MAX_PARTITIONS_IN_HISTORY
from airflow_mv_provider.core.phase import Phase
from airflow_mv_provider.core.scope.ledger import IntervalState, LedgerEntry
from airflow_mv_provider.core.scope.partition_line import PartitionLine, partition_lines, to_look_at
from airflow_mv_provider.metadata.history.known_partitions import NUM_REPORTS, KnownPartitions

PAGE_LINES = 200
MAX_INTERVALS = 200


def _is_in(state: IntervalState) -> Callable[[PartitionLine], bool]:
    return lambda line: line.state is state


FILTERS: Mapping[str, Callable[[PartitionLine], bool]] = {
    "all": lambda line: True,
    **{state: _is_in(state) for state in IntervalState if state is not IntervalState.DONE},
    "frozen": lambda line: line.is_frozen,
}
COLUMNS: Mapping[str, Callable[[PartitionLine], Any]] = {
    "state": lambda line: line.state,
    "refreshed": lambda line: line.done_at,
    "changed": lambda line: line.changed and line.changed.at,
    "rows": lambda line: line.num_rows,
}
"""The values by which the list can be sorted; by any other name it is in the order of the partition columns."""


@dataclass(frozen=True, slots=True)
class PartitionQuery:
    """What the address of the list asks for.

    chosen       : one of FILTERS; any other value means "all"
    sort         : one of COLUMNS; any other value means the partition columns
    is_ascending : the newest, or largest, come first without it
    start, end   : only what is inside, of the first partition column
    page         : counted from 1; a number out of range gives the nearest page
    """

    chosen: str = "all"
    sort: str = "partition"
    is_ascending: bool = False
    start: str = ""
    end: str = ""
    page: int = 1

    def address(self, **changes: Any) -> dict[str, Any]:
        """Return the parameters of the address that asks for this, with some changes."""
        found = replace(self, **changes)
        sort, order = "" if found.sort == "partition" else found.sort, "asc" if found.is_ascending else ""
        facts = {"show": found.chosen, "sort": sort, "order": order}
        return facts | {"from": found.start, "until": found.end, "page": found.page}

    def by(self, column: str) -> dict[str, Any]:
        """Return the parameters that sort by a column; in the other direction if it sorts already."""
        return self.address(sort=column, is_ascending=self.sort == column and not self.is_ascending, page=1)


@dataclass(frozen=True, slots=True)
class PartitionList:
    """The data of the page.

    lines     : of this page
    choices   : the filters, each with the number of partitions that match it
    intervals : those that are not done, at most MAX_INTERVALS
    reports   : how many published refreshes were searched for changes
    is_cut    : a refresh has more partitions than the history keeps
    """

    table: str
    now_ms: int
    is_under_way: bool
    is_paused: bool
    is_dropping: bool
    partition_by: tuple[str, ...]
    frozen_before: str | None
    query: PartitionQuery
    lines: tuple[PartitionLine, ...]
    choices: tuple[tuple[str, int], ...]
    matching: int
    num_pages: int
    page: int
    intervals: tuple[LedgerEntry, ...]
    num_intervals: int
    reports: int
    is_cut: bool

    @property
    def facts(self) -> PartitionList:
        """What the page shows, except what is relative to now."""
        return replace(self, now_ms=0)


def listed_partitions(found: KnownPartitions, asked: PartitionQuery) -> PartitionList:
    """Return the page of a table's partitions that an address asks for."""
    bounds = {"start": asked.start or None, "end": asked.end or None}
    known = partition_lines(found.history, found.published, found.kind, frozen_before=found.frozen_before, **bounds)
    if not found.partition_by:
        known = ()  # parts by a hash of the key are no partitions, and none can be requested
    asked = replace(
        asked,
        chosen=asked.chosen if asked.chosen in FILTERS else "all",
        sort=asked.sort if asked.sort in COLUMNS else "partition",
    )
    lines = _sorted([line for line in known if FILTERS[asked.chosen](line)], asked)
    num_pages = max(1, -(-len(lines) // PAGE_LINES))
    page = min(max(asked.page, 1), num_pages)
    intervals = to_look_at(found.history, found.kind, **bounds) if found.partition_by else ()
    return PartitionList(
        table=found.table,
        now_ms=found.now_ms,
        is_under_way=found.phase is not Phase.NORMAL,
        is_paused=found.is_paused,
        is_dropping=found.is_dropping,
        partition_by=found.partition_by,
        frozen_before=found.frozen_before,
        query=replace(asked, page=page),
        lines=tuple(lines[(page - 1) * PAGE_LINES : page * PAGE_LINES]),
        choices=tuple((name, sum(map(matches, known))) for name, matches in FILTERS.items()),
        matching=len(lines),
        num_pages=num_pages,
        page=page,
        intervals=intervals[:MAX_INTERVALS],
        num_intervals=len(intervals),
        reports=NUM_REPORTS,
        is_cut=any(len(each.partitions) >= MAX_PARTITIONS_IN_HISTORY for each in found.published),
    )


def _sorted(lines: list[PartitionLine], asked: PartitionQuery) -> list[PartitionLine]:
    """Return lines in the order that is asked for; what has no value comes last, whatever the direction."""
    if not asked.is_ascending:
        lines = lines[::-1]
    if asked.sort not in COLUMNS:
        return lines
    value_of = COLUMNS[asked.sort]
    without = [line for line in lines if value_of(line) is None]
    with_one = [line for line in lines if value_of(line) is not None]
    return sorted(with_one, key=value_of, reverse=not asked.is_ascending) + without
