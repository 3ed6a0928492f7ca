"""The partitions of main that a refresh covers. Rows outside are neither read nor changed, and never deleted.

everything             the default
partitions             those named, each by the values of all partition columns
start, end             the first partition column in [start, end): what a backfill's interval needs
without                everything except what these scopes cover: "only what is stale"
"""

from __future__ import annotations

import reprlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from airflow_mv_provider.core.definition.table import RefreshableTable
from airflow_mv_provider.core.progress.partition import partition_name, partition_values
from airflow_mv_provider.core.scope.column_order import order_of, value_of
from airflow_mv_provider.exceptions import ArgumentError, FrozenPartitionError

_MAX_PARTITIONS = 1000
_MAX_VALUE = 1000
_MAX_BITS = 128  # decimals have 38 digits at most


@dataclass(frozen=True, slots=True)
class Scope:
    """A part of a table, in terms of its partition columns; `start` is inclusive, `end` exclusive."""

    partitions: tuple[str, ...] = ()
    start: str | None = None
    end: str | None = None
    without: tuple[Scope, ...] = ()

    @property
    def is_everything(self) -> bool:
        return self == Scope()

    @property
    def is_whole(self) -> bool:
        """True if it leaves all of main at one state of the source: it covers everything, or everything stale."""
        return self.is_everything or bool(self.without)

    def describe(self) -> str:
        """Return the scope in words."""
        if self.without:
            return f"everything except {' and '.join(scope.describe() for scope in self.without)}"
        if self.partitions:
            shown = ", ".join(self.partitions[:5])
            return f"partitions {shown}" + (f" and {len(self.partitions) - 5} more" if len(self.partitions) > 5 else "")
        if self.is_everything:
            return "everything"
        from_start = "" if self.start is None else f" from {_said(self.start)}"
        return f"partitions{from_start}" + (" on" if self.end is None else f" until {_said(self.end)}")

    def to_json(self) -> dict[str, Any]:
        """Return the stored form of a scope; `from_json` reverses it."""
        stored: dict[str, Any] = {"partitions": list(self.partitions), "start": self.start, "end": self.end}
        return stored | {"without": [scope.to_json() for scope in self.without]}


def _said(bound: str | None) -> str | None:
    """Return a bound that is safe for a log or a terminal: it is unchecked user input."""
    return bound if bound is None or bound.isprintable() else ascii(bound)


EVERYTHING = Scope()


@dataclass(frozen=True, slots=True)
class Covered:
    """A part of main that was brought to a state of the source; the rest of main is not known to have that state.

    frontier, definition_hash : that state
    """

    scope: Scope
    frontier: str
    definition_hash: str

    def to_json(self) -> dict[str, Any]:
        """Return the stored form of a covered part; `covered_from_json` reverses it."""
        return {"scope": self.scope.to_json(), "frontier": self.frontier, "definition_hash": self.definition_hash}


def from_json(stored: Mapping[str, Any] | None) -> Scope:
    """Return the scope that `Scope.to_json` stored; None is everything."""
    if stored is None:
        return Scope()
    without = tuple(from_json(each) for each in stored["without"])
    return Scope(tuple(stored["partitions"]), stored["start"], stored["end"], without)


def covered_from_json(stored: Mapping[str, Any]) -> Covered:
    """Return what `Covered.to_json` stored."""
    return Covered(from_json(stored["scope"]), stored["frontier"], stored["definition_hash"])


def asked_scope(partitions: Sequence[object] = (), start: object = None, end: object = None) -> Scope:
    """Return the scope that a person or a DAG requests; an empty text counts as not given.

    partitions : each one value, or the list of all partition columns' values; None is SQL's NULL
    raises     : ArgumentError, for an invalid scope
    """
    start, end = _value("from", start or None), _value("until", end or None)
    names = tuple(dict.fromkeys(_partition(each) for each in partitions))
    if names and (start is not None or end is not None):
        raise ArgumentError("scope", "both partitions and a range were given.", hint="Leave one out.")
    if len(names) > _MAX_PARTITIONS:
        raise ArgumentError("scope", f"{len(names):,} partitions were given.", hint="Give a range instead.")
    if start is not None and start == end:
        raise _empty(start, start)  # for every type of the column
    return Scope(names, start, end)


def check_scope(scope: Scope, table: RefreshableTable, kind: str | None) -> None:
    """Refuse a scope that is invalid for the table.

    kind   : type of the first partition column; None before it is known. In that case, and for a text that only Spark
             can parse, the seal step checks
    raises : ArgumentError; FrozenPartitionError, when all of it is frozen or a frozen partition is named
    """
    if scope.is_everything:
        return
    if not table.partition_by:
        raise ArgumentError("scope", f"{table.name} has no natural partitions.", hint="Refresh all of it.")
    for name in scope.partitions:
        if len(partition_values(name)) != len(table.partition_by):
            columns = ", ".join(table.partition_by)
            raise ArgumentError("scope", f"partition {name} needs one value for each of {columns}.")
    firsts = (partition_values(name)[0] for name in scope.partitions)
    given = [each for each in (scope.start, scope.end, table.frozen_before, *firsts) if each is not None]
    if kind is not None and all(value_of(kind, each) is not None for each in given):
        check_order(scope, table, kind)


def check_order(scope: Scope, table: RefreshableTable, kind: str) -> None:
    """Refuse an empty range and frozen partitions, by the order of the first partition column's type.

    raises : ArgumentError, FrozenPartitionError
    """
    order, bound = order_of(kind), table.frozen_before
    if scope.start is not None and scope.end is not None and order(scope.start) >= order(scope.end):
        raise _empty(scope.start, scope.end, f": {table.partition_by[0]!r} is of type {kind}")
    if bound is None:
        return
    firsts = {name: partition_values(name)[0] for name in scope.partitions}
    frozen = [name for name, first in firsts.items() if first is not None and order(first) < order(bound)]
    if frozen or (scope.end is not None and order(scope.end) <= order(bound)):
        raise FrozenPartitionError(
            table.name, f"{(frozen or [scope.describe()])[0]} is frozen: older than {bound}.", frozen=frozen
        )


def _empty(start: str, end: str, why: str = "") -> ArgumentError:
    problem = f"the range from {start!r} until {end!r} is empty{why}."
    return ArgumentError("scope", problem, hint="`until` is exclusive.")


def stale_scope(covered: Sequence[Covered], frontier: str, definition_hash: str) -> Scope:
    """Return the part not known to be at this state of the source: everything except what was covered at it."""
    fresh = (c.scope for c in covered if (c.frontier, c.definition_hash) == (frontier, definition_hash))
    return Scope(without=tuple(dict.fromkeys(fresh)))


def _partition(asked: object) -> str:
    values = list(asked) if isinstance(asked, list | tuple) else [asked]
    if not values:
        raise ArgumentError("scope", "a partition without values was given.")
    return partition_name([_value("partition", value) for value in values])


def _value(what: str, value: object) -> str | None:
    if value is None or (isinstance(value, str) and len(value) <= _MAX_VALUE):
        return value
    if isinstance(value, int) and not isinstance(value, bool) and value.bit_length() <= _MAX_BITS:
        return str(value)
    problem = f"{what} {reprlib.repr(value)} is not a text or a whole number, or too long."
    raise ArgumentError("scope", problem)
