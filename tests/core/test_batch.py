"""Minting: which source versions the next refresh brings, and the binding that says what they are."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_mv_provider.core.batch import BatchDescription, mint
from airflow_mv_provider.core.frontier import Binding, Frontier, NoFrontier, desired_upper
from airflow_mv_provider.sources.delta.frontier import DeltaFrontier


@pytest.mark.parametrize(("lower", "upper"), [(0, 0), (3, 3), (3, 2), (-1, 2), (-2, -1)])
def test_empty_or_negative_batch_cannot_be_written_down(lower, upper):
    with pytest.raises(ValueError, match=r"0 <= lower < upper"):
        BatchDescription(lower, upper)


@pytest.mark.parametrize(
    ("desired", "persisted", "last_lower", "read_only", "expected"),
    [
        (5, 3, None, False, BatchDescription(3, 5)),
        (1, 0, None, False, BatchDescription(0, 1)),
        (3, 3, None, False, None),
        (2, 3, None, False, None),
        (5, 3, None, True, None),
        (5, 3, 3, False, None),
        (5, 3, 4, False, None),
        (5, 3, 2, False, BatchDescription(3, 5)),
        (5, 3, 2, True, None),
    ],
)
def test_mint(desired, persisted, last_lower, read_only, expected):
    assert mint(desired, persisted, last_lower, read_only=read_only) == expected


def frontier(version: int) -> DeltaFrontier:
    return DeltaFrontier("source", version)


@pytest.mark.parametrize(
    ("newest", "now", "persisted", "must_compare", "expected"),
    [
        (None, 7, 0, False, 1),
        (None, 7, 4, False, 5),
        (Binding(3, frontier(7)), 7, 3, False, 3),
        (Binding(3, frontier(7)), 7, 3, True, 4),
        (Binding(3, frontier(7)), 8, 3, False, 4),
        (Binding(3, frontier(7)), 6, 3, False, 4),
        (Binding(5, frontier(7)), 7, 3, False, 5),
        (Binding(5, frontier(7)), 7, 3, True, 5),
        (Binding(5, frontier(7)), 8, 3, True, 6),
    ],
    ids=[
        *("first", "bindings lost", "unchanged", "unchanged but compared", "changed", "restored to an older version"),
        *("abandoned, token unchanged", "abandoned, compared", "abandoned, changed since"),
    ],
)
def test_desired_upper(newest, now, persisted, must_compare, expected):
    assert desired_upper(newest, frontier(now), persisted, must_compare=must_compare) == expected


@pytest.mark.parametrize("persisted", [3, 4])
def test_source_without_a_token_is_always_new(persisted):
    newest = Binding(4, NoFrontier())

    assert desired_upper(newest, NoFrontier(), persisted, must_compare=False) == 5


def test_table_that_was_dropped_and_made_again_is_new_at_the_same_version():
    newest = Binding(3, DeltaFrontier("old id", 7))

    upper = desired_upper(newest, DeltaFrontier("new id", 7), 3, must_compare=False)

    assert upper == 4


@dataclass
class History:
    """A table's counter as the database keeps it, driven in any order."""

    persisted: int = 0
    in_flight: BatchDescription | None = None
    bindings: dict[int, Frontier] = field(default_factory=dict)
    minted: list[BatchDescription] = field(default_factory=list)

    def mint(self, now: Frontier, *, must_compare: bool) -> BatchDescription | None:
        uppers = sorted(self.bindings)
        newest = Binding(uppers[-1], self.bindings[uppers[-1]]) if uppers else None
        upper = desired_upper(newest, now, self.persisted, must_compare=must_compare)
        batch = mint(upper, self.persisted, self.in_flight.lower if self.in_flight else None)
        if batch:
            # `acquire` leaves a binding that exists as it is: it must be this one, or the pin would be another's.
            assert self.bindings.setdefault(batch.upper, now) == now
            self.in_flight = batch
            self.minted.append(batch)
        return batch


STEPS = st.one_of(
    st.tuples(st.just("source"), st.integers(0, 3)),
    st.tuples(st.just("mint"), st.booleans()),
    st.tuples(st.sampled_from(["publish", "abandon"]), st.none()),
)


@given(st.lists(STEPS, max_size=60))
def test_lower_never_goes_back_and_one_batch_is_in_flight(steps):
    history, now = History(), frontier(0)

    for step, argument in steps:
        before = history.in_flight
        match step:
            case "source":
                now = frontier(argument)
            case "mint":
                batch = history.mint(now, must_compare=argument)
                assert batch is None or before is None
                assert before is None or history.in_flight is before
            case "publish" if before:
                assert before.lower == history.persisted, "compare-and-append: nobody published in between"
                history.persisted, history.in_flight = before.upper, None
            case "abandon":
                history.in_flight = None

    lowers = [batch.lower for batch in history.minted]
    assert lowers == sorted(lowers)
    assert all(batch.lower < batch.upper for batch in history.minted)
    assert history.persisted in (0, *history.bindings)


@given(st.lists(st.integers(0, 2), min_size=1, max_size=30))
def test_published_batches_meet_end_to_end_and_skip_what_is_unchanged(versions):
    history, published, seen = History(), [], None

    for version in versions:
        batch = history.mint(frontier(version), must_compare=False)
        assert (batch is None) is (seen == version)
        if batch:
            published.append(batch)
            history.persisted, history.in_flight, seen = batch.upper, None, version

    assert [b.lower for b in published] == [0, *(b.upper for b in published)][: len(published)]
