"""Minting: which source versions the next refresh brings, and the binding that says what they are."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_mv_provider.core.frontier import BatchDescription, Binding, Frontier, NoFrontier, desired_upper, mint
from airflow_mv_provider.sources.delta.frontier import DeltaFrontier


@pytest.mark.parametrize(("lower", "upper"), [(0, 0), (3, 3), (3, 2), (-1, 2), (-2, -1)])
def test_empty_or_negative_batch_cannot_be_written_down(lower, upper):
    with pytest.raises(ValueError, match=r"0 <= lower < upper"):
        BatchDescription(lower, upper)


@pytest.mark.parametrize(
    ("desired", "persisted", "expected"),
    [(5, 3, BatchDescription(3, 5)), (1, 0, BatchDescription(0, 1)), (3, 3, None), (2, 3, None)],
)
def test_mint(desired, persisted, expected):
    assert mint(desired, persisted) == expected


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
    bindings: dict[int, Frontier] = field(default_factory=dict)

    def mint(self, now: Frontier, *, must_compare: bool) -> BatchDescription | None:
        uppers = sorted(self.bindings)
        newest = Binding(uppers[-1], self.bindings[uppers[-1]]) if uppers else None
        batch = mint(desired_upper(newest, now, self.persisted, must_compare=must_compare), self.persisted)
        if batch:
            # `acquire` leaves a binding that exists as it is: it must be this one, or the pin would be another's.
            assert self.bindings.setdefault(batch.upper, now) == now
        return batch


@given(st.lists(st.tuples(st.integers(0, 3), st.booleans(), st.booleans()), max_size=30))
def test_batch_is_bound_to_its_own_frontier_whatever_was_abandoned_before(steps):
    history = History()

    for version, must_compare, is_published in steps:
        batch = history.mint(frontier(version), must_compare=must_compare)
        if must_compare:
            assert batch is not None
        if batch and is_published:
            history.persisted = batch.upper

    assert history.persisted in (0, *history.bindings)


@given(st.lists(st.integers(0, 2), min_size=1, max_size=30))
def test_published_batches_meet_end_to_end_and_skip_what_is_unchanged(versions):
    history, published, seen = History(), [], None

    for version in versions:
        batch = history.mint(frontier(version), must_compare=False)
        assert (batch is None) is (seen == version)
        if batch:
            published.append(batch)
            history.persisted, seen = batch.upper, version

    assert [b.lower for b in published] == [0, *(b.upper for b in published)][: len(published)]
