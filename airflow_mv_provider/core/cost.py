"""What a refresh will take, before anything is read: a few terms per strategy, corrected by how it came out before.

The rates are seconds per million rows on two cores, as `benchmarks/` measured them on TPC-H lineitem; another machine,
wider rows or a slower store differ from them by a factor, and that factor is what earlier refreshes of the same table
tell. Only the ratios between strategies decide; the seconds are shown so that the model is seen to be right or wrong.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, assert_never

Strategy = Literal["incremental", "corrections", "replace"]

_FIXED = 2.0  # seconds: planning, state writes, the fence
_SUM_UP = 1.0  # read a row, hash it, add it to its bucket
_FIND = 0.9  # read both sides again and choose the rows whose buckets differ
_SCAN_MERGE = 0.5  # find in main what a MERGE changes
_CHANGE = 9.0  # join, write and merge one changed row
_OVERWRITE = 1.6  # read and write one row
_FEED = 4.0  # read one change of a feed and net it
_DIGESTS = 0.2  # read the digests and write them again
_KEYS = 0.1  # look for new keys among main's
_USUAL_FRACTION = 0.01  # of the rows, that change from one refresh to the next, before any was seen
_MAX_PAST = 10
_SMALL_BYTES, _SMALL_ROWS = 2 << 20, 100_000  # of 60,000 rows of lineitem plans are compiled in vain, of 240,000 not
_WORTH = 2.0  # seconds that overwriting has to save, or exact counts of what changed are better to have
_MOSTLY = 1 / 3  # of main's rows have to change, or overwriting them all writes mostly what is there already


@dataclass(frozen=True, slots=True)
class CostSample:
    """One finished refresh of the table: what it had to do, and the seconds that it took.

    num_rows    : of main before it
    num_changes : rows that it inserted, updated and deleted
    """

    way: Strategy
    num_rows: int
    num_changes: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Estimate:
    """One way as it was judged before anything was read.

    seconds     : None where it could not be taken
    why         : what stands in its way; or how it compares with the way that was chosen
    num_changes : rows that were expected to differ
    """

    strategy: Strategy
    seconds: float | None
    why: str
    num_changes: int | None = None


def seconds(way: Strategy, num_rows: int, num_changes: int) -> float:
    """Return the time that one way of refreshing is expected to take on the machine that was measured.

    num_rows    : of main
    num_changes : rows to insert, update and delete
    """
    rows, changes = num_rows / 1e6, num_changes / 1e6
    find = _FIND * rows if num_changes else 0.0
    merge = _SCAN_MERGE * rows + _CHANGE * changes if num_changes else 0.0
    match way:
        case "corrections":
            return _FIXED + _SUM_UP * rows + find + merge
        case "replace":
            return _FIXED + (_SUM_UP + _OVERWRITE) * rows
        case "incremental":
            return _FIXED + _FEED * changes + (_DIGESTS + _KEYS) * rows + merge
        case _:
            assert_never(way)


def factor(way: Strategy, past: Sequence[CostSample]) -> float:
    """Return how many times longer than `seconds` says this table takes; by other ways where this one is not known.

    past : newest first
    """
    recent = past[:_MAX_PAST]
    ratios = [
        each.seconds / seconds(each.way, each.num_rows, each.num_changes)
        for each in [each for each in recent if each.way == way] or recent
    ]
    return statistics.median(ratios) if ratios else 1.0


def expected_changes(num_rows: int, at_most: int | None, past: Sequence[CostSample]) -> int:
    """Return how many rows are expected to differ.

    at_most : what the source's own log says, where it does; otherwise it is as it usually was
    """
    if at_most is not None:
        return at_most
    fractions = [min(each.num_changes / each.num_rows, 1.0) for each in past[:_MAX_PAST] if each.num_rows]
    return round((statistics.median(fractions) if fractions else _USUAL_FRACTION) * num_rows)


def is_small(num_rows: int, *num_bytes: int | None) -> bool:
    """True if running a plan over this little takes less time than compiling it.

    num_bytes : of each table that is read; None where nobody knows
    """
    return num_rows <= _SMALL_ROWS and all(each is not None and each <= _SMALL_BYTES for each in num_bytes)


def is_worth_replacing(num_rows: int, num_changes: int) -> bool:
    """True if so many rows change that main may as well be overwritten, and it pays for not knowing them one by one."""
    saved = seconds("corrections", num_rows, num_changes) - seconds("replace", num_rows, num_changes)
    return num_changes >= _MOSTLY * num_rows and saved >= _WORTH


def scattered(differing: int, buckets: int, num_rows: int) -> int:
    """Return how many of the rows differ, where that many of their buckets do, if they lie scattered.

    Of a bucket of k rows with a fraction p of them changed, 1 - (1 - p)^k of all buckets differ. Where all buckets
    differ nothing more is known: all rows are taken to.
    """
    if not buckets or differing >= buckets:
        return num_rows
    rows_per_bucket = max(num_rows / buckets, 1.0)
    unchanged: float = (1 - differing / buckets) ** (1 / rows_per_bucket)
    return round((1 - unchanged) * num_rows)
