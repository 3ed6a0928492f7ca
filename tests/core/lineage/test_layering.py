"""Where the nodes of a lineage stand: to the right of what comes before, each at its own place, cycles or not."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from airflow_mv_provider.core.lineage.graph import graph_of, table_id
from airflow_mv_provider.core.lineage.layering import drawing, layers, places
from tests.core.lineage.test_graph import GRAPHS, reading

# Tables that read only those with a lower number, and a source.
ACYCLIC = st.lists(st.sets(st.integers(0, 20), max_size=4), max_size=20).map(
    lambda found: graph_of(
        [reading(f"t{n}", "raw", *(f"t{other}" for other in others if other < n)) for n, others in enumerate(found)]
    )
)


@given(ACYCLIC)
def test_without_a_cycle_each_edge_leads_to_the_right(graph):
    found = layers(graph)

    assert all(found[edge.start] < found[edge.end] for edge in graph.edges)


@given(GRAPHS)
def test_each_node_has_a_place_of_its_own_whatever_leads_where(graph):
    found = places(graph)

    assert found.keys() == graph.nodes.keys()
    assert len(set(found.values())) == len(found)
    layers_used = {layer for layer, _ in found.values()}
    assert layers_used == set(range(len(layers_used)))
    for layer in layers_used:
        rows = sorted(row for at, row in found.values() if at == layer)
        assert rows == list(range(len(rows)))


@given(GRAPHS)
def test_a_picture_has_one_place_for_each_node_and_for_each_layer_that_an_edge_leads_over(graph):
    drawn, layer = drawing(graph), layers(graph)

    taken = [*drawn.nodes.values(), *(place for passed in drawn.passes.values() for place in passed)]
    assert len(set(taken)) == len(taken), "no edge passes behind a node or another edge"
    assert {id: number for id, (number, _) in drawn.nodes.items()} == layer
    for edge in graph.edges:
        over = range(layer[edge.start] + 1, layer[edge.end])
        assert [number for number, _ in drawn.passes[edge]] == list(over)
    assert not taken or drawn.num_rows == 1 + max(row for _, row in taken)


def test_of_a_cycle_one_edge_leads_back():
    graph = graph_of([reading("a", "raw", "c"), reading("b", "a"), reading("c", "b")])
    found = layers(graph)

    back = [edge for edge in graph.edges if found[edge.start] >= found[edge.end]]

    assert [(edge.start, edge.end) for edge in back] == [(table_id("c"), table_id("a"))]


def test_a_source_stands_right_before_what_reads_it():
    graph = graph_of([reading("a", "raw"), reading("b", "a"), reading("c", "b", "late")])

    found = places(graph)

    assert [found[id][0] for id in ("source:/wh/raw", "source:/wh/late", table_id("c"))] == [0, 2, 3]


def test_lines_cross_less_than_in_the_order_of_names():
    graph = graph_of([reading("a", "z"), reading("b", "y"), reading("c", "x")])

    found = places(graph)

    rows = {edge.start: found[edge.start][1] - found[edge.end][1] for edge in graph.edges}
    assert set(rows.values()) == {0}


def test_a_chain_of_thousands_of_tables_is_laid_out():
    graph = graph_of([reading(f"t{n}", f"t{n - 1}") for n in range(5000)])

    assert max(places(graph).values()) == (5000, 0)
