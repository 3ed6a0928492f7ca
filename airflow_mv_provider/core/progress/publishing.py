"""How a refresh is published: pure decisions for the two overwrites, and one for the MERGE's form.

    replacement                 most rows differ, or main is empty: all of its rows are replaced
    overwrite of a small main   the fixed cost of a MERGE, several Spark jobs, is most of a small table's refresh
    MERGE, changes broadcast    few changes, none of them inserts: main is not shuffled
    MERGE with a bitmap         inserts, or more changes: the rows of main that cannot match are kept out of the join
    MERGE                       both sides are sorted by key

All publish the same rows in one commit. For a small main an overwrite writes about the same bytes as a MERGE, because
its rows lie in few files; a MERGE is kept where somebody may rely on its kind of commit. A replacement is decided on
before the rows are compared, from what `core.strategy` expects and their totals show; else after it, from exact counts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from airflow_mv_provider.core import cost
from airflow_mv_provider.core.commits import FEED_PROPERTY
from airflow_mv_provider.core.definition.table import RefreshableTable
from airflow_mv_provider.core.guard import Counts
from airflow_mv_provider.core.scope.scope import Scope
from airflow_mv_provider.core.strategy import Choice, count_obstacle, replace_obstacle
from airflow_mv_provider.core.strategy_names import Strategy

# By these main's readers see which rows have changed: with an overwrite they would see all of them.
_ROW_BY_ROW = (FEED_PROPERTY, "delta.enableRowTracking")
_MIN_ROWS_FOR_BITMAP = 200_000
MAX_BITMAP_KEYS = (1 << 24) * 2 // 3  # with this many keys in the largest bitmap, about half of all rows pass
_MAX_BROADCAST_BYTES = 32 << 20  # of Parquet files; in memory their rows take a few times as much
_MAX_BROADCAST_VALUES = 10_000_000  # in memory a value takes 8 bytes even if it is NULL


@dataclass(frozen=True, slots=True)
class ReplaceFacts:
    """What decides whether a refresh of all rows replaces main's.

    dropped      : columns that main loses
    is_evolving  : main gains a column, or a column's type changes
    own_columns  : columns of main that the source lacks
    is_empty     : main has no rows
    is_adopting  : main was not published before
    may_be_held  : a person may have to decide about its changes
    """

    choice: Choice
    dropped: Sequence[str]
    is_evolving: bool
    own_columns: Sequence[str]
    is_empty: bool
    is_adopting: bool
    may_be_held: bool


def may_replace(table: RefreshableTable, scope: Scope, facts: ReplaceFacts) -> bool:
    """True if main's rows may be replaced by the source's without a comparison of them."""
    wanted = facts.choice.wanted
    if facts.dropped:
        return True
    if replace_obstacle(table, scope) is not None or wanted == "corrections" or facts.is_evolving:
        return False
    if facts.is_empty:
        return True
    if facts.own_columns or facts.is_adopting or facts.may_be_held or count_obstacle(table) is not None:
        return False  # changed rows must be counted one by one, or listed; the keys of an adopted table are compared
    return "replace" in (wanted, facts.choice.strategy)


def is_worth_replacing(facts: ReplaceFacts, num_rows: int, num_changes: int | None) -> bool:
    """True if main's rows, which may be replaced, are replaced without a comparison of them.

    num_rows    : of the source
    num_changes : as their totals show; None if these are not known
    """
    if facts.is_empty or facts.dropped or facts.choice.wanted == "replace" or num_changes is None:
        return True
    return cost.is_worth_replacing(num_rows, num_changes)


def strategy_of_changes(
    table: RefreshableTable, scope: Scope, facts: ReplaceFacts, num_rows: int, num_changes: int | None
) -> tuple[Strategy, str]:
    """Return the strategy of a refresh that has read all rows, and its reason.

    num_rows    : of the source
    num_changes : found by a comparison of its rows with main's; None if they replace these without one
    """
    if facts.dropped:
        return "replace", f"the table is rewritten without {', '.join(facts.dropped)}"
    if num_changes is None:
        return "replace", "most rows are expected to differ"
    if facts.is_evolving:
        return "corrections", "the table's columns change in a MERGE"
    if facts.own_columns and not facts.is_empty:
        return "corrections", f"replacing the table would lose {', '.join(facts.own_columns)}, which the source lacks"
    # If they are held, a person may want the deletes left out.
    must_merge = facts.choice.wanted == "corrections" or facts.is_adopting or facts.may_be_held
    if must_merge or replace_obstacle(table, scope) is not None or not cost.is_worth_replacing(num_rows, num_changes):
        return "corrections", "staging showed that most rows are the same"
    return "replace", "staging showed that most rows differ"


@dataclass(frozen=True, slots=True)
class RewriteFacts:
    """What decides how one refresh's corrections are published.

    counts          : of all corrections, and of both sides
    properties      : main's table properties
    is_small        : the sealed rows and main take few bytes
    is_readable     : the sealed rows can be read once more
    is_undisturbed  : this owner has sealed them, this is the first round, no decision about them was needed, and main
                      was published before
    changes_columns : main gains or loses a column, or a column's type changes
    has_own_columns : main has columns that the source lacks
    """

    counts: Counts
    properties: Mapping[str, str]
    is_small: bool
    is_readable: bool
    is_undisturbed: bool
    changes_columns: bool
    has_own_columns: bool


def rewrite_obstacle(table: RefreshableTable, scope: Scope, facts: RewriteFacts) -> str | None:
    """Return why the corrections are merged into main; None if main is overwritten with the sealed rows instead."""
    if (obstacle := replace_obstacle(table, scope)) is not None:
        return obstacle
    if table.partition_by:
        return "an overwrite writes files of every partition"
    if not (facts.is_small and cost.is_small(max(facts.counts.desired, facts.counts.main))):
        return "the table is not small"
    if not (facts.counts.updated or facts.counts.deleted):
        return "rows are only added, which readers of the table as a stream can follow"
    if not facts.counts.desired:
        return "no row is left to write"
    if facts.changes_columns or facts.has_own_columns:
        return "the table's columns are not the source's"
    if kept := next((name for name in _ROW_BY_ROW if facts.properties.get(name, "").lower() == "true"), None):
        return f"the table has {kept}"
    if not facts.is_readable:
        return "the sealed rows were not copied, and the source may be another one when it is read again"
    return None if facts.is_undisturbed else "the corrections were recorded before"


@dataclass(frozen=True, slots=True)
class MergeFacts:
    """What decides the form of a MERGE.

    Attributes:
        num_changes: Corrections that it applies.
        num_bytes: Size of their files.
        num_columns: Of main.
        num_rows: Of main, in the partitions that change.
        inserts: Some of them are new rows.
        has_null_keys: Some are rows of main with a NULL key, which are to be deleted.
        is_retry: An earlier try failed, perhaps because memory did not suffice.
    """

    num_changes: int
    num_bytes: int
    num_columns: int
    num_rows: int
    inserts: bool
    has_null_keys: bool
    is_retry: bool


@dataclass(frozen=True, slots=True)
class MergeForm:
    """How a MERGE is run; `why` is for the log."""

    is_broadcast: bool
    has_bitmap: bool
    why: str


def merge_form(facts: MergeFacts) -> MergeForm:
    """Return how the corrections are merged into main."""
    is_small = facts.num_bytes <= _MAX_BROADCAST_BYTES
    fits = is_small and facts.num_changes * facts.num_columns <= _MAX_BROADCAST_VALUES
    if fits and not facts.inserts and not facts.is_retry:
        return MergeForm(is_broadcast=True, has_bitmap=False, why="few changes, and no row is new")
    if facts.has_null_keys or facts.num_rows < _MIN_ROWS_FOR_BITMAP or not 0 < facts.num_changes <= MAX_BITMAP_KEYS:
        why = "no bitmap tells NULL keys" if facts.has_null_keys else "too few rows or too many changes for a bitmap"
        return MergeForm(is_broadcast=False, has_bitmap=False, why=why)
    why = "rows are new" if facts.inserts else "an earlier try failed" if facts.is_retry else "many changes"
    return MergeForm(is_broadcast=False, has_bitmap=True, why=why)
