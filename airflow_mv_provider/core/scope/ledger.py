"""The state of each interval of a table (done, failed, running, missing), derived from the scopes of its refreshes.

    history, newest first                         ledger
    [03, 04) failed                               01 .. 02   done      by the oldest refresh
    [02, 03) published      every bound cuts      02 .. 03   done
    [01, 02) published      ───────────────▶      03 .. 04   failed    main is unchanged there
                                                  05 .. 06   missing   between known intervals, or requested

The ledger is not stored, so it cannot disagree with the history. The newest refresh that covers an interval decides its
state; `done_at` still shows an earlier success. A refresh of everything covers every interval, and so does a refresh of
everything that was stale.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from itertools import pairwise

from airflow_mv_provider.core.outcome import GOOD, Outcome
from airflow_mv_provider.core.progress.partition import partition_values
from airflow_mv_provider.core.scope.column_order import Order, order_of, value_of
from airflow_mv_provider.core.scope.scope import Scope


class IntervalState(StrEnum):
    """The state of an interval."""

    DONE = "done"
    FAILED = "failed"
    RUNNING = "running"
    MISSING = "missing"


@dataclass(frozen=True, slots=True)
class Covering:
    """The facts that the ledger needs about one refresh; read-only refreshes are filtered out before."""

    refresh_id: str
    scope: Scope
    outcome: Outcome
    at: str


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """One interval of the first partition column, or one named partition.

    start, end : half-open; None for no bound
    partition  : a partition that a scope named individually; None for an interval
    refresh_id : the newest refresh that covers it
    at, done_at : the start of that refresh, and of the newest one that succeeded
    """

    start: str | None
    end: str | None
    state: IntervalState
    partition: str | None = None
    refresh_id: str | None = None
    outcome: Outcome | None = None
    at: str | None = None
    done_at: str | None = None


def ledger(
    history: Sequence[Covering],
    kind: str | None = None,
    *,
    start: str | None = None,
    end: str | None = None,
    partitions: Iterable[str] = (),
) -> tuple[LedgerEntry, ...]:
    """Return the intervals that the refreshes' scopes form, then the partitions that were named; each in its order.

    history    : newest first
    kind       : type of the first partition column, by which its values are ordered; None if it is not known yet
    start, end : only intervals and partitions inside; those that were never refreshed are missing
    partitions : names of further partitions to return, such as all that are known
    returns    : without ranges whose bounds only Spark can parse: it is not known here what they cover
    """
    order = cache(order_of(kind))
    history = [found for found in history if kind is None or _is_placed(found.scope, kind)]
    bounds = _bounds(history, start, end, order)
    successes = [found for found in history if found.outcome in GOOD]
    newest, done = (_first_covering(each, bounds, order) for each in (history, successes))
    entries = [
        _entry(first, last, covering, success)
        for (first, last), covering, success in zip(pairwise(bounds), newest, done, strict=True)
    ]
    named = dict.fromkeys(name for found in history for name in found.scope.partitions) | dict.fromkeys(partitions)
    values = {name: partition_values(name) for name in named}
    inside = [name for name in named if _is_between(values[name][0], start, end, order)]
    inside.sort(key=lambda name: [order(value or "") for value in values[name]])
    newest, done = (_first_holding(each, inside, order) for each in (history, successes))
    held = zip(inside, newest, done, strict=True)
    return (*entries, *(_entry(None, None, covering, success, name) for name, covering, success in held))


def _bounds(history: Sequence[Covering], start: str | None, end: str | None, order: Order) -> list[str | None]:
    """Return the bounds of all ranges, each value once and in order, with None at a side without a bound."""
    cuts = {each for found in history for each in (found.scope.start, found.scope.end) if each is not None}
    cuts |= {each for each in (start, end) if each is not None}
    inside = {order(cut): cut for cut in sorted(cuts) if _is_inside(cut, start, end, order)}
    bounds: list[str | None] = [inside[place] for place in sorted(inside)]
    if start is None and any(_reaches(found.scope, is_start=True) for found in history):
        bounds.insert(0, None)
    if end is None and any(_reaches(found.scope, is_start=False) for found in history):
        bounds.append(None)
    return bounds


def _first_covering(history: Sequence[Covering], bounds: Sequence[str | None], order: Order) -> list[Covering | None]:
    """Return, for each interval between two neighbouring bounds, the first refresh that covers it.

    cost : about one step for each refresh and each interval, also for thousands of both
    """
    found: list[Covering | None] = [None] * max(0, len(bounds) - 1)
    following = list(range(len(found) + 1))  # the next candidate for an interval without a refresh; itself if none

    def without_one(number: int) -> int:
        while following[number] != number:
            following[number] = number = following[following[number]]
        return number

    known = [order(bound) for bound in bounds if bound is not None]
    offset = int(bool(bounds) and bounds[0] is None)
    for each in history:
        scope = each.scope
        if scope.partitions:
            continue
        first = 0 if scope.start is None else bisect_left(known, order(scope.start)) + offset
        last = len(found) if scope.end is None else bisect_right(known, order(scope.end)) + offset - 1
        number = without_one(min(first, len(found)))
        while number < last:
            found[number], following[number] = each, number + 1
            number = without_one(number)
    return found


def _entry(
    start: str | None, end: str | None, newest: Covering | None, done: Covering | None, partition: str | None = None
) -> LedgerEntry:
    if newest is None:
        return LedgerEntry(start, end, IntervalState.MISSING, partition)
    done_at = None if done is None else done.at
    return LedgerEntry(
        start, end, _state(newest.outcome), partition, newest.refresh_id, newest.outcome, newest.at, done_at
    )


def _state(outcome: Outcome) -> IntervalState:
    if outcome is Outcome.RUNNING:
        return IntervalState.RUNNING
    return IntervalState.DONE if outcome in GOOD else IntervalState.FAILED


def _first_holding(history: Sequence[Covering], names: Sequence[str], order: Order) -> list[Covering | None]:
    """Return, for each partition, the first refresh that covers it.

    cost : about one step for each refresh and each partition, also for thousands of both
    """
    if not names:
        return []
    age = {found.refresh_id: number for number, found in enumerate(history)}
    by_name: dict[str, Covering] = {}
    for found in history:
        for name in found.scope.partitions:
            by_name.setdefault(name, found)
    bounds = _bounds(history, None, None, order)
    places = [order(bound) for bound in bounds if bound is not None]
    offset = int(bool(bounds) and bounds[0] is None)
    ranges = _first_covering(history, bounds, order)
    whole = next((found for found in history if found.scope.is_whole), None)

    def holding(name: str) -> Covering | None:
        first = partition_values(name)[0]
        within = whole  # a range holds no NULL
        if first is not None:
            number = bisect_right(places, order(first)) - 1 + offset
            within = ranges[number] if 0 <= number < len(ranges) else None
        both = [found for found in (within, by_name.get(name)) if found is not None]
        return min(both, key=lambda found: age[found.refresh_id], default=None)

    return [holding(name) for name in names]


def _is_placed(scope: Scope, kind: str) -> bool:
    """True if the position of a range is known: both bounds are values of the column's type."""
    return all(value_of(kind, bound) is not None for bound in (scope.start, scope.end) if bound is not None)


def _reaches(scope: Scope, *, is_start: bool) -> bool:
    """True if a scope has no bound on one side."""
    return not scope.partitions and (scope.start if is_start else scope.end) is None


def _is_inside(value: str, start: str | None, end: str | None, order: Order) -> bool:
    after = start is None or order(start) <= order(value)
    return after and (end is None or order(value) <= order(end))


def _is_between(value: str | None, start: str | None, end: str | None, order: Order) -> bool:
    """True for a value in [start, end); for NULL too, which no bound leaves out."""
    return value is None or (_is_inside(value, start, None, order) and (end is None or order(value) < order(end)))
