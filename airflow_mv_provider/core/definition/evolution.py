"""What becomes of a source whose columns are not main's: decided change by change, by the table's schema policy.

    the source has                       fail       ignore             add                     evolve
    a column that main has not           refused    left out           added to main           added to main
    not a column that main has           refused    left as it is      as `on_lost_column`     as `on_lost_column`
    a type that holds more               refused    refused            refused                 main's type is widened
    a type that holds less               refused    read as main's     read as main's          read as main's
    any other type                       refused    refused            refused                 refused

    on_lost_column
    fail    refused
    keep    left as it is: a row keeps the value that it has, a row that is inserted gets NULL
    drop    taken out of main, which is written anew for it

No type ever narrows. Columns of the key and of the partitions never change their type: rows are found by them.
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

    columns : those that are compared and written, as main will have them: in main's order, added ones last
    notes   : what is not as it was, for people
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
    """Decide what becomes of each column.

    fixed   : columns of the key and of the partitions
    on_lost : what the policies that add columns do about one that the source has not any more
    raises  : SchemaMismatchError, naming the first column that the policy refuses
    """
    try:
        return _decided(where, source, main, policy, fixed, on_lost)
    except SchemaMismatchError as error:
        taken = _follows(source, main, fixed)
        if taken is None or error.advice != SchemaMismatchError.hint:
            raise
        raise error.advising(f"{error.advice} Or let main follow it: {taken}.") from None


def _follows(source: Sequence[Column], main: Sequence[Column], fixed: Collection[str]) -> str | None:
    """Return what a definition has to say for main to get the source's columns; None where nothing makes it."""
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
                    f"main has column {column.name!r}, the source has not.",
                    column=column.name,
                    hint="Bring it back in `select`, or set `on_lost_column`: keep or drop.",
                )
            verb = "dropped" if is_adding and on_lost == "drop" else "left as it is"
            notes.append(f"column {column.name!r} is not in the source: {verb}")
        elif found.type == column.type or _holds(column.type, found.type):
            columns.append(column)
        elif policy == "evolve" and column.name not in fixed and _holds(found.type, column.type):
            columns.append(found)
            notes.append(f"column {column.name!r} widened from {shown(column.type)} to {shown(found.type)}")
        else:
            check_same(where, [found], [column])
    for column in source:
        if column.name not in have:
            same = lower.get(column.name.lower())
            if same is not None:
                problem = f"the source has column {column.name!r}, main {same!r}."
                raise SchemaMismatchError(where, problem, column=column.name, hint="Rename it in `select`.")
            if is_adding:
                columns.append(column)
            verb = "added" if is_adding else "left out"
            notes.append(f"column {column.name!r}, {shown(column.type)}, {verb}")
    return Evolution(tuple(columns), tuple(notes))


def _holds(wide: Type, narrow: Type) -> bool:
    """True if every value of type `narrow` is one of `wide`, and Delta can widen the one into the other."""
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
