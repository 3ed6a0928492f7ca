"""The cost model says the same of the same facts, and what it says follows what was measured."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_mv_provider.core import cost
from airflow_mv_provider.core.cost import CostSample

STRATEGIES = st.sampled_from(["incremental", "corrections", "replace"])
ROWS = st.integers(0, 10**9)
READINGS: tuple[cost.Reading, ...] = ("pinned", "copied", "parsed")


@given(way=STRATEGIES, num_rows=ROWS, more=ROWS, num_changes=ROWS)
def test_more_rows_never_cost_less(way, num_rows, more, num_changes):
    assert cost.seconds(way, num_rows + more, num_changes) >= cost.seconds(way, num_rows, num_changes)


@given(way=STRATEGIES, num_rows=ROWS, num_changes=ROWS, more=ROWS)
def test_more_changes_never_cost_less(way, num_rows, num_changes, more):
    assert cost.seconds(way, num_rows, num_changes + more) >= cost.seconds(way, num_rows, num_changes)


@pytest.mark.parametrize(
    ("num_changes", "cheapest"),
    [(60_000, "incremental"), (600_000, "incremental"), (6_000_000, "replace")],
)
def test_cheapest_way_for_six_million_rows(num_changes, cheapest):
    ways = {way: cost.seconds(way, 6_000_000, num_changes) for way in ("incremental", "corrections", "replace")}

    assert min(ways, key=lambda way: ways[way]) == cheapest


def a_past(way="corrections", *, slower=1.0, num_rows=1_000_000, num_changes=10_000):
    return CostSample(way, num_rows, num_changes, slower * cost.seconds(way, num_rows, num_changes))


def test_a_table_is_as_much_slower_as_it_was():
    past = [a_past(slower=3.0), a_past(slower=2.0), a_past(slower=50.0)]

    assert cost.factor("corrections", past, 1) == pytest.approx(3.0)
    assert cost.factor("replace", past, 1) == pytest.approx(3.0)  # of which nothing is known
    assert cost.factor("replace", [*past, a_past("replace", slower=0.5)], 1) == pytest.approx(0.5)
    assert cost.factor("replace", [], 1) == 1.0


def test_what_is_long_past_is_forgotten():
    assert cost.factor("corrections", [a_past()] * 10 + [a_past(slower=100.0)] * 90, 1) == pytest.approx(1.0)


def test_as_many_rows_are_expected_to_change_as_usual():
    past = [a_past(num_changes=n) for n in (10_000, 30_000, 2_000_000)]

    assert cost.expected_changes(500_000, None, past) == 15_000
    assert cost.expected_changes(500_000, 7, past) == 7
    assert cost.expected_changes(500_000, None, []) == 5_000
    assert cost.expected_changes(0, None, [a_past(num_rows=0)]) == 0


@pytest.mark.parametrize(
    ("num_rows", "num_changes", "expected"),
    [
        (6_000_000, 0, False),
        (6_000_000, 1_900_000, False),
        (6_000_000, 2_100_000, True),
        (6_000_000, 6_000_000, True),
        (100, 100, False),  # what changed is better to know, at no cost
        (0, 0, False),
    ],
)
def test_main_may_be_overwritten_where_most_of_it_changes(num_rows, num_changes, expected):
    assert cost.is_worth_replacing(num_rows, num_changes) is expected


@pytest.mark.parametrize(
    ("num_rows", "num_bytes", "expected"),
    [
        (0, (0, 0), True),
        (100_000, (2 << 20, 2 << 20), True),
        (100_001, (1, 1), False),  # they only compress well
        (10, (1, (2 << 20) + 1), False),
        (10, (None, 1), False),
    ],
)
def test_small_is_what_is_known_to_be_small(num_rows, num_bytes, expected):
    assert cost.is_small(num_rows, *num_bytes) is expected


def test_refreshes_that_found_nothing_are_no_samples_for_one_that_finds_something():
    nothing, something = a_past(slower=0.5, num_changes=0), a_past("incremental", slower=2.0)

    assert cost.factor("corrections", [nothing, something], 1) == pytest.approx(2.0)
    assert cost.factor("corrections", [nothing, something], 0) == pytest.approx(0.5)
    assert cost.factor("corrections", [nothing], 1) == pytest.approx(0.5)  # rather than nothing


def test_refreshes_of_another_sort_suggest_at_most_a_factor_of_two():
    fast, slow = a_past(slower=0.1, num_changes=0), a_past(slower=30.0, num_changes=0)

    assert cost.factor("corrections", [fast], 1) == 0.5
    assert cost.factor("incremental", [slow], 1) == 2.0
    assert cost.factor("corrections", [slow], 0) == pytest.approx(30.0)


@pytest.mark.parametrize("way", ["incremental", "corrections", "replace"])
def test_text_takes_longer_than_a_copy_and_no_factor_counts_that_twice(way):
    pinned, copied, text = (
        cost.seconds(way, 6_000_000, 60_000, cost.Search(60_000), reading=each) for each in READINGS
    )
    past = [CostSample(way, 6_000_000, 60_000, text, cost.Search(60_000))]

    assert pinned < copied < text
    assert cost.factor(way, past, 60_000, reading="parsed") == pytest.approx(1.0)


def test_one_corrected_file_of_sixteen_is_read_alone():
    """As `benchmarks/refresh.py` measured it: half of the time that comparing all files takes."""
    alone = cost.seconds("incremental", 6_000_000, 60_000, cost.Search(375_000), reading="copied")

    assert alone < 0.75 * cost.seconds("corrections", 6_000_000, 60_000, reading="copied")
