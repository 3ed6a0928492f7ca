"""What is known of each partition of a table, derived from the history: no data is read.

    scopes of refreshes, by the ledger       state; when a refresh covered it last, and last with success
    reports of published refreshes           rows after the newest of them; the newest one that changed a row

A partition is known if a report lists it or a scope has named it. Reports are read as far back as the caller likes, so
a partition that has not changed since is known without its last change.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from airflow_mv_provider.core.outcome import PartitionReport
from airflow_mv_provider.core.progress.partition import partition_values
from airflow_mv_provider.core.scope.column_order import order_of
from airflow_mv_provider.core.scope.ledger import Covering, IntervalState, LedgerEntry, ledger


@dataclass(frozen=True, slots=True)
class Published:
    """The partitions that a published refresh reports; `at` is when it began."""

    refresh_id: str
    at: str
    partitions: tuple[PartitionReport, ...]


@dataclass(frozen=True, slots=True)
class Change:
    """The newest change of a partition's rows that is known."""

    refresh_id: str
    at: str
    inserted: int
    updated: int
    deleted: int


@dataclass(frozen=True, slots=True)
class PartitionLine:
    """One partition.

    state       : what the newest refresh that covers it made of it
    refresh_id  : that refresh; None if there was none
    at, done_at : when it began, and the newest one that succeeded
    num_rows    : after the newest published refresh that reports it; None if none does
    changed     : None if no report that was read shows a change
    is_frozen   : no refresh changes it
    """

    name: str
    state: IntervalState
    refresh_id: str | None
    at: str | None
    done_at: str | None
    num_rows: int | None
    changed: Change | None
    is_frozen: bool


def partition_lines(
    history: Sequence[Covering],
    published: Sequence[Published],
    kind: str | None = None,
    *,
    frozen_before: str | None = None,
    start: str | None = None,
    end: str | None = None,
) -> tuple[PartitionLine, ...]:
    """Return the known partitions in [start, end), in the order of the partition columns.

    history, published : newest first
    kind               : type of the first partition column; None if it is not known yet
    """
    num_rows: dict[str, int] = {}
    changed: dict[str, Change] = {}
    for refresh in published:
        for each in refresh.partitions:
            counts = (each.rows_inserted, each.rows_updated, each.rows_deleted)
            num_rows.setdefault(each.partition, each.rows_inserted + each.rows_updated + each.rows_unchanged)
            if any(counts) and each.partition not in changed:
                changed[each.partition] = Change(refresh.refresh_id, refresh.at, *counts)
    order = order_of(kind)
    bound = None if frozen_before is None else order(frozen_before)

    def is_frozen(name: str) -> bool:
        first = partition_values(name)[0]
        return bound is not None and first is not None and order(first) < bound

    entries = ledger(history, kind, start=start, end=end, partitions=num_rows)
    return tuple(
        PartitionLine(
            *(each.partition, each.state, each.refresh_id, each.at, each.done_at),
            *(num_rows.get(each.partition), changed.get(each.partition), is_frozen(each.partition)),
        )
        for each in entries
        if each.partition is not None
    )


def to_look_at(
    history: Sequence[Covering], kind: str | None = None, *, start: str | None = None, end: str | None = None
) -> tuple[LedgerEntry, ...]:
    """Return the intervals that are not done: failed, running or missing."""
    entries = ledger(history, kind, start=start, end=end)
    return tuple(each for each in entries if each.partition is None and each.state is not IntervalState.DONE)
