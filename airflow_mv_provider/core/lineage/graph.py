"""The lineage of tables as a graph: what each is made of, what starts its refreshes, and what comes after it.

    source ──▶ table ──▶ table ──▶ DAG
    asset  ╌╌╌╌╌╌▲                        ╌▶ starts its refresh, and is not read
    ingestion ╌╌╌┘

An edge from a source or a table means that the table reads it. Definitions decide that, so the graph may have cycles,
and no function here assumes otherwise or recurses. Each takes about one step for each node and edge.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

from airflow_mv_provider.core.location import errors_location, history_location


class NodeKind(StrEnum):
    """What a node stands for."""

    TABLE = "table"
    SOURCE = "source"
    ASSET = "asset"
    INGESTION = "ingestion"  # its run refreshes all of its tables
    DAG = "dag"
    HIDDEN = "hidden"  # tables that the reader may not see, without their names


@dataclass(frozen=True, slots=True)
class Node:
    """A node; `id` is unique in a graph, `name` is what people call it."""

    id: str
    kind: NodeKind
    name: str


@dataclass(frozen=True, slots=True)
class Edge:
    """From the id of what comes before to the id of what comes after; `is_trigger` if it only starts the refresh."""

    start: str
    end: str
    is_trigger: bool = False


@dataclass(frozen=True, slots=True)
class Graph:
    """Nodes by id, and edges between them; of two equal edges there is one."""

    nodes: Mapping[str, Node]
    edges: tuple[Edge, ...]

    @property
    def tables(self) -> tuple[Node, ...]:
        """The nodes that are tables, in their order."""
        return tuple(node for node in self.nodes.values() if node.kind is NodeKind.TABLE)


@dataclass(frozen=True, slots=True)
class Origin:
    """What a source reads: in words, and where it lies, or its name in a catalog; None for what has neither."""

    name: str
    location: str | None = None


@dataclass(frozen=True, slots=True)
class TableInputs:
    """A registered table: its name, where its main lies, and what its definition reads.

    origins    : of its source
    referenced : names of tables that its checks look at, registered or not
    catalog_name : main's name in Spark's catalog, by which others may read it
    ingestion  : of which its source is an output; None if it is a source of its own
    """

    name: str
    location: str
    origins: tuple[Origin, ...]
    referenced: tuple[str, ...] = ()
    catalog_name: str | None = None
    ingestion: str | None = None


def table_id(name: str) -> str:
    """Return the id of a table's node."""
    return f"table:{name}"


def graph_of(tables: Iterable[TableInputs]) -> Graph:
    """Return the graph of what tables read; a source that is a table's main, or its error table, is that table."""
    found = tuple(tables)
    nodes = {table_id(each.name): Node(table_id(each.name), NodeKind.TABLE, each.name) for each in found}
    of_table = {
        place: each.name
        for each in found
        for place in (
            *(each.location, errors_location(each.location), history_location(each.location)),
            each.catalog_name,
        )
        if place is not None
    }
    edges: dict[Edge, None] = {}
    for each in found:
        for origin in each.origins:
            table = of_table.get(origin.location or "")
            start = table_id(table) if table is not None else f"source:{origin.location or origin.name}"
            nodes.setdefault(start, Node(start, NodeKind.SOURCE, origin.name))
            edges[Edge(start, table_id(each.name))] = None
        for name in each.referenced:
            if table_id(name) in nodes:
                edges[Edge(table_id(name), table_id(each.name))] = None
        if each.ingestion is not None:
            run = Node(f"ingestion:{each.ingestion}", NodeKind.INGESTION, each.ingestion)
            nodes.setdefault(run.id, run)
            edges[Edge(run.id, table_id(each.name), is_trigger=True)] = None
    return Graph(nodes, tuple(edges))


def with_edges(graph: Graph, nodes: Iterable[Node], edges: Iterable[Edge]) -> Graph:
    """Return a graph with more nodes and edges; what is read already gets no second edge for starting a refresh."""
    more = {node.id: node for node in nodes if node.id not in graph.nodes}
    known = {(edge.start, edge.end) for edge in graph.edges}
    new = dict.fromkeys(edge for edge in edges if (edge.start, edge.end) not in known and edge.start != edge.end)
    return Graph({**graph.nodes, **more}, (*graph.edges, *new))


def visible(graph: Graph, may_see: Callable[[str], bool]) -> Graph:
    """Return the part of a graph that somebody may see.

    may_see : of a table's name
    returns : no name of a table that is hidden, nor what only such tables read. A table that reads hidden ones has one
              nameless node instead
    """
    hidden = {node.id for node in graph.tables if not may_see(node.name)}
    nodes = {node.id: node for node in graph.tables if node.id not in hidden}
    edges: dict[Edge, None] = {}
    for edge in graph.edges:
        if edge.end in hidden or (edge.start in hidden and edge.is_trigger):
            continue
        start, end = graph.nodes[edge.start], graph.nodes[edge.end]
        if edge.start in hidden:
            if end.kind is not NodeKind.TABLE:
                continue
            start = Node(f"hidden:{end.name}", NodeKind.HIDDEN, "")
        nodes |= {start.id: start, end.id: end}
        edges[replace(edge, start=start.id)] = None
    return Graph(nodes, tuple(edges))


def neighbours(edges: Iterable[Edge]) -> tuple[Mapping[str, list[Edge]], Mapping[str, list[Edge]]]:
    """Return the edges that lead to each node, and those that leave it, by the node's id."""
    to, of = defaultdict[str, list[Edge]](list), defaultdict[str, list[Edge]](list)
    for edge in edges:
        to[edge.end].append(edge)
        of[edge.start].append(edge)
    return to, of


def around(graph: Graph, center: str, most: int) -> tuple[Graph, int]:
    """Return all that comes before a node and all that comes after it, the nearest first, and how many are left out.

    center : a node's id
    most   : nodes, at least one
    """
    to, of = neighbours(graph.edges)
    before = {id: [edge.start for edge in edges] for id, edges in to.items()}
    after = {id: [edge.end for edge in edges] for id, edges in of.items()}
    distances = {center: 0}
    for beside in (before, after):
        seen, queue = {center: 0}, deque([center])
        while queue:
            current = queue.popleft()
            for other in beside.get(current, ()):
                if other not in seen:
                    seen[other] = seen[current] + 1
                    queue.append(other)
        for each, distance in seen.items():
            distances[each] = min(distances.get(each, distance), distance)
    nearest = sorted(distances, key=lambda id: (distances[id], id))
    return _only(graph, nearest[:most]), len(nearest) - len(nearest[:most])


def components(graph: Graph) -> tuple[Graph, ...]:
    """Return the parts of a graph between which no edge leads: those with most tables first, then by name."""
    to, of = neighbours(graph.edges)
    found, seen = [], set[str]()
    for first in graph.nodes:
        if first in seen:
            continue
        part, queue = [], deque([first])
        seen.add(first)
        while queue:
            current = queue.popleft()
            part.append(current)
            for other in (*(e.start for e in to.get(current, ())), *(e.end for e in of.get(current, ()))):
                if other not in seen:
                    seen.add(other)
                    queue.append(other)
        found.append(part)
    place = {id: number for number, part in enumerate(found) for id in part}
    edges = defaultdict[int, list[Edge]](list)
    for edge in graph.edges:
        edges[place[edge.start]].append(edge)
    graphs = [Graph({id: graph.nodes[id] for id in part}, tuple(edges[n])) for n, part in enumerate(found)]
    return tuple(sorted(graphs, key=lambda each: (-len(each.tables), min(node.name for node in each.nodes.values()))))


def _only(graph: Graph, ids: Iterable[str]) -> Graph:
    nodes = {id: graph.nodes[id] for id in ids}
    return Graph(nodes, tuple(edge for edge in graph.edges if edge.start in nodes and edge.end in nodes))
