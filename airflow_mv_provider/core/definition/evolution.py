"""Schema evolution: how columns of a source that differ from main's are handled, decided by the table's schema policy.

    the source has                       fail       ignore             add                     evolve
    a column that main lacks             refused    left out           added to main           added to main
    lost a column that main has          refused    left as it is      as `on_lost_column`     as `on_lost_column`
    a wider type                         refused    refused            refused                 main's type is widened
    a narrower type                      refused    read as main's     read as main's          read as main's
    any other type                       refused    refused            refused                 refused

    on_lost_column
    fail    refused
    keep    left as it is: an existing row keeps its value, an inserted row gets NULL
    drop    removed from main, which is rewritten for it

No type of main is ever narrowed. Key and partition columns never change their type: rows are found by them.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal

from airflow_mv_provider.core.definition.schema import Column, Type, check_same, shown
from airflow_mv_provider.exceptions import SchemaMismatchError

Policy = Literal["fail", "ignore", "add", "evolve"]
LostColumn = Literal["fail", "keep", "drop"]

_INTEGERS = ("byte", "short", "integer", "long")
_DECIMAL = re.compile(r"decimal\((\d+),(-?\d+)\)\Z")


@dataclass(frozen=True, slots=True)
class Evolution:
    """How a source's columns are brought into main.

    Attributes:
        columns: Those that are compared and written, as main will have them: in main's order, added ones last.
        notes: The differences, in words for people.
    """

    columns: tuple[Column, ...]
    notes: tuple[str, ...] = ()


def evolved(
    where: str,
    source: Sequence[Column],
    main: Sequence[Column],
    policy: Policy,
    fixed: Collection[str],
    on_lost: LostColumn = "fail",
) -> Evolution:
    """Decide how each column is handled.

    Args:
        fixed: Columns of the key and of the partitions.
        on_lost: What the policies that add columns do with a column that the source no longer has.

    Raises:
        SchemaMismatchError: Naming the first column that the policy refuses.
    """
    try:
        return _decided(where, source, main, policy, fixed, on_lost)
    except SchemaMismatchError as error:
        taken = _follows(source, main, fixed)
        if taken is None or error.advice != SchemaMismatchError.hint:
            raise
        raise error.advising(f"{error.advice} Or change the table's columns with {taken}.") from None


def _follows(source: Sequence[Column], main: Sequence[Column], fixed: Collection[str]) -> str | None:
    """Return the definition settings under which main gets the source's columns; None if no setting allows it."""
    ways: tuple[tuple[Policy, LostColumn], ...] = (
        ("add", "fail"),
        ("add", "keep"),
        ("evolve", "fail"),
        ("evolve", "keep"),
    )
    for policy, on_lost in ways:
        with suppress(SchemaMismatchError):
            _decided("", source, main, policy, fixed, on_lost)
            return f"`schema_policy: {policy}`" + (" and `on_lost_column: keep` or `drop`" if on_lost == "keep" else "")
    return None


def _decided(
    where: str,
    source: Sequence[Column],
    main: Sequence[Column],
    policy: Policy,
    fixed: Collection[str],
    on_lost: LostColumn,
) -> Evolution:
    if policy == "fail":
        check_same(where, source, main)
        return Evolution(tuple(main))
    have, want = {column.name: column for column in main}, {column.name: column for column in source}
    lower = {name.lower(): name for name in have}
    columns, notes = [], []
    is_adding = policy in ("add", "evolve")
    for column in main:
        found = want.get(column.name)
        if found is None:
            if is_adding and on_lost == "fail":
                raise SchemaMismatchError(
                    where,
                    f"the table has column {column.name!r}, the source does not.",
                    column=column.name,
                    hint="Restore it in `select`, or set `on_lost_column` to keep or drop.",
                )
            verb = "dropped" if is_adding and on_lost == "drop" else "kept as it is"
            notes.append(f"column {column.name!r} is not in the source: {verb}")
        elif found.type == column.type or holds(column.type, found.type):
            columns.append(column)
        elif policy == "evolve" and column.name not in fixed and holds(found.type, column.type):
            columns.append(found)
            notes.append(f"column {column.name!r} widened from {shown(column.type)} to {shown(found.type)}")
        else:
            check_same(where, [found], [column])
    for column in source:
        if column.name not in have:
            same = lower.get(column.name.lower())
            if same is not None:
                problem = f"the source has column {column.name!r}, the table {same!r}."
                raise SchemaMismatchError(where, problem, column=column.name, hint="Rename it in `select`.")
            if is_adding:
                columns.append(column)
            verb = "added" if is_adding else "left out"
            notes.append(f"column {column.name!r}, {shown(column.type)}, {verb}")
    return Evolution(tuple(columns), tuple(notes))


def holds(wide: Type, narrow: Type) -> bool:
    """True if every value of type `narrow` is also a value of type `wide`, and Delta can widen `narrow` to `wide`."""
    if not isinstance(wide, str) or not isinstance(narrow, str):
        return False
    if wide in _INTEGERS and narrow in _INTEGERS:
        return _INTEGERS.index(wide) > _INTEGERS.index(narrow)
    if (wide, narrow) == ("double", "float"):
        return True
    of_wide, of_narrow = _DECIMAL.match(wide), _DECIMAL.match(narrow)
    if of_wide is None or of_narrow is None:
        return False
    (precision, scale), (old_precision, old_scale) = (map(int, found.groups()) for found in (of_wide, of_narrow))
    return wide != narrow and scale >= old_scale and precision - scale >= old_precision - old_scale
