"""What tables are made of, as a graph: tables that read tables, what somebody may not see, what is near."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from airflow_mv_provider.core.lineage.graph import (
    Edge,
    Graph,
    Node,
    NodeKind,
    Origin,
    TableInputs,
    around,
    components,
    graph_of,
    table_id,
    visible,
    with_edges,
)

NAMES = st.integers(0, 11).map("t{}".format)


def reading(name: str, *paths: str) -> TableInputs:
    """A table at /wh/<name> that reads paths under /wh."""
    return TableInputs(name, f"/wh/{name}", tuple(Origin(path, f"/wh/{path}") for path in paths))


def edges(graph: Graph) -> set[tuple[str, str]]:
    """Return pairs of names; a nameless node is `?`."""
    return {(graph.nodes[e.start].name or "?", graph.nodes[e.end].name) for e in graph.edges}


# Any tables that read each other, cycles included.
GRAPHS = st.dictionaries(NAMES, st.lists(NAMES, max_size=4)).map(
    lambda found: graph_of([reading(name, *paths) for name, paths in found.items()])
)


def test_a_table_that_checks_look_at_is_read():
    payments = replace(reading("payments", "raw/payments"), referenced=("customers", "gone"))

    graph = graph_of([payments, reading("customers", "raw/customers")])

    assert edges(graph) == {
        *(("raw/payments", "payments"), ("raw/customers", "customers"), ("customers", "payments")),
    }


def test_an_ingestion_starts_the_refreshes_of_its_tables_and_is_not_read():
    tables = [replace(reading(name, f"raw/{name}"), ingestion="shop") for name in ("ones", "twos")]

    graph = graph_of([*tables, reading("apart", "raw/apart")])

    assert graph.nodes["ingestion:shop"] == Node("ingestion:shop", NodeKind.INGESTION, "shop")
    assert {edge for edge in graph.edges if edge.start == "ingestion:shop"} == {
        Edge("ingestion:shop", table_id(name), is_trigger=True) for name in ("ones", "twos")
    }
    assert len(components(graph)) == 2, "its tables are one group"
    seen = visible(graph, lambda name: name == "apart")
    assert "ingestion:shop" not in seen.nodes, "nor is it named to somebody who may see none of its tables"


def test_a_source_that_is_another_tables_main_or_error_table_is_that_table():
    graph = graph_of([reading("orders", "raw/orders"), reading("daily", "orders"), reading("bad", "orders__errors")])

    assert edges(graph) == {("raw/orders", "orders"), ("orders", "daily"), ("orders", "bad")}
    assert {node.name for node in graph.tables} == {"orders", "daily", "bad"}


def test_one_place_is_one_source_however_it_is_written_and_what_has_no_place_is_told_by_its_name():
    one = TableInputs("a", "/wh/a", (Origin("raw/x", "/wh/raw/x"), Origin("kafka shop")))
    two = TableInputs("b", "/wh/b", (Origin("/wh/raw/x", "/wh/raw/x"), Origin("kafka shop"), Origin("kafka shop")))

    graph = graph_of([one, two])

    assert edges(graph) == {("raw/x", "a"), ("raw/x", "b"), ("kafka shop", "a"), ("kafka shop", "b")}
    assert len(graph.edges) == 4


def test_what_is_read_is_not_said_to_start_the_refresh_as_well_and_nothing_starts_itself():
    graph = graph_of([reading("orders"), reading("daily", "orders")])
    asset = Node("asset:s3://x", NodeKind.ASSET, "s3://x")
    ids = [table_id(name) for name in ("orders", "daily")]

    more = with_edges(
        graph,
        [asset],
        [Edge(ids[0], ids[1], True), Edge(ids[1], ids[1], True), Edge(asset.id, ids[1], True), Edge(*ids[::-1], True)],
    )

    assert [edge for edge in more.edges if edge.is_trigger] == [Edge(asset.id, ids[1], True), Edge(*ids[::-1], True)]


@given(GRAPHS, st.sets(NAMES))
def test_nothing_of_what_may_not_be_seen_is_in_the_visible_part(graph, hidden):
    found = visible(graph, lambda name: name not in hidden)

    assert not {node.name for node in found.nodes.values() if node.kind is NodeKind.TABLE} & hidden
    assert not {table_id(name) for name in hidden} & {*found.nodes, *(e.start for e in found.edges)}
    gone = hidden & {node.name for node in graph.tables}
    shown = {pair for pair in edges(graph) if not gone & set(pair)}
    assert {pair for pair in edges(found) if pair[0] != "?"} == shown


def test_a_table_that_reads_hidden_ones_says_so_without_their_names():
    graph = graph_of([reading("secret", "raw/secret"), reading("other", "x"), reading("sum", "secret", "other", "y")])

    found = visible(graph, lambda name: name != "secret")

    assert edges(found) == {("?", "sum"), ("x", "other"), ("other", "sum"), ("y", "sum")}
    assert "secret" not in repr(found)


def test_what_only_starts_a_refresh_is_left_out_if_it_is_hidden():
    graph = graph_of([reading("secret"), reading("sum", "y")])
    graph = with_edges(graph, (), [Edge(table_id("secret"), table_id("sum"), True)])

    assert edges(visible(graph, lambda name: name != "secret")) == {("y", "sum")}


def test_around_a_table_is_what_comes_before_it_and_after_it_but_not_beside_it():
    graph = graph_of([reading("a", "raw"), reading("b", "a"), reading("c", "b"), reading("beside", "a", "other")])

    found, num_left_out = around(graph, table_id("b"), 10)

    assert edges(found) == {("raw", "a"), ("a", "b"), ("b", "c")}
    assert num_left_out == 0


def test_of_many_the_nearest_are_around_a_table():
    graph = graph_of([reading("t0", "raw"), *(reading(f"t{n}", f"t{n - 1}") for n in range(1, 3000))])

    found, num_left_out = around(graph, table_id("t1500"), 5)

    assert {node.name for node in found.nodes.values()} == {"t1498", "t1499", "t1500", "t1501", "t1502"}
    assert num_left_out == 3001 - 5


@given(GRAPHS)
def test_components_share_nothing_and_are_all_there_is(graph):
    found = components(graph)

    assert sorted(id for part in found for id in part.nodes) == sorted(graph.nodes)
    assert sorted(map(repr, (e for part in found for e in part.edges))) == sorted(map(repr, graph.edges))
    sizes = [len(part.tables) for part in found]
    assert sizes == sorted(sizes, reverse=True)


@given(GRAPHS)
def test_a_component_is_no_larger_than_its_edges_make_it(graph):
    for part in components(graph):
        reached = {next(iter(part.nodes))}
        for _ in part.nodes:
            reached |= {e.end for e in part.edges if e.start in reached} | {
                e.start for e in part.edges if e.end in reached
            }
        assert reached == set(part.nodes)
