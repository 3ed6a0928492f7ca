"""When digests are written anew, and when a layer is placed on those that are there."""

from __future__ import annotations

from dataclasses import asdict

from hypothesis import given
from hypothesis import strategies as st

from airflow_mv_provider.core.progress.digests import PublishedDigests, with_changes
from airflow_mv_provider.core.progress.layers import Layer, layers_below, layers_from_json, outdated_layers
from airflow_mv_provider.core.progress.seal import SealedPartition

DIGESTS = PublishedDigests("r3", "/wh/3", 64, 10, 3, 5, "c", below=(Layer("r1", "/wh/1"), Layer("r2", "/wh/2")))


@given(st.integers(20_000, 10**9), st.lists(st.integers(1, 10**9), max_size=40))
def test_layers_together_are_never_many_or_large(num_rows, changes):
    """So whoever reads them reads little more than digests written anew."""
    published, sizes = (Layer("r0", "/0"),), [0]
    for number, num_changes in enumerate(changes, 1):
        below = layers_below(published, num_rows, num_changes)
        assert below in ((), published)
        published = (*below, Layer(f"r{number}", f"/{number}"))
        sizes = [*sizes, num_changes] if below else [0]

        assert len(published) == len(sizes) <= 6
        assert sum(sizes) <= num_rows / 3


def test_few_changes_of_a_large_table_are_a_layer_and_those_of_a_small_one_are_not():
    published = (Layer("r", "/wh/1"),)

    assert layers_below(published, 1_000_000, 1_000) == published
    assert layers_below(published, 1_000_000, 100_000) == ()
    assert layers_below(published, 1_000, 1) == ()


def test_digests_are_obsolete_once_no_layer_is_theirs():
    assert outdated_layers(DIGESTS.layers, ()) == ("r1", "r2", "r3")
    assert outdated_layers(DIGESTS.layers, (*DIGESTS.layers, Layer("r4", "/wh/4"))) == ()
    assert outdated_layers(DIGESTS.layers, (Layer("r4", "/wh/4"),)) == ("r1", "r2", "r3")
    assert outdated_layers((), DIGESTS.layers) == ()


def test_what_the_database_has_of_digests_is_what_was_recorded():
    stored = asdict(DIGESTS)
    assert PublishedDigests.from_json(stored | {"below": list(stored["below"])}) == DIGESTS
    del stored["below"]  # an older version knew no layers
    assert PublishedDigests.from_json(stored).layers == (Layer("r3", "/wh/3"),)
    assert layers_from_json(None) == ()


def test_digests_written_anew_lie_on_no_layer():
    assert DIGESTS.rewritten("/wh/4", (9, 2, 4)).paths == ("/wh/4",)
    assert DIGESTS.paths == ("/wh/1", "/wh/2", "/wh/3")


def test_layer_moves_with_its_warehouse():
    assert Layer("r", "/wh/_mv/1").moved("/wh", "s3a://b/new") == Layer("r", "s3a://b/new/_mv/1")


def test_partitions_are_those_of_all_layers_together():
    before = (SealedPartition('["a"]', 3, 0b011), SealedPartition('["c"]', 1, 0b100))
    added = (
        SealedPartition('["b"]', 2, 0b001),
        SealedPartition('["a"]', -1, 0b010),
        SealedPartition('["c"]', -1, 0b100),
    )

    assert with_changes(before, added) == (SealedPartition('["a"]', 2, 0b001), SealedPartition('["b"]', 2, 0b001))
    whole = (SealedPartition("[]", 1, 0b1),)
    assert with_changes(whole, (SealedPartition("[]", -1, 0b1),)) == (SealedPartition("[]", 0, 0),)
