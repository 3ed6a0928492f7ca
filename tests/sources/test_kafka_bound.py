"""Where a refresh stops that may not take everything: whatever the times are, all is taken in the end, and in order."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_mv_provider.sources.kafka.bound import bounded_end, last_moment

TIMES = st.lists(st.lists(st.integers(0, 40), max_size=12).map(sorted), min_size=1, max_size=3)


def end(topic: Sequence[Sequence[int]], since: Sequence[int], max_records: int) -> tuple[int, ...]:
    """Return where a refresh of a topic stops, which has the times of its records by partition."""

    def first_at(moment: int) -> list[int]:
        return [next((n for n, at in enumerate(times) if at >= moment), 1 << 40) for times in topic]

    newest = max((times[-1] for times in topic if times), default=-1)
    return bounded_end(since, [len(times) for times in topic], max_records, first_at, newest)


@pytest.mark.parametrize(
    ("topic", "since", "most", "ends"),
    [
        ([[1, 2, 3]], [0], 3, (3,)),
        ([[1, 2, 3]], [0], 2, (2,)),
        ([[1, 2, 3]], [1], 1, (2,)),
        ([[1, 3, 5], [2, 4, 6]], [0, 0], 4, (2, 2)),
        ([[1, 1, 1], [9]], [0, 0], 3, (3, 0)),
        ([[1, 1, 1], [9]], [0, 0], 2, (3, 0)),  # one time, more than the bound
        ([[5, 5, 5]], [0], 1, (3,)),
        ([[0, 0], [0]], [0, 0], 1, (2, 1)),
        ([[], [7]], [0, 0], 1, (0, 1)),
        ([[], []], [0, 0], 1, (0, 0)),
    ],
)
def test_refresh_stops_at_a_moment(topic, since, most, ends):
    assert end(topic, since, most) == ends


@given(topic=TIMES, most=st.integers(1, 10))
def test_every_record_is_taken_once_and_none_after_a_later_one(topic, most):
    since: tuple[int, ...] = tuple(0 for _ in topic)
    latest = -1
    while sum(since) < sum(map(len, topic)):
        ends = end(topic, since, most)
        taken = [at for times, a, b in zip(topic, since, ends, strict=True) for at in times[a:b]]

        assert all(a <= b for a, b in zip(since, ends, strict=True))
        assert taken
        assert len(taken) <= most or len(set(taken)) == 1
        assert min(taken) > latest

        since, latest = ends, max(taken)


@given(topic=st.lists(st.lists(st.integers(1, 40), max_size=12), min_size=1, max_size=3), data=st.data())
def test_last_moment_is_that_of_the_newest_record_below_the_ends_in_whatever_order_they_are(topic, data):
    ends = [data.draw(st.integers(0, len(times))) for times in topic]

    def first_at(moment: int) -> list[int]:
        return [next((n for n, at in enumerate(times) if at >= moment), 1 << 40) for times in topic]

    newest = max((at for times in topic for at in times), default=-1)
    below = [at for times, end_ in zip(topic, ends, strict=True) for at in times[:end_]]

    assert last_moment(ends, first_at, newest) == max(below, default=0)
