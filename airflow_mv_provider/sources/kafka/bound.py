"""Where one refresh stops, if more came than it may take: at a moment, the same in every partition.

Offsets alone would not do: what a key's newer record replaces, or a TRUNCATE of Debezium removes, may lie in another
partition, and must not be read after it. The records before a moment are the same part of the stream everywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

Offsets = tuple[int, ...]


def bounded_end(
    since: Sequence[int], until: Sequence[int], max_records: int, first_at: Callable[[int], Sequence[int]], newest: int
) -> Offsets:
    """Return the ends of the partitions up to which a refresh reads.

    since, until : by partition, where reading begins and the topic ends
    max_records  : offsets that are taken at most; more, if that many records have one time
    first_at     : returns, by partition, the first offset of a record that has this time or a later one, in
                   milliseconds; any offset beyond the end if there is none
    newest       : the latest time of a record
    cost         : a call of `first_at` for each bit of `newest`, if there is more than may be taken
    """

    def ends_before(moment: int) -> Offsets:
        found = zip(since, first_at(moment), until, strict=True)
        return tuple(max(start, min(at, end)) for start, at, end in found)

    def taken(ends: Sequence[int]) -> int:
        return sum(end - start for start, end in zip(since, ends, strict=True))

    if taken(until) <= max_records:
        return tuple(until)
    low, high = 0, newest + 1  # records before `low` are few enough, those before `high` are too many
    best: Offsets = tuple(since)
    while high - low > 1:
        middle = (low + high) // 2
        ends = ends_before(middle)
        if taken(ends) <= max_records:
            low, best = middle, ends
        else:
            high = middle
    # All that is left may have one time: a refresh has to get on.
    return best if taken(best) else ends_before(high) if high <= newest else tuple(until)


def last_moment(ends: Sequence[int], first_at: Callable[[int], Sequence[int]], newest: int) -> int:
    """Return the latest time of a record below the ends, in milliseconds; a later one if times are out of order.

    first_at, newest : as in `bounded_end`
    cost             : a call of `first_at` for each bit of `newest`
    """
    low, high = 0, newest + 1  # some record below the ends has the time `low` or a later one, none has `high`
    while high - low > 1:
        middle = (low + high) // 2
        if all(at >= end for at, end in zip(first_at(middle), ends, strict=True)):
            high = middle
        else:
            low = middle
    return low
