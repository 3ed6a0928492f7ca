"""The expected time of a refresh before anything is read: a few terms per strategy, corrected by earlier refreshes.

The rates are seconds per million rows on two cores, as `benchmarks/` measured them on TPC-H lineitem. Another machine,
wider rows or a slower store differ from them by a factor, which earlier refreshes of the same table determine. Only the
ratios between strategies decide; the seconds are shown so that users can check the model.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, assert_never

from airflow_mv_provider.core.strategy_names import Strategy

Reading = Literal["pinned", "copied", "parsed"]
"""Whether the source's rows are read again as they were, or copied once; and whether they are text."""

_FIXED = 1.0  # seconds: planning, reading logs, state writes
_PUBLISH, _PUBLISH_FEW = 3.5, 1.5  # seconds: jobs of a comparison and a publish that take no longer for more rows
_TOTALS = 0.35  # read a row, hash it, add it to the totals
_COPY = 0.9  # copy a row that cannot be read again
_PARSE = 2.6  # parse a row of text and copy it
_PROBE = 0.7  # the same, and look for its fingerprint
_UNIQUE = 0.65  # look for keys that are there twice
_LOOK_UP = 0.35  # look in main for the rows that may have changed
_SCAN_MERGE = 0.5  # find in main what a MERGE changes
_CHANGE = 9.0  # join, write and merge one changed row
_OVERWRITE = 1.6  # read and write one row
_FEED = 4.0  # read one change of a feed and net it
_LAYER = 0.1  # add what changed to the fingerprints, from time to time to all of them
_KEYS = 0.1  # look for new keys among main's
_REPLACED = 0.4  # look in main for the rows of some keys
_QUERY = 26.0  # run a query, by gigabytes of its inputs
_UNITS = 2.5  # seconds: jobs for the units that changed rows touch, and for the rows of these
_TOUCHED = 4.0  # look for these units, by gigabytes of the inputs
_OF_UNITS = 9.0  # read what the inputs have of few units, by their gigabytes
_USUAL_FRACTION = 0.01  # fraction of the rows that changes between two refreshes, assumed before any is known
_MAX_PAST = 10
_MAX_UNLIKE = 2.0  # the largest factor that samples of another sort suggest
_SMALL_BYTES, _SMALL_ROWS = 2 << 20, 100_000  # compiling plans pays off for 240,000 rows of lineitem, not for 60,000
_WORTH = 2.0  # seconds that overwriting has to save; for less, exact counts of what changed are worth more
_MOSTLY = 1 / 3  # fraction of main's rows that has to change; below it, overwriting mostly rewrites equal rows


@dataclass(frozen=True, slots=True)
class Search:
    """Among what the changes are looked for, and what it takes to compute the source's rows.

    in_new_files : rows among which they are found, if the source does not list them
    has_former   : the former rows of the files that changed are kept beside them
    num_units    : of a query, groups of rows that are computed again; None if changes are not looked for so
    query_bytes  : of a query, size of all its inputs; None for other sources
    """

    in_new_files: int | None = None
    has_former: bool = False
    num_units: int | None = None
    query_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class CostSample:
    """One finished refresh of the table: its workload, and the seconds that it took.

    num_rows     : rows of main before it
    num_changes  : rows that it inserted, updated and deleted
    search       : as it was expected to be
    """

    strategy: Strategy
    num_rows: int
    num_changes: int
    seconds: float
    search: Search = Search()


@dataclass(frozen=True, slots=True)
class Estimate:
    """The estimate of one strategy before anything was read.

    seconds      : None if the strategy could not be used
    why          : the obstacle; or the comparison with the strategy that was chosen
    num_changes  : rows that were expected to differ
    others       : as in `Search`
    """

    strategy: Strategy
    seconds: float | None
    why: str
    num_changes: int | None = None
    in_new_files: int | None = None
    has_former: bool = False
    num_units: int | None = None
    query_bytes: int | None = None

    @property
    def search(self) -> Search:
        """Among what the changes were looked for."""
        return Search(self.in_new_files, self.has_former, self.num_units, self.query_bytes)


def seconds(
    strategy: Strategy,
    num_rows: int,
    num_changes: int,
    search: Search = Search(),
    *,
    reading: Reading = "pinned",
) -> float:
    """Return the seconds that one strategy is expected to take on the machine that was measured.

    num_rows    : rows of main
    num_changes : rows to insert, update and delete
    """
    rows, changes = num_rows / 1e6, num_changes / 1e6
    publish = _PUBLISH_FEW if num_rows <= _SMALL_ROWS else _PUBLISH
    merge = publish + _SCAN_MERGE * rows + _CHANGE * changes if num_changes else 0.0
    read = {"pinned": 0.0, "copied": _COPY, "parsed": _PARSE}[reading]
    inputs = (search.query_bytes or 0) / 1e9
    match strategy:
        case "corrections" if not num_changes:  # which a sum shows before anything is copied
            return _FIXED + ((_PARSE if reading == "parsed" else 0.0) + _TOTALS) * rows + _QUERY * inputs
        case "corrections":
            return _FIXED + (read + _PROBE + _LOOK_UP) * rows + _QUERY * inputs + merge
        case "replace":
            return _FIXED + publish + (read + _TOTALS + _UNIQUE + _OVERWRITE) * rows + _QUERY * inputs
        case "incremental":
            found, looked_for = changes, 0.0
            if search.in_new_files is not None:
                found, looked_for = search.in_new_files / 1e6, 0.0 if search.has_former else _REPLACED * rows
            if search.num_units is not None:
                found = search.num_units / 1e6
                again = _QUERY * min(search.num_units / max(num_rows, 1), 1.0)
                looked_for = _UNITS + _REPLACED * rows + (_TOUCHED + _OF_UNITS + again) * inputs
            return _FIXED + (read + _FEED) * found + looked_for + (_LAYER + _KEYS) * rows + merge
        case _:
            assert_never(strategy)


def factor(strategy: Strategy, past: Sequence[CostSample], num_changes: int, *, reading: Reading = "pinned") -> float:
    """Return how many times longer than `seconds` this table takes.

    Samples of the same strategy count before those of others. Refreshes that found nothing to change are no samples for
    one that changes rows, and the reverse: they neither copy nor merge. If there are no others, they count up to a
    factor of two.

    past        : newest first
    num_changes : rows that the refresh is expected to change
    reading     : see `seconds`
    """
    alike = [each for each in past if bool(each.num_changes) == bool(num_changes)]
    recent = (alike or past)[:_MAX_PAST]
    ratios = [
        each.seconds / seconds(each.strategy, each.num_rows, each.num_changes, each.search, reading=reading)
        for each in [each for each in recent if each.strategy == strategy] or recent
    ]
    found = statistics.median(ratios) if ratios else 1.0
    return found if alike else min(max(found, 1 / _MAX_UNLIKE), _MAX_UNLIKE)


def expected_changes(num_rows: int, at_most: int | None, past: Sequence[CostSample]) -> int:
    """Return how many rows are expected to differ.

    at_most : upper bound from the source's own log; None if unknown: the median fraction of earlier refreshes counts
    """
    if at_most is not None:
        return at_most
    fractions = [min(each.num_changes / each.num_rows, 1.0) for each in past[:_MAX_PAST] if each.num_rows]
    return round((statistics.median(fractions) if fractions else _USUAL_FRACTION) * num_rows)


def is_small(num_rows: int, *num_bytes: int | None) -> bool:
    """True if running a plan over this little takes less time than compiling it.

    num_bytes : size of each table that is read; None if unknown
    """
    return num_rows <= _SMALL_ROWS and all(each is not None and each <= _SMALL_BYTES for each in num_bytes)


def is_worth_units(num_units: int, num_rows: int, query_bytes: int) -> bool:
    """True if computing so many of a query's units again costs less than computing and comparing all of its rows.

    num_rows : of the table
    """
    search = Search(num_units=num_units, query_bytes=query_bytes)
    changes = min(num_units, num_rows)
    return seconds("incremental", num_rows, changes, search) <= seconds("corrections", num_rows, changes, search)


def is_worth_replacing(num_rows: int, num_changes: int) -> bool:
    """True if so many rows change that overwriting main saves enough time to give up exact counts of the changes."""
    saved = seconds("corrections", num_rows, num_changes) - seconds("replace", num_rows, num_changes)
    return num_changes >= _MOSTLY * num_rows and saved >= _WORTH
