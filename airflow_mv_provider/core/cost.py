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

Strategy = Literal["incremental", "corrections", "replace"]
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
_USUAL_FRACTION = 0.01  # fraction of the rows that changes between two refreshes, assumed before any is known
_MAX_PAST = 10
_MAX_UNLIKE = 2.0  # the largest factor that samples of another sort suggest
_SMALL_BYTES, _SMALL_ROWS = 2 << 20, 100_000  # compiling plans pays off for 240,000 rows of lineitem, not for 60,000
_WORTH = 2.0  # seconds that overwriting has to save; for less, exact counts of what changed are worth more
_MOSTLY = 1 / 3  # fraction of main's rows that has to change; below it, overwriting mostly rewrites equal rows


@dataclass(frozen=True, slots=True)
class CostSample:
    """One finished refresh of the table: its workload, and the seconds that it took.

    num_rows     : rows of main before it
    num_changes  : rows that it inserted, updated and deleted
    in_new_files : the rows among which it looked for changes that the source does not list; None if it lists them
    has_former   : the former rows of the source's files were kept
    """

    strategy: Strategy
    num_rows: int
    num_changes: int
    seconds: float
    in_new_files: int | None = None
    has_former: bool = False


@dataclass(frozen=True, slots=True)
class Estimate:
    """The estimate of one strategy before anything was read.

    seconds      : None if the strategy could not be used
    why          : the obstacle; or the comparison with the strategy that was chosen
    num_changes  : rows that were expected to differ
    in_new_files : rows of the source's new files, if the changes are looked for among these
    has_former   : the former rows of its files are kept, so that main is not searched for them
    """

    strategy: Strategy
    seconds: float | None
    why: str
    num_changes: int | None = None
    in_new_files: int | None = None
    has_former: bool = False


def seconds(
    strategy: Strategy,
    num_rows: int,
    num_changes: int,
    in_new_files: int | None = None,
    *,
    has_former: bool = False,
    reading: Reading = "pinned",
) -> float:
    """Return the seconds that one strategy is expected to take on the machine that was measured.

    num_rows     : rows of main
    num_changes  : rows to insert, update and delete
    in_new_files : for `incremental`: the rows among which the changes are found, where the source does not list them
    has_former   : the former rows of the files that changed are kept beside them
    """
    rows, changes = num_rows / 1e6, num_changes / 1e6
    publish = _PUBLISH_FEW if num_rows <= _SMALL_ROWS else _PUBLISH
    merge = publish + _SCAN_MERGE * rows + _CHANGE * changes if num_changes else 0.0
    read = {"pinned": 0.0, "copied": _COPY, "parsed": _PARSE}[reading]
    match strategy:
        case "corrections" if not num_changes:  # which a sum shows before anything is copied
            return _FIXED + ((_PARSE if reading == "parsed" else 0.0) + _TOTALS) * rows
        case "corrections":
            return _FIXED + (read + _PROBE + _LOOK_UP) * rows + merge
        case "replace":
            return _FIXED + publish + (read + _TOTALS + _UNIQUE + _OVERWRITE) * rows
        case "incremental":
            found, looked_for = changes, 0.0
            if in_new_files is not None:
                found, looked_for = in_new_files / 1e6, 0.0 if has_former else _REPLACED * rows
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
        each.seconds
        / seconds(
            *(each.strategy, each.num_rows, each.num_changes, each.in_new_files),
            has_former=each.has_former,
            reading=reading,
        )
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


def is_worth_replacing(num_rows: int, num_changes: int) -> bool:
    """True if so many rows change that overwriting main saves enough time to give up exact counts of the changes."""
    saved = seconds("corrections", num_rows, num_changes) - seconds("replace", num_rows, num_changes)
    return num_changes >= _MOSTLY * num_rows and saved >= _WORTH
