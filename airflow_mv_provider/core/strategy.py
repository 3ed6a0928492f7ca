"""Which way a refresh takes, and why: said once, stored in the history."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from airflow_mv_provider.core.source import DeltaSource
from airflow_mv_provider.core.table import RefreshableTable

Strategy = Literal["skip", "corrections"]


@dataclass(frozen=True, slots=True)
class Choice:
    """A strategy with its reason, a sentence for people."""

    strategy: Strategy
    reason: str


def compare_reason(
    *,
    is_first: bool,
    is_forced: bool,
    same_definition: bool,
    is_trusted: bool,
    doubt: str | None,
    is_partial: bool = False,
) -> str | None:
    """Say why main must be compared although the source may be unchanged, or None when its token may be believed.

    doubt : what the source itself says against its token
    """
    if is_first:
        return "first refresh"
    if is_forced:
        return "comparison was asked for"
    if not same_definition:
        return "the definition changed"
    if not is_trusted:
        return "main may have been changed by others"
    if is_partial:
        return "refreshes before this one covered only some partitions"
    return doubt


def is_copied(table: RefreshableTable) -> bool:
    """True if staging holds whole rows; False if it holds digests only and the source is read again at its pin.

    Delta keeps the pinned version readable. A directory of files keeps nothing: a file that is gone or replaced after
    the seal must not matter, and parsing text twice costs more than the copy. A query can be run again over its pinned
    inputs, but its joins cost more than the copy, and sums of doubles or ties in a window need not come out the same.
    Where main's rows stay for keys that are there twice, what was staged depends on main, which will change.
    """
    is_pinned = isinstance(table.source, DeltaSource) and table.source.doubt is None
    return not is_pinned or table.on_conflict == "ignore"
